"""A parametrization together with the potential that was derived for it: a model for `fb.limit`."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from flowbias.derive.derived_potential import DerivedPotential, WarpedPotential
from flowbias.derive.parametrization import Parametrization, parameter_unit
from flowbias.derive.separable_potential import (
    CoordinateFlows,
    Owners,
    RichCosts,
    SeparablePotential,
    degree_of,
    owners,
    rich_costs,
)
from flowbias.derive.unit_time import Evaluations
from flowbias.derive.warped_limit import warped_limit
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.limits.solve import limit, limit_with_state
from flowbias.models._base import MirrorModel, Model, Parameters
from flowbias.potentials import Provides
from flowbias.problems.regression import as_regression
from flowbias.results.solution import Solution

# Evaluations of J^T z that one limit may take, several times what a usual one takes: seconds.
MOST_EVALUATIONS = 30_000


class _OfParametrization(Model):
    """The parameters of a parametrization, for `fb.flow`."""

    def __init__(self, parametrization: Parametrization) -> None:
        self.parametrization = parametrization

    def initial_parameters(self) -> Parameters:
        return self.parametrization.initial_parameters()

    def predictor(self, parameters: Parameters) -> FloatArray:
        return self.parametrization.predictor(parameters)

    def parameter_gradient(self, parameters: Parameters, g: FloatArray) -> Parameters:
        return self.parametrization.parameter_gradient(parameters, g)

    @property
    def initial(self) -> FloatArray:
        """The predictor at the start, w(0)."""
        return self.parametrization.initial

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.parametrization!r})"


class _MirrorFlow(_OfParametrization):
    """What a start and its size are where gradient flow is mirror flow."""

    @property
    def shift(self) -> float:
        """grad Q(w(0)) = 0: duals are counted from the start."""
        return 0.0

    @property
    def mirror_rate(self) -> float:
        """Hess Q = (J J^T)^{-1}: the flow's own time."""
        return 1.0

    @property
    def log_scale(self) -> FloatArray:
        """log of the root mean square of theta0."""
        return np.array(np.log(parameter_unit(self.parametrization)))


class SeparableModel(_MirrorFlow, MirrorModel):
    """Gradient flow is mirror flow in `potential`, each coordinate of it by itself."""

    def __init__(self, parametrization: Parametrization, owner: Owners) -> None:
        super().__init__(parametrization)
        self._owner = owner

    @cached_property
    def _flows(self) -> CoordinateFlows:
        return CoordinateFlows(self.parametrization, self._owner)

    @property
    def potential(self) -> SeparablePotential:
        return SeparablePotential.of(self._flows)

    @property
    def provides(self) -> frozenset[Provides]:
        costs = {Provides.RICH_COSTS} if (self._degree or 0.0) >= 2.0 else frozenset()
        return super().provides | costs

    @cached_property
    def _degree(self) -> float | None:
        return degree_of(self.parametrization)

    def rich_costs(self) -> RichCosts:
        """What a unit of w costs as theta0 vanishes, for F homogeneous of degree 2 or more."""
        return rich_costs(self._flows, float(self._degree or np.nan))

    def parameters(self, z: FloatArray) -> Parameters:
        return (self._flows.at(np.asarray(z, dtype=np.float64)).theta,)

    def metric(self, parameters: Parameters) -> FloatArray:
        pull = self.parametrization.pulled_back(parameters[0], np.ones(self.parametrization.d))
        return self._flows.block_sums(pull * pull)

    def at_log_scale(self, log_scale: float) -> SeparableModel:
        """From theta0 times one number, so that its root mean square is exp(log_scale)."""
        return SeparableModel(rescaled(self.parametrization, log_scale), self._owner)

    def limit(self, X: Any, y: Any = None, *, tol: float = 1e-10, throw: bool = True) -> Solution:
        """The flow's limit: fb.limit(model, X, y)."""
        return limit(self, X, y, tol=tol, throw=throw)


