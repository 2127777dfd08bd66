"""What `flow` returns for a product of two factors: U V^T over time, and its Gram matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from flowbias.flows.lifted.compression import Compression, LiftedFit
from flowbias.flows.trajectory import BaseTrajectory
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import Panel
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models.lifted import Factors, LiftedModel
from flowbias.problems.matrix import MatrixProblem
from flowbias.results.matrix_solution import LiftedSolution, matrix_facts

_WIDER = "start wider: a product of that width may not fit the measurements"
_ELSEWHERE = "ask limit(model, problem) what can be reached from this start, and start from another"


@dataclass(frozen=True, eq=False, repr=False)
class LiftedTrajectory(BaseTrajectory[LiftedSolution]):
    """Gradient flow of U V^T at times t.

    route    "closed form", "gram" (the Gram matrix through a root, any width) or "parameter"
    t_end    how far the flow can be asked for; infinite where it rests or has a closed form
    """

    model: LiftedModel
    problem: MatrixProblem
    route: str
    t_end: float
    failure: str | None
    #: whether the weights behind the Gram matrix are followed, too
    has_weights: bool
    _states: FloatArray = field(repr=False)  # (len(t), p, k)
    _compression: Compression = field(repr=False)
    _fit: LiftedFit = field(repr=False)
    _states_at: Callable[[FloatArray], FloatArray] = field(repr=False)

    stopped: ClassVar[str] = (
        "stopped at t = {t:.4g} with relative residual {residual:.1e}: {reason}. Pass times "
        "t=[...], loosen residual, or {advice}"
    )

    @cached_property
    def M(self) -> FloatArray:  # noqa: N802  (the matrix, as in the papers)
        """U V^T at each t, (len(t), d, m)."""
        return self._compression.product(self._states)

    @property
    def w(self) -> FloatArray:
        """M, as the predictor of every other flow is called."""
        return self.M

    @property
    def _misfits(self) -> FloatArray:
        return np.array([self.problem.measure(M) - self.problem.target for M in self.M])

    @cached_property
    def residual(self) -> FloatArray:
        """||measure(M) - reachable|| / ||reachable|| at each t, of what this width can reach."""
        products = self._compression.moving_product(self._states)
        return np.array([self._fit.residual(product) for product in products])

    def at(self, t: ArrayLike) -> FloatArray:
        """U V^T at any time up to t_end: (d, m) for one time, else one matrix per time."""
        shape = np.shape(t)
        if len(shape) > 1 or 0 in shape:
            raise InputError(
                f"t: must be a time or a list of times, got shape {shape}. Pass [0.1, 1.0]."
            )
        return super().at(t)

    def _predictors(self, times: FloatArray) -> FloatArray:
        return self._compression.product(self._states_at(times))

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

    @property
    def _numbers(self) -> Mapping[str, Any]:
        return {
            "residual": self._fit.residual(self._compression.moving_product(self._states[-1])),
            "advice": _WIDER if self.model.width < min(self.model.shape) else _ELSEWHERE,
        }

    def _panels(self) -> tuple[Panel, ...]:
        """Singular values of U V^T (of one row or column its entries) and loss over time."""
        if min(self.model.shape) == 1:
            entries = self.M.reshape(len(self.t), -1)
            return self._over_time(entries, label="entry of  M", symbol="M")
        values = np.asarray(np.linalg.svd(self.M, compute_uv=False))
        return self._over_time(values, label="singular value of  M", symbol=r"\sigma", first=1)

    def _looks(self) -> Mapping[str, str | float]:
        return {"width": f"{self.model.width}", **matrix_facts(self.M[-1])}

    def _about(self) -> str:
        unknowns = self._compression.weights.size
        return f"shape={self.model.shape}, width={self.model.width}, unknowns={unknowns}, "
