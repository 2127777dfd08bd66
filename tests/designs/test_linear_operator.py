"""An operator as a design: what it must do, and what is said where it does not."""

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import flowbias as fb
from flowbias.designs.linear_operator import OperatorDesign
from flowbias.ground.arguments import InputError
from tests.designs.conformance import check_design

# Entries of order ten.
X = 10 * np.random.default_rng(4).standard_normal((6, 25))


def test_linear_operator(monkeypatch):
    check_design(OperatorDesign(aslinearoperator(X)), X)
    monkeypatch.setattr("flowbias.designs.linear_operator.SLAB_NUMBERS", 50)
    check_design(OperatorDesign(aslinearoperator(X)), X)


def test_an_operator_without_an_adjoint_is_refused():
    operator = LinearOperator(X.shape, matvec=lambda v: X @ v, dtype=float)
    with pytest.raises(InputError, match=r"X: must have an adjoint.*rmatvec"):
        OperatorDesign(operator)


def test_an_empty_operator_is_refused():
    with pytest.raises(InputError, match="X: must not be empty"):
        OperatorDesign(aslinearoperator(np.zeros((3, 0))))


@pytest.mark.parametrize("wrong", [lambda X, u: -X.T @ u, lambda X, u: 2 * X.T @ u])
def test_an_operator_with_a_wrong_adjoint_is_refused(wrong):
    operator = LinearOperator(
        X.shape, matvec=lambda v: X @ v, rmatvec=lambda u: wrong(X, u), dtype=float
    )
    with pytest.raises(InputError, match="rmatvec must be the adjoint"):
        OperatorDesign(operator)


def _fails(v):
    raise RuntimeError("disk on fire")


def _is_not_written(v):
    raise NotImplementedError("one day")


@pytest.mark.parametrize(
    ("matvec", "message"),
    [
        (lambda X, v: (X @ v)[:3], "matvec must return a vector.*ValueError"),
        (lambda X, v: None, "matvec must return"),
        (lambda X, v: _fails(v), "matvec must return a vector.*RuntimeError: disk on fire"),
        (lambda X, v: _is_not_written(v), "matvec must return a vector.*NotImplementedError: one"),
        (lambda X, v: X @ v + 1j, "matvec must return real numbers, got dtype complex128"),
        (lambda X, v: X @ (v + 1e-5 * v**3), "rmatvec must be the adjoint"),
    ],
)
def test_an_operator_that_breaks_its_word_is_refused(matvec, message):
    operator = LinearOperator(
        X.shape, matvec=lambda v: matvec(X, v), rmatvec=lambda u: X.T @ u, dtype=float
    )
    with pytest.raises(InputError, match=message):
        OperatorDesign(operator)


@pytest.mark.parametrize("fails", [_fails, _is_not_written])
def test_an_operator_that_breaks_down_later_is_an_error_too(fails):
    calls = iter(range(10))

    def adjoint(u):
        return X.T @ u if next(calls, None) is not None else fails(u)

    operator = LinearOperator(X.shape, matvec=lambda v: X @ v, rmatvec=adjoint, dtype=float)
    with pytest.raises(InputError, match=r"rmatvec must return a vector.*(disk on fire|one day)"):
        fb.limit(fb.DiagonalNet(2, 0.1), operator, np.ones(6))


@pytest.mark.parametrize("name", ["matvec", "rmatvec"])
def test_an_operator_that_writes_to_what_it_has_returned_is_refused(name):
    products = {"matvec": lambda v: X @ v.ravel(), "rmatvec": lambda u: X.T @ u.ravel()}
    plain = products[name]
    kept = np.empty(len(plain(np.ones(X.shape[name == "matvec"]))))

    def reused(v):
        kept[:] = plain(v)
        return kept

    operator = LinearOperator(X.shape, **{**products, name: reused}, dtype=float)
    with pytest.raises(InputError, match=f"^X: {name} of several vectors.*return a new array"):
        OperatorDesign(operator)


def test_an_operator_whose_products_of_matrices_are_others_is_refused():
    products = {"matvec": lambda v: X @ v, "rmatvec": lambda u: X.T @ u}
    for name, wrong in {"matmat": lambda V: 2 * X @ V, "rmatmat": lambda U: -X.T @ U}.items():
        operator = LinearOperator(X.shape, **products, **{name: wrong}, dtype=float)
        with pytest.raises(InputError, match=r"of several vectors.*mend matmat and rmatmat"):
            OperatorDesign(operator)


def test_no_outputs_is_said_as_for_an_array():
    with pytest.raises(InputError, match=r"^y: must be given, got None"):
        fb.limit(fb.DiagonalNet(2, 0.1), aslinearoperator(np.eye(3)), None)


def test_single_precision_operators_are_judged_by_their_own_digits():
    def operator(dtype):
        return LinearOperator(
            X.shape,
            matvec=lambda v: (1.0 + 1e-5) * (X @ v),
            rmatvec=lambda u: X.T @ u,
            dtype=dtype,
        )

    assert OperatorDesign(operator(np.float32)).shape == X.shape
    with pytest.raises(InputError, match=r"give it dtype=np\.float32"):
        OperatorDesign(operator(np.float64))
