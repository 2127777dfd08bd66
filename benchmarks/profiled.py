"""Where does the time of one certified limit go?

Shares by what is done (validation, constraint, solver, certificate, with its numbers and the error
bound where a first look does not prove the limit), and the functions
with most time of their own, as cProfile sees them: it slows calls down, so that what consists of
many small ones looks larger than it is. `--lines certificates/candidate.py:is_proved` adds the
lines of a function, timed by tracing that function alone. n = 100, d = 1000 and depth 2 unless
asked otherwise.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from _common import Report, parser, problem
from threadpoolctl import threadpool_limits

import flowbias as fb

SOURCE = Path(fb.__file__).parent
# The functions that do a part from beginning to end: what they call belongs to them.
PARTS = {
    "validation": (
        "problems/regression.py:as_regression",
        "limits/solve.py:check_model",
    ),
    "constraint": ("problems/regression.py:_equilibrated",),
    "solver": ("limits/routes.py:_by_branches",),
    "certificate": ("certificates/certificate.py:judged",),
    "  of which numbers": ("certificates/certificate.py:measured",),
    "  of which error bound": ("certificates/candidate.py:bound",),
}
Key = tuple[str, int, str]


def solves(n: int, d: int, depth: float, scale: float, repeats: int) -> Callable[[], None]:
    X, y, _ = problem(n, d)
    model = fb.DiagonalNet(depth, scale)
    fb.limit(model, X, y)  # what is done once for all is none of it

    def run() -> None:
        for _ in range(repeats):
            fb.limit(model, X, y)

    return run


def profiled(run: Callable[[], None]) -> pstats.Stats:
    profile = cProfile.Profile(time.process_time)
    profile.enable()
    run()
    profile.disable()
    return pstats.Stats(profile)


def is_there(name: str) -> bool:
    """Whether a function of that name stands in that file: parts move, and then count nothing."""
    file, function = name.split(":")
    path = SOURCE / file
    return path.is_file() and f"def {function}(" in path.read_text()


def lines(run: Callable[[], None], name: str, repeats: int) -> list[dict[str, Any]]:
    """Time between a line of one function and the next, calls included."""
    file, function = name.split(":")
    path, spent, last = str(SOURCE / file), defaultdict[int, int](int), [0, 0]

    def trace_line(frame: FrameType, event: str, _: object) -> Any:
        now = time.perf_counter_ns()
        if last[0]:
            spent[last[0]] += now - last[1]
        last[:] = (0 if event == "return" else frame.f_lineno), time.perf_counter_ns()
        return trace_line

    def trace_call(frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        return trace_line if (code.co_filename, code.co_name) == (path, function) else None

    sys.settrace(trace_call)
    run()
    sys.settrace(None)
    source = Path(path).read_text().splitlines()
    return [
        {"line": number, "us": 1e-3 * taken / repeats, "source": source[number - 1].strip()}
        for number, taken in sorted(spent.items())
    ]


def named(key: Key) -> str:
    file, _, function = key
    path = Path(file)
    if path.is_relative_to(SOURCE):
        file = str(path.relative_to(SOURCE))
    else:
        file = "/".join(path.parts[-2:]) if file != "~" else ""
    return f"{file}:{function}" if file else function


def shares(stats: pstats.Stats, repeats: int) -> list[dict[str, Any]]:
    """Of the whole, by part. A cached property is charged to whoever looks first: not here."""
    found: dict[str, float] = {}
    for key, (_, _, _, cumulative, _) in stats.stats.items():  # type: ignore[attr-defined]
        # Functions of one name in one file call each other: the outermost counts.
        found[named(key)] = max(found.get(named(key), 0.0), cumulative)
    total = found["limits/solve.py:limit"]
    seconds = {
        part: sum(found.get(function, 0.0) for function in functions)
        for part, functions in PARTS.items()
    }
    known = sum(taken for part, taken in seconds.items() if not part.startswith(" "))
    seconds["between"] = total - known
    return [
        {"part": part, "ms": 1e3 * taken / repeats, "share": taken / total}
        for part, taken in {**seconds, "all": total}.items()
    ]


def functions(stats: pstats.Stats, repeats: int, count: int) -> list[dict[str, Any]]:
    rows = [
        {"function": named(key), "calls": calls / repeats, "own ms": 1e3 * own / repeats}
        for key, (_, calls, own, _, _) in stats.stats.items()  # type: ignore[attr-defined]
    ]
    return sorted(rows, key=lambda row: -row["own ms"])[:count]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--samples", type=int, default=100)
    arguments.add_argument("--features", type=int, default=1000)
    arguments.add_argument("--depth", type=float, default=2)
    arguments.add_argument("--scales", type=float, nargs="+", default=(10.0, 0.1, 1e-3))
    arguments.add_argument("--repeats", type=int, default=100)
    arguments.add_argument("--functions", type=int, default=12, help="how many are listed")
    arguments.add_argument("--lines", nargs="+", default=(), metavar="FILE:FUNCTION")
    options = arguments.parse_args()
    named_here = [*options.lines, *(name for names in PARTS.values() for name in names)]
    if moved := [name for name in named_here if not is_there(name)]:
        arguments.error(f"no such function: {', '.join(moved)}")
    with threadpool_limits(1):
        report = Report(options.json)
        for scale in options.scales:
            size = options.samples, options.features
            run = solves(*size, options.depth, scale, options.repeats)
            stats = profiled(run)
            title = f"n = {size[0]}, d = {size[1]}, depth {options.depth:g}, scale {scale:g}"
            report.table(title, shares(stats, options.repeats))
            rows = functions(stats, options.repeats, options.functions)
            report.table(f"functions, scale {scale:g}", rows)
            for name in options.lines:
                report.table(f"lines of {name}", lines(run, name, options.repeats))
        report.finish()


if __name__ == "__main__":
    main()
