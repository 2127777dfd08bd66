"""The schedulers of one machine: processes are started once, and what dies is said."""

import gc
import weakref
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import flowbias as fb
from flowbias.ground.arguments import InputError
from tests.designs.dask_tasks import D, N, assert_same_sums, data

dask = pytest.importorskip("dask", reason="needs the extra `cluster`")
da = pytest.importorskip("dask.array")

from flowbias.designs import dask_cluster  # noqa: E402
from flowbias.designs.dask_array import DaskDesign  # noqa: E402
from flowbias.designs.dask_cluster import ClusterError  # noqa: E402


def test_processes_are_started_once_for_a_limit_and_end_with_it(monkeypatch):
    rng = np.random.default_rng(0)
    X, y, model = rng.standard_normal((4, 30)), rng.standard_normal(4), fb.DiagonalNet(2, 0.1)
    pools = []

    def started(*args, **options):
        pool = ProcessPoolExecutor(*args, **options)
        pools.append(weakref.ref(pool))
        return pool

    monkeypatch.setattr(dask_cluster, "ProcessPoolExecutor", started)
    with dask.config.set(scheduler="processes", num_workers=1):
        found = fb.limit(model, da.from_array(X, chunks=(4, 10)), y)
    np.testing.assert_allclose(found.w, fb.limit(model, X, y).w, rtol=0, atol=1e-10)
    assert len(pools) == 1
    gc.collect()
    assert pools[0]() is None


def test_a_pool_of_ones_own_is_used():
    X, task = data()
    X[2, 23] = np.nan
    array = da.from_array(X, chunks=(N, 10))
    with ThreadPoolExecutor(1) as pool, dask.config.set(scheduler="processes", pool=pool):
        whole = DaskDesign(array.map_blocks(np.nan_to_num))
        assert_same_sums(whole.reduce(task), task.expected(np.nan_to_num(X)))
        assert whole._processes._pool is None
        with pytest.raises(InputError, match=r"at index \(2, 23\).*\(In column block 2\.\)$"):
            DaskDesign(array).reduce(task)


def test_a_process_that_dies_is_said_and_others_are_started_for_the_next_pass(monkeypatch):
    X, task = data()

    class Broken(ThreadPoolExecutor):
        def submit(self, *args):
            # What a real one says when a process was killed.
            raise BrokenExecutor

    design = DaskDesign(da.from_array(X, chunks=(N, 10)))
    with dask.config.set(scheduler="processes"):
        monkeypatch.setattr(dask_cluster, "ProcessPoolExecutor", lambda *_, **__: Broken(1))
        with pytest.raises(ClusterError, match=r"processes on this machine died.*num_workers"):
            design.reduce(task)
        pool = ThreadPoolExecutor(1)
        monkeypatch.setattr(dask_cluster, "ProcessPoolExecutor", lambda *_, **__: pool)
        assert_same_sums(design.reduce(task), task.expected(X))


def test_a_scheduler_that_dask_does_not_know():
    with (
        dask.config.set(scheduler="nonsense"),
        pytest.raises(InputError, match=r"^dask\.config: its scheduler must be .*Expected one of"),
    ):
        DaskDesign(da.ones((N, D)))
