"""The same tasks on a real Dask scheduler with real workers, on loopback."""

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flowbias.experiments import run
from flowbias.experiments.progress import Silence
from flowbias.experiments.workers import CLUSTER_PATIENCE, ClusterError
from flowbias.ground.arguments import InputError
from tests.experiments.toy import COUNT, compute_or_fail, toy

pytest.importorskip("distributed", reason="needs the extra `cluster`")

ROOT = Path(__file__).resolve().parents[2]
TOTAL = COUNT + 1


class Cluster:
    """Processes of one cluster: a scheduler, and workers that can be killed."""

    def __init__(self, folder):
        self._folder = folder
        self._processes = []
        self.scheduler = self._start("scheduler", "--host", "tcp://127.0.0.1", "--port", "0")
        self.address = self._address()
        self.workers = []

    def add_worker(self, **environment):
        worker = self._start(
            "worker",
            self.address,
            *("--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--no-dashboard"),
            **environment,
        )
        self.workers.append(worker)

    def stop(self):
        for process in self._processes:
            process.kill()
            process.wait()

    def _start(self, role, *arguments, **environment):
        log = (self._folder / f"{role}-{len(self._processes)}.log").open("w")
        process = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_" + role, *arguments]
            + (["--no-dashboard"] if role == "scheduler" else []),
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
                **environment,
            },
            cwd=self._folder,
            stdout=log,
            stderr=log,
        )
        self._processes.append(process)
        return process

    def _address(self):
        log = self._folder / "scheduler-0.log"
        deadline = time.monotonic() + 60
        while not (found := re.search(r"Scheduler at:\s+(tcp://\S+)", log.read_text())):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        return found[1]


@pytest.fixture
def cluster(tmp_path):
    started = Cluster(tmp_path)
    yield started
    started.stop()


@pytest.fixture
def local_digest(tmp_path):
    record = run(toy(), preset="smoke", cache=tmp_path / "local", jobs=1, progress=Silence())
    return record.table.digest


def run_on(cluster, tmp_path, experiment=None, progress=None):
    return run(
        experiment or toy(),
        preset="smoke",
        cache=tmp_path / "cache",
        cluster=cluster.address,
        progress=progress or Silence(),
    )


class KillAfter(Silence):
    """Kills a worker of the cluster when some tasks are done."""

    def __init__(self, worker, tasks):
        self._worker, self._left = worker, tasks

    def finished(self, task, seconds, failure):
        self._left -= 1
        if self._left == 0:
            self._worker.kill()


def test_two_workers_of_which_one_is_killed_give_the_same_table(cluster, tmp_path, local_digest):
    for _ in range(2):
        cluster.add_worker(TOY_SECONDS="0.3", TOY_LOG=str(tmp_path / "log"))
    record = run_on(cluster, tmp_path, progress=KillAfter(cluster.workers[0], 2))
    assert cluster.workers[0].wait(10) != 0
    assert record.counts.computed == TOTAL
    assert record.table.digest == local_digest
    # What came back was kept: the next run asks nobody.
    cluster.stop()
    assert run_on(cluster, tmp_path).counts.cached == TOTAL


def test_a_failed_task_is_reported_and_not_kept(cluster, tmp_path):
    cluster.add_worker()
    record = run_on(cluster, tmp_path, toy(compute=compute_or_fail))
    (failure,) = record.failures
    assert failure.cause == "FloatingPointError: told to fail"
    assert run_on(cluster, tmp_path).counts.computed == 1


def test_a_scheduler_without_workers_is_said(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("flowbias.experiments.workers.CLUSTER_PATIENCE", 1.0)
    with pytest.raises(
        ClusterError, match=r"has no workers, or is gone\. Start some with `dask worker tcp"
    ):
        run_on(cluster, tmp_path)


def test_a_lost_scheduler_ends_the_run_and_what_was_done_is_kept(cluster, tmp_path):
    cluster.add_worker(TOY_SECONDS="0.3")
    record = run_on(cluster, tmp_path, progress=KillAfter(cluster.scheduler, 2))
    assert 0 < record.counts.failed < TOTAL
    kept = TOTAL - record.counts.failed
    resumed = run(toy(), preset="smoke", cache=tmp_path / "cache", jobs=1, progress=Silence())
    assert resumed.counts.cached == kept


def test_an_unreachable_scheduler_is_said_in_seconds(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
    started = time.monotonic()
    with pytest.raises(ClusterError, match=r"no scheduler answers at .* `dask scheduler`"):
        run(toy(), preset="smoke", cache=tmp_path, cluster=address, progress=Silence())
    # Twice, because the machine may be busy.
    assert time.monotonic() - started < 2 * CLUSTER_PATIENCE


@pytest.mark.parametrize(
    "address", ["", "nowhere", "tcp://", "tcp://a b:1", "tcp://a:b", "http://a:1"]
)
def test_what_is_no_address_is_refused_at_once(tmp_path, address):
    with pytest.raises(InputError, match="cluster: must be an address"):
        run(toy(), preset="smoke", cache=tmp_path, cluster=address, progress=Silence())


def test_what_answers_but_is_no_scheduler_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("flowbias.experiments.workers.CLUSTER_PATIENCE", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ClusterError, match="no scheduler answers"):
            run(toy(), preset="smoke", cache=tmp_path, cluster=address, progress=Silence())


def test_a_run_whose_workers_are_all_lost_ends(cluster, tmp_path, monkeypatch):
    cluster.add_worker(TOY_SECONDS="0.3")

    class Impatient(KillAfter):
        def finished(self, *about):
            # Not before: the worker takes its time to start.
            monkeypatch.setattr("flowbias.experiments.workers.CLUSTER_PATIENCE", 1.0)
            super().finished(*about)

    with pytest.raises(ClusterError, match="has no workers"):
        run_on(cluster, tmp_path, progress=Impatient(cluster.workers[0], 2))
    resumed = run(toy(), preset="smoke", cache=tmp_path / "cache", jobs=1, progress=Silence())
    assert resumed.counts.cached >= 2
