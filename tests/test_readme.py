"""The README's examples run as printed and print what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


EXAMPLES = re.findall(r"```python\n(.*?)```\s*```\n(.*?)```", README, re.DOTALL)


def test_every_example_shows_what_it_prints():
    assert README.count("```python") == len(EXAMPLES) == 2
    assert max(len(code.strip().splitlines()) for code, _ in EXAMPLES) <= 10


def test_five_lines_lead_to_a_certified_limit():
    install = re.search(r"```sh\n(.*?)```", README, re.DOTALL)[1]
    code, output = EXAMPLES[0]
    assert len([line for line in (install + code).splitlines() if line]) <= 5
    assert output == "CERTIFIED\n"


@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_example_prints_what_the_readme_shows(code, output):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == output


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
