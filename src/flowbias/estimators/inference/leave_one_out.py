"""Leave-one-out residuals of a limit: to first order from one fit, or exactly by warm refits.

The limit without sample i is the one whose dual has nu_i = 0. To first order the others keep their
targets while nu_i is taken away, H d nu = delta e_i with d nu_i = -nu_i, so that

    y_i - (prediction without i) = nu_i / (H^-1)_ii

exact where H is constant (the min-norm end), an approximation elsewhere. With an intercept H^-1 is
the block of the bordered inverse of [[H, 1], [1, 0]]. A sample whose row depends on the others is
not interpolated but fitted by least squares, whatever the potential; there the classical
(y - fit)_i / (1 - leverage_i) is exact at every scale.

Exactly, one of the solver's own Newton methods gets to nu_i = 0:

    on the dual alone         from the linear prediction, where w'(z) hardly changes on the way (the
                              kernel side), and for any potential whose dual map has no known form
    in weights and slacks     while nu_i is taken away (`homotopy`), elsewhere at depth 2 and D; a
                              trained bias is one weight more
    from scratch              where neither arrives (a few times: then for all that are left), or
                              the full fit has no resolved response

The first two precondition their linear systems by the factor of the full fit. Each refit is
certified like any other limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowbias.certificates.certificate import certify
from flowbias.estimators.inference.linear_response import LinearResponse, linear_response
from flowbias.estimators.inference.warm_newton import Finish, PredictedDual, finish_of
from flowbias.estimators.inference.weighted_rows import weighted_rows
from flowbias.estimators.intercepts.samples import centred
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import picture, stems
from flowbias.ground.html import facts
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import FloatArray, Mask
from flowbias.limits.normal_equations import Effort
from flowbias.limits.solve import limit
from flowbias.models._base import HasPotential
from flowbias.problems.regression import Constraint, as_regression
from flowbias.results.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def leave_one_out(
    model: HasPotential,
    X: Any,
    y: Any = None,
    *,
    fit_intercept: bool = False,
    sample_weight: Any = None,
    tol: float = 1e-10,
) -> FloatArray:
    """Residual y_i minus the prediction for sample i by the limit on the others, first order.

    One factorization beyond the fit.

    Parameters
    ----------
    model : with a potential, such as DiagonalNet
    X, y : the data, or a `Regression` in place of X
    fit_intercept : whether the limit is that of the centred data
    sample_weight : (n,), of each sample in the loss
    tol : of the certificates

    Returns
    -------
    (n,) residuals

    Raises
    ------
    SolveError where the limit cannot be certified, or doubles do not show how it answers

    >>> X, y, _ = fb.datasets.sparse_regression(n=10, d=30, rng=0)
    >>> fb.estimators.leave_one_out(fb.DiagonalNet(depth=2, scale=1.0), X, y).shape
    (10,)
    """
    check_one_can_be_left_out(len(as_regression(X, y).y))
    rows = weighted_rows(X, y, fit_intercept, sample_weight)
    return residuals_of(linear_response(model, rows, tol))


def check_one_can_be_left_out(n: int) -> None:
    """Before the fit: centred, a single sample has nothing left to fit."""
    if n < 2:
        raise InputError(
            f"X: must have at least 2 samples to leave one out, got {n}. Pass more samples."
        )


def residuals_of(response: LinearResponse) -> FloatArray:
    """The leave-one-out residuals that a linear response predicts, in the units of y."""
    residuals = least_squares_residuals(response)
    interpolated = response.unseen.interpolated
    if interpolated.any():
        dual, own = response.unit_dual, np.diagonal(response.unit_dual_dy) * response.rows.root
        residuals[interpolated] = dual[interpolated] / own[interpolated]
    return residuals


def least_squares_residuals(response: LinearResponse) -> FloatArray:
    """Those of the samples that are not interpolated, which no potential has a part in."""
    return response.unseen.left_out(response.rows.y) / response.rows.root


# --- exactly -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refits:
    """Exact leave-one-out residuals, and what each of them cost.

    factorizations  new ones per sample (an n x n product and its factor): at most 3 unless from
                    scratch, 0 where the factor of the full fit or least squares was enough
    iterations      of conjugate gradients, each a product with X and one with its transpose
    from_scratch    samples for which the warm start was given up
    """

    residuals: FloatArray
    factorizations: Any
    iterations: Any
    from_scratch: Mask
    #: the limit without each sample, of the rows as solved; NaN where least squares was enough
    _w: FloatArray = field(repr=False)

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The residual of each sample left out; on `ax` if given, written to `path` if given."""

        def panel(axes: Axes) -> None:
            stems(axes, self.residuals, label="residual when left out")
            axes.set_xlabel("sample")

        return picture(panel, path=path, ax=ax)

    def _repr_html_(self) -> str:
        return facts(
            "Refits, each without one sample",
            {
                "samples": f"{len(self.residuals)}",
                "root mean square of the residuals": float(np.sqrt(np.mean(self.residuals**2))),
                "largest residual": float(np.abs(self.residuals).max()),
                "factorizations": f"{int(self.factorizations.sum())}",
                "iterations": f"{int(self.iterations.sum())}",
                "from scratch": f"{int(self.from_scratch.sum())}",
            },
        )


