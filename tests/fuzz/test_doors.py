"""`--doors` asks for problems of some front doors only; what no door has is asked here."""

import sys

import scipy.sparse

import flowbias as fb
from flowbias.designs.sparse import SparseDesign
from tests.fuzz import __main__ as fuzz
from tests.fuzz.answers import Outcome, answer_of, model_of
from tests.fuzz.judge import judge
from tests.fuzz.problems import problem
from tests.fuzz.runner import record
from tests.fuzz.verdict import GOOD, WORST, Verdict


def test_other_doors_are_left_out(monkeypatch, capsys):
    asked = []

    def noted(seeds, jobs):
        for seed in seeds:
            asked.append(record(seed, Verdict(GOOD), 0.0))
            yield asked[-1]

    monkeypatch.setattr(fuzz, "run", noted)
    arguments = ["--problems", "60", "--seed", "0", "--doors", "basis_pursuit", "rich_limit"]
    monkeypatch.setattr(sys, "argv", ["tests.fuzz", *arguments])
    assert fuzz.main() == 0
    assert {one.entry for one in asked} == {"basis_pursuit", "rich_limit"}
    assert "limit_path" not in capsys.readouterr().out


def test_blocks_are_no_less_right_than_arrays():
    """A sparse X so small is made dense, so `sparse limit` never sees a block: here it does."""
    seen = 0
    for given in map(problem, range(9_200_000, 9_200_060)):
        if given.entry != "limit":
            continue
        X = SparseDesign(scipy.sparse.csr_array(given.X))
        try:
            found = fb.limit(model_of(given.start), X, given.y, throw=False)
        except fb.InputError:  # a side that is closed, rows that a Gram matrix cannot tell apart
            continue
        seen += 1
        assert judge(given, Outcome((answer_of(found),), 0.0)).kind not in WORST, given
    assert seen > 15
