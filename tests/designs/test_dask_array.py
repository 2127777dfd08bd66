"""A dask.array as a design: the sums of its blocks are those of the whole, wherever they are."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import flowbias as fb
from flowbias.designs import design_of
from flowbias.ground.arguments import InputError
from tests.designs.conformance import check_design
from tests.designs.dask_tasks import D, N, Numbers, assert_same_sums, data

dask = pytest.importorskip("dask", reason="needs the extra `cluster`")
da = pytest.importorskip("dask.array")

from flowbias.designs import dask_array  # noqa: E402
from flowbias.designs.dask_array import DaskDesign, mapped_columns  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    # Whatever the machine; other schedulers are asked for by name.
    with dask.config.set(scheduler="synchronous"):
        yield


@settings(max_examples=20)
@given(
    widths=st.lists(st.integers(0, 9), min_size=1, max_size=20).filter(any),
    dtype=st.sampled_from([np.float64, np.float32, np.int16]),
)
def test_sums_over_any_chunks_are_those_of_the_whole(widths, dtype):
    X, task = data(sum(widths), dtype)
    X = (10 * X).astype(dtype) / dtype(1)
    design = DaskDesign(da.from_array(X, chunks=((N,), tuple(widths))))
    assert design.shape == X.shape
    column = np.linspace(0, 1, design.d)
    assert_same_sums(design.reduce(task, column), task.expected(X.astype(float), column))
    numbers = design.gather(Numbers(task.dual), column)
    np.testing.assert_allclose(numbers, X.T.astype(float) @ task.dual + column, atol=1e-12)


def test_it_does_what_every_design_must():
    X, _ = data()
    check_design(DaskDesign(da.from_array(X, chunks=(N, 7))), X)


def test_blocks_are_the_columns_in_their_order():
    X, _ = data()
    blocks = list(DaskDesign(da.from_array(X, chunks=(N, 7))).blocks())
    assert [block.columns.start for block in blocks] == list(range(0, D, 7))
    np.testing.assert_array_equal(np.hstack([block.values for block in blocks]), X)


def test_a_pass_is_one_task_a_block_and_the_sums_of_four(tmp_path):
    """Reading a block, reducing it and handing the sum on is one task: each has its price."""
    from dask.callbacks import Callback

    X, task = data()
    np.save(tmp_path / "X.npy", X)
    started = []
    with Callback(pretask=lambda key, *rest: started.append(key)):
        design = DaskDesign(mapped_columns(np.load(tmp_path / "X.npy", mmap_mode="r"), 7))
        design.reduce(task, np.zeros(design.d))
    blocks = -(-D // 7)
    sums, level = 0, blocks
    while level > 1:
        level = -(-level // 4)
        sums += level
    visits = [key for key in started if key[0].startswith(("visit-", "add-"))]
    assert len(visits) == blocks + sums
    # And one for the path of the file.
    assert len(started) <= len(visits) + 1


def test_threads_give_the_same_bits_every_time():
    X, task = data()
    design = design_of(da.from_array(X, chunks=(N, 1)))
    first = design.reduce(task)
    for _ in range(5):
        with dask.config.set(scheduler="threads", num_workers=4):
            again = design.reduce(task)
        for one, other in zip(first.sums + first.largest, again.sums + again.largest, strict=True):
            np.testing.assert_array_equal(one, other)


def test_no_block_outlives_its_task(tmp_path):
    X, task = data()
    np.save(tmp_path / "X.npy", X)
    design = DaskDesign(mapped_columns(np.load(tmp_path / "X.npy", mmap_mode="r"), 5))
    kept = []
    with dask.callbacks.Callback(posttask=lambda key, value, *rest: kept.append(value)):
        design.reduce(task)
    assert len(kept) >= D // 5
    assert not [value for value in kept if isinstance(value, np.ndarray)]


def test_a_mapped_file_goes_to_the_workers_as_its_path(tmp_path):
    X, task = data(20_000, np.float32)
    np.save(tmp_path / "X.npy", np.asfortranarray(X))
    array = mapped_columns(np.load(tmp_path / "X.npy", mmap_mode="r"), 4000)
    assert array.chunks == ((N,), (4000,) * 5)
    assert len(pickle.dumps(dict(array.dask))) < 0.05 * X.nbytes
    totals = DaskDesign(array).reduce(task)
    wanted = task.expected(X.astype(float))
    np.testing.assert_allclose(totals.sums[1], wanted[1], rtol=0, atol=1e-9)


def test_chunks_of_a_mapped_file_are_of_a_stated_size(tmp_path, monkeypatch):
    np.save(tmp_path / "X.npy", np.ones((N, D)))
    monkeypatch.setattr("flowbias.designs.dask_array.BLOCK_BYTES", N * 8 * 15)
    array = mapped_columns(np.load(tmp_path / "X.npy", mmap_mode="r"))
    assert array.chunks == ((N,), (15, 15, 10))


def test_a_part_of_a_mapped_file_is_refused(tmp_path):
    np.save(tmp_path / "X.npy", np.ones((N, D)))
    with pytest.raises(InputError, match="mapped: must be a whole memory-mapped matrix, got memm"):
        mapped_columns(np.load(tmp_path / "X.npy", mmap_mode="r")[1:])


def test_sparse_chunks():
    X, task = data()
    X[np.abs(X) < 1] = 0
    sparse = da.from_array(X, chunks=(N, 7)).map_blocks(scipy.sparse.csr_array)
    assert_same_sums(DaskDesign(sparse).reduce(task), task.expected(X))


def test_vectors_too_long_for_the_caller_stay_lazy(monkeypatch):
    monkeypatch.setattr(dask_array, "GATHERED_BYTES", 8 * D - 1)
    X, task = data()
    design = DaskDesign(da.from_array(X, chunks=((N,), (7, 0, 20, 13))))
    lazy = design.gather(Numbers(task.dual))
    assert isinstance(lazy, da.Array)
    assert lazy.chunks == ((7, 20, 13),)
    np.testing.assert_allclose(lazy.compute(), X.T @ task.dual, atol=1e-12)
    assert_same_sums(design.reduce(task, lazy), task.expected(X, X.T @ task.dual))
    twice = design.gather(Numbers(task.dual), lazy)
    np.testing.assert_allclose(twice.compute(), 2 * X.T @ task.dual, atol=1e-12)
    monkeypatch.setattr(dask_array, "GATHERED_BYTES", 8 * D)
    assert isinstance(design.gather(Numbers(task.dual)), np.ndarray)


def test_chunks_over_rows_are_rechunked_with_a_warning():
    X, task = data()
    with pytest.warns(
        UserWarning, match=r"chunked over rows \(2 chunks\).*chunks=\(6, 40\)"
    ) as seen:
        design = DaskDesign(da.from_array(X, chunks=(4, 10)))
    assert seen[0].filename == __file__
    assert_same_sums(design.reduce(task), task.expected(X))


def test_the_warning_of_row_chunks_points_at_the_line_that_asked_for_a_limit():
    X, _ = data()
    model = fb.DiagonalNet(depth=2, scale=0.1)
    with pytest.warns(UserWarning, match="chunked over rows") as seen:
        fb.limit(model, da.from_array(X, chunks=(4, 10)), X[:, 0])
    assert [warning.filename for warning in seen] == [__file__]


def test_an_entry_that_is_no_number_is_found_with_its_block():
    X, task = data()
    X[2, 23] = np.nan
    design = DaskDesign(da.from_array(X, chunks=(N, 10)))
    with pytest.raises(
        InputError, match=r"^X: must be finite, got nan at index \(2, 23\).*block 2\.\)$"
    ):
        design.reduce(task)


def masked(block):
    return np.ma.masked_greater(block, 0.0)


def corrupt(block):
    found = scipy.sparse.csc_array(block)
    found.indices[3] = 99
    return found


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda block: block[:3], r"got \(3, 10\) for \(6, 10\)"),
        (lambda block: np.vstack([block, block]), r"got \(12, 10\) for \(6, 10\)"),
        (lambda block: np.hstack([block, block]), r"got \(6, 20\) for \(6, 10\)"),
        (lambda block: block + 1j, "must hold real numbers, got dtype complex128"),
        (masked, r"must hold plain numbers, got \d+ masked entries of 60"),
        (corrupt, "must be a sound sparse matrix.*indices must be < 6"),
        (lambda block: block.tolist(), "blocks must be computable, got AttributeError"),
    ],
)
def test_a_block_that_is_not_what_dask_was_told(made, words):
    X, _ = data()
    array = da.from_array(X, chunks=(N, 10))
    told = da.map_blocks(made, array, dtype=float, meta=np.empty((0, 0)), chunks=array.chunks)
    with pytest.raises(InputError, match=f"^X: .*{words}"):
        fb.limit(fb.DiagonalNet(2, 0.1), told, X[:, 0])


def test_blocks_with_a_mask_that_masks_nothing():
    X, task = data()
    array = da.from_array(X, chunks=(N, 10))
    told = array.map_blocks(np.ma.asarray, dtype=float, meta=np.empty((0, 0)))
    assert_same_sums(DaskDesign(told).reduce(task), task.expected(X))


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (da.ones(5), r"must have 2 dimension\(s\), got shape \(5,\)"),
        (da.ones((3, 0)), r"must not be empty, got shape \(3, 0\)"),
        (da.ones((3, 4), dtype=complex), "must hold real numbers.*got dtype complex128"),
        (
            da.from_array(np.array([["a"]], dtype=object), chunks=1),
            "real numbers.*got dtype object",
        ),
        (da.ma.masked_equal(da.ones((3, 4)), 1.0), r"got masked arrays\. Fill"),
        (da.ones((3, 4))[:, da.arange(4, chunks=2) > 1], r"Call X\.compute_chunk_sizes\(\) first"),
    ],
)
def test_what_is_no_design_is_refused(X, words):
    with pytest.raises(InputError, match=f"^X: .*{words}"):
        DaskDesign(X)


def test_a_graph_that_fails_is_told_with_its_cause():
    def broken(block):
        raise FileNotFoundError("shard 7")

    _, task = data()
    X = da.ones((N, D), chunks=(N, 10)).map_blocks(broken, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(InputError, match="got FileNotFoundError: shard 7") as caught:
        DaskDesign(X).reduce(task)
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_a_lazy_predictor_may_have_chunks_of_its_own():
    rng = np.random.default_rng(0)
    X, y, model = rng.standard_normal((4, 30)), rng.standard_normal(4), fb.DiagonalNet(2, 0.1)
    found = fb.limit(model, X, y)
    lazy = da.from_array(found.w, chunks=13)
    blocks = da.from_array(X, chunks=(4, 7))
    assert fb.certify(blocks, y, lazy, found.dual, model.potential).ok
    assert not fb.certify(blocks, y, 1.001 * lazy, found.dual, model.potential).ok
