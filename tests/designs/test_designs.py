"""Every kind of design in memory, against the array that it stands for."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator

import flowbias as fb
import flowbias.designs as designs
from flowbias.designs import dense, design_of, sparse
from flowbias.designs.dense import DenseBlock, DenseDesign, MemoryMappedDesign
from flowbias.designs.linear_operator import OperatorDesign
from flowbias.designs.sparse import SparseDesign
from flowbias.designs.tasks import Coordinates, PlainRows, sizes_and_products
from flowbias.models import DiagonalNet
from flowbias.potentials import DepthPotential, Hypentropy
from flowbias.problems.regression import InputError
from tests.designs.conformance import check_design

FORMATS = ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks and pieces even for small X."""
    monkeypatch.setattr(dense, "BLOCK_NUMBERS", 60)
    monkeypatch.setattr(sparse, "BLOCK_COLUMNS", 7)
    monkeypatch.setattr(dense, "PIECE_NUMBERS", 20)
    monkeypatch.setattr(sparse, "LIFTED_NUMBERS", 12)


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


def test_outputs_elsewhere_are_told_by_their_own_name():
    da = pytest.importorskip("dask.array", reason="needs the extra `cluster`")
    with pytest.raises(InputError, match=r"^y: must be an array in memory.*Pass y\.compute\(\)"):
        fb.limit(fb.DiagonalNet(2, 0.1), np.eye(3), da.ones(3))


@pytest.mark.parametrize("call", [fb.flow, fb.rich_limit])
def test_a_design_is_refused_where_only_an_array_will_do(call):
    X = some_matrix(4, 6, 25, 1.0)
    with pytest.raises(InputError, match=r"X: must be an array in memory.*DenseDesign of shape"):
        call(fb.DiagonalNet(2, 0.1), DenseDesign(X), np.ones(6))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float32", "int16", "longdouble"])
def test_pieces_are_converted_into_the_same_memory(dtype, order):
    X = np.asarray(some_matrix(7, 6, 25, 1.0, dtype), order=order)
    block, seen = DenseBlock(X, slice(0, 25)), []
    for part, piece in block.pieces():
        np.testing.assert_array_equal(piece, X[:, part])
        seen.append(piece)
    assert len(seen) > 5
    assert all(np.shares_memory(piece, seen[0]) for piece in seen)


def test_products_of_doubles_leave_them_as_they_are():
    X = some_matrix(8, 6, 25, 1.0)
    block = DenseBlock(X.copy(), slice(0, 25))
    block.absolute_apply(np.ones(25))
    block.gram(np.full(25, 2.0), np.full(6, 1e60))
    np.testing.assert_array_equal(block.values, X)


@given(rows=st.integers(1, 7), seed=st.integers(0, 100))
def test_a_triangular_factor_loses_nothing_where_its_zeros_are_left_out(rows, seed):
    """Also one with rows and columns of zeros, as where some rows of X are left out."""
    rng = np.random.default_rng(seed)
    factor = np.tril(rng.integers(-3, 4, (rows, 6)))
    factor[:, rng.random(6) < 0.3] = 0
    X = rng.integers(-9, 9, (6, 40))
    wanted = np.square(factor @ X).sum(axis=0)  # integers: exact in any order
    found = DenseBlock(X.astype("float32"), slice(0, 40)).quadratic(factor.astype(float))
    np.testing.assert_array_equal(found, wanted)


class CountedPasses(DenseDesign):
    passes = 0

    def reduce(self, task, *columns):
        self.passes += 1
        return super().reduce(task, *columns)


