"""A parametrization together with the potential that was derived for it: a model for `fb.limit`."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias._typing import FloatArray
from flowbias.derive.derived_potential import DerivedPotential
from flowbias.derive.parametrization import Parametrization
from flowbias.derive.warped import WarpedPotential
from flowbias.derive.warped_limit import warped_limit
from flowbias.limits.solve import limit
from flowbias.models._base import Model, Parameters
from flowbias.potentials import Provides
from flowbias.problem import InputError
from flowbias.solution import Solution


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
        return self.potential.provides | {Provides.PARAMETERS}

    @property
    def shift(self) -> FloatArray:
        """grad Q(w(0)) = 0."""
        return np.zeros(self.parametrization.d)

    @property
    def mirror_rate(self) -> float:
        """Hess Q = (J J^T)^{-1}: the flow's own time."""
        return 1.0

    def limit(self, X: Any, y: Any = None, *, tol: float = 1e-10, throw: bool = True) -> Solution:
        """`fb.limit` of this model."""
        model: Any = self
        solution: Solution = limit(model, X, y, tol=tol, throw=throw)
        return solution


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