def leave_one_out_refits(
    model: HasPotential,
    X: Any,
    y: Any = None,
    *,
    fit_intercept: bool = False,
    sample_weight: Any = None,
    tol: float = 1e-10,
) -> Refits:
    """Residual y_i minus the prediction for sample i by the limit on the others, exactly.

    Samples whose row depends on the others are fitted by least squares, whose leave-one-out
    residual needs no refit.

    Parameters
    ----------
    model : with a potential, such as DiagonalNet
    X, y : the data, or a `Regression` in place of X
    fit_intercept : whether the limit is that of the centred data
    sample_weight : (n,), of each sample in the loss
    tol : of the certificates

    Returns
    -------
    Refits with residuals and what each cost

    Raises
    ------
    SolveError where one of the limits cannot be certified to `tol`

    >>> X, y, _ = fb.datasets.sparse_regression(n=10, d=30, rng=0)
    >>> refits = fb.estimators.leave_one_out_refits(fb.DiagonalNet(depth=2, scale=1.0), X, y)
    >>> without_first = fb.limit(fb.DiagonalNet(depth=2, scale=1.0), X[1:], y[1:]).w
    >>> bool(np.isclose(refits.residuals[0], y[0] - X[0] @ without_first))
    True
    """
    check_one_can_be_left_out(len(as_regression(X, y).y))
    rows = weighted_rows(X, y, fit_intercept, sample_weight)
    return refits_of(linear_response(model, rows, tol), tol)


def refits_of(response: LinearResponse, tol: float, *, most_in_vain: int = 3) -> Refits:
    """The refits that start from a linear response; from scratch where doubles show none.

    After `most_in_vain` warm starts given up one after the other none is tried: the limit is too
    rich for them, and each costs several solves from scratch before it is given up.
    """
    residuals = least_squares_residuals(response)
    # A start that overflows leads nowhere: the limit is then taken from scratch.
    with np.errstate(all="ignore"):
        finish = finish_of(response) if response.is_resolved else None
    n = len(residuals)
    costs, from_scratch = [Effort() for _ in range(n)], np.zeros(n, dtype=bool)
    w, in_vain = np.full(response.rows.X.shape, np.nan), 0
    with threads_for(response.rows.X):
        for i in np.flatnonzero(response.unseen.interpolated):
            refit = _Refit(response, int(i), tol, costs[i])
            w[i], from_scratch[i] = refit.limit(finish if in_vain < most_in_vain else None)
            in_vain = in_vain + 1 if from_scratch[i] else 0
            residuals[i] = refit.residual(w[i])
    return Refits(
        residuals,
        np.array([cost.factorizations for cost in costs]),
        np.array([cost.iterations for cost in costs]),
        from_scratch,
        w,
    )


