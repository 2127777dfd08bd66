"""Every kind of design in memory, against the array that it stands for."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import flowbias as fb
import flowbias.designs as designs
from flowbias.designs import dense, design_of, entries, memory_mapped, sparse
from flowbias.designs.coordinates import Coordinates
from flowbias.designs.dense import DenseDesign
from flowbias.designs.linear_operator import OperatorDesign
from flowbias.designs.memory_mapped import MemoryMappedDesign
from flowbias.designs.rows import RowSizes
from flowbias.designs.sparse import SparseDesign
from flowbias.models import DiagonalNet
from flowbias.potentials import DepthPotential, Hypentropy
from flowbias.problem import InputError
from tests.designs.conformance import check_design

FORMATS = ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks and pieces even for small X."""
    monkeypatch.setattr(dense, "BLOCK_NUMBERS", 60)
    monkeypatch.setattr(memory_mapped, "BLOCK_NUMBERS", 60)
    monkeypatch.setattr(sparse, "BLOCK_COLUMNS", 7)
    monkeypatch.setattr(entries, "PIECE_NUMBERS", 20)
    monkeypatch.setattr(entries, "LIFTED_NUMBERS", 12)


def some_matrix(seed, n, d, density, dtype="float64"):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    return (10 * X).astype(dtype)


def mapped(path, X, order="C"):
    file = np.memmap(path, dtype=X.dtype, mode="w+", shape=X.shape, order=order)
    file[:] = X
    file.flush()
    return np.memmap(path, dtype=X.dtype, mode="r", shape=X.shape, order=order)


@given(
    st.integers(0, 10**6),
    st.integers(1, 9),
    st.integers(1, 40),
    st.sampled_from([0.05, 0.5, 1.0]),
    st.sampled_from(["float64", "float32", "float16", "int8", "int64"]),
)
def test_dense_and_sparse(seed, n, d, density, dtype):
    X = some_matrix(seed, n, d, density, dtype)
    check_design(DenseDesign(X), X)
    check_design(SparseDesign(scipy.sparse.csr_array(X.astype(float))), X)


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("kind", [scipy.sparse.coo_array, scipy.sparse.coo_matrix])
def test_every_sparse_format(layout, kind):
    X = some_matrix(1, 6, 30, 0.3)
    check_design(SparseDesign(kind(X).asformat(layout)), X)


def test_sparse_with_long_indices_and_repeated_entries():
    rows, columns = np.array([0, 0, 1, 2, 2]), np.array([3, 3, 1, 0, 0])
    values = np.array([5.0, -4.0, 2.0, 1.0, 1.0])
    X = np.zeros((3, 5))
    np.add.at(X, (rows, columns), values)
    given_parts = scipy.sparse.coo_array((values, (rows, columns)), shape=(3, 5))
    check_design(SparseDesign(given_parts), X)
    # In compressed form and not summed up: 5 - 4 must be seen as 1, and the user's X stay as is.
    unsummed = scipy.sparse.csc_array((3, 5), dtype=float)
    unsummed.data, unsummed.indices = (
        np.array([1.0, 1.0, 2.0, 5.0, -4.0]),
        np.array([2, 2, 1, 0, 0]),
    )
    unsummed.indptr = np.array([0, 2, 3, 3, 5, 5])
    unsummed.has_canonical_format = False
    check_design(SparseDesign(unsummed), X)
    assert unsummed.nnz == 5
    long = scipy.sparse.csc_array(X)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    check_design(SparseDesign(long), X)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_memory_mapped(tmp_path, order, dtype):
    X = some_matrix(2, 5, 37, 1.0, dtype)
    file = mapped(tmp_path / "X", X, order)
    check_design(MemoryMappedDesign(file), X)
    # Views: a part of the file, in another order.
    check_design(MemoryMappedDesign(file[1:4, ::2]), X[1:4, ::2])
    check_design(MemoryMappedDesign(file.T), X.T)


def test_memory_mapped_with_an_offset(tmp_path):
    X = some_matrix(3, 4, 11, 1.0)
    (tmp_path / "X").write_bytes(b"12345678" * 5 + X.tobytes())
    file = np.memmap(tmp_path / "X", dtype=float, mode="r", offset=40, shape=X.shape)
    check_design(MemoryMappedDesign(file), X)


def test_a_memory_map_is_read_block_by_block(tmp_path):
    file = mapped(tmp_path / "X", some_matrix(2, 5, 37, 1.0))
    widths = [block.values.nbytes for block in MemoryMappedDesign(file).blocks()]
    assert max(widths) <= 60 * 8
    assert all(type(block.values) is np.ndarray for block in MemoryMappedDesign(file).blocks())


def test_linear_operator(monkeypatch):
    X = some_matrix(4, 6, 25, 1.0)
    check_design(OperatorDesign(aslinearoperator(X)), X)
    monkeypatch.setattr("flowbias.designs.linear_operator.SLAB_NUMBERS", 50)
    check_design(OperatorDesign(aslinearoperator(X)), X)


def test_an_operator_without_an_adjoint_is_refused():
    X = some_matrix(4, 6, 25, 1.0)
    operator = LinearOperator(X.shape, matvec=lambda v: X @ v, dtype=float)
    with pytest.raises(InputError, match=r"X: must have an adjoint.*rmatvec"):
        OperatorDesign(operator)


