"""The program as tests call it: inside this process, or as users do."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from flowbias.apps.cli import app

SOURCE = Path(__file__).resolve().parents[3] / "src"


def invoke(*words: object) -> Result:
    """Run the program in this process; its exceptions, if it lets any out, are raised here."""
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def environment(**extra: str) -> dict[str, str]:
    """For a process that must find the package where these tests do."""
    return {**os.environ, "PYTHONPATH": str(SOURCE), **extra}


def spawn(*words: object, folder: Path | None = None, **extra: str) -> subprocess.CompletedProcess:
    """Run `python -m flowbias` with these words, as users do."""
    return subprocess.run(
        [sys.executable, "-m", "flowbias", *map(str, words)],
        cwd=folder,
        env=environment(**extra),
        capture_output=True,
        text=True,
        timeout=120,
    )


def document(output: str) -> Any:
    """The one JSON document that standard output holds; NaN and Infinity are not JSON."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(output, parse_constant=refuse)


def only_line(stderr: str) -> str:
    """The single line of an error."""
    lines: Sequence[str] = stderr.splitlines()
    assert len(lines) == 1, stderr
    return lines[0]
