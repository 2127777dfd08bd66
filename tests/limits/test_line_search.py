"""The one line search and the one step, of arrays and of designs."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator

import flowbias as fb
from flowbias.designs.linear_operator import OperatorDesign
from flowbias.ground.tolerances import DEFAULT
from flowbias.limits.driver import Iteration
from flowbias.limits.dual_newton import DualPoint, Line, SearchedNewton
from tests.limits.big_data import KINDS, WITH_ENTRIES, data

EXPONENTS = st.floats(-900.0, 0.0)


@dataclass
class Scripted(Line):
    """phi with its minimum at `least`; its slope is not to be had beyond `end`."""

    least: float
    first: float = 1.0
    end: float = np.inf
    longest: float = 1.0
    growth: float = np.inf
    residual: float = 0.0

    def first_share(self):
        return self.first

    def slope(self, share):
        assert 0.0 < share <= self.longest
        return share - self.least if share <= self.end else np.inf

    def after(self, share):
        return at(self.residual)


class Steps(SearchedNewton):
    """One line after another."""

    tolerances = DEFAULT

    def __init__(self, *lines, secants=0):
        self.lines, self.secants = list(lines), secants

    def _line(self, point):
        return self.lines.pop(0)


def at(residual, system=None):
    nothing = np.zeros(1)
    return DualPoint(nothing, nothing, nothing, nothing, 1.0, residual, system=system)


@given(least=EXPONENTS, first=EXPONENTS, beyond=st.floats(1.0, 10.0))
def test_the_minimum_is_found_up_to_a_factor_of_two(least, first, beyond):
    line = Scripted(2.0**least, 2.0**first, end=2.0 ** (least + beyond))
    share = Steps()._searched(line)
    assert share <= line.least < 2.0 * share or share == 1.0


@given(least=EXPONENTS, first=EXPONENTS)
def test_secants_come_nearer_from_below(least, first):
    line = Scripted(2.0**least, 2.0**first)
    wide, near = (Steps(secants=secants)._searched(line) for secants in (0, 2))
    assert wide <= near <= line.least


def test_a_search_goes_no_farther_than_is_looked_at():
    assert Steps(secants=2)._searched(Scripted(1.0, first=2.0**-9, longest=2.0**-5)) == 2.0**-5


def test_a_step_that_is_not_worth_taking_is_not_taken():
    assert Steps(Scripted(1.0, first=0.0)).step(Iteration(at(1.0), at(1.0))) is None


@pytest.mark.parametrize("residual", [np.nan, 2.0])
def test_an_older_system_that_leads_away_gives_way_to_a_new_one(residual):
    here = at(1.0, system=object())
    line = Scripted(1.0, growth=2.0, residual=residual)
    assert Steps(line).step(Iteration(here, here)) == here._replace(system=None)


def test_a_search_may_lead_where_more_is_left():
    """phi falls all the same."""
    here = at(1.0)
    assert Steps(Scripted(0.5, residual=2.0)).step(Iteration(here, here)).residual == 2.0


@pytest.mark.parametrize("kind", [*WITH_ENTRIES, "operator"])
def test_at_an_even_start_nothing_of_big_x_is_seen_for_the_first_step(kind, monkeypatch):
    """In the kernel regime: the rows, the slopes along a step, where it leads, and w."""
    X, y = data(0)
    design, seen = KINDS[kind](X), []
    reduce = design.reduce

    def noted(task, *columns):
        seen.append(type(task).__name__)
        return reduce(task, *columns)

    monkeypatch.setattr(design, "reduce", noted)
    assert fb.limit(fb.DiagonalNet(2, 100.0), design, y).status.ok
    assert seen.index("Along") < seen.index("Evaluate")


def test_where_conjugate_gradients_leave_the_domain_the_step_before_is_gone_on_from():
    X, y, _ = fb.datasets.sparse_regression(n=100, d=1000, sparsity=5, noise_var=0.01, rng=0)
    design = OperatorDesign(aslinearoperator(X))
    found = fb.limit(fb.DiagonalNet(4, 1e-3), design, y, tol=1e-8)
    # Measured: 93; from larger scales, after a stall, 221.
    assert found.stats.steps < 150
