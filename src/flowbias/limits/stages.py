"""The whole path of a vanishing start: stages, between which the flow jumps.

Let the scale go to zero and look at the flow on its slow clock. It rests at a point, a feature
wakes, the flow jumps to the next point; after finitely many of these stages it is at the rich
limit. Each stage is computed exactly (`inverse_scale_space.py`) and all of them are certified.

    depth 2:        tau = g c t / log(1/scale^2),     bounds of zeta: 1, whatever the shape w0
    depth D > 2:    tau = g c scale^(D-2) t,          bounds of zeta: |w0|^(2-D)

with g = 4 at depth 2 and D (D-2) beyond, for the loss (c/2) ||X w - y||^2.
[Pesme and Flammarion 2023; Zhao et al. 2026]

Columns may be able to do each other's work. The w of gradient flow is at every time the rich limit
of its own predictions X w. So where columns at their bounds depend on each other, the weights of a
stage are those of `rich_limit` on these columns, for what they fit together. The choice scales with
the weights, as the entropy |w| log|w| and the power |w|^(2/D) do on a face of equal cost: columns
that are all parallel are asked once.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.linalg

from flowbias.certificates.error_bound import PROVED
from flowbias.certificates.stage_certificate import StageCertificate, certify_stages
from flowbias.designs import design_of
from flowbias.designs.dense import DenseDesign
from flowbias.designs.tasks import Coordinates
from flowbias.ground.arguments import InputError, read_size
from flowbias.ground.extended import length, row_lengths
from flowbias.ground.typing import FloatArray, Indices
from flowbias.limits.exact_stages import exact_stages
from flowbias.limits.inverse_scale_space import EPS, Columns, Stage, Walk
from flowbias.limits.rich_limit import rich_limit
from flowbias.limits.slow_clock import VanishingStart, vanishing_start
from flowbias.limits.solve import check_model, check_size
from flowbias.limits.stage_path import Data, StagePath
from flowbias.models._base import HasPotential
from flowbias.problems.regression import all_zeros, as_regression, checked_outputs
from flowbias.results.solution import Stats, Status


def stages(
    model: HasPotential,
    X: Any,
    y: Any = None,
    *,
    max_stages: int | None = None,
    tol: float = 1e-10,
    throw: bool = True,
) -> StagePath:
    """The path of gradient flow from a vanishing start of `model`'s shape, stage by stage.

    Where a stage leaves a choice between dependent columns, w is the one that gradient flow selects
    (`rich_limit`).

    Parameters
    ----------
    model : a diagonal network of any depth, from any start; its scale plays no role
    X, y : the data, or a `Regression` in place of X
    max_stages : stop after so many, where the path would be long
    tol, throw : as for `limit`

    Returns
    -------
    StagePath with times, w, events, at(tau) and limit

    Raises
    ------
    SolveError where a stage cannot be certified

    >>> path = fb.stages(fb.DiagonalNet(depth=2, scale=1.0), [[1.0, 2.0]], [1.0])
    >>> path.times, path.w[-1]
    (array([0. , 0.5]), array([0. , 0.5]))
    """
    build = vanishing_start(model)  # before the data, which may be of the model's own kind
    started = time.perf_counter()
    data = _read(model, X, y, tol)
    start = build(model, data.design.d)
    found, whole, selected = _followed(model, data, start, max_stages)
    whole = whole and not _something_left(data, found[-1], start)
    with np.errstate(invalid="ignore", divide="ignore"):
        certificate = certify_stages(data.design, data.y, found, start.bounds, tol=tol, whole=whole)
    status, is_exact = Status.STALLED, False
    if not replace(certificate, tol=max(tol, PROVED)).ok:
        exact = _exactly(data, start, max_stages, tol)
        if exact is not None:
            (found, certificate), selected, is_exact = exact, True, True
            whole = certificate.whole
    if certificate.ok:
        status = Status.CERTIFIED if selected else Status.NOT_UNIQUE
    elif replace(certificate, tol=PROVED).ok:
        status = Status.FEW_DIGITS
    stats = Stats(0, len(found), time.perf_counter() - started)
    path = StagePath(
        model, data, start, found, status, certificate, stats, whole, max_stages, is_exact
    )
    return path.checked(throw)


def uncertified_stages(
    model: HasPotential, X: Any, y: FloatArray, max_stages: int | None
) -> tuple[Stage, ...]:
    """The stages alone, for those who compare many paths and keep none."""
    data = _read(model, X, y, PROVED)
    return _followed(model, data, vanishing_start(model)(model, data.design.d), max_stages)[0]


def _followed(
    model: HasPotential, data: Data, start: VanishingStart, most: int | None
) -> tuple[tuple[Stage, ...], bool, bool]:
    """The stages, whether they are all, and whether every choice between weights is proved."""
    if most is not None:
        most = read_size("max_stages", most, "how many to follow; the first is w = 0")
    upper, lower = (
        np.broadcast_to(b, (data.design.d,))
        for b in (start.bounds.weights, start.bounds.negative_weights)
    )
    # In units of powers of two, which round nothing: no product of X and y leaves the range.
    columns, x_unit = data.columns()
    y_unit = float(np.exp2(np.frexp(np.abs(data.y).max())[1] - 1))
    sharing = Sharing(model, columns)
    found: list[Stage] = []
    for stage in Walk(columns, data.y / y_unit, upper, lower).stages():
        if most is not None and len(found) == most:
            return tuple(found), False, sharing.proved
        found.append(_in_units(sharing.settled(stage), x_unit, y_unit))
    return tuple(found), True, sharing.proved


def _exactly(
    data: Data, start: VanishingStart, most: int | None, tol: float
) -> tuple[tuple[Stage, ...], StageCertificate] | None:
    """The stages in rational numbers, for an array that is small."""
    if data.X is data.design:
        return None
    upper, lower = (
        np.broadcast_to(b, (data.design.d,))
        for b in (start.bounds.weights, start.bounds.negative_weights)
    )
    return exact_stages(data.X, data.y, upper, lower, most, tol)


def _something_left(data: Data, last: Stage, start: VanishingStart) -> bool:
    """Whether the last residual has a part that X fits, beyond the rounding of y.

    Rows in small units and nearly dependent columns pull with less than rounding, late; the path
    then ends before its limit. Not judged where a side is closed, nor on big X.
    """
    rounding = 10.0 * len(data.y) * EPS * length(data.y)
    sides = start.bounds.weights, start.bounds.negative_weights
    open_sides = all(np.isfinite(side).all() for side in sides)
    if data.X is data.design or not open_sides or length(last.residual) <= rounding:
        return False
    lengths = row_lengths(data.X.T)
    X = data.X[:, lengths > 0.0] / lengths[lengths > 0.0]
    return length(X @ np.linalg.lstsq(X, last.residual)[0]) > rounding


def _read(model: HasPotential, X: Any, y: Any, tol: float) -> Data:
    design = design_of(X)
    if design is None:
        problem = as_regression(X, y)
        check_model(model, problem, tol)
        return Data(problem.X, problem.y, DenseDesign(problem.X))
    check_size(model, design.d, tol)
    if not design.has_entries:
        raise InputError(
            f"X: must have entries that can be looked at, got a {design.kind}. Stages take single "
            "columns: pass an array or a sparse matrix."
        )
    # Names what is not finite.
    if not any(block.largest_entries().any() for block in design.blocks()):
        raise all_zeros(design.shape)
    return Data(design, checked_outputs(y, design.n), design)


@np.errstate(over="ignore", under="ignore")
def _in_units(stage: Stage, x_unit: float, y_unit: float) -> Stage:
    time, coefficients = stage.time / x_unit / y_unit, stage.coefficients * (y_unit / x_unit)
    shortest = 1e-305  # with all its digits
    if stage.time > 0.0 and not shortest < time < np.inf:
        decades = np.log10(stage.time) - np.log10(x_unit) - np.log10(y_unit)
        raise InputError(
            f"X: must wake its features at times, of the order of 1 / (X^T y), that are doubles, "
            f"got 1e{decades:.0f}. Divide X and y by a common factor u: the same stages, u^2 times "
            "later."
        )
    if not np.isfinite(coefficients).all():
        raise InputError(
            f"y: must leave w, of the order of y / X, a double, got entries of X of {x_unit:.0e} "
            f"and of y of {y_unit:.0e}. Divide y, and w is divided by the same."
        )
    return Stage(
        time=time,
        support=stage.support,
        coefficients=coefficients,
        residual=stage.residual * y_unit,
        tied=stage.tied,
    )


class Sharing:
    """The choices of one model on one X, remembered where they come again."""

    def __init__(self, model: Any, columns: Columns) -> None:
        self.columns = columns
        self.coordinates = Coordinates(model.potential, model.shift, columns.shape[1])
        #: by columns and their sign: shares of the weight that one of them would have alone
        self.known: dict[tuple[tuple[int, ...], bool], FloatArray] = {}
        #: whether every choice so far is proved
        self.proved = True

    def settled(self, stage: Stage) -> Stage:
        """The stage with the weights that gradient flow selects."""
        if not stage.tied:
            return stage
        face = np.array([*stage.support, *stage.tied])
        weights = np.concatenate([stage.coefficients, np.zeros(len(stage.tied))])
        X = np.column_stack([self.columns.column(j) for j in face])
        sharing = _sharing(X / row_lengths(X.T))
        if sharing.any():
            weights[sharing] = self._shared(X[:, sharing], face[sharing], weights[sharing])
        used = np.flatnonzero(weights)
        return replace(stage, support=tuple(face[used].tolist()), coefficients=weights[used])

    def _shared(self, X: FloatArray, which: Indices, weights: FloatArray) -> FloatArray:
        lengths = row_lengths(X.T)
        directions = X / lengths
        tol = _rounding(X) * float(np.sqrt(len(lengths)))
        parallel = np.linalg.matrix_rank(directions, tol=tol) == 1
        # All that they fit together, as a multiple of the first of them; the other sign has
        # another start, and other shares.
        total = float(directions[:, 0] @ (X @ weights) / lengths[0])
        key = tuple(which.tolist()), total > 0.0
        if parallel and key in self.known:
            return total * self.known[key]
        order = np.argsort(which)
        mask = np.zeros(self.columns.shape[1], dtype=bool)
        mask[which] = True
        limit = rich_limit(self.coordinates.on(mask), X[:, order], X @ weights, throw=False)
        self.proved &= limit.status in (Status.CERTIFIED, Status.PROJECTED)
        if not limit.status.ok:
            return weights
        chosen = np.empty_like(weights)
        chosen[order] = limit.w
        if parallel and total != 0.0:
            self.known[key] = chosen / total
        return chosen


def _rounding(X: FloatArray) -> float:
    return float(max(X.shape)) * EPS


def _sharing(X: FloatArray) -> Any:
    """Which of these columns of length one depend on others: what a null vector uses."""
    null = scipy.linalg.null_space(X, rcond=8.0 * _rounding(X))
    # Half of the digits: an entry of a null vector is of order one, or rounding.
    return np.abs(null).max(axis=1, initial=0.0) > np.sqrt(EPS)
