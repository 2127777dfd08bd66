"""The one loop: steps are counted, the best is kept, idle ones are seen."""

from dataclasses import dataclass

import numpy as np
import pytest

from flowbias.limits.driver import iterate
from flowbias.limits.normal_equations import Effort


@dataclass(frozen=True)
class At:
    """A place with what is left there."""

    residual: float


@dataclass
class Scripted:
    """Steps through given residuals; None is a step that does not help."""

    residuals: list
    goal: float = 0.0
    patience: int = 10**9

    def terminate(self, progress):
        return progress.best.residual <= self.goal or progress.idle > self.patience

    def step(self, progress):
        residual = self.residuals.pop(0)
        return None if residual is None else At(residual)


def run(residuals, *, max_steps=100, goal=0.0, patience=10**9, **options):
    effort = Effort()
    solver = Scripted(list(residuals), goal, patience)
    return iterate(solver, At(1.0), effort, max_steps=max_steps, **options), effort.steps


def test_it_stops_where_the_solver_is_done():
    progress, steps = run([0.5, 0.1, 0.01, 0.001], goal=0.01)
    assert (progress.here.residual, steps) == (0.01, 3)


def test_it_stops_after_so_many_steps():
    assert run([0.5, 0.1, 0.01], max_steps=2)[1] == 2
    assert run([0.5], max_steps=0)[0].here == At(1.0)


def test_a_step_that_does_not_help_is_counted_and_leaves_the_state_where_it_was():
    progress, steps = run([0.5, None, 0.1])
    assert (progress.here.residual, steps) == (0.5, 2)


def test_the_best_is_kept_beside_the_last():
    progress, _ = run([0.1, 0.7, np.nan], max_steps=3)
    assert progress.best == At(0.1)
    assert np.isnan(progress.here.residual)


@pytest.mark.parametrize(
    ("residuals", "idle"),
    [
        ([0.4, 0.3, 0.25], 2),  # neither halves the best before it
        ([0.4, 0.3, 0.1], 0),  # the last does
        ([0.4, np.nan, np.nan], 2),
    ],
)
def test_steps_that_do_not_halve_the_best_residual_are_idle(residuals, idle):
    assert run(residuals, max_steps=3)[0].idle == idle


def test_above_rest_nothing_is_idle():
    progress, _ = run([0.9, 0.8, 0.7], max_steps=3, rest=0.5)
    assert progress.idle == 0
    _, steps = run([0.4, 0.39, 0.38, 0.37, 0.36], rest=0.5, patience=1)
    assert steps == 3  # one that brings it to rest, and two


def test_every_step_is_told():
    told = []
    run([0.5, 0.2], max_steps=2, watch=lambda steps, here: told.append((steps, here.residual)))
    assert told == [(1, 0.5), (2, 0.2)]
