"""A descent that converges ends at the limit of the flow from its effective start."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from flowbias.flows import gradient_descent, predicted_start, stable_step
from flowbias.flows.descent import DescentStatus
from flowbias.ground.arguments import InputError
from flowbias.limits import limit
from flowbias.models import DiagonalNet, Neuron, UntiedDiagonalNet

N, D = 8, 20


def data(seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((N, D)), rng.standard_normal(N), rng


STARTS = {
    "tied": lambda rng: DiagonalNet(2, 0.3),
    "uneven": lambda rng: DiagonalNet(2, 0.2, w0=rng.uniform(0.3, 3.0, D)),
    "biased": lambda rng: DiagonalNet.from_weights(*rng.normal(0.0, 0.5, (2, D))),
    "untied": lambda rng: UntiedDiagonalNet(0.3, shape=0.6),
    "untied, biased": lambda rng: UntiedDiagonalNet.from_weights(*rng.normal(0.0, 0.5, (4, D))),
}
# What a residual of 1e-12 leaves open, times the condition of the limits below.
IDENTITY = 1e-9


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("batch_size", [None, 1, 5], ids=["full", "ones", "fives"])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9])
def test_where_descent_ends(start, batch_size, share):
    """Up to 0.9 of the step that is stable at the limit, at depth 2: 60 runs."""
    X, y, rng = data([len(start), batch_size or 0])
    model = STARTS[start](rng)
    step = share * stable_step(model, X, y, batch_size=batch_size)
    run = gradient_descent(
        model, X, y, step_size=step, batch_size=batch_size, rng=7, residual=1e-12, max_steps=10**6
    )
    assert run.status is DescentStatus.CONVERGED
    assert run.effective_limit.certificate.ok
    distance, nominal, is_identity = run.explained
    assert is_identity
    assert distance <= IDENTITY
    # The start that was given explains it much worse.
    assert nominal > 1e4 * distance


@pytest.mark.parametrize("depth", [2.5, 3, 4, 6])
@pytest.mark.parametrize(
    "how",
    [{}, {"batch_size": 3}, {"momentum": 0.6}, {"schedule": lambda k: 1.0 / (1.0 + k / 5000)}],
)
def test_at_every_depth_and_with_momentum(depth, how):
    """The end taken back along the flow by the sum of all gradients, whatever the steps were."""
    X, y, rng = data(int(10 * depth))
    model = DiagonalNet.from_weights(*rng.uniform(0.4, 0.9, (2, D)), depth=depth)
    step = 0.2 * stable_step(model, X, y, batch_size=how.get("batch_size"))
    run = gradient_descent(model, X, y, step_size=step, rng=1, residual=1e-12, **how)
    assert run.status is DescentStatus.CONVERGED
    distance, nominal, is_identity = run.explained
    assert is_identity
    assert run.effective_limit.certificate.ok
    assert distance <= IDENTITY
    assert nominal > 1e4 * distance
    if "momentum" not in how:
        # By convexity, step by step: no weight starts from more than it was given.
        for effective, given_ in zip(
            run.effective_start.initial_parameters(), model.initial_parameters(), strict=True
        ):
            assert np.all(np.abs(effective) <= np.abs(given_) * (1.0 + 1e-10))


def test_the_gain_is_the_sum_over_the_steps():
    """-sum log|1 - x_k^2| at depth 2, and the shift sum(log|(1-x)/(1+x)| + 2x)."""
    X, y, rng = data(3)
    model, step = DiagonalNet(2, 0.3, w0=rng.uniform(0.5, 2.0, D)), 0.01
    p, m = (np.broadcast_to(part, (D,)).copy() for part in model.initial_parameters())
    gain, shift = np.zeros(D), np.zeros(D)
    for _ in range(300):
        x = 2.0 * step * (X.T @ (X @ (p * p - m * m) - y))
        p, m = p * (1.0 - x), m * (1.0 + x)
        gain -= np.log(np.abs(1.0 - x * x))
        shift += np.log(np.abs((1.0 - x) / (1.0 + x))) + 2.0 * x
    run = gradient_descent(model, X, y, step_size=step, max_steps=300, residual=1e-15)
    # Rounding of 300 steps.
    assert_allclose(run.w, p * p - m * m, rtol=0, atol=1e-12)
    assert_allclose(run.gain, gain, rtol=0, atol=1e-12)
    plus, minus = run.effective_start.initial_parameters()
    assert_allclose(np.log(np.abs(plus / minus)), shift, rtol=0, atol=1e-11)


def test_a_batch_of_seeds_is_each_seed_alone():
    X, y, _ = data(4)
    model = UntiedDiagonalNet(0.3, shape=0.4)
    how = {"step_size": 5e-3, "batch_size": 3, "momentum": 0.3, "label_noise": 0.01}
    together = gradient_descent(model, X, y, rng=[5, 0, 9], max_steps=700, **how)
    for seed, run in zip([5, 0, 9], together, strict=True):
        alone = gradient_descent(model, X, y, rng=seed, max_steps=700, **how)
        assert run.seed == alone.seed == seed
        assert run.status is alone.status is DescentStatus.NOISY
        # The same steps; sums over samples may be taken in another order.
        assert_allclose(run.w, alone.w, rtol=0, atol=1e-12)
        assert_allclose(run.gain, alone.gain, rtol=0, atol=1e-12)
    assert not np.allclose(together[0].w, together[1].w, rtol=0, atol=1e-6)


def test_seeds_that_end_at_different_times_are_each_seed_alone():
    X, y, _ = data(6)
    model, how = DiagonalNet(2, 0.3), {"step_size": 8e-3, "batch_size": 1, "record_every": 8}
    together = gradient_descent(model, X, y, rng=range(6), **how)
    assert len({run.steps for run in together}) > 1
    for run in together:
        alone = gradient_descent(model, X, y, rng=run.seed, **how)
        assert (run.steps, run.status) == (alone.steps, alone.status)
        assert_allclose(run.w, alone.w, rtol=0, atol=1e-12)


@given(seed=st.integers(0, 2**32 - 1), batch_size=st.integers(1, N))
def test_a_run_is_the_loop_people_write(seed, batch_size):
    """Momentum, decay and a schedule as torch.optim.SGD takes them, on batches of the draws."""
    X, y, _ = data(seed)
    model = DiagonalNet(3, 0.5) if seed % 2 else DiagonalNet(2, 0.5)
    how = {"momentum": 0.8, "weight_decay": 0.1, "schedule": lambda k: 1.0 / (1.0 + k)}
    run = gradient_descent(
        model, X, y, step_size=0.01, batch_size=batch_size, rng=seed, max_steps=20, **how
    )
    draws = run.request.draws(N)
    samples, _ = draws.block(seed, 0)
    theta, velocity = np.full(2 * D, 0.5), np.zeros(2 * D)
    for k in range(20):
        rows = X[samples[k]]
        depth, (p, m) = model.depth, np.split(theta, 2)
        e = (N / batch_size) * (rows @ (p**depth - m**depth) - y[samples[k]])
        g = rows.T @ e
        slope = np.concatenate([depth * p ** (depth - 1) * g, -depth * m ** (depth - 1) * g])
        velocity = 0.8 * velocity + slope + 0.1 * theta
        theta = theta - 0.01 / (1.0 + k) * velocity
    assert_allclose(np.concatenate(run.parameters), theta, rtol=1e-10, atol=1e-12)


def test_every_sample_once_an_epoch():
    _, y, _ = data(0)
    model, X = DiagonalNet(2, 0.1), np.random.default_rng(0).standard_normal((N, D))
    run = gradient_descent(model, X, y, step_size=1e-3, batch_size=3, rng=2, max_steps=1)
    draws = run.request.draws(N)
    samples, noise = draws.block(2, 0)
    assert noise is None
    assert draws.epoch == 2
    for epoch in samples.reshape(-1, 2 * 3):
        assert len(set(epoch.tolist())) == 6
    # The two that are left over of an epoch differ: all are seen in the end.
    assert set(samples.ravel().tolist()) == set(range(N))


# --- without running ---------------------------------------------------------------------------


def sides(model):
    """Logarithms of both sides of the start."""
    weights = (
        [side.value for side in model.squares] if model.depth == 2 else model.initial_parameters()
    )
    return np.log(np.abs([np.broadcast_to(part, (D,)) for part in weights]))


@pytest.mark.parametrize(
    ("model", "how"),
    [
        (DiagonalNet(2, 0.3), {}),
        (UntiedDiagonalNet(0.3, shape=0.5), {}),
        (DiagonalNet(3, 0.5), {}),
        (DiagonalNet(2, 0.3), {"momentum": 0.5}),
    ],
    ids=["tied", "untied", "depth 3", "momentum"],
)
def test_the_prediction_is_right_to_first_order(model, how):
    X, y, _ = data(11)
    stable = stable_step(model, X, y) * (1.0 - how.get("momentum", 0.0)) ** 2
    errors = []
    for share in (0.08, 0.04, 0.02):
        step = share * stable
        run = gradient_descent(model, X, y, step_size=step, residual=1e-11, **how)
        predicted = predicted_start(model, X, y, step_size=step, **how)
        change = sides(run.effective_start) - sides(model)
        error = np.linalg.norm(sides(predicted) - sides(run.effective_start))
        errors.append(error / np.linalg.norm(change))
    exponents = -np.diff(np.log2(errors))
    assert np.all((exponents > 0.9) & (exponents < 1.1))
    assert errors[-1] < 0.05


def test_batches_shrink_the_start_by_their_variance():
    """In the mean over seeds; of full batches the prediction is far too little."""
    X, y, _ = data(12)
    model, errors = DiagonalNet(2, 0.3), []
    stable = stable_step(model, X, y, batch_size=2)
    for share in (0.08, 0.04, 0.02):
        step = share * stable
        runs = gradient_descent(
            model, X, y, step_size=step, batch_size=2, rng=range(40), residual=1e-10
        )
        change = np.mean([run.gain for run in runs], axis=0)
        predicted = predicted_start(model, X, y, step_size=step, batch_size=2)
        gain = np.sum(sides(model) - sides(predicted), axis=0)
        errors.append(np.linalg.norm(gain - change) / np.linalg.norm(change))
        full = np.sum(sides(model) - sides(predicted_start(model, X, y, step_size=step)), axis=0)
        assert np.linalg.norm(full) < 0.5 * np.linalg.norm(change)
    exponents = -np.diff(np.log2(errors))
    assert np.all((exponents > 0.9) & (exponents < 1.1))


def test_predicted_start_asks_for_labels_that_batches_can_fit():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 5)), rng.standard_normal(12)
    with pytest.raises(InputError, match="y: must be fitted by some w for batches"):
        predicted_start(DiagonalNet(2, 0.3), X, y, step_size=1e-3, batch_size=2)
    assert predicted_start(DiagonalNet(2, 0.3), X, y, step_size=1e-3).is_biased is False


@pytest.mark.parametrize("batch_size", [None, 2])
def test_predicted_start_where_there_is_nothing_to_fit(batch_size):
    """No step moves a start that fits; one that does not is far from 0, not out of range."""
    X, _, rng = data(10)
    fitting, apart = DiagonalNet(2, 0.3), DiagonalNet.from_weights(*rng.normal(0.0, 0.5, (2, D)))
    how = {"step_size": 1e-3, "batch_size": batch_size}
    assert_allclose(sides(predicted_start(fitting, X, np.zeros(N), **how)), sides(fitting))
    predicted = predicted_start(apart, X, np.zeros(N), **how)
    assert np.all(sides(predicted) < sides(apart))


def test_predicted_start_follows_the_units_of_the_data():
    """X and y times u: the same flow on another clock, with steps 1/u^2 as long; at any u."""
    X, y, _ = data(13)
    expected = predicted_start(DiagonalNet(3, 0.3), X, y, step_size=1e-3)
    for power in (-260, 260):
        u = 2.0**power
        predicted = predicted_start(DiagonalNet(3, 0.3), u * X, u * y, step_size=1e-3 / u / u)
        # The flow is followed to 1e-8 by steps of its own.
        assert_allclose(sides(predicted), sides(expected), rtol=1e-6)


def test_sides_further_apart_than_digits_are_kept():
    """Momentum leaves of a side that shrinks far more than the flow would: 37 decades here."""
    X, y, model = np.array([[-0.2, 1.0]]), np.array([66.0]), UntiedDiagonalNet(1e-9, shape=-0.2)
    step = 0.05 * stable_step(model, X, y, momentum=0.9)
    run = gradient_descent(model, X, y, step_size=step, momentum=0.9, residual=1e-12)
    assert run.status is DescentStatus.CONVERGED
    p, m = (side.value for side in run.effective_start.squares)
    assert np.max(np.abs(np.log10(np.abs(p / m)))) > 20.0
    assert run.explained.distance <= IDENTITY
    rescaled = run.effective_start.at_log_scale(0.5).squares
    assert_allclose(rescaled[0].value / rescaled[1].value, p / m)


@pytest.mark.filterwarnings("error")
def test_a_start_that_no_step_moves():
    """All weights zero: nothing moves, any step is stable, and there is no limit to compare to."""
    X, y = np.arange(1.0, 8.0)[:, None], np.arange(7.0)
    run = gradient_descent(DiagonalNet.from_weights([0.0], [0.0]), X, y, step_size=1.0, max_steps=3)
    assert run.stable_step_size == np.inf
    assert not run.w.any()
    with pytest.raises(InputError, match="model: must have a coordinate that can move"):
        _ = run.explained


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("step_size", [3.0, 1e9])
def test_decay_that_overshoots_does_not_rest(momentum, step_size):
    """Steps with step_size * weight_decay > 2 (1 + momentum) multiply weights by more than 1."""
    X, y = np.array([[1e-6, -3e-7]]), np.array([1e-5])
    how = {"momentum": momentum, "weight_decay": 3.0, "step_size": step_size}
    run = gradient_descent(DiagonalNet(2, 0.004), X, y, **how)
    assert run.status is DescentStatus.DIVERGED
    assert np.isfinite(run.w).all()
    assert np.isfinite(run.distance_to_limit)


def test_a_model_without_an_effective_start_says_so():
    X, y, rng = data(1)
    run = gradient_descent(Neuron(1.0, rng.standard_normal(D)), X, y, step_size=1e-3, max_steps=5)
    with pytest.raises(InputError, match="model: must be a diagonal network for its descent"):
        _ = run.effective_start


def test_a_weight_that_changes_its_sign_at_odd_depth_leaves_a_description():
    """A step that overshoots zero: named as no identity, its error measured."""
    X, y = np.array([[1.0, 0.3]]), np.array([-1.0])
    model = DiagonalNet.from_weights([1.5, 0.4], [0.4, 0.4], depth=3)
    run = gradient_descent(model, X, y, step_size=0.16, max_steps=1)
    assert np.sign(run.parameters[0][0]) == -1.0
    distance, nominal, is_identity = run.explained
    assert not is_identity
    assert np.isfinite([distance, nominal]).all()


# --- ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("record_every", [None, 50])
@pytest.mark.parametrize("depth", [2, 3])
def test_a_diverging_run_keeps_its_last_finite_iterate(batch_size, record_every, depth):
    X, y, _ = data(2)
    run = gradient_descent(
        DiagonalNet(depth, 1.0),
        X,
        y,
        step_size=0.1,
        batch_size=batch_size,
        rng=0,
        record_every=record_every,
    )
    assert run.status is DescentStatus.DIVERGED
    assert "lower step_size = 0.1" in run.message
    assert np.isfinite(run.w).all()
    assert np.isfinite(run.residual).all()
    assert run.recorded[-1] == run.steps
    # One step more, and it is beyond coming back.
    more = gradient_descent(
        DiagonalNet(depth, 1.0),
        X,
        y,
        step_size=0.1,
        batch_size=batch_size,
        rng=0,
        record_every=1,
        max_steps=run.steps + 1,
    )
    assert (more.status, more.steps) == (run.status, run.steps)


def test_noise_and_decay_say_why_they_stop():
    X, y, _ = data(5)
    noisy = gradient_descent(
        DiagonalNet(2, 0.3), X, y, step_size=5e-3, label_noise=0.1, rng=0, max_steps=2000
    )
    assert noisy.status is DescentStatus.NOISY
    assert "noise of 0.1 on the labels" in noisy.message
    decayed = gradient_descent(DiagonalNet(2, 0.3), X, y, step_size=5e-3, weight_decay=2.0)
    assert decayed.status is DescentStatus.RESTED
    assert "weight decay of 2 balances the loss" in decayed.message
    gone = gradient_descent(DiagonalNet(2, 0.3), X, y, step_size=5e-3, weight_decay=100.0)
    assert gone.status is DescentStatus.RESTED
    assert_allclose(gone.w, 0.0, atol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_schedule_that_begins_at_0_is_not_at_rest(momentum):
    X, y, _ = data(5)
    how = {"step_size": 5e-3, "weight_decay": 2.0, "momentum": momentum, "residual": 1e-10}
    warm = gradient_descent(DiagonalNet(2, 0.3), X, y, schedule=lambda k: min(1, k / 10), **how)
    assert warm.status is DescentStatus.RESTED
    assert warm.steps > 10
    at_once = gradient_descent(DiagonalNet(2, 0.3), X, y, **how)
    # The rest is one, to within what moves no further than 1e-10 in the time of the decay.
    assert_allclose(warm.w, at_once.w, rtol=0, atol=1e-7)


@pytest.mark.parametrize("power", [-120, 120])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_steps_follow_the_units_of_the_data(power, batch_size):
    """X in units whose squares leave the range of doubles: w and the step are in theirs."""
    X, y, _ = data(7)
    unit = 2.0 ** (power * np.log2(10.0) // 2 * 2)
    how = {"batch_size": batch_size, "rng": 0, "max_steps": 300}
    plain = gradient_descent(DiagonalNet(2, 0.3), X, y, step_size=5e-3, **how)
    model = DiagonalNet(2, 0.3 / np.sqrt(unit))
    scaled = gradient_descent(model, unit * X, y, step_size=5e-3 / unit, **how)
    # Rounding of 300 steps.
    assert_allclose(unit * scaled.w, plain.w, rtol=0, atol=1e-11)
    assert_allclose(scaled.gain, plain.gain, rtol=0, atol=1e-11)


def test_seeds_beside_one_that_diverges_are_each_seed_alone():
    X, y, _ = data(3)
    how = {"step_size": 0.02, "batch_size": 1, "record_every": 20, "max_steps": 200}
    model = DiagonalNet(2, 0.3)
    together = gradient_descent(model, X, y, rng=range(12), **how)
    assert len({run.status for run in together}) == 2
    for run in together:
        alone = gradient_descent(model, X, y, rng=run.seed, **how)
        assert (run.steps, run.status) == (alone.steps, alone.status)
        assert_allclose(run.w, alone.w, rtol=1e-9, atol=1e-9)


def test_a_start_that_is_no_double_is_not_predicted():
    X, y, _ = data(5)
    for depth in (2, 3):
        with pytest.raises(InputError, match="model: must start at weights that are doubles"):
            predicted_start(DiagonalNet(depth, log_scale=-2e4), X, y, step_size=1e-3)
    with pytest.raises(InputError, match="step_size: must be small enough"):
        predicted_start(DiagonalNet(2, 0.3), X, y, step_size=1e4)


def test_what_a_schedule_returned_is_shown():
    X, y, _ = data(5)
    with pytest.raises(InputError, match=r"got array\(\[1\.\]\) at step 0"):
        gradient_descent(DiagonalNet(2, 0.3), X, y, step_size=1e-3, schedule=lambda k: np.ones(1))


def test_a_long_list_for_a_schedule_is_quoted_in_brief():
    X, y, _ = data(5)
    with pytest.raises(InputError, match="schedule: must be a function") as refused:
        gradient_descent(DiagonalNet(2, 0.3), X, y, step_size=1e-3, schedule=[1.0] * 9999)
    assert len(str(refused.value)) < 400


def test_a_schedule_that_is_no_number_is_refused_where_it_shows():
    X, y, _ = data(5)
    with pytest.raises(InputError, match="schedule: must return a finite number >= 0"):
        gradient_descent(
            DiagonalNet(2, 0.3),
            X,
            y,
            step_size=1e-3,
            schedule=lambda k: float("nan") if k == 3 else 1.0,
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": N + 1}, "batch_size: must be at most the number of samples, 8, got 9"),
        ({"batch_size": 0}, "batch_size: must be an integer >= 1, got 0"),
        ({"label_noise": -1.0}, "label_noise: must be >= 0 and finite, got -1.0"),
        ({"momentum": 1.0}, r"momentum: must be in \[0, 1\), got 1.0"),
        ({"weight_decay": -1e-3}, "weight_decay: must be >= 0 and finite, got -0.001"),
        ({"schedule": 0.5}, "schedule: must be a function of the step's number, got 0.5"),
        ({"rng": -1}, "rng: must be an integer >= 0 or a numpy Generator, got -1"),
        ({"rng": []}, "rng: must hold a seed at least, got none"),
        ({"record_every": 0}, "record_every: must be an integer >= 1, got 0"),
        ({"step_size": np.nan}, "step_size: must be > 0 and finite, got nan"),
    ],
)
def test_bad_input(arguments, message):
    X, y, _ = data(0)
    with pytest.raises(InputError, match=message):
        gradient_descent(DiagonalNet(2, 0.3), X, y, **{"step_size": 0.01, **arguments})


@pytest.mark.parametrize("batch_size", [None, 1])
@pytest.mark.parametrize("start", ["even", "biased", "one-sided"])
def test_the_stable_step_of_a_deep_network_from_a_tiny_start(start, batch_size):
    """Its dual is all but at its pole: the weights at the limit are the roots of |w|."""
    X, y, rng = data(9)
    scale, weights = 1e-6, rng.uniform(0.5, 2.0, (2, D))
    weights[0, ::2] = 0.0 if start == "one-sided" else weights[0, ::2]
    model = (
        DiagonalNet(5, scale)
        if start == "even"
        else DiagonalNet.from_weights(*(scale * weights), depth=5)
    )
    ended = limit(model, X, y, throw=False).w
    metric = 25.0 * np.abs(ended) ** (8.0 / 5.0)
    K = (X * metric) @ X.T
    sharpness = np.linalg.eigvalsh(K)[-1] if batch_size is None else N * np.diag(K).max()
    assert_allclose(stable_step(model, X, y, batch_size=batch_size), 2.0 / sharpness, rtol=1e-6)


def test_weight_decay_that_adds_up_gradients_for_ever_says_so():
    X, y = np.array([[1.0, 2.0]]), np.array([1.0])
    # A little noise, so that it does not come to rest before.
    how = {"step_size": 0.05, "weight_decay": 0.5, "label_noise": 1e-9, "rng": 0}
    run = gradient_descent(DiagonalNet(2, 0.1), X, y, max_steps=40_000, **how)
    with pytest.raises(InputError, match="weight decay balances gradients that never vanish"):
        _ = run.effective_start
    assert run.lasso.gap < 1e-10


def test_scales_that_no_double_steps_from_are_refused():
    X, y, _ = data(0)
    with pytest.raises(InputError, match="model: must start at weights between 1e-150 and 1e"):
        gradient_descent(DiagonalNet(2, log_scale=-1000.0), X, y, step_size=0.01)


def test_from_a_start_of_1e_100_the_identity_holds():
    X, y, _ = data(8)
    run = gradient_descent(
        DiagonalNet(2, 1e-100), X, y, step_size=0.01, residual=1e-12, max_steps=10**6
    )
    assert run.explained.distance <= IDENTITY
    assert_allclose(run.effective_limit.w, limit(run.effective_start, X, y).w, rtol=0, atol=0)
