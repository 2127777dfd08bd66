"""The largest scale that passes: against a closed form, a fine grid, and in the odd cases.

With X = [1, 2] and y = 1 depth 2 has the limit w = s (sinh nu, sinh 2 nu), s = 2 scale^2, so that
w_1 = t where nu = arccosh((1 - t)/(4t)) and s = t / sinh nu. As the scale falls from infinity to
zero, t falls from 1/5 to 0.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowbias.datasets import sparse_regression
from flowbias.experiments.largest_scale import LOWEST_LOG_SCALE, largest_scale
from flowbias.ground.arguments import InputError
from flowbias.limits import basis_pursuit, limit, limit_path
from flowbias.models import DiagonalNet
from flowbias.problems.regression import Regression

SMALL = Regression(np.array([[1.0, 2.0]]), np.array([1.0]))
SCAN = np.linspace(3.0, -15.0, 10)
DEPTH_2 = DiagonalNet(2, 1.0)


def exact_log_scale(t: float) -> float:
    """The log-scale at which the first weight of the limit is t."""
    nu = np.arccosh((1.0 - t) / (4.0 * t))
    return 0.5 * float(np.log(t) - np.log(np.sinh(nu)) - np.log(2.0))


def first_weight(w: np.ndarray) -> float:
    return float(w[0])


def search(error=first_weight, *, threshold=0.05, rich_error=0.0, log_scales=SCAN, **options):
    return largest_scale(
        options.pop("model", DEPTH_2),
        options.pop("problem", SMALL),
        error,
        threshold=threshold,
        rich_error=rich_error,
        log_scales=log_scales,
        **options,
    )


class Recorded:
    """A model that notes the scales it is asked for."""

    def __init__(self) -> None:
        self.tried: list[float] = []

    def at_log_scale(self, log_scale: float) -> DiagonalNet:
        self.tried.append(log_scale)
        return DEPTH_2.at_log_scale(log_scale)


@given(t=st.floats(1e-9, 0.19))
def test_the_exact_scale_is_enclosed(t):
    found = search(threshold=t)
    exact = exact_log_scale(t)
    # The limit carries ten digits, and so does the scale at which its weight is t.
    assert found.log_scale - 1e-8 <= exact <= found.log_scale_above + 1e-8
    assert found.error <= t < found.error_above
    for log_scale, error in (
        (found.log_scale, found.error),
        (found.log_scale_above, found.error_above),
    ):
        np.testing.assert_allclose(exact_log_scale(error), log_scale, atol=1e-6)


@pytest.mark.parametrize("halvings", [0, 3, 12])
def test_each_halving_halves_the_bracket(halvings):
    found = search(halvings=halvings)
    np.testing.assert_allclose(found.log_scale_above - found.log_scale, 2.0 * 0.5**halvings)


def test_below_the_scan_it_goes_on_by_squares():
    model = Recorded()
    found = search(threshold=1e-9, log_scales=[1.0, -1.5], model=model)
    assert model.tried[:5] == [1.0, -1.5, -3.0, -6.0, -12.0]
    assert found.log_scale <= exact_log_scale(1e-9) <= found.log_scale_above


def test_where_the_rich_limit_fails_there_is_none():
    found = search(lambda w: 1.0 + w[0], rich_error=1.0)
    assert found.log_scale == -np.inf
    assert found.error == 1.0
    assert found.log_scale_above == SCAN[-1]
    assert found.error_above > 0.05
    assert found.solves == len(SCAN)


def test_a_scale_beyond_reach_is_none_as_well():
    """The rich limit passes, but nothing above exp(-1e5) does: the search ends."""
    model = Recorded()
    found = search(lambda w: 1.0, log_scales=[0.0, -1e3], model=model)
    assert found.log_scale == -np.inf
    assert min(model.tried) >= LOWEST_LOG_SCALE
    assert found.log_scale_above == min(model.tried) < 0.4 * LOWEST_LOG_SCALE


def test_a_scan_that_begins_too_low_says_so():
    found = search(lambda w: 0.0)
    assert found.log_scale == SCAN[0]
    assert found.log_scale_above == np.inf
    assert np.isnan(found.error_above)


def test_an_error_that_is_not_monotone():
    """A window 0.08 <= w_1 <= 0.12 passes, the rich limit does not: its upper end is wanted."""
    found = search(
        lambda w: abs(w[0] - 0.1),
        threshold=0.02,
        rich_error=0.1,
        log_scales=np.linspace(3.0, -15.0, 80),
        halvings=20,
    )
    np.testing.assert_allclose(found.log_scale, exact_log_scale(0.12), atol=1e-5)


def test_every_scale_tried_above_the_answer_fails():
    model = Recorded()
    found = search(threshold=0.013, model=model)
    above = [scale for scale in model.tried if scale > found.log_scale]
    assert found.log_scale_above == min(above)
    errors = [first_weight(limit(DEPTH_2.at_log_scale(scale), SMALL).w) for scale in above]
    assert min(errors) > 0.013
    assert found.solves == len(model.tried)


@settings(max_examples=12)
@given(factor=st.floats(1e-3, 1e3), depth=st.sampled_from([2, 3, 5]))
def test_data_of_another_size(factor, depth):
    """y times c gives w times c from a start of scale times c^(1/depth)."""
    shift = np.log(factor) / depth
    net = DiagonalNet(depth, 1.0)
    scan = np.linspace(2.0, -4.0, 7)
    larger = Regression(SMALL.X, factor * SMALL.y)
    found = search(model=net, log_scales=scan, threshold=0.03)
    moved = search(
        lambda w: w[0] / factor,
        model=net,
        problem=larger,
        log_scales=scan + shift,
        threshold=0.03,
    )
    assert moved.log_scale_above - moved.log_scale == pytest.approx(
        found.log_scale_above - found.log_scale
    )
    np.testing.assert_allclose(moved.log_scale, found.log_scale + shift, atol=1e-9)


@pytest.mark.parametrize("depth", [2, 3, 10])
def test_against_a_fine_grid(depth):
    X, y, w_true = sparse_regression(n=45, d=200, rng=4)
    problem = Regression(X, y)

    def error(w):
        return float(np.sum((w - w_true) ** 2))

    grid = np.linspace(0.0, -30.0, 61) / depth
    errors = [error(w) for w in limit_path(DiagonalNet(depth, 1.0), problem, log_scales=grid).w]
    first = int(np.argmax(np.array(errors) <= 0.025))
    found = search(
        error,
        model=DiagonalNet(depth, 1.0),
        problem=problem,
        threshold=0.025,
        rich_error=error(basis_pursuit(problem).w),
        log_scales=grid[::4],
    )
    assert grid[first] <= found.log_scale_above
    assert found.log_scale <= grid[first - 1]
    assert found.error <= 0.025 < found.error_above


def test_what_the_certificates_say_is_kept():
    found = search()
    assert 0.0 < found.optimality <= 1e-10
    assert 0.0 < found.error_bound <= 1e-10


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("log_scales", []),
        ("log_scales", [[0.0, -1.0]]),
        ("log_scales", [0.0, np.nan]),
        ("log_scales", [-1.0, -0.5]),
        ("log_scales", [-1.0, -1.0]),
        ("log_scales", [2.0, 1.0]),
        ("threshold", 0.0),
        ("threshold", np.nan),
        ("threshold", np.inf),
    ],
)
def test_bad_input_is_named(argument, value):
    with pytest.raises(InputError, match=rf"^{argument}: must .*got .*\. Pass "):
        search(**{argument: value})