@pytest.mark.parametrize(("size", "passes"), [(1.0, 1), (2.0**100, 1), (2.0**600, 2)])
def test_sizes_and_products_of_rows_take_one_pass_where_no_square_is_lost(size, passes):
    X = some_matrix(9, 6, 25, 1.0)
    X[1] /= size
    X[2] *= size
    design = CountedPasses(X)
    sizes, products = sizes_and_products(design)
    assert design.passes == passes
    np.testing.assert_array_equal(sizes, np.abs(X).max(axis=1))
    A = X / sizes[:, None]
    # Sums of 25 products in another order.
    np.testing.assert_allclose(products, A @ A.T, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("make", [DenseDesign, SparseDesign])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_entry_that_is_not_finite_is_named(make, bad):
    X = some_matrix(5, 6, 50, 1.0)
    X[2, 33] = bad
    design = make(X if make is DenseDesign else scipy.sparse.csr_array(X))
    with pytest.raises(InputError, match=r"X: must be finite, got -?(nan|inf) at index \(2, 33\)"):
        design.reduce(PlainRows())


@pytest.mark.parametrize("dtype", [complex, object, "datetime64[s]"])
def test_what_is_no_real_number_is_refused(dtype):
    with pytest.raises(InputError, match="X: must hold real numbers"):
        DenseDesign(np.zeros((2, 3), dtype=dtype))


def test_extended_precision_is_rounded_whatever_the_size(monkeypatch):
    X = some_matrix(7, 5, 20, 1.0).astype(np.longdouble) * (1 + np.finfo(np.longdouble).eps)
    check_design(DenseDesign(X), X)
    check_design(SparseDesign(scipy.sparse.csc_array(X)), X)
    model, y = fb.DiagonalNet(2, 0.1), np.ones(5)
    small = fb.limit(model, X, y)
    monkeypatch.setattr(designs, "DENSE_UP_TO", 99)
    np.testing.assert_allclose(fb.limit(model, X, y).w, small.w, rtol=0, atol=1e-10)


@pytest.mark.parametrize("size", ["small", "large"])
def test_what_is_masked_is_not_used(monkeypatch, size):
    monkeypatch.setattr(designs, "DENSE_UP_TO", {"small": 1000, "large": 99}[size])
    X, y, model = some_matrix(7, 5, 20, 1.0, "float32"), np.ones(5), fb.DiagonalNet(2, 0.1)
    hidden = np.ma.masked_greater(X, 20.0)
    count = int(hidden.mask.sum())
    with pytest.raises(InputError, match=rf"^X: .*got {count} masked entries of 100.*X\.filled"):
        fb.limit(model, hidden, y)
    with pytest.raises(InputError, match=r"^y: .*got 1 masked entries of 5.*y\.filled"):
        fb.limit(model, X, np.ma.array(y, mask=[0, 0, 1, 0, 0]))
    wanted = fb.limit(model, X, y)
    unmasked = np.ma.masked_greater(X, 1e9), np.ma.array(y)
    np.testing.assert_array_equal(fb.limit(model, *unmasked).w, wanted.w)
    w = np.ma.masked_less(wanted.w, 0.0)
    with pytest.raises(InputError, match=r"^w: .*masked entries of 20"):
        DenseDesign(X).column(w)


@pytest.mark.parametrize("layout", ["csc", "csr", "bsr"])
@pytest.mark.parametrize("size", ["small", "large"])
def test_a_sparse_matrix_with_indices_outside_of_it(monkeypatch, layout, size):
    monkeypatch.setattr(designs, "DENSE_UP_TO", {"small": 1000, "large": 99}[size])
    X = scipy.sparse.coo_array(some_matrix(1, 6, 30, 0.3)).asformat(layout)
    X.indices[3] = 99
    with pytest.raises(InputError, match=r"^X: must be a sound sparse matrix, got indices"):
        fb.limit(fb.DiagonalNet(2, 0.1), X, np.ones(6))


def test_small_input_is_for_the_dense_solver(monkeypatch, tmp_path):
    X = some_matrix(6, 5, 20, 0.5)
    inputs = {
        SparseDesign: scipy.sparse.csr_matrix(X),
        MemoryMappedDesign: mapped(tmp_path / "X", X),
        DenseDesign: X.astype(np.float32),
    }
    for value in inputs.values():
        assert design_of(value) is None
    monkeypatch.setattr(designs, "DENSE_UP_TO", 99)
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
        # Vector instructions round the entries of a group otherwise than what is left over.
        np.testing.assert_allclose(getattr(cut.potential, name)(z[part]), whole[part], rtol=1e-14)
    np.testing.assert_array_equal(cut.shift, [3.0, 4.0, 5.0, 6.0])


def test_coordinates_that_are_all_alike_are_not_cut():
    alike = Coordinates(Hypentropy(0.1), 0.0, 10)
    assert alike.on(slice(2, 5)) is alike
