"""Other ways to the limit of a tied depth-2 network, each as well as it can fairly be done.

A peer is a function of a `Race`. It hands every iterate to `race.check`, which ends the peer, in
its favour, the moment it is within the target of the true limit, and otherwise when its time is
up. What it raises is the result.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field

import numpy as np
import scipy.integrate
import scipy.optimize
from _common import relative_error

# Local errors of the integrators: with them the limit is met to 1e-8 or so.
RTOL = 1e-10
# Residual at which an iterate no longer moves; further away from the limit it will not get nearer.
AT_REST = 1e-13
# Exponents are cut here so that a step too far is rejected as bad instead of ending in NaN.
LARGEST_EXPONENT = 250.0
# Growth of log(1/alpha^2) from one stage of the continuation to the next: the best of a few tried.
STAGE = 1.3
# Share of the largest stable step that gradient descent takes.
SAFE_STEP = 0.9
CHECK_EVERY = 50


class Finished(Exception):  # noqa: N818 - an outcome, not an error
    """Raised inside a peer when it has arrived, or its time is up."""


@dataclass
class Race:
    """One problem and scale, the true limit, and what a peer has reached of it so far."""

    X: np.ndarray
    y: np.ndarray
    alpha: float
    reference: np.ndarray
    target: float
    budget: float
    error: float = np.inf
    note: str = "stopped short"
    started: float = field(default_factory=time.perf_counter)

    @property
    def log_start(self) -> float:
        """log alpha^2; alpha^2 itself underflows."""
        return 2.0 * float(np.log(self.alpha))

    def check(self, w: np.ndarray) -> None:
        self.error = relative_error(w, self.reference)
        if self.error <= self.target:
            self.note = "reached"
            raise Finished
        if np.linalg.norm(self.X @ w - self.y) <= AT_REST * np.linalg.norm(self.y):
            self.note = "at rest elsewhere"
            raise Finished
        if time.perf_counter() - self.started > self.budget:
            self.note = "no convergence in time"
            raise Finished

    def arrive(self, w: np.ndarray, note: str) -> None:
        """The one result of a peer without iterates, and what it is if not the limit."""
        self.error = relative_error(w, self.reference)
        self.note = "reached" if self.error <= self.target else note

    def run(self, peer) -> Race:
        """Itself, after the peer."""
        self.started = time.perf_counter()
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                peer(self)
            except Finished:
                pass
            except Exception as error:  # whatever ends a peer is its result
                self.note = f"failed: {type(error).__name__}"
        return self


# --- in parameter space: what the papers do ------------------------------------------------------


def _parameter_ode(race: Race, method: type[scipy.integrate.OdeSolver], **options) -> None:
    X, y, d = race.X, race.y, race.X.shape[1]

    def rhs(_: float, theta: np.ndarray) -> np.ndarray:
        plus, minus = theta[:d], theta[d:]
        pull = 2.0 * (X.T @ (y - X @ (plus**2 - minus**2)))
        return np.concatenate([plus * pull, -minus * pull])

    # For a large start w is a small difference of large squares. A small one grows by
    # exponentials, of which an absolute error above alpha would be the seed.
    rtol = RTOL / max(1.0, race.alpha**2)
    atol = max(rtol * race.alpha, 1e-305)
    start = np.full(2 * d, race.alpha)
    solver = method(rhs, 0.0, start, np.inf, rtol=rtol, atol=atol, **options)
    while solver.status == "running":
        solver.step()
        race.check(solver.y[:d] ** 2 - solver.y[d:] ** 2)


def dop853(race: Race) -> None:
    _parameter_ode(race, scipy.integrate.DOP853)


def lsoda(race: Race) -> None:
    """With the exact Jacobian, without which it spends its time on differences."""
    X, y, d = race.X, race.y, race.X.shape[1]
    gram = X.T @ X

    def jacobian(_: float, theta: np.ndarray) -> np.ndarray:
        plus, minus = theta[:d], theta[d:]
        pull = 2.0 * (X.T @ (y - X @ (plus**2 - minus**2)))
        signed = np.concatenate([plus, -minus])
        matrix = -4.0 * signed[:, None] * np.tile(gram, (2, 2)) * signed
        matrix[np.diag_indices(2 * d)] += np.concatenate([pull, -pull])
        return matrix

    _parameter_ode(race, scipy.integrate.LSODA, jac=jacobian)


def _descent(race: Race, share: float) -> None:
    """On ||X w - y||^2 / 2, with a share of the largest step stable at both ends of the path."""
    X, y = race.X, race.y
    sizes = np.full_like(race.reference, 2.0 * race.alpha**2)
    ends = sizes, np.hypot(race.reference, sizes)  # w+^2 + w-^2, whose Hessian is X 4(.) X^T
    sharpest = max(np.linalg.norm((X * (4.0 * size)) @ X.T, 2) for size in ends)
    step = share * 2.0 / sharpest
    plus, minus = np.full((2, X.shape[1]), race.alpha)
    while True:
        for _ in range(CHECK_EVERY):
            pull = 2.0 * step * (X.T @ (y - X @ (plus * plus - minus * minus)))
            plus, minus = plus * (1.0 + pull), minus * (1.0 - pull)
        w = plus * plus - minus * minus
        if not np.isfinite(w).all():
            raise FloatingPointError("diverged")
        race.check(w)


def gradient_descent(race: Race) -> None:
    _descent(race, SAFE_STEP)


def patient_descent(race: Race) -> None:
    """With a hundredth of that step, to follow the flow more closely."""
    _descent(race, 0.01 * SAFE_STEP)


# --- as a convex program -------------------------------------------------------------------------


def conic(race: Race) -> None:
    """Exponential cones: w = p - m, sum p log(p/alpha^2) - p + m log(m/alpha^2) - m."""
    import cvxpy as cp  # here, because the other peers do without it

    X, y, d = race.X, race.y, race.X.shape[1]
    p, m = cp.Variable(d), cp.Variable(d)
    slope = -race.log_start - 1.0
    objective = (slope * cp.sum(p + m) - cp.sum(cp.entr(p) + cp.entr(m))) / max(1.0, abs(slope))
    program = cp.Problem(cp.Minimize(objective), [X @ (p - m) == y])
    tight = dict.fromkeys(("tol_feas", "tol_gap_abs", "tol_gap_rel"), 1e-13)
    program.solve(solver=cp.CLARABEL, time_limit=race.budget, max_iter=500, **tight)
    race.arrive(p.value - m.value, f"stopped short ({program.status})")


# --- on the dual, for those who know it ----------------------------------------------------------


class Dual:
    """phi(nu) = sum alpha^2 (e^z + e^-z - 2) - <nu, y>, z = X^T nu; nu in units of log(1/alpha^2).

    Each point is evaluated once and, at the scale that counts, handed to the race.
    """

    def __init__(self, race: Race, log_start: float | None = None) -> None:
        self.race = race
        self.log_start = race.log_start if log_start is None else log_start
        self.unit = max(1.0, -self.log_start)
        self.start = np.zeros(len(race.y))
        self.nu: np.ndarray | None = None

    def _move(self, nu: np.ndarray) -> None:
        if self.nu is not None and np.array_equal(nu, self.nu):
            return
        self.nu = nu.copy()
        z, log_start = self.unit * (self.race.X.T @ nu), self.log_start
        up, down = (np.exp(np.minimum(log_start + s * z, LARGEST_EXPONENT)) for s in (1, -1))
        self.w, self.slope, roots = up - down, up + down, np.sqrt(up) - np.sqrt(down)
        if log_start > -1.0:  # the differences cancel in the kernel regime
            root = np.exp(0.5 * log_start)
            self.w, roots = 2.0 * root**2 * np.sinh(z), 2.0 * root * np.sinh(0.5 * z)
        self.conjugate = float(roots @ roots)
        if log_start == self.race.log_start:
            self.race.check(self.w)

    def value(self, nu: np.ndarray) -> float:
        self._move(nu)
        return self.conjugate - self.unit * float(nu @ self.race.y)

    def gradient(self, nu: np.ndarray) -> np.ndarray:
        self._move(nu)
        return self.unit * (self.race.X @ self.w - self.race.y)

    def hessian(self, nu: np.ndarray) -> np.ndarray:
        self._move(nu)
        return self.unit**2 * ((self.race.X * self.slope) @ self.race.X.T)


def dual_lbfgs(race: Race) -> None:
    dual = Dual(race)
    options = {"maxiter": 10**6, "maxfun": 10**7, "ftol": 0.0, "gtol": 0.0, "maxcor": 30}
    scipy.optimize.minimize(
        dual.value, dual.start, jac=dual.gradient, method="L-BFGS-B", options=options
    )


def dual_newton_cg(race: Race) -> None:
    dual = Dual(race)
    scipy.optimize.minimize(
        dual.value, dual.start, jac=dual.gradient, hess=dual.hessian, method="Newton-CG",
        options={"maxiter": 10**5, "xtol": 1e-16},
    )  # fmt: skip


def _trust_region(dual: Dual, start: np.ndarray, **options) -> np.ndarray:
    options = {"maxiter": 10**4, "max_trust_radius": 1e12, **options}
    return scipy.optimize.minimize(
        dual.value, start, jac=dual.gradient, hess=dual.hessian, method="trust-exact",
        options=options,
    ).x  # fmt: skip


def dual_trust_region(race: Race) -> None:
    dual = Dual(race)
    _trust_region(dual, dual.start, gtol=0.0)


def dual_continuation(race: Race) -> None:
    """The same along a sequence of scales down to alpha, each started from the one before."""
    size = float(np.linalg.norm(race.y))
    nu, log_start = np.zeros(len(race.y)), -1.0
    while log_start > race.log_start:
        dual = Dual(race, log_start)
        nu = _trust_region(dual, nu, gtol=1e-3 * dual.unit * size)
        log_start *= STAGE
        if time.perf_counter() - race.started > race.budget:
            race.note = "no convergence in time"
            return
    _trust_region(Dual(race), nu, gtol=0.0)


def dual_lsoda(race: Race) -> None:
    """d nu/dt = y - X w(nu), stiff, in n unknowns; time in units of the dual's."""
    dual = Dual(race)
    solver = scipy.integrate.LSODA(
        lambda _, nu: -dual.gradient(nu), 0.0, dual.start, np.inf, rtol=1e-8, atol=1e-12,
        jac=lambda _, nu: -dual.hessian(nu),
    )  # fmt: skip
    while solver.status == "running":
        solver.step()


# --- at the rich end: the l1 minimizer -----------------------------------------------------------


def lars(race: Race) -> None:
    from sklearn.linear_model import lars_path

    _, _, path = lars_path(race.X, race.y, method="lasso", max_iter=10 * len(race.y))
    race.arrive(path[:, -1], "the l1 minimizer")


def highs(race: Race) -> None:
    d = race.X.shape[1]
    result = scipy.optimize.linprog(
        np.ones(2 * d), A_eq=np.hstack([race.X, -race.X]), b_eq=race.y, method="highs"
    )
    race.arrive(result.x[:d] - result.x[d:], "the l1 minimizer")


PEERS = {
    "DOP853, 2d weights": dop853,
    "LSODA, 2d weights": lsoda,
    "gradient descent": gradient_descent,
    "gradient descent, 1% step": patient_descent,
    "cvxpy + Clarabel": conic,
    "dual, L-BFGS-B": dual_lbfgs,
    "dual, Newton-CG": dual_newton_cg,
    "dual, trust-exact": dual_trust_region,
    "dual, trust-exact, in stages": dual_continuation,
    "dual ODE, LSODA": dual_lsoda,
}
RICH_PEERS = {"LARS (scikit-learn)": lars, "linear program (HiGHS)": highs}
