"""What can be fitted of y where rows depend on each other, whatever their sizes."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowbias as fb
from flowbias.certificates.rows import RangeProjection
from flowbias.designs import DenseDesign

EPS = float(np.finfo(float).eps)


@given(seed=st.integers(0, 10**6), decades=st.floats(0.0, 100.0))
def test_rows_of_any_size_are_right_in_their_own_units(seed, decades):
    """Once more with 300 digits."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((5, 2)))
    unit = 10.0 ** rng.uniform(-decades, 0.0, 5)
    y = unit * 10.0 ** rng.uniform(-3, 3, 5)
    found, _ = RangeProjection(unit, basis, 1.0).projected(y)
    with mp.workdps(300):
        rows = mp.diag(unit.tolist()) * mp.matrix(basis.tolist())
        normal, target = rows.T * rows, rows.T * mp.matrix(y.tolist())
        expected = np.array((rows * mp.lu_solve(normal, target)).tolist(), dtype=float)[:, 0]
    # Two coefficients of the basis, each found by a few operations on graded rows: the condition
    # number is that of the basis' rows taken alone, which are random.
    size = np.abs(expected / unit).max()
    np.testing.assert_allclose(found / unit, expected / unit, atol=1e4 * EPS * size)


def nearly_parallel_beside_nothing():
    """A row of zeros with an output, and two rows of condition 8e7."""
    X = np.array(
        [
            [0.0, 0.0, 0.0],
            [-0.21322171768296394, 0.16613656062935958, -0.05975179191700839],
            [-0.00057897733949199815, 0.00045112763167355575, -0.00016224800875477366],
        ]
    )
    return X, np.array([-0.6680463461089501, -1.0551505512051214, -0.39080097723465473])


@pytest.mark.parametrize("kind", [np.asarray, DenseDesign], ids=["in memory", "over blocks"])
def test_an_output_that_nothing_fits_does_not_blur_the_others(kind):
    X, y = nearly_parallel_beside_nothing()
    model = fb.DiagonalNet(2, 1.0)
    solution = fb.limit(model, kind(X), y)
    assert solution.status is fb.Status.PROJECTED
    assert fb.certify(X, y, solution.w, solution.dual, model.potential).ok
    np.testing.assert_allclose(solution.w, fb.limit(model, X[1:], y[1:]).w, rtol=1e-8)