@dataclass(frozen=True)
class Remaining:
    """The constraint without one sample.

    Leaving out sample i confines the basis duals to those orthogonal to t, row i of the lift. A
    reflection that takes t to a multiple of a unit vector makes that a matter of deleting one row,
    which is row i itself where the basis rows are the samples'.
    """

    normal: FloatArray  # of the reflection
    pivot: int

    @classmethod
    def orthogonal_to(cls, t: FloatArray) -> Remaining:
        pivot = int(np.abs(t).argmax())
        normal = t / np.linalg.norm(t)
        normal[pivot] += np.copysign(1.0, normal[pivot])
        return cls(normal / np.linalg.norm(normal), pivot)

    def restrict(self, values: FloatArray) -> FloatArray:
        """Basis duals, targets or rows in the basis of what remains."""
        return np.delete(self._reflected(values), self.pivot, axis=0)

    def extend(self, dual: FloatArray) -> FloatArray:
        """The dual of all basis rows."""
        return self._reflected(np.insert(dual, self.pivot, 0.0))

    def constraint(self, whole: Constraint) -> Constraint:
        if np.count_nonzero(self.normal) == 1:
            rows, scale = (
                np.delete(whole.rows, self.pivot, 0),
                np.delete(whole.row_scale, self.pivot),
            )
            return Constraint(rows, row_scale=scale, target=np.delete(whole.target, self.pivot))
        rows = self.restrict(whole.row_scale[:, None] * whole.rows)
        return Constraint(rows, row_scale=np.ones(len(rows)), target=self.restrict(whole.target))

    def _reflected(self, values: FloatArray) -> FloatArray:
        return values - 2.0 * np.multiply.outer(self.normal, self.normal @ values)


class _Refit:
    """One sample left out."""

    def __init__(self, response: LinearResponse, i: int, tol: float, effort: Effort) -> None:
        self.response, self.i, self.tol, self.effort = response, i, tol, effort
        rows, free = response.rows, response.rows.free
        self.X, self.y = np.delete(rows.X, i, axis=0), np.delete(rows.y, i)
        self.x, self.target = rows.X[i], float(rows.y[i])
        if free is not None:
            # The samples that remain have an intercept, or centre, of their own.
            e = np.delete(free, i)
            share = free[i] / float(e @ e)
            self.x, self.target = self.x - share * (e @ self.X), self.target - share * (e @ self.y)
            column = e[:, None]
            self.X = column * centred(self.X / column, e**2)[0]
            self.y = e * centred(self.y[:, None] / column, e**2)[0][:, 0]

    def residual(self, w: FloatArray) -> float:
        return float(self.target - self.x @ w) / float(self.response.rows.root[self.i])

    def limit(self, finish: Finish | None) -> tuple[FloatArray, bool]:
        """On the samples that remain, certified; and whether it had to be from scratch."""
        response = self.response
        if len(response.constraint.target) == 1:
            # Nothing is left to fit: the flow stays where it starts.
            resting = np.zeros_like(response.solution.w) + response.model.shift
            return response.model.potential.grad_dual(resting), False
        if finish is not None:
            with np.errstate(all="ignore"):
                w = self._warm(finish)
            if w is not None:
                return w, False
        return self._cold(), True

    def _warm(self, finish: Finish) -> FloatArray | None:
        """The limit from the full fit, if Newton's method gets there."""
        response, potential = self.response, self.response.model.potential
        shift = response.model.shift
        t = response.unit_lift[self.i]
        remaining = Remaining.orthogonal_to(t)
        column = response.inverse @ t
        diagonal = float(t @ column)
        predicted = response.basis_dual - response.unit_dual[self.i] / diagonal * column
        # H^-1 on what remains, by taking out one row and column of the whole inverse.
        inverse = response.inverse - np.outer(column, column) / diagonal
        inverse = remaining.restrict(remaining.restrict(inverse).T)
        constraint = remaining.constraint(response.constraint)
        start = remaining.restrict(response.basis_dual)
        ahead = PredictedDual(constraint, start, remaining.restrict(predicted), inverse)
        finished = finish(ahead, self.effort)
        if finished is None:
            return None
        w, dual = finished
        nu = np.delete(response.lift @ remaining.extend(dual), self.i)
        proof = certify(self.X, self.y, w, nu, potential, shift, tol=self.tol)
        return w if proof.ok else None

    def _cold(self) -> FloatArray:
        solution: Solution = limit(self.response.model, self.X, self.y, tol=self.tol)
        self.effort.factorizations += solution.stats.factorizations
        return solution.w
