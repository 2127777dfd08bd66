"""Starts that a flow cannot leave towards a fit: those on the stable manifold of a saddle.

Columns of U and V stay in the smallest subspaces S_U, S_V that hold them at the start and that

    U' = D (T - D U V^T) V,   V' = (T - D U V^T)^T D U      (Y ~ X U V^T: D = root, T = W^T Y)
    U' = sum_n q_n X_n V,     V' = sum_n q_n X_n^T U        (any measurements)

map to each other: D^2 S_U and D T S_V lie in S_U, T^T D S_U in S_V; or X_n S_V in S_U and X_n^T S_U
in S_V for all n. Where no M with columns in S_U and rows in S_V fits, neither does the limit. Next
to such a start, however close, the flow does leave: rounding takes an integration there, and what
it then ends at is no limit of the flow that was asked for. Subspaces are found up to rounding. A
start may also be on such a manifold without a subspace to tell: the closed form in time sees that
where it applies, and elsewhere an integration from next to the start (`integration.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg

from flowbias.flows.lifted.compression import ReducedProblem
from flowbias.ground.typing import FloatArray

# What is left of a direction, relative to itself, once those that are known are taken out: below it
# is the rounding of rotations to singular vectors, 1e-15, of some hundred terms.
_KNOWN = 1e-13
# Numbers up to which measurements are stacked for the test.
_STACKED = 2e6

Closure = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]


def out_of_reach(setting: ReducedProblem) -> float:
    """The share of the target that the flow from this start never fits; 0 where none is known."""
    weights, rows = setting.compression.weights, setting.compression.rows
    if not setting.fit.reachable.any():
        return 0.0
    left = _directions(weights, slice(0, rows))
    if left.shape[1] == rows and setting.root is not None:
        return 0.0  # all of U moves: S_V holds the rows of T
    right = _directions(weights, slice(rows, None))
    if left.shape[1] == rows and right.shape[1] == len(right):
        return 0.0
    if setting.root is not None:
        left, right = _closed(left, right, _regression_closure(setting))
        fitted = left @ (left.T @ setting.fit.reachable @ right) @ right.T
        missed = float(np.linalg.norm(setting.fit.reachable - fitted))
    else:
        if setting.fit.target.size * weights.size > _STACKED:
            return 0.0
        left, right = _closed(left, right, _measured_closure(setting))
        missed = _misfit_within(setting, left, right)
    share = missed / float(np.linalg.norm(setting.fit.reachable))
    # Share of the target out of reach from which on it is said to be.
    out_of_reach = 1e-10
    return share if share > out_of_reach else 0.0


def _regression_closure(setting: ReducedProblem) -> Closure:
    root = np.ones(1) if setting.root is None else setting.root
    pull = root[:, None] * setting.fit.target

    def images(left: FloatArray, right: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.hstack([root[:, None] ** 2 * left, pull @ right]), pull.T @ left

    return images


def _measured_closure(setting: ReducedProblem) -> Closure:
    fit = setting.fit
    units = np.eye(fit.target.size)
    matrices = [fit.adjoint(unit.reshape(fit.target.shape)) for unit in units]

    def images(left: FloatArray, right: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.hstack([X @ right for X in matrices]), np.hstack([X.T @ left for X in matrices])

    return images


def _closed(left: FloatArray, right: FloatArray, images: Closure) -> tuple[FloatArray, FloatArray]:
    """Bases of the smallest subspaces that hold the given ones and their images."""
    while True:
        more = images(left, right)
        # Images of unit vectors: next to the largest, the least of them are rounding.
        least = [_KNOWN * float(np.abs(part).max(initial=0.0)) for part in more]
        wider = _grown(left, more[0], least[0]), _grown(right, more[1], least[1])
        if wider[0].shape == left.shape and wider[1].shape == right.shape:
            return left, right
        left, right = wider


def _directions(weights: FloatArray, rows: slice) -> FloatArray:
    """A basis of the columns of one factor, those left out that are rounding of the other's."""
    lengths = np.linalg.norm(weights, axis=1)
    even = weights / np.where(lengths > 0.0, lengths, 1.0)[:, None]
    whole, part = np.linalg.norm(even, axis=0), np.linalg.norm(even[rows], axis=0)
    columns = weights[rows][:, part > _KNOWN * whole]
    return _grown(np.zeros((len(columns), 0)), columns)


def _grown(basis: FloatArray, columns: FloatArray, least: float = 0.0) -> FloatArray:
    """The basis with what the columns add to it; each counts in full unless it is rounding."""
    lengths = np.linalg.norm(columns, axis=0)
    is_one = lengths > least
    rest = columns[:, is_one] / lengths[is_one]
    for _ in range(2):  # twice is enough: the second pass removes what rounding left of the first
        rest = rest - basis @ (basis.T @ rest)
    if rest.shape[1] == 0:
        return basis
    added, triangle, _ = scipy.linalg.qr(rest, mode="economic", pivoting=True)
    rank = int((np.abs(np.diag(triangle)) > _KNOWN * np.sqrt(len(basis))).sum())
    rank = min(rank, len(basis) - basis.shape[1])
    return np.hstack([basis, added[:, :rank]])


def _misfit_within(setting: ReducedProblem, left: FloatArray, right: FloatArray) -> float:
    """Distance of the target from the measurements of matrices in the span of both."""
    fit = setting.fit
    columns = [np.ravel(fit.measure(np.outer(u, v))) for u in left.T for v in right.T]
    matrix, target = np.array(columns).T, np.ravel(fit.reachable)
    if matrix.size == 0:
        return float(np.linalg.norm(target))
    return float(np.linalg.norm(matrix @ scipy.linalg.lstsq(matrix, target)[0] - target))
