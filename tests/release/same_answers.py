"""Does another tree of flowbias give the same answers as this one?

    python tests/release/same_answers.py PATH [--draws 500]

Limits through every front door, flows of every family and claims are drawn from seeds by the
tests' own generators, computed once with the src of each tree, and compared: statuses and verdicts
as words, numbers relative to the largest of their answer. What differs is listed with its seed.
"""

from __future__ import annotations

import argparse
import math
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import flowbias as fb

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.fuzz import answers, problems  # noqa: E402
from tests.theory import starts  # noqa: E402
from tests.theory.instances import CLAIMS  # noqa: E402


class Told(NamedTuple):
    """What a tree answers: words that must agree, and numbers that must be close."""

    words: tuple[str, ...]
    numbers: np.ndarray


Answers = dict[tuple[str, int], Told]


def limit(seed: int) -> Told:
    """A problem of the fuzzer's breadth through the front door that it names."""
    outcome = answers.ask(problems.problem(seed))
    words = (outcome.error.split(":")[0], *(answer.status for answer in outcome.answers))
    return Told(words, np.concatenate([[], *(np.ravel(one.w) for one in outcome.answers)]))


def flow(seed: int) -> Told:
    """The predictor at four times, of a network of each family in turn."""
    rng = np.random.default_rng([1, seed])
    times = np.sort(rng.uniform(0.05, 5.0, 4))
    try:
        trajectory = FAMILIES[seed % len(FAMILIES)](rng, times)
    except fb.FlowError as error:
        return Told((type(error).__name__,), np.empty(0))
    return Told((trajectory.status.name,), np.ravel(trajectory.w))


def _linear_network(rng: np.random.Generator, t: np.ndarray) -> Any:
    net = fb.LinearNet.gaussian(
        6, 2, width=int(rng.integers(1, 30)), scale=rng.uniform(0.05, 1.0), rng=rng
    )
    X = rng.standard_normal((3, 6))
    return fb.flow(net, X, rng.standard_normal((3, 2)), t=t)


def _factorization(rng: np.random.Generator, t: np.ndarray) -> Any:
    factors = fb.MatrixFactorization.gaussian(
        (4, 4), width=int(rng.integers(1, 9)), scale=0.3, rng=rng
    )
    rows, columns = np.divmod(rng.choice(16, 9, replace=False), 4)
    return fb.flow(factors, fb.MatrixCompletion(rows, columns, rng.standard_normal(9), (4, 4)), t=t)


def _neuron(rng: np.random.Generator, t: np.ndarray) -> Any:
    neuron = fb.Neuron(a=rng.normal(), w=rng.standard_normal(6), slope=rng.choice([1.0, 0.3]))
    return fb.flow(neuron, *starts.problem(rng), t=t)


def _diagonal(start: Callable[[np.random.Generator], Any]) -> Callable[..., Any]:
    return lambda rng, t: fb.flow(start(rng), *starts.problem(rng), t=t)


FAMILIES = (
    _diagonal(starts.tied),
    _diagonal(starts.biased),
    _diagonal(starts.untied),
    _diagonal(starts.small_start),
    _linear_network,
    _factorization,
    _neuron,
)


def claim(seed: int) -> Told:
    """An instance of each claim of flowbias.theory in turn."""
    name = sorted(CLAIMS)[seed % len(CLAIMS)]
    drawn = CLAIMS[name].draw(np.random.default_rng([zlib.crc32(name.encode()), seed]))
    claims = drawn if isinstance(drawn, tuple) else (drawn,)
    numbers = [(one.measured, one.predicted) for one in claims]
    return Told((name, *(one.verdict.name for one in claims)), np.ravel(np.array(numbers, float)))


KINDS = {"limits": limit, "flows": flow, "claims": claim}


def told(draws: int) -> Iterator[tuple[str, int, Told]]:
    for kind, ask in KINDS.items():
        for seed in range(draws):
            yield kind, seed, ask(seed)


def told_by(tree: Path, draws: int) -> Answers:
    """The answers of the library in tree/src to questions drawn by this checkout."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "answers.pickle"
        environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
        command = [sys.executable, __file__, str(tree), "--draws", str(draws), "--keep", str(kept)]
        subprocess.run(command, env=environment, check=True)
        found = pickle.loads(kept.read_bytes())  # written by this script alone
    return {(kind, seed): Told(words, numbers) for kind, seed, words, numbers in found}


def keep(path: Path, draws: int) -> None:
    warnings.simplefilter("ignore", fb.models.NarrowWarning)
    path.write_bytes(pickle.dumps([(kind, seed, *answer) for kind, seed, answer in told(draws)]))


def distance(one: Told, other: Told) -> float:
    """Largest difference, relative to the largest number of the answer; infinite between words."""
    if one.words != other.words or one.numbers.shape != other.numbers.shape:
        return math.inf
    equal = (one.numbers == other.numbers) | (np.isnan(one.numbers) & np.isnan(other.numbers))
    apart = np.where(equal, 0.0, np.abs(one.numbers - other.numbers))
    size = np.abs(one.numbers[np.isfinite(one.numbers)]).max(initial=0.0)
    return float(apart.max(initial=0.0) / (size or 1.0))


def compare(kind: str, ours: Answers, theirs: Answers, tolerance: float) -> int:
    """Print how the answers of one kind differ; how many do."""
    apart = {key: distance(ours[key], theirs[key]) for key in ours if key[0] == kind}
    beyond = {key: far for key, far in apart.items() if not far <= tolerance}
    farthest = max((far for far in apart.values() if far < math.inf), default=0.0)
    print(
        f"{kind}: {len(apart)} asked, {len(beyond)} differ; the farthest in numbers {farthest:.1e}"
    )
    for key, far in beyond.items():
        there, here = " ".join(theirs[key].words), " ".join(ours[key].words)
        print(f"  seed {key[1]}: {far:.1e} apart; there {there}, here {here}")
    return len(beyond)


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("tree", type=Path, help="the other checkout")
    arguments.add_argument("--draws", type=int, default=500, help="of each kind")
    arguments.add_argument("--tolerance", type=float, default=1e-12, help="relative")
    arguments.add_argument("--keep", type=Path, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.keep:
        keep(options.keep, options.draws)
        return 0
    theirs = told_by(options.tree.resolve(), options.draws)
    ours = told_by(ROOT, options.draws)
    return int(sum(compare(kind, ours, theirs, options.tolerance) for kind in KINDS) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
