"""A trained bias by elimination: one equation in one unknown around the core's own solver.

Split the dual of X w + b e = y into its share along e and the rest, nu = nu_0(t) + mu with
<e, nu_0> = t and <e, mu> = 0. Stationarity of b says b = t / g. What is left for w,

    minimize  Q(w) - <X^T nu_0(t), w>   s.t.   (X w - y) orthogonal to e removed,

is the limit of the same network from a biased start, which the core solves at every scale; and

    h(t) = <e, y - X w(t)> - t <e, e> / g = 0

fixes t. h decreases: by convexity <e, X w(t)> grows with t. So h(0) = <e, e> b_0, with b_0 the
intercept of the centred fit, puts the root between 0 and g b_0.

nu_0 must leave X^T nu_0 inside the dual domain. At depth 2 that is everything and nu_0 runs along
e; at depth D >= 3 it is the box |z_i| < c_i, and nu_0 runs along the direction that goes farthest,
a linear program: every t that the domain admits at all is then admitted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize

from flowbias.estimators.intercepts.centring import centred, without
from flowbias.ground.typing import FloatArray
from flowbias.limits.normal_equations import Effort
from flowbias.limits.routes import power_sides
from flowbias.limits.solve import limit_with_state
from flowbias.models import MirrorModel
from flowbias.models._base import HasPotential
from flowbias.potentials import BiasedDepthPotential, Potential, Provides
from flowbias.problems.regression import Regression

# e counts as outside the range of X when this share of it is: above the rounding of a projection.
OUTSIDE = 1e-10
# The inner limits are judged through the certificate of the whole; this only sets their status.
INNER_TOL = 1e-10
# Share of the way to the end of the dual domain that a moved start may go.
INSIDE = 1.0 - 1e-9
# The lowest c / c(0) that a double tells from the end of the domain.
EDGE = -1.0 + np.finfo(np.float64).eps
# The root is wanted to the last digits that its function has.
LAST_BIT, LAST_DIGIT = 1e-300, 1e-15
# Evaluations of h, each a limit, and their steps: several times what a root that doubles resolve
# takes. Beyond, the search ends where it is, for the certificate to judge.
MOST_TRIALS, MOST_STEPS = 200, 3000
# Share of the bracket tried first.
FIRST_TRIAL = 2.0**-10
# Shift of an exponential dual tried first: it multiplies weights by e.
FIRST_SHIFT = 1.0


@dataclass(frozen=True)
class Moved:
    """A model that starts at another dual point of the same potential."""

    potential: Potential
    shift: FloatArray | float
    #: what a dual of this model is worth in duals of the original one
    dual_unit: float = 1.0

    @property
    def provides(self) -> frozenset[Provides]:
        return self.potential.provides


class _Family(NamedTuple):
    """How the start of a family of networks is moved in its dual, and how far it can go."""

    moved: Callable[[Potential, FloatArray], Moved]
    farthest: Callable[[HasPotential, FloatArray, FloatArray], tuple[FloatArray, float]]


def eliminate_bias(
    network: MirrorModel, problem: Regression, effort: Effort
) -> tuple[FloatArray, FloatArray]:
    """(w, b) and the dual of the rows of problem.X = [X, e], which can fit problem.y."""
    X, e = problem.X[:, :-1], problem.X[:, -1]
    return _Elimination(network, X, e, problem.y, effort).solve()


class _Elimination:
    def __init__(
        self, network: MirrorModel, X: FloatArray, e: FloatArray, y: FloatArray, effort: Effort
    ) -> None:
        self.network, self.X, self.e, self.y, self.effort = network, X, e, y, effort
        needed = next(need for need in FAMILIES if need in network.potential.provides)
        self.family = FAMILIES[needed]
        column = e[:, None]
        rest, target = (column * centred(part / column, e**2)[0] for part in (X, y[:, None]))
        self.trials = 0
        self.data = Regression(rest, target[:, 0]) if rest.any() else None
        self.direction, self.reach = self._direction()

    def _direction(self) -> tuple[FloatArray, float]:
        """nu_0 for t = 1, and the largest |t| it admits."""
        X, e = self.X, self.e
        # By a basis: the coefficients of a fit would round by the condition number of X.
        basis = scipy.linalg.orth(X)
        alone = e - basis @ (basis.T @ e)
        if np.linalg.norm(alone) > OUTSIDE * np.linalg.norm(e):
            # X cannot do what the bias does: along `alone` its columns see nothing at all.
            return alone / float(alone @ e), np.inf
        return self.family.farthest(self.network, X, e)

    def at(self, t: float) -> tuple[FloatArray, FloatArray]:
        """w(t) and its dual."""
        base = t * self.direction
        start = self.family.moved(self.network.potential, self.X.T @ base)
        if self.data is None:
            return start.potential.grad_dual(np.broadcast_to(start.shift, self.X.shape[1])), base
        inner, _ = limit_with_state(start, self.data, tol=INNER_TOL, warm=None)
        self.effort.factorizations += inner.stats.factorizations
        self.effort.steps += inner.stats.steps
        return inner.w, base + start.dual_unit * without(self.e, inner.dual)

    @np.errstate(over="ignore", invalid="ignore")
    def excess(self, t: float) -> float:
        """h(t); not finite where a start is so biased that its limit leaves the double range."""
        self.trials += 1
        w, _ = self.at(t)
        own = t * float(self.e @ self.e) / self.network.mirror_rate
        return float(self.e @ (self.y - self.X @ w)) - own

    def solve(self) -> tuple[FloatArray, FloatArray]:
        g, size = self.network.mirror_rate, float(self.e @ self.e)
        first = self.excess(0.0)
        end = float(np.copysign(min(abs(g * first / size), INSIDE * self.reach), first))
        t = self._root(first, end)
        w, dual = self.at(t)
        return np.append(w, t / g), dual

    def _first_trial(self, end: float) -> float:
        """Not far along, and where the dual domain has no end, not far out in it either."""
        pull = float(np.abs(self.X.T @ self.direction).max())
        unbounded = np.isinf(self.reach) and pull > 0.0
        return min(FIRST_TRIAL * end, FIRST_SHIFT / pull) if unbounded else FIRST_TRIAL * end

    def _root(self, first: float, end: float) -> float:
        """The root of h between 0 and `end`, where first = h(0)."""
        before = self.effort.steps

        def h(t: float) -> float:
            if self.trials >= MOST_TRIALS or self.effort.steps - before >= MOST_STEPS:
                return 0.0
            # Out of the double range means beyond the root; as far on the other side as h(0), for
            # want of a better guess.
            excess = self.excess(t)
            return excess if np.isfinite(excess) else -first

        low, high = 0.0, float(np.copysign(self._first_trial(abs(end)), end))
        # Outwards from 0: far along, starts are so biased that their limits are the hard ones.
        while first * h(high) > 0.0:
            if high == end:
                # The root is within rounding of the end, or in the last billionth of the domain.
                return end
            low, high = high, float(np.clip(4.0 * high, -abs(end), abs(end)))
        if first == 0.0:
            return 0.0
        low, high = min(low, high), max(low, high)
        # Its interpolation may overflow, and then it bisects. A root that it does not find is
        # found out by the certificate of the whole.
        with np.errstate(over="ignore", invalid="ignore"):
            root, _ = scipy.optimize.toms748(
                h,
                low,
                high,
                xtol=LAST_BIT,
                rtol=LAST_DIGIT,
                maxiter=MOST_TRIALS,
                full_output=True,
                disp=False,
            )
        return float(root)


def _exponential_start(potential: Potential, shift: FloatArray) -> Moved:
    return Moved(potential, shift)


def _power_start(potential: Any, shift: FloatArray) -> Moved:
    """c+- = a^(2-D) -+ shift, as starts of the biased network of the same depth."""
    plus, minus = power_sides(Moved(potential, 0.0), len(shift))
    order = 2.0 - potential.depth
    # Rounding may put a trial on the edge of the domain, where a start would be infinite.
    lowered, raised = (
        np.maximum(-shift / np.exp(plus), EDGE),
        np.maximum(shift / np.exp(minus), EDGE),
    )
    log_plus = potential.log_plus + np.log1p(lowered) / order
    log_minus = potential.log_minus + np.log1p(raised) / order
    biased = BiasedDepthPotential(potential.depth, log_plus, log_minus)
    return Moved(biased, 0.0, float(np.exp(biased.log_unit - potential.log_unit)))


def _along_e(model: HasPotential, X: FloatArray, e: FloatArray) -> tuple[FloatArray, float]:
    return e / float(e @ e), np.inf


def _inside_box(model: HasPotential, X: FloatArray, e: FloatArray) -> tuple[FloatArray, float]:
    """argmax <e, nu> s.t. |X^T nu| <= c, divided by the maximum, and the maximum."""
    log_bound = np.minimum(*power_sides(model, X.shape[1]))
    columns, bound = X.T / np.abs(X).max(), np.exp(log_bound - log_bound.max())
    found = scipy.optimize.linprog(
        -e,
        A_ub=np.vstack([columns, -columns]),
        b_ub=np.concatenate([bound, bound]),
        bounds=(None, None),
    )
    # A program that could not be solved costs some reach, nothing else.
    direction = e if found.x is None or not e @ found.x > 0 else found.x
    direction = direction / float(e @ direction)
    pull = np.abs(X.T @ direction)
    with np.errstate(divide="ignore"):
        return direction, float(np.exp(log_bound - np.log(pull)).min())


#: By what the potential provides.
FAMILIES = {
    Provides.EXPONENTIAL_DUAL: _Family(_exponential_start, _along_e),
    Provides.POWER_DUAL: _Family(_power_start, _inside_box),
}
