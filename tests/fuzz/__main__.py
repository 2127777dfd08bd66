"""python -m tests.fuzz: draw problems, have the library answer them, judge every answer.

--problems N --seed S   the problems of seeds S, S + 1, ..., S + N - 1; new ones without --seed
--family F              of these only the ones of this family
--doors D [D ...]       of these only the ones for these front doors
--jobs J                worker processes
--json FILE             one line per problem; a second run goes on where the first one stopped
--replay SEED           one problem, shown in full
"""

from __future__ import annotations

import argparse
import secrets
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.fuzz.problems import ENTRIES, FAMILIES, Problem, problem
from tests.fuzz.runner import Record, as_line, examined, is_offence, read_records, run
from tests.fuzz.table import reasons, table


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**12))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--family", choices=sorted(FAMILIES))
    parser.add_argument("--doors", nargs="+", choices=sorted(ENTRIES), default=sorted(ENTRIES))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--replay", type=int)
    given = parser.parse_args()
    if given.replay is not None:
        return replay(given.replay)
    print(f"--problems {given.problems} --seed {given.seed}")
    seeds = range(given.seed, given.seed + given.problems)
    earlier = read_records(given.json) if given.json else []
    families = sorted(FAMILIES) if given.family is None else [given.family]

    def is_asked(one: Record | Problem) -> bool:
        return one.family in families and one.entry in given.doors

    records = [one for one in earlier if one.seed in seeds and is_asked(one)]
    done = {one.seed for one in records}
    todo = (s for s in seeds if s not in done and is_asked(problem(s)))
    with ExitStack() as stack:
        file = stack.enter_context(given.json.open("a")) if given.json else None
        for one in run(todo, given.jobs):
            records.append(one)
            if file is not None:
                file.write(as_line(one))
                file.flush()
            if is_offence(one):
                print(_line(one), flush=True)
    for by in ("family", "entry"):
        print(f"\n{table(records, by)}")
    print(f"\n{reasons(records)}")
    return 1 if any(map(is_offence, records)) else 0


def _line(one: Record) -> str:
    return f"{one.kind:8} --replay {one.seed}  {one.family}, {one.entry}: {one.status} {one.reason}"


def replay(seed: int) -> int:
    print(problem(seed))
    one = examined(seed)
    print(_line(one))
    print(f"error {one.error:.3e}, bound {one.bound:.3e}, {one.seconds:.2f} s")
    return 1 if is_offence(one) else 0


if __name__ == "__main__":
    sys.exit(main())
