"""How `make docs` builds the pages. Nothing is fetched: formulas are MathML, assets local."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext")]

from flowbias import __version__  # noqa: E402

project = "flowbias"
author = "The flowbias developers"
copyright = "the flowbias developers"  # noqa: A001
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "plain_docstrings",
    "figure_checks",
    "mathml",
    "offline",
    "papers",
]
exclude_patterns = ["_build", "auto_examples/*.ipynb"]

# Blocks without a language are what programs print.
highlight_language = "none"

html_theme = "furo"
html_title = f"flowbias {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_sphinx = False

# Links to headings, as a repository host makes them.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "dollarmath"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 88

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"own_experiment\.py",
    "within_subsection_order": "FileNameSortKey",
    "reset_modules": ("matplotlib", "example_look.use"),
    "abort_on_example_error": False,
    "only_warn_on_example_error": False,
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "remove_config_comments": True,
    "show_signature": False,
    "parallel": True,
}
