"""The Dask design on clusters: what is sent, and what happens when parts of a cluster go away."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

import flowbias
from flowbias.ground.arguments import InputError
from tests.designs.dask_tasks import Numbers, SlowSums, Sums

distributed = pytest.importorskip("distributed", reason="needs the extra `cluster`")
dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

from flowbias.designs import dask_array, dask_cluster  # noqa: E402
from flowbias.designs.dask_array import DaskDesign  # noqa: E402
from flowbias.designs.dask_cluster import ClusterError, active_client  # noqa: E402

N, D = 30, 5000
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
TASK = Sums(RNG.normal(size=N), RNG.uniform(size=D))
LIMIT = 10**9
# Workers that are threads of this process count all of its memory, which other tests have filled:
# they would pause.
NEVER_FULL = dict.fromkeys(
    (f"distributed.worker.memory.{step}" for step in ("target", "spill", "pause", "terminate")),
    False,
)


def cluster_of(**options):
    with dask.config.set(NEVER_FULL):
        return distributed.LocalCluster(
            threads_per_worker=1, memory_limit=LIMIT, dashboard_address=":0", **options
        )


@pytest.fixture
def client():
    """Of a cluster whose two workers are threads: the protocol of a real one, at once."""
    with (
        # A client whose cluster is closed first leaves Dask set to a cluster.
        dask.config.set(scheduler=None),
        cluster_of(n_workers=2, processes=False) as cluster,
        # As users do: `with Client() as client` would stay the one to compute on when it is closed.
        closing(distributed.Client(cluster)) as client,
    ):
        yield client


def assert_right(totals):
    product, gram, _ = TASK.expected(X)
    # Sums of 5000 products of order one, in another order.
    np.testing.assert_allclose(totals.sums[0], product, rtol=0, atol=1e-9)
    np.testing.assert_allclose(totals.sums[1], gram, rtol=0, atol=1e-11)


def test_entries_inside_the_graph_are_sent_once_and_held(client):
    design = DaskDesign(da.from_array(X, chunks=(N, 1000)))
    assert len(distributed.futures_of(design.array)) == 5
    assert_right(design.reduce(TASK))
    np.testing.assert_array_equal(np.hstack([block.values for block in design.blocks()]), X)
    # A part of a held array is held as well.
    assert_right(DaskDesign(design.array * 1.0).reduce(TASK))


def test_a_lazy_vector_keeps_what_it_is_computed_from(client, monkeypatch):
    monkeypatch.setattr("flowbias.designs.dask_array.GATHERED_BYTES", 0)
    lazy = DaskDesign(da.from_array(X, chunks=(N, 1000))).gather(Numbers(TASK.dual))
    gc.collect()  # the design is gone, and with it its hold on the blocks
    np.testing.assert_allclose(lazy.compute(), X.T @ TASK.dual, rtol=0, atol=1e-11)


def test_entries_that_the_workers_cannot_hold_are_refused(client, monkeypatch):
    monkeypatch.setattr(dask_array, "HELD_SHARE", 0.9 * X.nbytes / (2 * LIMIT))
    with pytest.raises(InputError, match=r"its 0\.0012 GB are inside the graph.*have 2 GB in all"):
        DaskDesign(da.from_array(X, chunks=(N, 1000)))


def test_blocks_that_workers_make_themselves_are_not_held(client):
    made = da.ones((N, D), chunks=(N, 1000))
    assert distributed.futures_of(DaskDesign(made).array) == []


def test_what_was_rechunked_is_held_if_it_fits(client, monkeypatch):
    made = da.ones((N, D), chunks=(10, 1000))
    with pytest.warns(UserWarning, match="chunked over rows"):
        assert distributed.futures_of(DaskDesign(made).array) != []
    monkeypatch.setattr(dask_array, "HELD_SHARE", 0.9 * X.nbytes / (2 * LIMIT))
    with pytest.warns(UserWarning, match="chunked over rows"):
        assert distributed.futures_of(DaskDesign(made).array) == []


def test_the_scheduler_that_dask_is_set_to_is_used(client):
    assert active_client() is client
    with dask.config.set(scheduler="threads"):
        assert active_client() is None


def test_bad_entries_and_broken_graphs_are_told_as_elsewhere(client):
    bad = X.copy()
    bad[3, 2100] = np.inf
    with pytest.raises(InputError, match=r"^X: must be finite.*\(3, 2100\).*column block 2\.\)$"):
        DaskDesign(da.from_array(bad, chunks=(N, 1000))).reduce(TASK)
    broken = da.ones((N, D), chunks=(N, 1000)).map_blocks(lambda block: block / {}, dtype=float)
    with pytest.raises(InputError, match="its blocks must be computable, got TypeError"):
        DaskDesign(broken).reduce(TASK)


def test_a_cluster_without_workers_is_said(client, monkeypatch):
    monkeypatch.setattr("flowbias.designs.dask_cluster.WORKER_PATIENCE", 0.5)
    design = DaskDesign(da.ones((N, D), chunks=(N, 1000)))
    client.cluster.scale(0)
    with pytest.raises(ClusterError, match=r"no worker of .* is running.*`dask worker`"):
        design.reduce(TASK)


@pytest.mark.parametrize("leaves", ["client", "cluster"])
def test_a_cluster_that_goes_away_is_said(client, tmp_path, leaves):
    design = DaskDesign(da.ones((N, D), chunks=(N, 1000)))
    task = SlowSums(TASK.dual, TASK.weights, folder=tmp_path, seconds=0.5)
    leave = {"client": client.close, "cluster": client.cluster.close}[leaves]
    threading.Thread(target=after(tmp_path, "*", leave)).start()
    with pytest.raises(ClusterError, match=r"went away, or its client was closed.*Client\(address"):
        design.reduce(task)


@pytest.mark.parametrize("leaves", ["client", "cluster"])
def test_a_cluster_that_goes_away_between_passes_is_not_replaced_by_this_machine(client, leaves):
    design = DaskDesign(da.ones((N, D), chunks=(N, 1000)))
    design.reduce(TASK)
    {"client": client.close, "cluster": client.cluster.close}[leaves]()
    with pytest.raises(ClusterError, match=r"went away, or its client was closed.*Client\(address"):
        design.reduce(TASK)


def test_a_client_that_dask_is_set_to_and_that_is_gone():
    with (
        dask.config.set(scheduler="dask.distributed"),
        pytest.raises(ClusterError, match=r"^cluster: .*no Client active.*Client\(address"),
    ):
        DaskDesign(da.ones((N, D), chunks=(N, 1000)))


def test_a_cluster_that_comes_later_is_used(request, monkeypatch):
    design = DaskDesign(da.from_array(X, chunks=(N, 1000)))
    client, asked = request.getfixturevalue("client"), []
    there = dask_cluster._there
    monkeypatch.setattr(dask_cluster, "_there", lambda *args: asked.append(args[0]) or there(*args))
    assert_right(design.reduce(TASK))
    assert asked == [client]


def test_blocks_that_a_cluster_holds_are_used_there_or_not_at_all(client):
    held = da.from_array(X, chunks=(N, 1000)).persist()
    with dask.config.set(scheduler="threads"):
        assert_right(DaskDesign(held).reduce(TASK))
    client.close()
    for array in (held, held * 1.0):
        with pytest.raises(ClusterError, match=r"blocks of X were held by a cluster whose client"):
            DaskDesign(array)


def after(folder, sign, action):
    """`action` as soon as a task has begun that leaves this sign."""

    def wait():
        while not any(folder.glob(sign)):
            time.sleep(0.01)
        action()

    return wait


@contextmanager
def worker_process(address, *first_on_path):
    words = [sys.executable, "-m", "distributed.cli.dask_worker", address]
    options = ["--no-nanny", "--no-dashboard", "--nthreads", "1", "--memory-limit", str(LIMIT)]
    place = {**os.environ, "PYTHONPATH": os.pathsep.join([*first_on_path, *sys.path])}
    with subprocess.Popen(words + options, env=place, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def test_what_a_killed_worker_did_and_held_is_made_again_elsewhere(tmp_path):
    options = {"processes": False, "protocol": "tcp", "host": "127.0.0.1"}
    with (
        cluster_of(n_workers=1, **options) as cluster,
        closing(distributed.Client(cluster)) as client,
        worker_process(cluster.scheduler_address) as victim,
    ):
        client.wait_for_workers(2, timeout=60)
        design = DaskDesign(da.from_array(X, chunks=(N, 500)))
        task = SlowSums(TASK.dual, TASK.weights, folder=tmp_path)
        kill = after(tmp_path, f"{victim.pid}-*", victim.kill)
        threading.Thread(target=kill, daemon=True).start()
        assert_right(design.reduce(task))
        assert victim.wait() == -signal.SIGKILL


def test_a_worker_of_another_version_is_refused(tmp_path):
    package = Path(flowbias.__file__).parent
    shutil.copytree(package, tmp_path / "flowbias", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "flowbias" / "potentials" / "hypentropy.py").open("a") as file:
        file.write("# Another version.\n")
    options = {"processes": False, "protocol": "tcp", "host": "127.0.0.1"}
    with (
        cluster_of(n_workers=0, **options) as cluster,
        closing(distributed.Client(cluster)) as client,
        worker_process(cluster.scheduler_address, str(tmp_path)),
    ):
        client.wait_for_workers(1, timeout=60)
        with pytest.raises(ClusterError, match=r"^cluster: must compute as .*Install the same"):
            flowbias.limit(flowbias.DiagonalNet(2, 1.0), da.ones((3, 40), chunks=(3, 20)), X[:3, 0])


def test_a_block_that_kills_its_workers_is_said(client, monkeypatch):
    def gather(futures):
        # What Dask says when a block has cost four workers their life, which takes a minute.
        raise distributed.scheduler.KilledWorker("visit", "tcp://10.0.0.7:1", 3)

    monkeypatch.setattr(client, "gather", gather)
    design = DaskDesign(da.ones((N, D), chunks=(N, 1000)))
    with pytest.raises(ClusterError, match=r"cost several workers their life.*narrower chunks"):
        design.reduce(TASK)
