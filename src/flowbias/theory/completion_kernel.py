"""The tangent kernel of matrix completion, and when it says nothing about unseen entries.

    K((i, j), (k, l)) = <u_i, u_k> 1(j = l) + <v_j, v_l> 1(i = k)   at the start

[woodworth2020, the ICLR version, section 6]. Where it is a multiple of the delta kernel, the
tangent model leaves unobserved entries where they start: for rows of U and of V that are orthogonal
(the paper says columns, which is the same for square orthogonal U and V only) and of equal length,
and for Gaussian ones as the width grows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.ground.typing import FloatArray
from flowbias.limits.frobenius import frobenius_norm
from flowbias.models.lifted import LiftedModel
from flowbias.problems.matrix.completion import MatrixCompletion
from flowbias.theory.arguments import checked
from flowbias.theory.claim import Claim, Kind, Reference
from flowbias.theory.conditions import OutsideHypothesis, positive
from flowbias.theory.kernel_rich import WOODWORTH, relative
from flowbias.theory.linearized_factorization import LinearizedFactorization

ICLR = Reference(WOODWORTH, "ICLR version, section 6")
# Entries of the Gram matrix that count as zero, relative to its diagonal.
_ORTHOGONAL = 1e-12


@checked
def completion_kernel(model: LiftedModel, problem: MatrixCompletion) -> FloatArray:
    """K between the observed entries, from the Gram matrix alone.

    >>> model = fb.MatrixFactorization.identity((2, 2), scale=1.0)
    >>> problem = fb.MatrixCompletion([0, 1], [0, 1], [1.0, 2.0], (2, 2))
    >>> fb.theory.completion_kernel(model, problem)
    array([[2., 0.],
           [0., 2.]])
    """
    model.lifted_problem(problem)  # refuses shapes that do not fit
    d1, gram = model.shape[0], model.gram
    i, j = problem.rows, problem.cols
    left = gram[:d1, :d1][np.ix_(i, i)] * (j[:, None] == j[None, :])
    right = gram[d1:, d1:][np.ix_(j, j)] * (i[:, None] == i[None, :])
    return np.asarray(left + right)


@checked
def completion_kernel_formula(model: LiftedModel, problem: MatrixCompletion) -> Claim:
    """The formula against the gradients of the observed entries in the factors.

    [woodworth2020, the ICLR version, section 6]

    >>> model = fb.MatrixFactorization.gaussian((2, 2), width=5, scale=0.5, rng=0)
    >>> problem = fb.MatrixCompletion([0, 1], [0, 1], [1.0, 2.0], (2, 2))
    >>> fb.theory.completion_kernel_formula(model, problem).holds
    True
    """
    predicted = completion_kernel(model, problem)
    measured = LinearizedFactorization(model, problem).kernel
    return Claim(
        "tangent kernel of completion",
        measured=relative(measured - predicted, predicted),
        predicted=0.0,
        kind=Kind.EQUAL,
        reference=ICLR,
        statement="entries are related where they share a row or a column",
        tolerance_origin="rounding of one product of matrices",
        atol=1e-13,
    )


@checked
def orthogonal_rows_give_delta(
    model: LiftedModel, problem: MatrixCompletion
) -> tuple[Claim, Claim]:
    """Orthogonal rows of U and of V: K is diagonal, and the tangent model imputes nothing.

    [woodworth2020, the ICLR version, section 6, case (a)]. With rows of equal length K is a
    multiple of the delta kernel; for imputing nothing a diagonal K is enough.

    >>> model = fb.MatrixFactorization.identity((2, 2), scale=1.0)
    >>> problem = fb.MatrixCompletion([0, 1], [0, 1], [1.0, 2.0], (2, 2))
    >>> all(claim.holds for claim in fb.theory.orthogonal_rows_give_delta(model, problem))
    True
    """
    _require_orthogonal_rows(model)
    kernel = completion_kernel(model, problem)
    delta = Claim(
        "tangent kernel is a delta",
        measured=relative(kernel - np.diag(np.diag(kernel)), kernel),
        predicted=0.0,
        kind=Kind.EQUAL,
        reference=ICLR,
        statement="with orthogonal rows no two entries are related",
        tolerance_origin="rounding of the Gram matrix",
        atol=_ORTHOGONAL,
    )
    return delta, _imputes_nothing(model, problem, atol=1e-10)


def _imputes_nothing(model: LiftedModel, problem: MatrixCompletion, *, atol: float) -> Claim:
    """The tangent model's limit is the fit closest to its start: unobserved entries stay."""
    predicted = frobenius_norm(problem, model.product).M
    reached = LinearizedFactorization(model, problem).product(np.inf)
    return Claim(
        "tangent model imputes nothing",
        measured=relative(reached - predicted, predicted),
        predicted=0.0,
        kind=Kind.EQUAL,
        reference=ICLR,
        statement="a delta kernel leaves unobserved entries where they start",
        tolerance_origin="rounding of one solve with the kernel, condition below 1e3",
        atol=atol,
    )


@checked
def gaussian_rows_give_delta(model: LiftedModel, scale: float) -> Claim:
    """||K/(2 alpha^2 k) - 1||_op <= 4 (sqrt(d1/k) + sqrt(d2/k)) on all entries, with probability
    at least 1 - 2 exp(-d1/2) - 2 exp(-d2/2).

    [woodworth2020, the ICLR version, section 6, case (b)], made quantitative by Lemma 13: K takes
    R to U U^T R + R V V^T. For independent N(0, scale^2) entries and width k >= max(d1, d2).

    >>> model = fb.MatrixFactorization.gaussian((30, 30), width=10**6, scale=0.1, rng=0)
    >>> fb.theory.gaussian_rows_give_delta(model, scale=0.1).holds
    True
    """
    alpha = positive("scale", scale, "Pass the standard deviation of the weights.")
    d1, d2 = model.shape
    if model.width < max(d1, d2):
        raise OutsideHypothesis(
            f"model: must have width >= {max(d1, d2)}, got {model.width}. "
            "Narrower factors have dependent rows, and their kernel is no delta."
        )
    level = alpha**2 * model.width
    left, right = (
        np.linalg.eigvalsh(block) - level for block in (model.gram[:d1, :d1], model.gram[d1:, d1:])
    )
    # The eigenvalues of R -> A R + R B are all sums of one of A and one of B.
    extremes: list[Any] = [left[0] + right[0], left[-1] + right[-1]]
    return Claim(
        "tangent kernel of a wide start",
        measured=float(np.abs(extremes).max()) / (2.0 * level),
        predicted=4.0 * float(np.sqrt(d1 / model.width) + np.sqrt(d2 / model.width)),
        kind=Kind.UPPER,
        reference=ICLR,
        statement="as the width grows the tangent kernel becomes a delta",
        tolerance_origin="none: an event of the probability given above, not an identity",
    )


def _require_orthogonal_rows(model: LiftedModel) -> None:
    d1 = model.shape[0]
    for name, block in (("U", model.gram[:d1, :d1]), ("V", model.gram[d1:, d1:])):
        off = np.abs(block - np.diag(np.diag(block))).max()
        if off > _ORTHOGONAL * np.diag(block).max():
            raise OutsideHypothesis(
                f"model: must have orthogonal rows of {name}, got an inner product of {off:.3g}. "
                "Use MatrixFactorization.identity, or gaussian_rows_give_delta for wide starts."
            )
