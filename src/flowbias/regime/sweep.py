"""Training to the end at any scale of the start, and the whole transition from rich to kernel.

Full-batch descent whose step follows the largest eigenvalue of the tangent kernel: a large start
would diverge with the step of a small one, and a small one would never leave its plateau with that
of a large one. Along the way the kernel grows, and the step with it shrinks.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowbias.flows.integrate import flow
from flowbias.ground.arguments import InputError, as_float, real_array, shown, takes
from flowbias.ground.drawing import picture
from flowbias.ground.html import table
from flowbias.ground.typing import FloatArray
from flowbias.kernels.closed_form import declared_by
from flowbias.kernels.compare import kernel_matrix
from flowbias.kernels.network import copied
from flowbias.kernels.tangent import TangentMap
from flowbias.nets.train import train as descend
from flowbias.nets.training import TrainingStatus
from flowbias.potentials import Provides
from flowbias.problems.matrix import MatrixProblem
from flowbias.regime.diagnose import diagnose
from flowbias.regime.diagnosis import Diagnosis, finite
from flowbias.regime.drawing import sweep_panels
from flowbias.regime.thresholds import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEAD = ("scale", "position", "beyond", "kernel change", "loss left", "verdict")


@dataclass(frozen=True)
class Fit:
    """Where training ended: what `diagnose` takes as `after`, and whether the data were fitted."""

    after: Any
    fitted: bool
    #: the loss at the end as a share of that at the start
    left: float
    epochs: int


def fit(model: Any, x: Any, y: Any, *, loss_left: float = 1e-4, max_epochs: int = 20_000) -> Fit:
    """Train a copy of a module, or follow the flow of a model of the library, until it fits.

    Parameters
    ----------
    model : a torch module, or a model of the library
    x, y : the data
    loss_left : the share of the loss at the start to reach
    max_epochs : when to give up

    Returns
    -------
    Fit

    Raises
    ------
    InputError for a model or data that cannot be used

    >>> fb.regime.fit(fb.DiagonalNet(depth=2, scale=0.5), [[1.0, 2.0]], [1.0]).fitted
    True
    """
    share = as_float(loss_left)
    if share is None or not 0.0 < share < 1.0:
        raise InputError(
            f"loss_left: must be between 0 and 1, got {loss_left!r}. It is the share of the loss "
            "at the start at which training ends."
        )
    if declared_by(model):
        return _followed(model, x, y, share)
    TangentMap(model, x)  # refuses what is no module with inputs
    return _trained(copied(model), x, y, share, max_epochs)


def _followed(model: Any, x: Any, y: Any, loss_left: float) -> Fit:
    # Losses are squares of residuals.
    arguments = (x,) if isinstance(x, MatrixProblem) else (x, y)
    found: Any = flow(model, *arguments, residual=min(1e-2, loss_left**0.5), throw=False)
    if Provides.GRAM in declared_by(model):
        after: Any = found.factors(-1)
    else:
        after = found.parameters(float(found.t[-1]))
    left = float(found.loss[-1] / found.loss[0]) if found.loss[0] > 0.0 else 0.0
    return Fit(after, bool(found.status.ok), left, 0)


def _trained(module: Any, x: Any, y: Any, loss_left: float, max_epochs: int) -> Fit:
    # Of the stable step 2 / (c lambda): far enough below it to stay near the flow.
    usual = 0.3
    first: float | None = None
    now, epochs, share = float("inf"), 0, usual
    halvings = 0
    tangent = TangentMap(module, x)
    while epochs < max_epochs:
        top = float(np.linalg.eigvalsh(kernel_matrix(tangent.kernel()).astype(np.float64))[-1])
        if not top > 0.0:
            break  # a saddle: no gradient anywhere
        kept = copy.deepcopy(module.state_dict())
        run = descend(
            module,
            x,
            y,
            loss="half",
            step_size=share * 2.0 / top,
            # So many epochs between two looks at the kernel.
            max_epochs=min(50, max_epochs - epochs),
            stop_at_loss=None if first is None else max(loss_left * first, 1e-300),
            progress=False,
        )
        first = float(run.losses[0]) if first is None else first
        # The flow never climbs; a step that does may have killed units for good.
        climbed = bool((np.diff(run.losses) > 0.0).any())
        if run.status is TrainingStatus.DIVERGED or climbed:
            module.load_state_dict(kept)
            share, halvings = share / 2.0, halvings + 1
            if halvings > 30:  # in a row, on one stretch
                break
            continue
        share, now, epochs = min(usual, 1.5 * share), run.loss, epochs + run.epochs
        halvings = 0
        if now <= loss_left * first:
            break
    left = now / first if first else 0.0
    return Fit(module, left <= loss_left, left, epochs)


#: Trains a model on (x, y) and says where it ended.
Trainer = Callable[[Any, Any, Any], Fit]


@dataclass(frozen=True)
class SweepPoint:
    """One scale: what training made of it."""

    scale: float
    diagnosis: Diagnosis
    fitted: bool
    #: the loss at the end as a share of that at the start
    loss_left: float


@dataclass(frozen=True, repr=False)
class Sweep:
    """Points in the order of their scales, smallest first."""

    points: tuple[SweepPoint, ...]

    def __iter__(self) -> Iterator[SweepPoint]:
        return iter(self.points)

    @property
    def scales(self) -> FloatArray:
        return np.array([point.scale for point in self.points])

    def curve(self, measure: str) -> FloatArray:
        """One of `Diagnosis.measures` against the scale, NaN where it is not known."""
        values = [point.diagnosis.measures() for point in self.points]
        if measure not in values[0]:
            names = ", ".join(repr(name) for name in values[0])
            raise InputError(f"measure: must be one of {names}, got {measure!r}. Pass one of them.")
        return np.array([np.nan if v[measure] is None else v[measure] for v in values])

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(point.diagnosis.verdict for point in self.points)

    @property
    def largest_rich(self) -> float | None:
        """The largest scale that is rich, with all smaller ones; None where the smallest is not.

        Scales whose data were not fitted do not count as rich: their training had not ended.
        """
        found = None
        for point in self.points:
            if point.diagnosis.verdict is not Verdict.RICH or not point.fitted:
                break
            found = point.scale
        return found

    @property
    def smallest_kernel(self) -> float | None:
        """The smallest scale that is kernel, with all larger ones, if the largest is."""
        found = None
        for point in reversed(self.points):
            if point.diagnosis.verdict is not Verdict.KERNEL:
                break
            found = point.scale
        return found

    def document(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "largest_rich": self.largest_rich,
            "smallest_kernel": self.smallest_kernel,
            "points": [
                {
                    "scale": point.scale,
                    "fitted": point.fitted,
                    "loss_left": point.loss_left,
                    "verdict": point.diagnosis.verdict.name,
                    **point.diagnosis.measures(),
                }
                for point in self.points
            ],
        }

    def to_json(self) -> str:
        return json.dumps(finite(self.document()), indent=2, allow_nan=False)

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """Position (or the share beyond the kernel) and kernel change against the scale.

        On `ax` the first alone.
        """
        return picture(*sweep_panels(self), path=path, ax=ax)

    def _repr_html_(self) -> str:
        return table(
            self._title,
            self._rows,
            head=_HEAD,
        )

    @property
    def _title(self) -> str:
        return (
            f"Sweep: {_shown('rich up to {:.4g}', self.largest_rich, 'nowhere rich')}, "
            f"{_shown('kernel from {:.4g} on', self.smallest_kernel, 'nowhere kernel')}"
        )

    @property
    def _rows(self) -> list[tuple[str, ...]]:
        """Each scale in words, under `_HEAD`."""
        return [
            (
                f"{point.scale:.4g}",
                "" if np.isnan(position) else f"{position:.3f}",
                "" if np.isnan(beyond) else f"{beyond:.1%}",
                f"{point.diagnosis.kernel_change:.4g}",
                f"{point.loss_left:.1e}",
                f"{point.diagnosis.verdict.name}{'' if point.fitted else ' (not fitted)'}",
            )
            for point, position, beyond in zip(
                self.points, self.curve("position"), self.curve("beyond_kernel"), strict=True
            )
        ]

    def __repr__(self) -> str:
        rows = (
            f"  {scale:>10} {position:>9} {beyond:>9} {change:>14} {left:>10}  {verdict}"
            for scale, position, beyond, change, left, verdict in [_HEAD, *self._rows]
        )
        return "\n".join([self._title, *rows])


def sweep(
    make_model: Callable[[float], Any],
    data: tuple[Any, Any],
    scales: Sequence[float],
    *,
    train: Trainer = fit,
    x_new: Any = None,
    max_memory: int | str = "1GiB",
) -> Sweep:
    """Train make_model(scale) on data = (x, y) at each scale and diagnose it.

    Parameters
    ----------
    make_model : from a scale to a torch module, or a model of the library (whose flow is followed)
    data : x and y
    scales : of the start
    train : train(model, x, y) -> Fit; by default full-batch descent on the squared loss until 1e-4
        of it is left
    x_new : inputs to compare functions on, as for `diagnose`
    max_memory : bytes, "1GiB" or "500MB", of what is held beyond the module and the result

    Returns
    -------
    Sweep, one diagnosis per scale

    Raises
    ------
    InputError for models or data that cannot be used

    >>> import numpy as np, flowbias as fb
    >>> X, y, _ = fb.datasets.sparse_regression(n=8, d=20, sparsity=2, noise_var=0.0, rng=0)
    >>> found = sweep(lambda scale: fb.DiagonalNet(depth=2, scale=scale), (X, y), [1e-6, 0.1, 10.0])
    >>> [verdict.name for verdict in found.verdicts]
    ['RICH', 'IN_BETWEEN', 'KERNEL']
    """
    x, y = _read_data(data)
    for name, function, count in (("make_model", make_model, 1), ("train", train, 3)):
        if not takes(function, count):
            raise InputError(
                f"{name}: must be a function of {count} argument(s), got {shown(function)}. "
                "Pass for instance lambda scale: fb.nets.mlp([2, 10, 1], scale=scale), or leave "
                "train out."
            )
    points = []
    for scale in _read_scales(scales):
        model = make_model(scale)
        end = _read_end(train(model, x, y))
        diagnosis = diagnose(model, end.after, x, y, x_new=x_new, max_memory=max_memory)
        points.append(SweepPoint(scale, diagnosis, end.fitted, end.left))
    return Sweep(tuple(points))


def _read_data(data: Any) -> tuple[Any, Any]:
    try:
        x, y = data
    except (TypeError, ValueError):
        raise InputError(
            f"data: must be a pair (x, y), got {type(data).__name__}. Pass inputs and labels."
        ) from None
    return x, y


def _read_end(end: Any) -> Fit:
    if not isinstance(end, Fit):
        raise InputError(
            f"train: must return a flowbias.regime.Fit, got {type(end).__name__}. "
            "Return Fit(after=module, fitted=True, left=0.0, epochs=100) with what was reached."
        )
    return end


_SCALES = "Pass for instance numpy.geomspace(0.01, 100, 9)."


def _read_scales(scales: Any) -> list[float]:
    try:
        values = sorted(float(s) for s in np.atleast_1d(real_array("scales", scales, _SCALES)))
    except (TypeError, ValueError):  # of no numbers; of more than one dimension
        values = []
    # Each compared: NaN has no place in an order, and may end up anywhere.
    if not values or not all(0.0 < value < np.inf for value in values):
        raise InputError(
            f"scales: must be one or more finite numbers > 0, got {shown(scales)}. {_SCALES}"
        )
    return values


def _shown(words: str, scale: float | None, otherwise: str) -> str:
    return otherwise if scale is None else words.format(scale)
