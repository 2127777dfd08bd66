"""The slider in JupyterLab, which takes arrow keys for itself unless it is told not to."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

jupyter_paths = pytest.importorskip("jupyter_core.paths", reason="jupyterlab is not installed")
pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")
pytest.importorskip("anywidget", reason="the extra `notebook` is not installed")

# Lab knows of a widget by what its package puts into share/jupyter, not by what can be imported.
EXTENSIONS = [Path(place) / "labextensions" for place in jupyter_paths.jupyter_path()]
if not any((place / "anywidget").exists() for place in EXTENSIONS):
    pytest.skip("anywidget is not in the environment of this Lab", allow_module_level=True)

SOURCE = Path(__file__).resolve().parents[2] / "src"
# A kernel on a busy machine takes its time.
PATIENCE = 90_000
CELLS = [
    """import numpy as np, flowbias as fb
from flowbias.notebooks import scale_slider
X, y, _ = fb.datasets.sparse_regression(n=8, d=20, sparsity=2, noise_var=0.0, rng=0)
model = fb.DiagonalNet(depth=2, scale=1.0)
slider = scale_slider(fb.limit_path(model, X, y, log_scales=np.linspace(2.0, -20.0, 12)))
slider""",
    "print('the kernel has', slider.index)",
]


@pytest.fixture
def lab(tmp_path):
    """The address of a Lab of its own, on this machine only, with the notebook in it."""
    cells = [
        {"cell_type": "code", "id": f"c{k}", "metadata": {}, "outputs": [], "source": source}
        | {"execution_count": None}
        for k, source in enumerate(CELLS)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    document = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4}
    (tmp_path / "slider.ipynb").write_text(json.dumps(document | {"nbformat_minor": 5}))
    options = ("--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0")
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *options, "--IdentityProvider.token="],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ
        | {"PYTHONPATH": str(SOURCE), "HOME": str(tmp_path), "JUPYTER_NO_CONFIG": "1"},
    )
    try:
        said = ""
        while not (found := re.search(r"http://127\.0\.0\.1:\d+/lab", said)):
            line = process.stderr.readline()
            assert line, f"the server ended: {said}"
            said += line
        yield found.group()
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_the_slider_obeys_arrow_keys(browser, lab):
    tab = browser.new_page()
    tab.set_default_timeout(PATIENCE)
    tab.goto(f"{lab}/tree/slider.ipynb")
    tab.wait_for_selector(".jp-Notebook .jp-Cell")
    slider = tab.get_by_label("scale of the start")
    # A cell that is run before the kernel listens is forgotten, and Lab does not show when it does.
    for _ in range(9):
        tab.locator(".jp-Cell .cm-content").first.click()
        tab.keyboard.press("Shift+Enter")
        tab.wait_for_timeout(5_000)
        if slider.count():
            break
    slider.focus()
    assert slider.input_value() == "11"
    for key, place in (("ArrowLeft", "10"), ("ArrowDown", "9"), ("ArrowUp", "10"), ("Home", "0")):
        tab.keyboard.press(key)
        assert slider.input_value() == place
        assert slider.evaluate("one => one === document.activeElement")
    tab.keyboard.press("ArrowRight")
    tab.locator(".jp-Cell .cm-content").nth(1).click()
    tab.keyboard.press("Shift+Enter")
    tab.wait_for_selector("text=the kernel has 1")
    tab.close()
