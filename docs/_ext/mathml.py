"""Formulas as MathML, which browsers typeset themselves: no script, no font, nothing fetched.

LaTeX is read by docutils while the pages are built. What it does not know is a warning, and with
`-W` the end of the build, never a fragment of LaTeX on a page.
"""

from __future__ import annotations

from typing import Any

from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(page: Any, node: Any) -> None:
    _typeset(page, node, as_block=False)


def _display(page: Any, node: Any) -> None:
    _typeset(page, node, as_block=True)


def _typeset(page: Any, node: Any, as_block: bool) -> None:
    from docutils import nodes
    from sphinx.util import logging  # formulas are made, and tested, without Sphinx

    try:
        page.body.append(mathml(node.astext(), as_block))
    except MathError as error:
        logging.getLogger(__name__).warning("%s", error, location=node)
    raise nodes.SkipNode


def mathml(latex: str, as_block: bool = False) -> str:
    """The formula on one line, where spaces show; a displayed one in a box that can scroll."""
    lines = tex2mathml(latex, as_block=as_block).splitlines()
    text = "".join(line.strip() for line in lines)
    return f'<div class="formula">{text}</div>' if as_block else text
