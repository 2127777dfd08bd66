"""`fb.limit` on a dask.array is `fb.limit` on the array that it holds."""

from dataclasses import replace

import numpy as np
import pytest

import flowbias as fb
from flowbias.ground.arguments import InputError

dask = pytest.importorskip("dask", reason="needs the extra `cluster`")
da = pytest.importorskip("dask.array")

N, D = 15, 200


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def problem():
    X, y, _ = fb.datasets.sparse_regression(n=N, d=D, sparsity=3, noise_var=0.01, rng=0)
    return X.astype(np.float32), y


@pytest.mark.parametrize(
    "model",
    [
        fb.DiagonalNet(2, 1.0),
        fb.DiagonalNet(2, 1e-4),
        fb.DiagonalNet(3, 0.3),
        fb.DiagonalNet(2, 0.1, w0=np.linspace(0.5, 2.0, D)),
    ],
    ids=["kernel", "rich", "depth 3", "uneven start"],
)
def test_it_is_the_limit_of_the_whole_array(problem, model):
    X, y = problem
    whole = fb.limit(model, X.astype(float), y)
    blocks = fb.limit(model, da.from_array(X, chunks=((N,), (90, 1, 60, 49))), y)
    assert blocks.status is whole.status is fb.Status.CERTIFIED
    assert blocks.route.endswith("(dask)")
    # Both bounds are proved, so the two may differ by no more than their sum.
    allowed = whole.certificate.error_bound + blocks.certificate.error_bound
    assert np.linalg.norm(blocks.w - whole.w) <= allowed <= 1e-10


def test_a_predictor_too_long_for_the_caller_stays_with_the_workers(problem, monkeypatch):
    X, y = problem
    monkeypatch.setattr("flowbias.designs.dask_array.GATHERED_BYTES", 0)
    model = fb.DiagonalNet(2, 0.01)
    solution = fb.limit(model, da.from_array(X, chunks=(N, 60)), y)
    assert isinstance(solution.w, da.Array)
    assert solution.w.chunks == ((60, 60, 60, 20),)
    assert solution.certificate.ok
    whole = fb.limit(model, X.astype(float), y)
    np.testing.assert_allclose(solution.w.compute(), whole.w, rtol=0, atol=1e-10)


def test_rows_given_twice_and_an_output_out_of_reach(problem):
    X, y = problem
    twice, outputs = np.vstack([X, X[:2]]), np.append(y, [y[0], y[1] + 1])
    model = fb.DiagonalNet(2, 0.1)
    blocks = fb.limit(model, da.from_array(twice, chunks=(len(twice), 70)), outputs)
    whole = fb.limit(model, twice.astype(float), outputs)
    assert blocks.status is whole.status is fb.Status.PROJECTED
    np.testing.assert_allclose(blocks.w, whole.w, rtol=0, atol=1e-9)


def test_a_bad_entry_is_found_before_anything_is_solved(problem):
    X, y = (array.copy() for array in problem)
    X[3, 170] = np.nan
    with pytest.raises(InputError, match=r"got nan at index \(3, 170\).*In column block 2"):
        fb.limit(fb.DiagonalNet(2, 0.1), da.from_array(X, chunks=(N, 80)), y)


def test_what_is_printed_computes_nothing(problem, monkeypatch):
    X, y = problem
    solution = fb.limit(fb.DiagonalNet(2, 0.1), da.from_array(X, chunks=(N, 50)), y)
    lazy = replace(solution, w=da.from_array(solution.w, chunks=50))
    monkeypatch.setattr(da.Array, "compute", lambda *_: pytest.fail("computed"))
    assert f"d={D}, w not computed yet" in repr(lazy)
    assert "l1=" in repr(solution)
