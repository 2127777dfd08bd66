"""What is taken for a big X, where one will not do, and what is refused."""

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import flowbias as fb
from flowbias import designs
from flowbias.ground.arguments import InputError
from tests.limits.big_data import KINDS, assert_same, data, small_blocks

__all__ = ["small_blocks"]


def test_big_input_reaches_the_solver_by_itself(monkeypatch):
    X, y = data(15)
    monkeypatch.setattr(designs, "DENSE_UP_TO", 99)
    wanted = fb.limit(fb.DiagonalNet(2, 0.1), X, y)
    assert wanted.route == "dual Newton" or "interior" in wanted.route
    for big in (scipy.sparse.csr_matrix(X), scipy.sparse.coo_array(X), X.astype(np.float32)):
        assert_same(fb.limit(fb.DiagonalNet(2, 0.1), big, y), wanted)


def test_calls_that_need_an_array_say_what_to_do(monkeypatch):
    X, y = data(16)
    monkeypatch.setattr(designs, "DENSE_UP_TO", 99)
    model = fb.DiagonalNet(2, 0.1)
    calls = (
        fb.basis_pursuit,
        lambda X, y: fb.rich_limit(model, X, y),
        lambda X, y: fb.flow(model, X, y),
    )
    inputs = {"toarray": scipy.sparse.csr_array(X), "np.eye": aslinearoperator(X)}
    for call in calls:
        for fix, big in inputs.items():
            with pytest.raises(
                InputError, match=rf"X: must be an array in memory.*{fix}.*fb.limit"
            ):
                call(big, y)
        # What is an array already is simply used.
        call(X.astype(np.float32), y)
    with pytest.raises(InputError, match="must be an array in memory"):
        fb.limit(fb.LinearNet.gaussian(100, 1, width=5, scale=0.1, rng=0), inputs["toarray"], y)


@pytest.mark.parametrize("kind", KINDS)
def test_bad_input(kind):
    X, y = data(17)
    make = KINDS[kind]
    with pytest.raises(InputError, match="y: must have one entry per row of X"):
        fb.limit(fb.DiagonalNet(2, 0.1), make(X), y[:-1])
    with pytest.raises(InputError, match="y: must be finite"):
        fb.limit(fb.DiagonalNet(2, 0.1), make(X), y * np.nan)
    with pytest.raises(InputError, match="X: must have one column per coordinate"):
        fb.limit(fb.DiagonalNet(2, 0.1, w0=np.ones(7)), make(X), y)
    with pytest.raises(InputError, match="tol: must be a positive number"):
        fb.limit(fb.DiagonalNet(2, 0.1), make(X), y, tol=0.0)
    with pytest.raises(InputError, match="X: must have a nonzero entry"):
        fb.limit(fb.DiagonalNet(2, 0.1), make(0.0 * X), y)
    one_sided = fb.DiagonalNet.from_weights(np.ones(100), np.r_[0.0, np.ones(99)], depth=2)
    with pytest.raises(InputError, match=r"both signs open.*1 coordinates closed"):
        fb.limit(one_sided, make(X), y)
    with pytest.raises(InputError, match="sensitivity: needs d x n numbers"):
        fb.limit(fb.DiagonalNet(2, 0.1), make(X), y).sensitivity()


def test_an_operator_that_returns_nan_is_named():
    X, y = data(18)
    broken = LinearOperator(
        X.shape, matvec=lambda v: X @ v * np.nan, rmatvec=lambda u: X.T @ u, dtype=float
    )
    with pytest.raises(InputError, match="X: must be finite"):
        fb.limit(fb.DiagonalNet(2, 0.1), broken, y)
