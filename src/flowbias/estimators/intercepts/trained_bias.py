"""The limit of a network and a bias trained together.

    minimize  Q(w) + g b^2 / 2   s.t.   X w + b e = P y

with g the network's mirror rate and e the column of the bias: ones, or the roots of the sample
weights. docs/estimators.md has the derivation. Where [X, e] has rank d + 1 only one (w, b) fits.
Otherwise Newton's method on the dual of [X, e] solves it down to moderately small scales; below
them the bias is eliminated (`Elimination`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize

from flowbias.certificates.certificate import Certificate, certify
from flowbias.estimators.intercepts.frames import Frame
from flowbias.estimators.intercepts.samples import (
    Samples,
    as_array,
    centred,
    refuse_large,
    without,
)
from flowbias.ground.arguments import InputError
from flowbias.ground.extended import row_lengths
from flowbias.ground.typing import FloatArray
from flowbias.limits.dual_newton import DualNewton
from flowbias.limits.normal_equations import Effort
from flowbias.limits.routes import dual_of, inside_domain, only_predictor, power_sides
from flowbias.limits.solve import limit_with_state
from flowbias.models import MirrorModel
from flowbias.models._base import HasPotential
from flowbias.potentials import L2, BiasedDepthPotential, Potential, Provides
from flowbias.potentials.with_bias import WithBias
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution, Stats, status_of


@dataclass(frozen=True)
class TrainedBias:
    """A network with a bias that starts at 0 and is trained with the rest, as a model of [X, e].

    Its predictor has one entry more than X has columns: the bias, last. Has the potential of both,
    for flows and derivatives, on the network's clock. Newton's method on that potential alone ends
    above the scales at which the bias is eliminated: its limit is its own.
    """

    network: MirrorModel
    potential: WithBias
    shift: float = 0.0

    @classmethod
    def of(cls, network: MirrorModel, d: int) -> TrainedBias:
        """Beside d features."""
        return cls(network, WithBias(network.potential, bias_weight(network), d))

    @property
    def mirror_rate(self) -> float:
        return self.network.mirror_rate

    @property
    def provides(self) -> frozenset[Provides]:
        return self.potential.provides | {Provides.OWN_LIMIT}

    def limit(self, X: Any, y: Any, *, tol: float = 1e-10, throw: bool = True) -> Solution:
        """The limit on rows whose last entry multiplies the bias, certified."""
        started = time.perf_counter()
        effort = Effort()
        task = _Task.of(self.network, Regression(X, y), self.potential, effort, tol)
        route, found, certificate = task.solved()
        return Solution(
            w=found.w,
            dual=found.dual,
            status=status_of(certificate, found.distance),
            route=route,
            certificate=certificate,
            stats=Stats(effort.factorizations, effort.steps, time.perf_counter() - started),
            potential=found.potential,
            distance=found.distance,
        ).checked(throw)


@dataclass(frozen=True)
class TrainedFrame(Frame):
    """The last entry of a limit is its bias."""

    has_bias = True

    @property
    def moves(self) -> bool:
        return True  # the bias does

    def model(self, network: MirrorModel) -> TrainedBias:
        return TrainedBias.of(network, self.X.shape[1])

    def mirror(self, network: MirrorModel) -> tuple[TrainedBias, FloatArray]:
        return self.model(network), np.column_stack([self.X, self.samples.root])

    def _from_scratch(self, model: TrainedBias, y: FloatArray, tol: float) -> Solution:
        return model.limit(self.mirror(model.network)[1], y, tol=tol, throw=False)

    def along(
        self, network: Any, log_scales: FloatArray, y: FloatArray, tol: float
    ) -> tuple[Solution, ...]:
        models = (self.model(network.at_log_scale(float(log_scale))) for log_scale in log_scales)
        return tuple(self.limit(model, y, tol) for model in models)

    def coefficients(self, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        return w[:, :-1], w[:, -1]


def trained(samples: Samples) -> Frame:
    """Data as they are, for a model that has its own bias."""
    refuse_large(samples.X, 'fit_intercept="trained"')
    return TrainedFrame.at_origin(samples, as_array(samples.X))


def bias_weight(network: MirrorModel) -> float:
    """g, where it is a number: at the extremes the bias is free, or does not move."""
    g = network.mirror_rate
    if not 0.0 < g < np.inf:
        other = '"centered"' if g == 0.0 else "False"
        raise InputError(
            'log_scale: must leave the weight of a "trained" bias in the double range, got '
            f"{network!r} with weight {g:g}. There the limit is that of fit_intercept={other}."
        )
    return g


class _Found(NamedTuple):
    """(w, b), the dual of the rows, how far y is from what they can fit, and whose dual it is."""

    w: FloatArray
    dual: FloatArray
    distance: float
    potential: Potential


@dataclass(frozen=True, eq=False)
class _Task:
    """[X, e], and [X, unit e] whose columns are of one size: the rank of the one is seen there."""

    network: MirrorModel
    problem: Regression
    potential: WithBias
    balanced: Regression
    unit: float
    effort: Effort
    tol: float

    @classmethod
    def of(
        cls,
        network: MirrorModel,
        problem: Regression,
        potential: WithBias,
        effort: Effort,
        tol: float,
    ) -> _Task:
        unit = _unit(problem.X, network.mirror_rate)
        X = np.column_stack([problem.X[:, :-1], unit * problem.X[:, -1]])
        balanced = Regression(X, problem.y)
        effort.factorizations = balanced.constraint.factorizations
        return cls(network, problem, potential, balanced, unit, effort, tol)

    def solved(self) -> tuple[str, _Found, Certificate]:
        """By the first way that is certified, or the last one."""
        problem, tol = self.problem, self.tol
        for route, way in WAYS.items():
            found = way(self)
            if found is None:
                continue
            proof = certify(problem.X, problem.y, found.w, found.dual, found.potential, tol=tol)
            if not proof.ok and proof.exact is not None:
                found = found._replace(w=proof.exact.w, dual=proof.exact.dual)
                route = f"{route}, then Newton in balls"
                proof = certify(problem.X, problem.y, found.w, found.dual, found.potential, tol=tol)
            last = route, found, proof
            if proof.ok:
                break
        return last


def _unit(X: FloatArray, rate: float) -> float:
    """The power of 2 that brings the last column to the size of the others, where that can be."""
    sizes = np.abs(X).max(axis=0)
    largest = float(sizes[:-1].max())
    if largest == 0.0:
        return 1.0
    unit = float(np.exp2(np.round(np.log2(largest) - np.log2(sizes[-1]))))
    with np.errstate(over="ignore", under="ignore"):
        weight = rate * np.float64(unit) ** 2
    least = np.finfo(np.float64).tiny  # whose inverse is a double
    return unit if least < weight < np.inf else 1.0


def _without_choice(task: _Task) -> _Found | None:
    return _only(task, task.potential)


def _without_choice_or_scale(task: _Task) -> _Found | None:
    """The same, proved as the shortest fit in units of the features.

    What is alone is the limit of every network. Far in the kernel regime grad Q(w) is so far below
    g b that a dual of both, in doubles, says nothing about w.
    """
    lengths = row_lengths(task.problem.X.T)
    weights = np.square(lengths / lengths.max())
    return _only(task, L2(weights)) if weights.all() else None


@np.errstate(all="ignore")
def _only(task: _Task, potential: Potential) -> _Found | None:
    constraint = only_predictor(task.problem)
    if constraint is None:
        return None
    task.effort.factorizations += 1
    w = constraint.target
    dual = dual_of(constraint, task.problem.X, potential.grad(w))
    return _Found(w, dual, constraint.distance, potential)


def _by_newton(task: _Task) -> _Found:
    """After Newton's method from the kernel solution, for b in another unit.

    With a line search it takes about as many steps as the elimination takes factorizations.
    """
    constraint, potential = task.balanced.constraint, task.potential
    weight = task.network.mirror_rate * task.unit**2
    balanced = WithBias(potential.features, weight, potential.d)
    newton = DualNewton(constraint, balanced, 0.0, task.effort)
    with np.errstate(all="ignore"):
        end = newton.solve(max_steps=40)
    w = np.append(end.w[:-1], task.unit * end.w[-1])
    return _Found(w, constraint.dual_of_data(end.dual), constraint.distance, potential)


def _by_elimination(task: _Task) -> _Found:
    constraint, problem = task.balanced.constraint, task.problem
    fitted = problem.y if constraint.projected is None else constraint.projected
    w, dual = eliminate_bias(task.network, Regression(problem.X, fitted), task.effort)
    dual = inside_domain(task.potential, problem.X, w, dual)
    return _Found(w, dual, constraint.distance, task.potential)


#: Cheapest first.
WAYS: dict[str, Callable[[_Task], _Found | None]] = {
    "the only predictor": _without_choice,
    "the only predictor, by its length": _without_choice_or_scale,
    "dual Newton": _by_newton,
    "bias eliminated": _by_elimination,
}


# --- the bias eliminated ------------------------------------------------------------------------


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
    return Elimination(network, X, e, problem.y, effort).solve()


class Elimination:
    """One equation in one unknown around the core's own solver.

    Split the dual of X w + b e = y into its share along e and the rest, nu = nu_0(t) + mu with
    <e, nu_0> = t and <e, mu> = 0. Stationarity of b says b = t / g. What is left for w,

        minimize  Q(w) - <X^T nu_0(t), w>   s.t.   (X w - y) orthogonal to e removed,

    is the limit of the same network from a biased start, which the core solves at every scale; and

        h(t) = <e, y - X w(t)> - t <e, e> / g = 0

    fixes t. h decreases: by convexity <e, X w(t)> grows with t. So h(0) = <e, e> b_0, with b_0 the
    intercept of the centred fit, puts the root between 0 and g b_0.

    nu_0 must leave X^T nu_0 inside the dual domain. At depth 2 that is everything and nu_0 runs
    along e; at depth D >= 3 it is the box |z_i| < c_i, and nu_0 runs along the direction that goes
    farthest, a linear program: every t that the domain admits at all is then admitted.
    """

    # Evaluations of h, each a limit, and their steps: several times what a root that doubles
    # resolve takes. Beyond, the search ends where it is, for the certificate to judge.
    most_trials, most_steps = 200, 3000

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
        # Above the rounding of a projection.
        if np.linalg.norm(alone) > 1e-10 * np.linalg.norm(e):
            # X cannot do what the bias does: along `alone` its columns see nothing at all.
            return alone / float(alone @ e), np.inf
        return self.family.farthest(self.network, X, e)

    def at(self, t: float) -> tuple[FloatArray, FloatArray]:
        """w(t) and its dual."""
        base = t * self.direction
        start = self.family.moved(self.network.potential, self.X.T @ base)
        if self.data is None:
            return start.potential.grad_dual(np.broadcast_to(start.shift, self.X.shape[1])), base
        # Judged through the certificate of the whole: the tolerance only sets its status.
        inner, _ = limit_with_state(start, self.data, tol=1e-10, warm=None)
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
        inside = (1.0 - 1e-9) * self.reach  # of the dual domain
        end = float(np.copysign(min(abs(g * first / size), inside), first))
        t = self._root(first, end)
        w, dual = self.at(t)
        return np.append(w, t / g), dual

    def _first_trial(self, end: float) -> float:
        """Not far along, and where the dual domain has no end, not far out in it either."""
        pull = float(np.abs(self.X.T @ self.direction).max())
        unbounded = np.isinf(self.reach) and pull > 0.0
        near = 2.0**-10 * end
        # A shift by 1 of an exponential dual multiplies weights by e.
        return min(near, 1.0 / pull) if unbounded else near

    def _root(self, first: float, end: float) -> float:
        """The root of h between 0 and `end`, where first = h(0)."""
        before = self.effort.steps

        def h(t: float) -> float:
            if self.trials >= self.most_trials or self.effort.steps - before >= self.most_steps:
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
                # To the last digits that h has.
                xtol=1e-300,
                rtol=1e-15,
                maxiter=self.most_trials,
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
    edge = -1.0 + np.finfo(np.float64).eps
    lowered, raised = (
        np.maximum(-shift / np.exp(plus), edge),
        np.maximum(shift / np.exp(minus), edge),
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
