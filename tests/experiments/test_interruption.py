"""Killed or interrupted half way, a run leaves what it finished, and the next one goes on."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flowbias.experiments import Preset, run
from flowbias.experiments.progress import Silence
from flowbias.ground import threads
from tests.experiments.toy import COUNT, FREE, compute_in_two_sittings, toy

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
from flowbias.experiments import run
from tests.experiments.toy import toy
record = run(toy(), preset="smoke", cache=sys.argv[1], jobs=int(sys.argv[2]))
sys.stdout.write(record.table.digest)
"""
# In an interpreter of its own, where nothing has started a process before.
BLOCKED_SIGNALS = """
import signal
from flowbias.experiments.workers import spread
from tests.experiments.toy import blocked_signals
workers = list(spread(blocked_signals, range(4), 2))
assert all(signal.SIGINT in blocked for blocked in workers), workers
here = signal.pthread_sigmask(signal.SIG_BLOCK, ())
assert signal.SIGINT not in here, here
"""


@pytest.fixture
def start(tmp_path):
    """A run in a process group of its own, as a terminal would start it, that stops half way."""
    started = []

    def begin(jobs):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "cache"), str(jobs)],
            env={
                **environment(),
                "TOY_LOG": str(tmp_path / "log"),
                "TOY_GATE": str(tmp_path / "gate"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}


def stored(tmp_path):
    return sorted((tmp_path / "cache").rglob("*.npz"))


def wait_for_entries(tmp_path, process):
    deadline = time.monotonic() + 60
    while len(stored(tmp_path)) < FREE:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "no results in a minute"
        time.sleep(0.01)


@pytest.mark.parametrize("jobs", [1, 2])
def test_after_a_kill_no_finished_task_is_computed_again_and_the_table_is_the_same(
    start, tmp_path, jobs
):
    process = start(jobs)
    wait_for_entries(tmp_path, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = {file: file.stat().st_mtime_ns for file in stored(tmp_path)}
    assert len(kept) == FREE
    (tmp_path / "log").unlink()
    (tmp_path / "gate").touch()
    rerun = start(jobs)
    digest, told = rerun.communicate(timeout=60)
    assert rerun.returncode == 0, told
    assert f"{FREE} from the cache" in told
    computed = (tmp_path / "log").read_text().splitlines()
    assert len(computed) == len(set(computed)) == COUNT + 1 - FREE
    assert {file: file.stat().st_mtime_ns for file in kept} == kept
    untouched = run(toy(), preset="smoke", cache=tmp_path / "c2", jobs=1, progress=Silence())
    assert digest == untouched.table.digest


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_stops_at_once_and_leaves_no_process_behind(start, tmp_path, jobs):
    process = start(jobs)
    wait_for_entries(tmp_path, process)
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode in (1, -signal.SIGINT)
    assert told.count("Traceback") == told.count("KeyboardInterrupt") == 1, told
    wait_for_end(process.pid)
    assert len(stored(tmp_path)) == FREE
    assert list((tmp_path / "cache").rglob("*.tmp")) == []


def test_ctrl_c_while_libraries_are_looked_for_is_not_lost(monkeypatch):
    """They are looked for by callbacks of ctypes, which swallow what is raised in them."""

    @ctypes.CFUNCTYPE(None)
    def pressed():
        signal.raise_signal(signal.SIGINT)

    class Search:
        lib_controllers = ()

        def __init__(self):
            pressed()

    monkeypatch.setattr(threads, "ThreadpoolController", Search)
    with pytest.raises(KeyboardInterrupt), threads.one_thread_in_every_pool():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_is_kept_from_the_workers_at_every_moment():
    subprocess.run(
        [sys.executable, "-c", BLOCKED_SIGNALS], env=environment(), check=True, timeout=60
    )


def test_workers_end_when_their_parent_was_killed(start, tmp_path):
    process = start(2)
    wait_for_entries(tmp_path, process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for_end(process.pid)


def wait_for_end(group):
    deadline = time.monotonic() + 60
    while group_alive(group):
        assert time.monotonic() < deadline, "workers outlive the run"
        time.sleep(0.05)


def group_alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_task_finds_its_checkpoint_again_and_leaves_none_when_it_is_done(tmp_path):
    unfinished = toy(compute=compute_in_two_sittings)
    tasks = len(unfinished.task_list(Preset.SMOKE))
    options = {"preset": "smoke", "cache": tmp_path, "jobs": 1, "progress": Silence()}
    for _ in range(tasks):
        with pytest.raises(KeyboardInterrupt):
            run(unfinished, **options)
        assert len(list(tmp_path.rglob("*.checkpoint"))) == 1
    record = run(unfinished, **options)
    assert list(record.table["found"]) == ["half"] * tasks
    assert not list(tmp_path.rglob("*.checkpoint"))
