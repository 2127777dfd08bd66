"""What notebooks can do beyond showing a result: a slider over the scale of the start.

Everything is solved before it is shown, so that the slider answers at once, and goes on doing so in
a saved page that no kernel stands behind.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.html import power_of_ten
from flowbias.limits.scale_path import LimitPath

__all__ = ["scale_slider"]

# Stems that can be told apart in a notebook's column.
MOST_SHOWN = 200
_SCRIPT = Path(__file__).with_name("scale_slider.js")


def scale_slider(path: LimitPath) -> Any:
    """A widget that shows the limits of `path`, one scale at a time (extra `notebook`).

    `.index` is the slider's position, 0 the smallest scale; `.solution` is the `Solution` there.

    >>> import numpy as np, flowbias as fb
    >>> X, y, _ = fb.datasets.sparse_regression(n=8, d=20, sparsity=2, noise_var=0.0, rng=0)
    >>> model = fb.DiagonalNet(depth=2, scale=1.0)
    >>> path = fb.limit_path(model, X, y, log_scales=np.linspace(2, -20, 12))
    >>> slider = scale_slider(path)
    >>> slider.index = 0
    >>> slider.solution is path[-1]
    True
    """
    if not isinstance(path, LimitPath):
        raise InputError(
            f"path: must be a LimitPath, got {type(path).__name__}. "
            "Pass fb.limit_path(model, X, y, log_scales=...)."
        )
    order = np.argsort(path.log_scales, kind="stable")
    w = path.w[order]
    shown = np.sort(np.argsort(-np.abs(w).max(axis=0), kind="stable")[:MOST_SHOWN])
    solutions = [path[int(i)] for i in order]
    return _widget_class()(
        solutions,
        index=len(path) - 1,
        features=shown.tolist(),
        dimension=w.shape[1],
        scales=[power_of_ten(one) for one in path.log_scales[order] / np.log(10.0)],
        coefficients=w[:, shown].tolist(),
        notes=[_note(solution.w, solution.status.name) for solution in solutions],
    )


def _note(w: Any, status: str) -> str:
    return f"l1 norm {np.abs(w).sum():.6g}, l2 norm {np.linalg.norm(w):.6g}, {status}"


@cache
def _widget_class() -> Any:
    """The widget's class, made where anywidget is first needed."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise ImportError(
            "The slider is an anywidget, and anywidget is not installed. "
            "Install the extra `notebook`: pip install 'flowbias[notebook]'."
        ) from None

    class ScaleSlider(anywidget.AnyWidget):  # type: ignore[misc]
        """Limits along a path, one of them shown."""

        _esm = _SCRIPT.read_text(encoding="utf-8")
        index = traitlets.Int().tag(sync=True)
        features = traitlets.List().tag(sync=True)
        dimension = traitlets.Int().tag(sync=True)
        scales = traitlets.List().tag(sync=True)
        coefficients = traitlets.List().tag(sync=True)
        notes = traitlets.List().tag(sync=True)

        def __init__(self, solutions: list[Any], **state: Any) -> None:
            self._solutions = solutions
            super().__init__(**state)

        @traitlets.validate("index")  # type: ignore[untyped-decorator]
        def _inside(self, proposal: dict[str, Any]) -> int:
            """A front end can send anything: it is moved to the nearest end."""
            return int(np.clip(proposal["value"], 0, len(self._solutions) - 1))

        @property
        def solution(self) -> Any:
            """The `Solution` that the slider points at."""
            return self._solutions[self.index]

    return ScaleSlider
