"""Code shown in the documentation runs."""

import re
from pathlib import Path

import pytest

import flowbias as fb

DOCS = Path(__file__).resolve().parents[1] / "docs"
BLOCKS = [
    pytest.param(page.name, "\n".join(blocks), id=page.name)
    for page in sorted(DOCS.rglob("*.md"))
    if (blocks := re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize(("page", "code"), BLOCKS)
def test_blocks_run_in_order(page, code):
    exec(compile(code, page, "exec"), {"__name__": "docs"})


def test_api_page_lists_every_public_name():
    page = (DOCS / "api.md").read_text()
    listed = set(re.findall(r"^\| `(\w+)", page, re.MULTILINE))
    assert listed == set(fb.__all__)
    assert len(fb.__all__) <= 40


def test_links_lead_somewhere():
    for page in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"
