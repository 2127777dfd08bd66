"""What the papers' experiments with networks say, measured on instances of their set-up."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra `nets`")

from flowbias.experiments.woodworth.circle_networks import (  # noqa: E402
    by_descent,
    draw_circles,
    largest_stable_step,
    network,
    single_network,
)
from flowbias.experiments.woodworth.fig06c import chosen  # noqa: E402
from flowbias.experiments.woodworth.fig07 import (  # noqa: E402
    GRID,
    POINTS,
    RANGE,
    VALUES,
)
from flowbias.kernels import linearized_flow  # noqa: E402
from flowbias.nets import linear_spline, natural_cubic_spline, wide_interpolant  # noqa: E402
from tests.experiments.judging import recorded  # noqa: E402


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_w16_a_large_start_stays_in_the_predictor_of_a_single_network(depth):
    """At alpha^D = 100, where the network is its linearization: errors in units of the labels."""
    errors = {single_network: [], network: []}
    for circle in draw_circles(np.random.default_rng(0), 6):
        x, test = (torch.as_tensor(part) for part in (circle.X, circle.X_test))
        for make, found in errors.items():
            flow = linearized_flow(make(depth, 2.0, circle.seed, "cpu"), x, circle.y[:, None])
            found.append(np.sqrt(np.mean((flow.predict(test)[:, 0] - circle.y_test) ** 2)))
    assert min(errors[single_network]) > 1.5  # predicting zero has 1
    assert max(errors[network]) < 0.8


def test_w17_the_kernel_limit_of_a_small_first_layer_is_no_cubic_spline():
    linear, cubic = (make(POINTS, VALUES)(GRID) for make in (linear_spline, natural_cubic_spline))

    def away(relative_scale, spline):
        wide = wide_interpolant(POINTS, VALUES, scale=30.0, relative_scale=relative_scale)
        return np.abs(wide(GRID) - spline).max() / RANGE

    # The second layer's share of the kernel at width 10^4: 5000, 0.5 and nothing.
    assert away(1.0, cubic) < 0.1 < 0.15 < away(1.0, linear)
    for tiny in (0.1, 0.001):
        assert away(tiny, linear) < 0.02 < 0.15 < away(tiny, cubic)


def test_w18_steps_that_leave_the_kernel_regime_do_not_lower_the_error():
    circles = draw_circles(np.random.default_rng(1), 6)
    starts = [network(3, 0.0, circle.seed, "cpu") for circle in circles]
    stable = [largest_stable_step(net, one) for net, one in zip(starts, circles, strict=True)]
    small, large = (
        by_descent(starts, circles, [part * step for step in stable], 1500) for part in (0.3, 2.0)
    )
    assert max(small.train_rmse.max(), large.train_rmse.max()) < 0.03
    assert np.median(small.grad_distance) < 0.05 < 0.3 < np.median(large.grad_distance)
    assert np.median(large.rmse / small.rmse) > 1.0


def test_w19_large_starts_are_random_features_at_full_size_and_hardly_worse_than_small_ones():
    """By the record of the full-size run, which takes an hour and a half of one core."""
    table = recorded("woodworth-fig6c-paper.csv")
    network = chosen(table.part("network"))
    assert set(network["images"]) == {55_000.0}
    assert set(network["width"]) == {5000.0}
    assert set(network["accuracy"]) == {1.0}
    small = np.median(network["error"][network["scale"] <= 2.0])
    large = np.median(network["error"][network["scale"] >= 50.0])
    last = float(chosen(table.part("last-layer"))["error"][0])
    noise = np.sqrt(last / 10_000)
    assert 0.012 < small < 0.0195 < 0.02 < large
    assert abs(large - last) < 2 * noise
    assert 1.1 < large / small < 1.4  # the paper: 1.7
