"""A parametrization together with the potential that was derived for it: a model for `fb.limit`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from flowbias._typing import FloatArray
from flowbias.derive.derived_potential import DerivedPotential
from flowbias.derive.parametrization import Parametrization
from flowbias.derive.unit_time_flow import Evaluations
from flowbias.derive.warped import WarpedPotential
from flowbias.derive.warped_limit import warped_limit
from flowbias.limits.solve import limit_with_state
from flowbias.models._base import Model, Parameters
from flowbias.potentials import Provides
from flowbias.problem import InputError, as_regression
from flowbias.solution import Solution

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


class DerivedModel(_OfParametrization):
    """Gradient flow is mirror flow in `potential`, whose dual points are counted from the start."""

    def __init__(self, parametrization: Parametrization) -> None:
        super().__init__(parametrization)
        self.potential = DerivedPotential(parametrization)

    @property
    def provides(self) -> frozenset[Provides]:
        return self.potential.provides | {Provides.PARAMETERS, Provides.OWN_LIMIT}

    @property
    def shift(self) -> FloatArray:
        """grad Q(w(0)) = 0."""
        return np.zeros(self.parametrization.d)

    @property
    def mirror_rate(self) -> float:
        """Hess Q = (J J^T)^{-1}: the flow's own time."""
        return 1.0

    def limit(self, X: Any, y: Any = None, *, tol: float = 1e-10, throw: bool = True) -> Solution:
        """The flow's limit from the dual, certified, within `MOST_EVALUATIONS`."""
        bounded = DerivedModel(self.parametrization)
        # A potential of its own: what this solve cannot pay for is not outside for the next one.
        bounded.potential = DerivedPotential(
            self.parametrization, evaluations=Evaluations(MOST_EVALUATIONS)
        )
        model: Any = bounded
        found, _ = limit_with_state(model, as_regression(X, y), tol=tol, warm=None)
        route = found.route + _why_stalled(found, bounded.potential.evaluations)
        return replace(found, route=route, potential=self.potential).checked(throw)


def _why_stalled(found: Solution, evaluations: Evaluations) -> str:
    """What the numbers of a solve that is not certified suggest; nothing for one that is."""
    missed = found.certificate.feasibility
    if found.status.ok:
        return ""
    if missed <= found.certificate.tol:
        lost = np.isnan(found.certificate.stationarity)
        return ": w is too far from w(0) for the way back to be integrated" if lost else ""
    spent = (
        f" ({MOST_EVALUATIONS} evaluations spent: it may also just be far)"
        if evaluations.spent
        else ""
    )
    return (
        f": y seems out of what F can reach from theta0, X w stayed {missed:.1e} away from it "
        f"(relative) at a dual of size {np.abs(found.dual).max():.1e}{spent}"
    )


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
