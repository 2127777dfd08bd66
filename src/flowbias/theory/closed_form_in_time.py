"""Two-layer linear networks solved in time.  [docs/theory/linear_networks.md, section 10]

With data of equal singular values s and a start whose imbalance is lam I, Z = [U1; V] has

    Z Z^T(t) = e^{F tau} Z0 N(tau)^{-1} Z0^T e^{F tau},   F = [[lam/2 I, Yt/s], [Yt^T/s, -lam/2 I]],
    N(tau) = I + Z0^T F^{-1} (e^{2 F tau} - I)/2 Z0,      tau = c s^2 t.

One weight per layer needs no balance. Each claim follows the weights themselves and compares with
the closed form that `fb.flow` and `fb.limit` use where it applies.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from flowbias.flows.lifted.closed_form import (
    WITHIN_ROUNDING,
    BalancedForm,
    is_whitened,
    scalar_product,
)
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models.linear_net import LinearNet
from flowbias.problems.matrix.regression import MatrixRegression
from flowbias.theory.arguments import checked
from flowbias.theory.claim import Claim, Reference, Statement
from flowbias.theory.conditions import OutsideHypothesis
from flowbias.theory.measured_factors import FACTORS_ORIGIN, FACTORS_TOLERANCE, follow_weights
from flowbias.theory.reduced_net import LinearStart, ReducedNet, regression

_REFERENCE = Reference("flowbias", "docs/theory/linear_networks.md", "10 Closed form in time")


@checked
def balanced_closed_form(
    net: LinearStart, X: Any, Y: Any, t: ArrayLike, loss: Any = "half"
) -> tuple[Claim, ...]:
    """The Gram matrix of U1 and V at the times t, in closed form from a lambda-balanced start.

    Needs U1^T U1 - V^T V = lam I, as `LinearNet.balanced` has with lam = 0, and X with equal
    singular values.

    >>> net = fb.LinearNet.balanced([[0.5, 0.1], [0.2, -0.3]])
    >>> claims = fb.theory.balanced_closed_form(net, np.eye(2), [[1.0, 0.0], [0.5, 2.0]], t=[0.5])
    >>> all(claim.holds for claim in claims)
    True
    """
    problem = regression(net, X, Y)
    path = follow_weights(net, problem, t, loss)
    nets = list(path.reduced(problem))
    form, clock = _balanced_form(nets[0])
    stated = Statement(
        _REFERENCE, "a lambda-balanced start on whitened data is solved in time", FACTORS_ORIGIN
    )
    claims = []
    for time, at in zip(path.t[1:], nets[1:], strict=True):
        weights = form.at(path.loss_constant * clock * float(time))
        predicted, followed = weights @ weights.T, _moving(at) @ _moving(at).T
        off = float(np.linalg.norm(followed - predicted) / np.linalg.norm(predicted))
        name = f"balanced closed form at t = {time:.6g}"
        claims.append(stated.equal(name, off, atol=FACTORS_TOLERANCE))
    return tuple(claims)


def _moving(at: ReducedNet) -> FloatArray:
    return np.vstack([at.U1, at.V])


def _balanced_form(start: ReducedNet) -> tuple[BalancedForm, float]:
    """The closed form and its clock s^2, if the start and the data have one."""
    if not is_whitened(start.root):
        raise OutsideHypothesis(
            f"X: must have equal singular values, got {start.root[0]:.6g} to "
            f"{start.root[-1]:.6g}. Whiten the data: X = W P1^T of its decomposition."
        )
    left, values, _ = scipy.linalg.svd(_moving(start), full_matrices=False)
    # Any root of the Gram matrix will do; columns that are zero would hide a level other than 0.
    kept = values > len(left) * np.finfo(float).eps * values[0]
    weights, rows = left[:, kept] * values[kept], len(start.U1)
    imbalance = weights[:rows].T @ weights[:rows] - weights[rows:].T @ weights[rows:]
    level = float(np.trace(imbalance)) / len(imbalance)
    off = float(np.abs(imbalance - level * np.eye(len(imbalance))).max())
    if off > WITHIN_ROUNDING * float(np.sum(values**2)):
        raise OutsideHypothesis(
            f"net: must be lambda-balanced, U1^T U1 - V^T V = lam I, got {off:.3g} off lam = "
            f"{level:.3g}. Use LinearNet.balanced(product, X)."
        )
    root = float(start.root.mean())
    return BalancedForm(weights, start.target / root), root * root


@checked
def scalar_closed_form(u: float, v: float, y: float, t: float) -> Claim:
    """p = u v at time t in closed form: p' = (y - p) sqrt(d^2 + 4 p^2), d = u^2 - v^2 at the start.

    The equation is [min2021, (14)] for the loss (y - u v)^2/2; its solution needs no balance.

    >>> fb.theory.scalar_closed_form(u=1.0, v=0.5, y=2.0, t=0.7).holds
    True
    """
    problem = MatrixRegression([[1.0]], [[y]])
    product = u * v
    followed = follow_weights(LinearNet([[u]], [[v]]), problem, t).M[-1, 0, 0]
    stated = Statement(
        _REFERENCE, "one weight per layer is solved in time from any start", FACTORS_ORIGIN
    )
    return stated.equal(
        "scalar closed form",
        followed,
        scalar_product(y, product, u * u - v * v, t),
        atol=FACTORS_TOLERANCE * (abs(y) + abs(product)),
    )