def test_an_empty_operator_is_refused():
    with pytest.raises(InputError, match="X: must not be empty"):
        OperatorDesign(aslinearoperator(np.zeros((3, 0))))


@pytest.mark.parametrize("wrong", [lambda X, u: -X.T @ u, lambda X, u: 2 * X.T @ u])
def test_an_operator_with_a_wrong_adjoint_is_refused(wrong):
    X = some_matrix(4, 6, 25, 1.0)
    operator = LinearOperator(
        X.shape, matvec=lambda v: X @ v, rmatvec=lambda u: wrong(X, u), dtype=float
    )
    with pytest.raises(InputError, match="rmatvec must be the adjoint"):
        OperatorDesign(operator)


def _fails(v):
    raise RuntimeError("disk on fire")


@pytest.mark.parametrize(
    ("matvec", "message"),
    [
        (lambda X, v: (X @ v)[:3], "matvec must return a vector.*ValueError"),
        (lambda X, v: None, "matvec must return"),
        (lambda X, v: _fails(v), "matvec must return a vector.*RuntimeError: disk on fire"),
        (lambda X, v: X @ v + 1j, "matvec must return real numbers, got dtype complex128"),
        (lambda X, v: X @ (v + 1e-5 * v**3), "rmatvec must be the adjoint"),
    ],
)
def test_an_operator_that_breaks_its_word_is_refused(matvec, message):
    X = some_matrix(4, 6, 25, 1.0)
    operator = LinearOperator(
        X.shape, matvec=lambda v: matvec(X, v), rmatvec=lambda u: X.T @ u, dtype=float
    )
    with pytest.raises(InputError, match=message):
        OperatorDesign(operator)


def test_an_operator_that_breaks_down_later_is_an_error_too():
    X = some_matrix(4, 6, 25, 1.0)
    calls = iter(range(10))

    def adjoint(u):
        return X.T @ u if next(calls, None) is not None else _fails(u)

    operator = LinearOperator(X.shape, matvec=lambda v: X @ v, rmatvec=adjoint, dtype=float)
    with pytest.raises(InputError, match=r"rmatvec must return a vector.*disk on fire"):
        fb.limit(fb.DiagonalNet(2, 0.1), operator, np.ones(6))


def test_single_precision_operators_are_judged_by_their_own_digits():
    X = some_matrix(4, 6, 25, 1.0)

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


@pytest.mark.parametrize("call", [fb.flow, fb.rich_limit])
def test_a_design_is_refused_where_only_an_array_will_do(call):
    X = some_matrix(4, 6, 25, 1.0)
    with pytest.raises(InputError, match=r"X: must be an array in memory.*DenseDesign of shape"):
        call(fb.DiagonalNet(2, 0.1), DenseDesign(X), np.ones(6))


@pytest.mark.parametrize("make", [DenseDesign, SparseDesign])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_entry_that_is_not_finite_is_named(make, bad):
    X = some_matrix(5, 6, 50, 1.0)
    X[2, 33] = bad
    design = make(X if make is DenseDesign else scipy.sparse.csr_array(X))
    with pytest.raises(InputError, match=r"X: must be finite, got -?(nan|inf) at index \(2, 33\)"):
        design.reduce(RowSizes())


@pytest.mark.parametrize("dtype", [complex, object, "datetime64[s]", np.longdouble])
def test_numbers_that_no_double_holds_are_refused(dtype):
    with pytest.raises(InputError, match="X: must hold real numbers"):
        DenseDesign(np.zeros((2, 3), dtype=dtype))


def test_small_input_is_for_the_dense_solver(monkeypatch, tmp_path):
    X = some_matrix(6, 5, 20, 0.5)
    inputs = {
        SparseDesign: scipy.sparse.csr_matrix(X),
        MemoryMappedDesign: mapped(tmp_path / "X", X),
        DenseDesign: X.astype(np.float32),
    }
    for value in inputs.values():
        assert design_of(value) is None
    monkeypatch.setattr(designs, "SMALL", 99)
    for kind, value in inputs.items():
        assert type(design_of(value)) is kind
    assert design_of(X) is None, "doubles in memory are what the dense solver is for"
    assert design_of(X.tolist()) is None
    assert type(design_of(aslinearoperator(X))) is OperatorDesign
    made = DenseDesign(X)
    assert design_of(made) is made


@pytest.mark.parametrize(
    "potential",
    [
        Hypentropy(np.linspace(1, 2, 10)),
        DepthPotential(3, np.linspace(1, 2, 10)),
        DiagonalNet(3, 0.1, w0=np.linspace(1, 2, 10)).potential,
        DiagonalNet.from_weights(np.linspace(1, 2, 10), np.linspace(2, 1, 10), depth=4).potential,
    ],
    ids=repr,
)
def test_coordinates_are_cut_as_a_whole(potential):
    z = np.linspace(-0.01, 0.01, 10)
    part = slice(3, 7)
    cut = Coordinates(potential, np.arange(10.0), 10).on(part)
    for name in ("grad_dual", "hess_dual", "conjugate_terms", "value_terms", "grad"):
        whole = getattr(potential, name)(z)
        np.testing.assert_array_equal(getattr(cut.potential, name)(z[part]), whole[part])
    np.testing.assert_array_equal(cut.shift, [3.0, 4.0, 5.0, 6.0])


def test_coordinates_that_are_all_alike_are_not_cut():
    alike = Coordinates(Hypentropy(0.1), 0.0, 10)
    assert alike.on(slice(2, 5)) is alike
