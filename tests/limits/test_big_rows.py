"""Awkward rows of a big X: repeated, nearly dependent, of zeros, of all sizes."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.certificates.error_bound import PROVED
from flowbias.designs.dense import DenseDesign
from flowbias.designs.sparse import SparseDesign
from flowbias.ground.arguments import InputError
from tests.limits.big_data import KINDS, WITH_ENTRIES, data, small_blocks

__all__ = ["small_blocks"]


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 8),
    extra=st.integers(0, 30),
    repeated=st.integers(0, 3),
    empty=st.integers(0, 5),
    consistent=st.booleans(),
    size=st.sampled_from([1e-100, 1e-8, 1.0, 1e8, 1e100]),
    kind=st.sampled_from(WITH_ENTRIES[::2]),
    scale=st.sampled_from([1.0, 1e-2, 1e-4]),
)
@example(0, 3, 0, 0, 0, True, 1.0, "dense", 1.0)
@example(0, 4, 10, 3, 4, False, 1.0, "sparse", 1e-2)
@example(321, 1, 16, 3, 1, False, 1e-100, "dense", 1.0)  # y by far largest at the smallest row
@example(2, 8, 12, 2, 2, True, 1e-100, "dense", 1e-4)  # a bound 30 times that of the array
@example(2, 8, 28, 2, 1, False, 1e-8, "dense", 1e-2)  # 10^6 times
def test_awkward_rows_and_columns(seed, n, extra, repeated, empty, consistent, size, kind, scale):
    """Repeated rows, rows and columns of zeros, rows of all sizes, y in the range or not."""
    rng = np.random.default_rng(seed)
    d = n + extra
    X = rng.standard_normal((n, d))
    X[:, rng.permutation(d)[: min(empty, extra)]] = 0.0
    if empty:
        X[rng.integers(n)] = 0.0 if n > 1 else 1.0
    X = np.vstack([X, X[rng.integers(n, size=repeated)]]) * 10.0 ** rng.uniform(
        -3, 3, (n + repeated, 1)
    )
    y = X @ rng.standard_normal(d)
    if not consistent:
        y = y + rng.standard_normal(len(y)) * np.abs(y).max()
    # The size goes to X: the potential has a size of its own for w.
    X, y = size * X, size * y
    if not X.any():
        return
    model = fb.DiagonalNet(2, scale)
    wanted = fb.limit(model, X, y, throw=False)
    found = fb.limit(model, KINDS[kind](X), y, throw=False)
    if not wanted.certificate.ok:
        return
    # A basis of dependent rows comes from X for an array, and for a big X from X X^T, which squares
    # their condition number: fewer digits are proved of the same w. Otherwise two ways to round
    # give bounds that differ by a small factor, and so may their names.
    is_basis = repeated > 0 or empty > 0
    at_the_edge = wanted.certificate.error_bound > 0.1 * PROVED * np.linalg.norm(wanted.w)
    is_known_less = found.status is fb.Status.FEW_DIGITS and (is_basis or at_the_edge)
    assert found.status is wanted.status or is_known_less
    assert np.linalg.norm(found.w - wanted.w) <= (
        found.certificate.error_bound + wanted.certificate.error_bound
    )
    assert_allclose(found.w, wanted.w, atol=1e-8 * np.abs(wanted.w).max())


def test_rows_given_twice_with_opposite_outputs():
    X, y = data(3)
    doubled, opposed = np.vstack([X, X]), np.concatenate([y, -y])
    for kind in WITH_ENTRIES:
        found = fb.limit(fb.DiagonalNet(2, 0.1), KINDS[kind](doubled), opposed)
        assert found.status is fb.Status.PROJECTED
        assert not found.w.any()


def test_nearly_dependent_rows_are_an_error():
    X, y = data(4)
    close = np.vstack([X, X[:1] + 1e-9 * np.random.default_rng(0).standard_normal(X.shape[1])])
    model = fb.DiagonalNet(2, 1.0)
    # Also where both rows have the same output: the limit of one of them alone fits y to 1e-11
    # and is 12 percent away from the limit.
    for output in (y[0] + 1.0, y[0]):
        with pytest.raises(InputError, match="rows of a dense X must be independent"):
            fb.limit(model, DenseDesign(close), np.append(y, output))


def test_nearly_dependent_rows_beside_repeated_ones_are_an_error():
    # The mean of the two outputs is what can be fitted, but rounding hides it.
    row, other = np.random.default_rng(4).standard_normal((2, 4))
    X = np.array([row, -0.25 * row + 5e-8 * other, row])
    with pytest.raises(InputError, match="rows of a sparse X must be independent"):
        fb.limit(fb.DiagonalNet(2, 1.0), KINDS["sparse"](X), [1.0, 2.0, 3.0])


@pytest.mark.parametrize("seed", [0, 12, 16])
def test_rows_that_a_dense_x_tells_apart_are_not_called_dependent(seed):
    # Apart by some units of rounding: the dense limit fits both outputs.
    rng = np.random.default_rng(seed)
    row = rng.standard_normal(4)
    X = np.array([row, 3.03 * row + 1e-14 * rng.standard_normal(4)])
    with pytest.raises(InputError, match="rows of a sparse X must be independent"):
        fb.limit(fb.DiagonalNet(2, 1.0), KINDS["sparse"](X), rng.standard_normal(2))


def test_outputs_of_repeated_rows_are_averaged_to_rounding():
    row, other = np.random.default_rng(4).standard_normal((2, 4))
    X = np.array([row, -0.25 * row + 2e-6 * other, row])
    found = fb.limit(fb.DiagonalNet(2, 1.0), KINDS["sparse"](X), [1.0, 2.0, 3.0])
    # Rounding of X, amplified by its condition number, 1e6.
    assert_allclose(X @ found.w, [2.0, 2.0, 2.0], rtol=1e-9)


@pytest.mark.parametrize("in_range", [True, False])
@pytest.mark.parametrize("condition", [1e3, 1e5, 1e6])
def test_repeated_rows_among_ill_conditioned_ones(condition, in_range):
    rng = np.random.default_rng(int(np.log10(condition)))
    left, _ = np.linalg.qr(rng.standard_normal((6, 6)))
    right, _ = np.linalg.qr(rng.standard_normal((40, 6)))
    rows = left @ np.diag(np.geomspace(1.0, 1.0 / condition, 6)) @ right.T
    X = np.vstack([rows, rows[:2], rows[1] + rows[2], np.zeros(40)])
    y = X @ right @ rng.standard_normal(6) if in_range else rng.standard_normal(len(X))
    model = fb.DiagonalNet(2, 0.3)
    wanted = fb.limit(model, X, y, tol=1e-8)
    # Rounded to float32 the rows would not repeat each other any more.
    for kind in ("dense", "sparse", "operator"):
        found = fb.limit(model, KINDS[kind](X), y, tol=1e-8)
        assert found.status is wanted.status
        # Rounding of X, amplified by its condition number.
        away = np.linalg.norm(found.w - wanted.w) / np.linalg.norm(wanted.w)
        assert away < 1e-14 * condition


@pytest.mark.parametrize("make", [DenseDesign, SparseDesign])
def test_rows_close_to_each_other_that_are_told_apart(make):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((6, 30)), rng.standard_normal(6)
    X[3], y[3] = X[2] + 1e-6 * X[3], y[2] + 0.3e-6
    model = fb.DiagonalNet(2, 0.1)
    found = fb.limit(model, make(scipy.sparse.csc_array(X) if make is SparseDesign else X), y)
    assert_allclose(found.w, fb.limit(model, X, y).w, rtol=0, atol=1e-8)
