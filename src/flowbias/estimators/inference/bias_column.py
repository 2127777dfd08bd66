"""A network with a trained bias, as a model of the rows [X, e]."""

from __future__ import annotations

from dataclasses import dataclass

from flowbias.estimators.intercepts.trained_bias import TrainedBias
from flowbias.ground.typing import FloatArray
from flowbias.models import MirrorModel
from flowbias.potentials import Potential, Provides
from flowbias.results.solution import Solution


@dataclass(frozen=True)
class BiasColumn:
    """Has the potential of both, for derivatives, and the limit as the regressor finds it.

    Newton's method on that potential alone ends above the scales at which the bias is eliminated.
    """

    network: MirrorModel
    potential: Potential
    shift: float = 0.0

    @property
    def provides(self) -> frozenset[Provides]:
        return frozenset({Provides.POTENTIAL, Provides.OWN_LIMIT})

    def limit(self, X: FloatArray, y: FloatArray, *, tol: float, throw: bool) -> Solution:
        """The limit on rows whose last entry multiplies the bias."""
        return TrainedBias(self.network, X[:, -1]).limit(X[:, :-1], y, tol=tol, throw=throw)
