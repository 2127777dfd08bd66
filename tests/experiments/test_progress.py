"""Progress is a bar on a terminal and plain lines elsewhere."""

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from flowbias.experiments.progress import Lines, TaskBar, progress_for
from flowbias.experiments.record import Counts, Failure

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
from flowbias.experiments import run
from tests.experiments.toy import compute_shown, toy
run(toy(compute=compute_shown), preset="smoke", cache={cache!r}, jobs=1)
"""


def test_the_kind_follows_the_stream(tmp_path):
    assert isinstance(progress_for(io.StringIO()), Lines)
    control, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stream:
        assert isinstance(progress_for(stream), TaskBar)
    os.close(control)


def test_lines_say_what_was_held_what_failed_and_when_all_is_done():
    told = io.StringIO()
    lines = Lines(told)
    lines.start(Counts(cached=4, stale=1), waiting=3)
    lines.finished("a/b i=1", 0.5, None)
    lines.finished("a/b i=2", 0.5, Failure("a/b i=2", "ValueError: no", ""))
    lines.finished("a/b i=3", 0.5, None)
    lines.stop()
    assert told.getvalue().splitlines() == [
        "3 tasks to compute, 5 from the cache",
        "failed: a/b i=2: ValueError: no",
        "3 of 3 done, last a/b i=3 (0.5 s)",
    ]


def test_a_line_a_minute_says_how_long_a_resumed_training_takes_at_most(monkeypatch):
    told, clock = io.StringIO(), iter([0.0, 10.0, 40.0, 100.0, 100.0, 130.0])
    monkeypatch.setattr("flowbias.experiments.progress.time.monotonic", lambda: next(clock))
    with Lines(told).row("training", 80) as show:
        show(20, "loss 1")  # where the checkpoint was
        show(30, "loss 0.5")
        show(40, "loss 0.2")
        show(45, "loss 0.1")
    # 20 epochs in 100 seconds, and 40 more.
    assert told.getvalue() == "training: 40 of 80, remaining 0:03:20, loss 0.2\n"


def test_a_run_with_nothing_to_do_says_nothing():
    told = io.StringIO()
    lines = Lines(told)
    lines.start(Counts(cached=4), waiting=0)
    lines.stop()
    assert told.getvalue() == ""


def test_a_terminal_gets_a_bar_with_the_remaining_time(tmp_path):
    control, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(cache=str(tmp_path / "cache"))],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "TERM": "xterm",
            "COLUMNS": "120",
            "TOY_SECONDS": "0.1",
        },
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    while chunk := read(control):
        shown += chunk
    os.close(control)
    assert process.wait(60) == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "9/9" in plain
    assert "remaining" in plain
    assert "failed: toy/sums i=3" in plain
    # A computation within a task, under the bar of the tasks.
    assert "epochs" in plain
    assert "2/5" in plain


def read(descriptor):
    try:
        return os.read(descriptor, 4096)
    except OSError:  # how Linux says that the other end of a terminal was closed
        return b""
