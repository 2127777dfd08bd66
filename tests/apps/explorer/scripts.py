"""Running what "copy the code" gives: as it stands, without a screen."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import pytest


def run_script(code: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the script leaves behind; it has to have shown one figure."""
    shown: list[int] = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(len(plt.get_fignums())))
    plt.switch_backend("Agg")
    plt.close("all")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, "copied.py", "exec"), names)
    plt.gcf().canvas.draw()
    plt.close("all")
    assert shown == [1]
    return names
