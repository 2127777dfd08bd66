"""Tiny scales on big X: cold starts that stall come down from larger scales."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import flowbias as fb
from flowbias.limits.blocks import newton as block_newton
from flowbias.limits.blocks.limit import BlockLimits, Reached, predicted
from tests.limits.big_data import KINDS, data
from tests.limits.scaled_models import Fixed, Undeclared

DESCENDED = "down from larger scales"
X, Y = data(0, n=12, d=40)
RNG = np.random.default_rng(1)
WEIGHTS = RNG.uniform(0.5, 2.0, (2, 40))
# Fewer coordinates carry the fit than there are samples.
SPARSE_Y = X[:, :3] @ np.array([1.0, -2.0, 0.5])


def uniform(depth, log_scale):
    return fb.DiagonalNet(depth, log_scale=log_scale)


def biased(depth, log_scale):
    return fb.DiagonalNet.from_weights(*WEIGHTS, depth=depth).at_log_scale(log_scale)


def cold(model, kind, y=Y):
    return BlockLimits(KINDS[kind](X), y, tol=1e-10, progress=False)._attempt(model, None)[0]


def assert_as_dense(found, model, y=Y):
    wanted = fb.limit(model, X, y)
    assert found.status.ok
    assert_allclose(found.w, wanted.w, atol=1e-8 * np.abs(wanted.w).max())


@pytest.fixture
def few_steps(monkeypatch):
    """A cold start that stalls sooner: what comes after is the same."""
    monkeypatch.setattr(block_newton.BlockNewton, "max_steps", 40)


def assert_cured(model, kind, y=Y):
    first = cold(model, kind, y)
    assert not first.status.ok
    found = fb.limit(model, KINDS[kind](X), y)
    assert found.route.endswith(DESCENDED)
    assert_as_dense(found, model, y)
    # Measured: 18 to 110 steps beyond those of the cold start.
    assert 0 < found.stats.steps - first.stats.steps < 200
    assert found.stats.factorizations > first.stats.factorizations


@pytest.mark.parametrize("y", [Y, SPARSE_Y], ids=["noise", "sparse"])
@pytest.mark.parametrize("start", [uniform, biased])
@pytest.mark.parametrize("kind", ["sparse", "operator"])
@pytest.mark.parametrize("log_scale", [-690.0, -2e4])
def test_a_stall_is_cured(few_steps, kind, start, log_scale, y):
    assert_cured(start(2, log_scale), kind, y)


@pytest.mark.parametrize("kind", ["sparse", "operator"])
def test_a_stall_after_all_steps_is_cured(kind):
    assert_cured(uniform(2, np.log(1e-300)), kind)


@pytest.mark.parametrize("start", [uniform, biased])
@pytest.mark.parametrize("kind", ["sparse", "operator"])
def test_deeper_networks_come_down_too(monkeypatch, kind, start):
    """With fewer steps yet a cold start stalls, and the way down does not."""
    monkeypatch.setattr(block_newton.BlockNewton, "max_steps", 28)
    assert_cured(start(3, np.log(1e-9)), kind)


@pytest.mark.parametrize("start", [uniform, biased])
@pytest.mark.parametrize("kind", ["sparse", "operator"])
@pytest.mark.parametrize(("depth", "scale"), [(2, 1e-30), (3, 1e-9), (4, 1e-4)])
def test_what_a_cold_start_certifies_keeps_its_bits(kind, start, depth, scale):
    model = start(depth, np.log(scale))
    first = cold(model, kind)
    found = fb.limit(model, KINDS[kind](X), Y)
    assert first.status.ok
    assert_array_equal(found.w, first.w)
    assert_array_equal(found.dual, first.dual)
    assert found.route == first.route
    assert found.stats.factorizations == first.stats.factorizations
    assert_as_dense(found, model)


@pytest.mark.parametrize("size", [1e-90, 1e90])
def test_outputs_of_any_size(few_steps, size):
    """What is a small scale depends on y: w is as large as y, and the start is not."""
    for log_scale in (0.0, -400.0):
        model = uniform(2, log_scale)
        assert_as_dense(fb.limit(model, KINDS["sparse"](X), size * Y), model, size * Y)


@pytest.mark.parametrize("kind", ["sparse", "operator"])
def test_a_path_may_begin_anywhere_and_jump(few_steps, kind):
    model, log_scales = uniform(2, 0.0), [-690.0, -3.0, -2e4, -690.0, -690.0, -700.0]
    path = fb.limit_path(model, KINDS[kind](X), Y, log_scales=log_scales)
    for solution, log_scale in zip(path, log_scales, strict=True):
        assert_as_dense(solution, model.at_log_scale(log_scale))


@pytest.mark.parametrize("kind", ["sparse", "operator"])
@pytest.mark.parametrize(("depth", "end"), [(2, -600.0), (3, -20.0), (4, -10.0)])
def test_a_path_needs_few_steps_per_scale(kind, depth, end):
    """The dual is predicted along the scales at any depth, not at depth 2 alone."""
    log_scales = np.linspace(0.3 * end, end, 15)
    path = fb.limit_path(uniform(depth, 0.0), KINDS[kind](X), Y, log_scales=log_scales)
    assert path.certified
    # Measured: 2 to 5. A start from the dual as it is takes as many as a cold one, 25 and more.
    assert np.median([solution.stats.steps for solution in path]) <= 8


@pytest.mark.parametrize("depth", [2, 3, 5])
@pytest.mark.parametrize("log_scales", [(-4.0, -5.0, -9.0), (-70.0, -80.0, -300.0)])
def test_the_prediction_is_exact_where_the_dual_is_linear_in_the_unit(depth, log_scales):
    """One sample, one feature: the dual is grad Q(w), in units that leave the double range."""
    w = np.array([0.7])
    first, second, wanted = (uniform(depth, log).potential for log in log_scales)
    # Rounding must not be taken for a slope.
    ulp = np.finfo(float).eps
    past = [
        Reached(first.grad(w), first),
        Reached(second.grad(w) * (1.0 + ulp), second),
    ]
    # What is left out is what w and -w have in common: scale^4 at depth 2.
    assert_allclose(predicted(past, wanted, 0.5), wanted.grad(w), rtol=1e-6)


def test_models_that_cannot_move_their_scale_say_what_to_do(few_steps):
    model = uniform(2, -690.0)
    found = fb.limit(model.potential, KINDS["sparse"](X), Y, throw=False)
    assert found.status is fb.Status.STALLED
    assert_array_equal(found.w, cold(model, "sparse").w)
    assert found.stats.steps == cold(model, "sparse").stats.steps
    assert "a model that declares SCALE, as fb.DiagonalNet does" in found.message


def test_where_rounding_hides_the_limit_no_other_scale_is_tried(few_steps):
    model = uniform(3, np.log(1e-20))
    found = fb.limit(model, KINDS["sparse"](X), Y, throw=False)
    assert found.status is fb.Status.STALLED
    assert found.stats.steps == cold(model, "sparse").stats.steps
    assert "pass X as an array of doubles" in found.message
    assert fb.limit(model, X, Y).status.ok


def test_what_stalls_for_another_reason_is_returned_as_it_was(monkeypatch):
    """In the kernel regime there is nothing to come down from."""
    model = uniform(2, 3.0)
    monkeypatch.setattr(block_newton.BlockNewton, "max_steps", 0)
    first, found = cold(model, "sparse"), fb.limit(model, KINDS["sparse"](X), Y, throw=False)
    assert found.status is fb.Status.STALLED
    assert_array_equal(found.w, first.w)
    assert found.stats.factorizations == first.stats.factorizations


def test_a_start_much_larger_than_the_outputs_is_no_small_scale(few_steps):
    """The start has to be unlearned, and y is below its rounding: no other scale helps."""
    model, y = biased(2, 0.0), 1e-60 * Y
    first = cold(model, "sparse", y)
    found = fb.limit(model, KINDS["sparse"](X), y, throw=False)
    assert not first.status.ok
    assert found.stats.factorizations == first.stats.factorizations


def test_a_warm_start_that_is_none_gives_way_to_a_cold_one():
    model = uniform(2, 0.0)
    solver = BlockLimits(KINDS["sparse"](X), Y, tol=1e-10, progress=False)
    # Newton's method comes back from exp(600) by a factor of e at a time.
    far = 600.0 * np.linalg.lstsq(X.T, np.ones(40), rcond=None)[0]
    found, _ = solver.limit(model, [Reached(far * np.linalg.norm(X, axis=1), model.potential)])
    assert_as_dense(found, model)
    assert found.stats.steps < block_newton.BlockNewton.max_warm_steps + 20


def test_nothing_starts_from_what_has_stalled(few_steps):
    solver = BlockLimits(KINDS["sparse"](X), Y, tol=1e-10, progress=False)
    assert solver._attempt(uniform(2, -690.0), None)[1] is None
    assert solver._attempt(uniform(2, -3.0), None)[1] is not None


def test_no_outputs_have_a_size_of_one():
    solver = BlockLimits(KINDS["sparse"](X), np.zeros(12), tol=1e-10, progress=False)
    assert solver.limit(uniform(2, -690.0))[0].status.ok
    assert solver.size == 1.0


def test_a_model_that_gets_no_easier_stays_stalled(few_steps):
    model = Fixed(uniform(2, -690.0).potential, -690.0)
    found = fb.limit(model, KINDS["sparse"](X), Y, throw=False)
    assert found.status is fb.Status.STALLED
    assert found.stats.steps == cold(model, "sparse").stats.steps


def test_a_path_asks_for_what_is_declared():
    model = Undeclared(uniform(2, -1.0).potential, -1.0)
    for big in (X, KINDS["sparse"](X)):
        with pytest.raises(fb.InputError, match="declare SCALE, got a Undeclared"):
            fb.limit_path(model, big, Y, log_scales=[-1.0])
