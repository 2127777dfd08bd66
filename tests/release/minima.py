"""The constraints under which pip installs the least version of every package that is declared.

    python tests/release/minima.py > minima.txt

Packages that are not declared are left to pip: old versions bind some of them to theirs.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Tools that are always installed from constraints.txt, and which no test imports.
TOOLS = {"dev", "docs"}
# As in constraints.txt: of its least version only a build with gigabytes of CUDA may be at hand.
KEPT = {"torch"}
DECLARED = re.compile(r"([A-Za-z0-9._-]+)>=([0-9.]+)")
PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+]+)")


def canonical(requirement: str) -> str:
    """The package's name in its normal form: pydantic_core>=2 -> pydantic-core."""
    return re.sub(r"[-_.]+", "-", re.match(r"[A-Za-z0-9._-]+", requirement)[0]).lower()


def least(requirements: list[str]) -> dict[str, str]:
    """The least version that each `name>=version` allows."""
    versions: dict[str, str] = {}
    for requirement in requirements:
        match = DECLARED.fullmatch(requirement)
        if match is None:
            raise SystemExit(
                f"pyproject.toml: must declare name>=version, got {requirement!r}. "
                "Anything else has no least version."
            )
        name, version = canonical(match[1]), match[2]
        if versions.setdefault(name, version) != version:
            raise SystemExit(
                f"pyproject.toml: must declare one least version of {name}, got {versions[name]} "
                f"and {version}. Only the higher would be tried."
            )
    return versions


def declared() -> list[str]:
    """All requirements of the library, of its extras and of its tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    tried = [extra for name, extra in extras.items() if name not in TOOLS]
    return sum(tried, start=project["dependencies"])


def pinned() -> dict[str, str]:
    """The versions of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    entries = [line for line in lines if not line.startswith("#")]
    pins = [PIN.fullmatch(entry) for entry in entries]
    bad = [entry for entry, pin in zip(entries, pins, strict=True) if pin is None]
    if bad:
        raise SystemExit(f"constraints.txt: must hold name==version and nothing else, got {bad}.")
    return {canonical(name): version for name, version in (pin.groups() for pin in pins)}


def minima() -> dict[str, str]:
    return least(declared()) | {name: pinned()[name] for name in KEPT}


def main() -> None:
    for name, version in minima().items():
        sys.stdout.write(f"{name}=={version}\n")


if __name__ == "__main__":
    main()
