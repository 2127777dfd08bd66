"""Limits of sums of linear neurons.

Copies of one neuron, strictly balanced ones among them, have its closed form and its certificate
[azulay2021, Proposition 1]; so have those that are copies as far as the data sees them. Other sums
are two-layer linear networks of one output, and are integrated as such; what is exact all the same
is the part outside the row space of X,

    P_null v(inf) = sum_i a_i(inf) P_null w_i(0),

since no w_i moves there. The sum is followed once more in its own weights within the row space,
and `details["null_space_defect"]` is what this identity is off by, relative to the limit.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from flowbias.flows.integrate import flow
from flowbias.ground.linear_algebra import Spectrum
from flowbias.ground.typing import FloatArray
from flowbias.limits.lifted.limit import lifted_limit
from flowbias.limits.neurons.linear import neuron_limit
from flowbias.limits.neurons.parts import check_columns
from flowbias.models.neuron import NeuronSum
from flowbias.problems.matrix import MatrixRegression
from flowbias.problems.regression import Regression, as_regression
from flowbias.results.matrix_solution import LiftedSolution
from flowbias.results.solution import Solution


@dataclass(frozen=True, eq=False, repr=False)
class NeuronSumSolution(LiftedSolution):
    """A `LiftedSolution` of one output, so that w is a vector like that of any predictor."""

    @property
    def w(self) -> FloatArray:
        """The limit, (d,)."""
        return np.asarray(self.M[:, 0])


def neuron_sum_limit(model: NeuronSum, X: Any, y: Any, tol: float) -> Solution | NeuronSumSolution:
    """The limit of gradient flow from a sum of linear neurons."""
    problem = as_regression(X, y)
    neurons, d = model.W.shape
    check_columns("column of W", d, problem)
    one = model.as_one_neuron
    if one is not None:
        solution = neuron_limit(one, problem, None, tol)
        kind = "strictly balanced neurons" if one.delta == 0.0 else "copies of one neuron"
        return replace(solution, route=f"{neurons} {kind}: {solution.route}")
    return _integrated(model, problem, tol)


def _integrated(model: NeuronSum, problem: Regression, tol: float) -> NeuronSumSolution:
    found = lifted_limit(model.network, MatrixRegression(problem.X, problem.y[:, None]), tol)
    details = dict(found.details)
    spectrum = Spectrum.of(problem.X)
    # Weights within the row space up to which they are followed a second time.
    followed = 2000
    is_small = len(model.a) * (1 + spectrum.rank) <= followed
    if is_small and found.certificate.minimizer is None:
        resting = spectrum.off_range(model.W.T)
        expected = resting @ _outer_weights(model, problem, spectrum)
        away = spectrum.off_range(found.M)[:, 0] - expected
        size = float(np.linalg.norm(found.M)) or 1.0
        details["null_space_defect"] = float(np.linalg.norm(away)) / size
    values = {field.name: getattr(found, field.name) for field in fields(LiftedSolution)}
    return NeuronSumSolution(**{**values, "details": details})


def _outer_weights(model: NeuronSum, problem: Regression, spectrum: Spectrum) -> FloatArray:
    """a at the end of the flow, followed in the weights themselves within the row space."""
    moving = model.W @ spectrum.P1
    if not (model.a.any() or moving.any()):
        return model.a  # a saddle: nothing that the data sees can move
    within = NeuronSum(model.a, moving)
    target = spectrum.W.T @ problem.y
    # Residual of that flow: its weights are then known to about as much.
    residual = 1e-10
    trajectory = flow(within, np.diag(spectrum.root), target, residual=residual, throw=False)
    return np.asarray(trajectory.parameters(float(trajectory.t[-1]))[0])
