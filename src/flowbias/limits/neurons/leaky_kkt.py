"""First-order conditions of a leaky ReLU neuron, in Clarke's sense.  [azulay2021, Theorem 4]

    min q(a w) - <shift, a w>   over (a, w)   s.t.   a sigma(<w, x_n>) = y_n

A point fulfils them if there are multipliers nu_n and c_n in Clarke's d sigma(<w, x_n>) with

    a (grad q(a w) - shift - sum nu_n c_n x_n) = 0,    <w, the same> = 0.

Equality constraints have no complementary slackness. Since c_n >= min(1, slope) > 0, multipliers of
the rows c_n x_n exist exactly if those of x_n do: with nu_n c_n in place of nu_n these are also the
conditions of the convex problem <x_n, v> = z_n, which are enough for its global minimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from flowbias.flows.leaky_neuron.field import activation
from flowbias.flows.leaky_neuron.follow import ActivatedNeuron, start_of
from flowbias.ground import extended
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.potentials.neuron import NeuronPotential
from flowbias.problems.regression import as_regression


@dataclass(frozen=True, eq=False)
class ClarkeKKT:
    """Measures of the conditions at (a, w), each relative to the terms it is a difference of.

    feasibility       ||a sigma(X w) - y|| / (||y|| + ||a sigma(X w)||)
    stationarity      ||grad q - shift - sum nu_n c_n x_n|| / (||grad q|| + ||shift||)
    outer             |<w, grad q - shift - sum nu_n c_n x_n>| / (||w|| times the same)
    wrong_signs       samples with y_n != 0 and sign <w, x_n> other than that of a y_n
    multipliers       nu
    subgradients      c; at a kink 1, which any other value would do as well
    """

    feasibility: float
    stationarity: float
    outer: float
    wrong_signs: int
    multipliers: FloatArray
    subgradients: FloatArray

    @property
    def worst(self) -> float:
        """The largest of the three measures; infinite where a sample has the wrong sign."""
        if self.wrong_signs:
            return np.inf
        return max(self.feasibility, self.stationarity, self.outer)


def clarke_kkt(model: ActivatedNeuron, X: Any, y: Any, a: float, w: ArrayLike) -> ClarkeKKT:
    """The conditions at a neuron (a, w), for the flow that starts from `model`."""
    problem = as_regression(X, y)
    start, inner, sign = start_of(model, problem), np.asarray(w, dtype=np.float64), np.sign(a)
    sums = problem.X @ inner
    subgradients = np.where(sums >= 0.0, 1.0, start.slope)
    gradient = NeuronPotential(start.delta).grad(a * inner)
    shift = 1.5 * sign * start.w
    rows = subgradients[:, None] * problem.X
    multipliers = scipy.linalg.lstsq(rows.T, gradient - shift)[0]
    left = gradient - shift - rows.T @ multipliers
    unit = extended.length(gradient) + extended.length(shift)
    outputs = a * activation(sums, start.slope)
    misfit = extended.length(outputs - problem.y)
    wrong = (problem.y != 0.0) & (np.sign(sums) != np.sign(a * problem.y))
    return ClarkeKKT(
        feasibility=_ratio(misfit, extended.length(problem.y) + extended.length(outputs)),
        stationarity=_ratio(extended.length(left), unit),
        outer=_ratio(abs(float(inner @ left)), extended.length(inner) * unit),
        wrong_signs=int(wrong.sum()),
        multipliers=multipliers,
        subgradients=subgradients,
    )


def _ratio(measure: float, unit: float) -> float:
    """measure / unit, where 0 / 0 is a perfect score."""
    return 0.0 if measure == 0.0 else float(np.divide(measure, unit))
