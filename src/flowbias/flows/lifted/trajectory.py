"""What `flow` returns for a product of two factors: U V^T over time, and its Gram matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowbias.flows._shown import flow_panels, flow_table
from flowbias.flows.destination import destination
from flowbias.flows.lifted.compression import Compression, LiftedFit
from flowbias.flows.trajectory import FlowError, FlowStats, FlowStatus
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import picture
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models.lifted import Factors, LiftedModel
from flowbias.problems.matrix._base import MatrixProblem
from flowbias.results._shown import matrix_facts
from flowbias.results.lifted_solution import LiftedSolution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STOPPED = (
    "stopped at t = {t:.4g} with relative residual {residual:.1e}: {reason}. Pass times t=[...], "
    "loosen residual, or {advice}"
)
_WIDER = "start wider: a product of that width may not fit the measurements"
_ELSEWHERE = "ask limit(model, problem) what can be reached from this start, and start from another"


@dataclass(frozen=True, eq=False, repr=False)
class LiftedTrajectory:
    """Gradient flow of U V^T at times t.

    route    "closed form", "gram" (the Gram matrix through a root, any width) or "parameter"
    t_end    how far the flow can be asked for; infinite where it rests or has a closed form
    """

    t: FloatArray
    status: FlowStatus
    stats: FlowStats
    model: LiftedModel
    problem: MatrixProblem
    loss_constant: float
    route: str
    t_end: float
    failure: str | None
    #: whether the weights behind the Gram matrix are followed, too
    has_weights: bool
    _states: FloatArray = field(repr=False)  # (len(t), p, k)
    _compression: Compression = field(repr=False)
    _fit: LiftedFit = field(repr=False)
    _states_at: Callable[[FloatArray], FloatArray] = field(repr=False)

    @cached_property
    def M(self) -> FloatArray:  # noqa: N802  (the matrix, as in the papers)
        """U V^T at each t, (len(t), d, m)."""
        return self._compression.product(self._states)

    @property
    def w(self) -> FloatArray:
        """M, as the predictor of every other flow is called."""
        return self.M

    @cached_property
    def loss(self) -> FloatArray:
        """(c/2) ||measure(M) - target||^2 at each t."""
        misfits = [self.problem.measure(M) - self.problem.target for M in self.M]
        return 0.5 * self.loss_constant * np.array([float(r @ r) for r in misfits])

    @cached_property
    def residual(self) -> FloatArray:
        """||measure(M) - reachable|| / ||reachable|| at each t, of what this width can reach."""
        products = self._compression.moving_product(self._states)
        return np.array([self._fit.residual(product) for product in products])

    def at(self, t: ArrayLike) -> FloatArray:
        """U V^T at any time up to t_end: (d, m) for one time, else one matrix per time."""
        times = np.asarray(t, dtype=np.float64)
        if times.ndim > 1 or times.size == 0:
            raise InputError(
                f"t: must be a time or a list of times, got shape {times.shape}. Pass [0.1, 1.0]."
            )
        products = self._compression.product(self._checked_states(np.atleast_1d(times)))
        return products if times.ndim else np.asarray(products[0])

    def gram(self, i: int) -> FloatArray:
        """[U; V][U; V]^T at t[i], (d + m) square."""
        return self._compression.gram(self._states[i])

    def factors(self, i: int) -> Factors:
        """U and V at t[i]; the model must have kept them at the start."""
        if self.model.factors is None:
            raise InputError(
                f"model: must provide FACTORS, got {self.model!r}, of which only the Gram matrix "
                "was drawn. Pass keep_weights=True where it is made, or use gram(i)."
            )
        if not self.has_weights:
            raise InputError(
                "route: must be 'gram' for the weights, got 'closed form', which knows them up to "
                "a rotation of the hidden units only. Pass route='gram' to flow."
            )
        return self._compression.factors(self._states[i])

    @cached_property
    def imbalance_drift(self) -> float:
        """Largest change of D = U^T U - V^T V, relative to the terms it is a difference of.

        Up to a rotation of the hidden units where the route does not know them: by its spectrum.
        """
        return max(self._drift(weights) for weights in self._states)

    def _drift(self, weights: FloatArray) -> float:
        start, now = self._compression.weights, weights
        imbalance = self._compression.imbalance
        if self.has_weights:
            change = float(np.linalg.norm(imbalance(now) - imbalance(start)))
        else:
            spectra = (np.linalg.eigvalsh(imbalance(w)) for w in (now, start))
            change = float(np.linalg.norm(np.subtract(*spectra)))
        return change / max(float(np.sum(np.square(now))), float(np.sum(np.square(start))))

    @cached_property
    def limit(self) -> LiftedSolution:
        """The limit of this flow."""
        solution: LiftedSolution = destination(self.model, self.problem)
        return solution

    @property
    def distance_to_limit(self) -> float:
        """||M - limit|| / ||limit|| at the last time."""
        size = float(np.linalg.norm(self.limit.M)) or 1.0
        return float(np.linalg.norm(self.M[-1] - self.limit.M)) / size

    @property
    def message(self) -> str:
        """The status in words, with its numbers."""
        words = _STOPPED if self.status is FlowStatus.STOPPED else self.status.value
        residual = self._fit.residual(self._compression.moving_product(self._states[-1]))
        reason = (self.failure or "").rstrip(".")
        advice = _WIDER if self.model.width < min(self.model.shape) else _ELSEWHERE
        return words.format(t=self.t[-1], residual=residual, reason=reason, advice=advice)

    def checked(self, throw: bool) -> LiftedTrajectory:
        """Itself, or FlowError where the flow was not followed to its end and `throw` is set."""
        if throw and not self.status.ok:
            failed: Any = self
            raise FlowError(self.message, failed)
        return self

    def _checked_states(self, times: FloatArray) -> FloatArray:
        # The last time itself, back from internal time, may round to just beyond the end.
        bad = times[~((times >= 0.0) & (times <= self.t_end * (1.0 + 1e-12)))]
        if bad.size:
            raise InputError(
                f"t: must lie in [0, {self.t_end:.6g}], got {bad[0]:.6g}. "
                "Call flow(..., t=[...]) with a later last time."
            )
        return self._states_at(times)

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """Singular values of U V^T (of one row or column its entries) and loss over time."""
        if min(self.model.shape) == 1:
            entries = self.M.reshape(len(self.t), -1)
            panels = flow_panels(self, entries, label="entry of  M", symbol="M")
        else:
            values = np.asarray(np.linalg.svd(self.M, compute_uv=False))
            panels = flow_panels(
                self, values, label="singular value of  M", symbol=r"\sigma", first=1
            )
        return picture(*panels, path=path, ax=ax)

    def _repr_html_(self) -> str:
        return flow_table(self, {"width": f"{self.model.width}", **matrix_facts(self.M[-1])})

    def __repr__(self) -> str:
        return (
            f"LiftedTrajectory({self.message}\n"
            f"                 route={self.route}, shape={self.model.shape}, "
            f"width={self.model.width}, unknowns={self._compression.weights.size}, "
            f"{len(self.t)} times,\n"
            f"                 steps={self.stats.steps}, evaluations={self.stats.evaluations}, "
            f"seconds={self.stats.seconds:.3g})"
        )
