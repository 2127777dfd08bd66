"""One bar for all long computations: on a terminal, after a while, and gone when it is done."""

import io
import re
from types import SimpleNamespace

import pytest

from flowbias.ground import progress
from flowbias.kernels.products import shown as steps_shown
from flowbias.limits.blocks.limit import watching
from flowbias.nets.training import epochs_shown


class Terminal(io.StringIO):
    """What says that it is one."""

    def isatty(self) -> bool:
        return True


def to_stderr(monkeypatch, stream):
    """For the bars alone: pytest puts its own in the place of sys.stderr for each phase."""
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream))


class Clock:
    """Seconds that pass where a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    one = Clock()
    monkeypatch.setattr(progress, "time", one)
    return one


@pytest.fixture
def terminal(monkeypatch):
    """Standard error as a terminal that is wide enough, and what was written on it."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    to_stderr(monkeypatch, stream)
    return stream


def written(stream):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())


def in_kernels(clock):
    for _ in steps_shown(range(8), 8, "tangent kernel"):
        clock.now += 0.3


def in_nets(clock, progress=None):
    with epochs_shown(8, progress) as show:
        for done in range(1, 9):
            clock.now += 0.3
            show(done, f"loss {1 / done:.3f}")


def in_limits(clock, wanted=True):
    with watching(wanted, 1e-8) as report:
        for step in range(8):
            clock.now += 0.3
            report(step, 10.0 ** -(step + 1))


USERS = pytest.mark.parametrize(
    ("use", "words"),
    [
        (in_kernels, ["tangent kernel", "8/8"]),
        (in_nets, ["training", "8/8", "loss 0.125"]),
        (in_limits, ["limit", "step 7, gap 1.0e-08"]),
    ],
)


@USERS
def test_a_terminal_gets_one_style_of_bar(terminal, clock, use, words):
    use(clock)
    told = written(terminal)
    assert all(word in told for word in [*words, "remaining"])
    # Gone: the last thing that is sent clears the line and gives the cursor back.
    assert terminal.getvalue().endswith("\x1b[2K")


@USERS
def test_nothing_is_written_where_nobody_looks(monkeypatch, clock, use, words):
    stream = io.StringIO()
    to_stderr(monkeypatch, stream)
    use(clock)
    assert stream.getvalue() == ""


@USERS
def test_a_process_without_standard_error_computes_all_the_same(monkeypatch, clock, use, words):
    to_stderr(monkeypatch, None)
    use(clock)


@USERS
def test_a_short_wait_needs_no_bar(terminal, clock, use, words, monkeypatch):
    monkeypatch.setattr(progress, "BAR_AFTER", 2.5)
    use(clock)
    assert terminal.getvalue() == ""


@USERS
def test_a_terminal_that_cannot_move_its_cursor_gets_none(terminal, monkeypatch, clock, use, words):
    monkeypatch.setenv("TERM", "dumb")
    use(clock)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("use", [in_nets, in_limits])
def test_it_can_be_turned_off(terminal, clock, use):
    use(clock, False)
    assert terminal.getvalue() == ""


def test_one_step_needs_no_bar(terminal, clock):
    for _ in steps_shown([0], 1, "tangent kernel"):
        clock.now += 10.0
    assert terminal.getvalue() == ""


def test_changes_that_nobody_could_see_are_left_out(terminal, clock):
    bar = progress.Bar(terminal, patience=0.0)
    bar.start("x", 4)
    for done, wait in ((1, 0.2), (2, 0.01), (3, 0.01), (4, 0.01)):
        clock.now += wait
        bar.show(done)
        # The first and, however soon it comes, the last.
        assert bar._rich.tasks[0].completed == {1: 1, 2: 1, 3: 1, 4: 4}[done]
    bar.stop()


def test_it_is_taken_away_from_under_an_error(terminal, clock):
    def breaks():
        with progress.shown("x", 2) as show:
            clock.now += 2.0
            show(1)
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        breaks()
    assert terminal.getvalue().endswith("\x1b[2K")
