"""Products whose moving rows are one hidden unit: the limit of one linear neuron, certified.

    [U1; V] = [p; a b] q^T,    U1 = P1^T U

with unit vectors q and b. Gradient flow commutes with rotations of the hidden units, so that all
other units rest, and V keeps the direction b if W^T Y = t b^T has no part across it: always, where
there is one output. Then U V^T = a (U q) b^T is at all times the predictor of the neuron (a, U q)
on the targets Y b. The part of U that the data does not see may have any rank.

Networks of width one are of this kind, copies of one hidden unit, and starts of one output that are
balanced on the data: U1^T U1 = V^T V has rank one.  (docs/theory/neurons.md, Many neurons)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowbias.flows.lifted.compression import ReducedProblem
from flowbias.ground.linear_algebra import EPS
from flowbias.ground.typing import FloatArray
from flowbias.limits.neurons.linear import neuron_limit
from flowbias.models.neuron import one_neuron
from flowbias.problems.matrix import MatrixRegression
from flowbias.results.solution import Solution


class NeuronLimit(NamedTuple):
    """The neuron's limit, the product there, and weights of the moving rows if they are known."""

    solution: Solution
    M: FloatArray
    weights: FloatArray | None


def one_neuron_limit(setting: ReducedProblem, tol: float) -> NeuronLimit | None:
    """The limit where all that moves is one neuron and its limit is certified; else None."""
    problem, compression = setting.problem, setting.compression
    if not isinstance(problem, MatrixRegression) or compression.width > 1:
        return None
    outer = compression.weights[compression.rows :, 0]
    b = _direction(outer, setting.fit.target, len(problem.X))
    if b is None or compression.span is None or compression.basis is None:
        return None
    inner = (compression.start[: problem.shape[0]] @ compression.span)[:, 0]
    neuron = one_neuron(float(outer @ b), inner)
    solution = neuron_limit(neuron, problem.X, problem.Y @ b, tol)
    if not solution.status.ok:
        return None
    a = solution.details["a"]
    if a == 0.0:
        # y = 0: where w ends is not known, and the product is 0 wherever that is.
        return NeuronLimit(solution, np.outer(solution.w, b), None)
    weights = np.concatenate([compression.basis.T @ (solution.w / a), a * b])[:, None]
    return NeuronLimit(solution, np.outer(solution.w, b), weights)


def _direction(outer: FloatArray, target: FloatArray, samples: int) -> FloatArray | None:
    """b, if V and the rows of W^T Y are multiples of it; None if they are not."""
    if len(outer) == 1:
        return np.ones(1)
    length = float(np.linalg.norm(outer))
    if length > 0.0:
        b = outer / length
    elif target.any():
        b = np.linalg.svd(target, full_matrices=False)[2][0]
    else:
        return None
    across = float(np.linalg.norm(target - np.outer(target @ b, b)))
    return b if across <= 8.0 * samples * EPS * float(np.linalg.norm(target)) else None