class DerivedModel(_MirrorFlow):
    """Gradient flow is mirror flow in `potential`, which mixes the coordinates."""

    def __init__(self, parametrization: Parametrization) -> None:
        super().__init__(parametrization)
        self.potential = DerivedPotential(parametrization)

    @property
    def provides(self) -> frozenset[Provides]:
        mine = {Provides.PARAMETERS, Provides.OWN_LIMIT, Provides.SCALE}
        return self.potential.provides | mine

    def at_log_scale(self, log_scale: float) -> DerivedPotential:
        """From theta0 times one number, with root mean square exp(log_scale); for one solve."""
        return _bounded(rescaled(self.parametrization, log_scale))

    def limit(self, X: Any, y: Any = None, *, tol: float = 1e-10, throw: bool = True) -> Solution:
        """The flow's limit from the dual, certified, within `MOST_EVALUATIONS`."""
        bounded: Any = _bounded(self.parametrization)
        found, _ = limit_with_state(bounded, as_regression(X, y), tol=tol, warm=None)
        route = found.route + _why_stalled(found, bounded.evaluations)
        return replace(found, route=route, potential=self.potential).checked(throw)


def _bounded(parametrization: Parametrization) -> DerivedPotential:
    """A potential for one solve: what that cannot pay for is not outside for the next one."""
    return DerivedPotential(parametrization, evaluations=Evaluations(MOST_EVALUATIONS))


def _why_stalled(found: Solution, evaluations: Evaluations) -> str:
    """What a solve that is not certified lacked; nothing for one that is."""
    if found.status.ok:
        return ""
    if evaluations.spent:
        return f"; all {MOST_EVALUATIONS} evaluations of F spent"
    lost = np.isnan(found.certificate.stationarity)
    return "; w is too far from w(0) for the way back to be integrated" if lost else ""


def rescaled(parametrization: Parametrization, log_scale: float) -> Parametrization:
    """The same F from a multiple of theta0 whose root mean square is exp(log_scale)."""
    with np.errstate(over="ignore", under="ignore"):
        factor = np.exp(log_scale - np.log(parameter_unit(parametrization)))
        start = factor * parametrization.start
    lost = ~(np.isfinite(start) & ((start != 0.0) == (parametrization.start != 0.0)))
    if lost.any():
        raise InputError(
            f"log_scale: must leave theta0 within the double range, got {log_scale:g}, at which "
            f"{parametrization.names[int(np.argmax(lost))]} is lost. Take a scale nearer to 1."
        )
    return parametrization.started_at(start)


def mirror_model(parametrization: Parametrization) -> SeparableModel | DerivedModel:
    """The model of an F whose gradient fields commute."""
    owner = owners(parametrization)
    if owner is None:
        return DerivedModel(parametrization)
    return SeparableModel(parametrization, owner)


class WarpedModel(_OfParametrization):
    """Gradient flow is mirror flow in `potential` after a change of time.

    It does not offer the potential to `fb.limit`: a stationary point of that may be on a branch
    that the flow leaves. It finds its limit itself, by following the flow (`warped_limit`).
    """

    def __init__(self, parametrization: Parametrization) -> None:
        super().__init__(parametrization)
        self.potential = WarpedPotential(parametrization)

    @property
    def provides(self) -> frozenset[Provides]:
        return frozenset({Provides.PARAMETERS, Provides.OWN_LIMIT})

    def limit(self, X: Any, y: Any = None, *, tol: float = 1e-10, throw: bool = True) -> Solution:
        """The flow's limit, verified against the flow and for stationarity."""
        return warped_limit(self.potential, X, y, tol=tol, throw=throw)


class UnderivedModel(_OfParametrization):
    """No potential is known: the flow can be followed, its limit only integrated."""

    potential = None

    def limit(self, X: Any, y: Any = None, *, tol: float = 1e-10, throw: bool = True) -> Solution:
        """Refused: nothing but the flow leads there."""
        raise InputError(
            "model: must have a potential for its limit to be solved for, got one for which none "
            "was found. Follow the flow: fb.flow(model, X, y)."
        )
