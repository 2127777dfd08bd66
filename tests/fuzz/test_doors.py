"""`--doors` asks for problems of some front doors only."""

import sys

from tests.fuzz import __main__ as fuzz
from tests.fuzz.runner import record
from tests.fuzz.verdict import GOOD, Verdict


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
