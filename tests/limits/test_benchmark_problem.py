"""The promised figures on n = 100, d = 1000, sparsity 5, noise variance 0.01, and without noise.

Times are in benchmarks/; counts of factorizations do not depend on the machine and stand here.
"""

import numpy as np
import pytest

import flowbias as fb

# What a certificate must reach; see docs/theory/error_bound.md for what it then proves.
FIGURE = 1e-10
LOG_SCALES = [*np.log([1e3, 10.0, 1.0, 0.1, 1e-2, 1e-3, 1e-6, 1e-30, 1e-100, 1e-300]), -23025.85]


def budget(log_scale):
    """Factorizations allowed for one cold limit at depth 2."""
    if log_scale >= np.log(1e-6):
        return 20
    return 40 if log_scale >= np.log(1e-300) else 70


def assert_certified(solution):
    assert solution.status is fb.Status.CERTIFIED
    assert solution.certificate.feasibility <= FIGURE
    assert solution.certificate.gap <= FIGURE
    assert solution.certificate.stationarity <= FIGURE


@pytest.fixture(params=["noisy", "noiseless"])
def data(request, benchmark_problem):
    X, y, w_true = benchmark_problem
    return X, (y if request.param == "noisy" else X @ w_true)


@pytest.mark.parametrize("log_scale", LOG_SCALES)
def test_depth_two(data, log_scale):
    solution = fb.limit(fb.DiagonalNet(depth=2, log_scale=log_scale), *data)
    assert_certified(solution)
    assert solution.stats.factorizations <= budget(log_scale)


@pytest.mark.parametrize("log_scale", [np.log(1e-3), np.log(1e-300)])
def test_start_spread_over_eight_orders_of_k(data, log_scale):
    # k = w0^4, so eight orders of k are four of w0^2 and two of w0.
    w0 = 10.0 ** np.random.default_rng(0).uniform(-1.0, 1.0, 1000)
    solution = fb.limit(fb.DiagonalNet(depth=2, log_scale=log_scale, w0=w0), *data)
    assert_certified(solution)
    assert solution.stats.factorizations <= 70


@pytest.mark.parametrize("log_scale", [np.log(1e-3), np.log(1e-300)])
def test_start_spread_over_eight_orders_of_sqrt_k(data, log_scale):
    w0 = 10.0 ** np.random.default_rng(1).uniform(-2.0, 2.0, 1000)
    solution = fb.limit(fb.DiagonalNet(depth=2, log_scale=log_scale, w0=w0), *data)
    assert_certified(solution)
    assert solution.stats.factorizations <= 70


@pytest.mark.parametrize("depth", [3, 5, 10])
@pytest.mark.parametrize("start", [1.0, 1e-2, 1e-4, 1e-6, 1e-12, 1e-20, 1e-50, 1e-100, 1e-300])
def test_deeper(data, depth, start):
    """`start` is alpha^D, the size of each half of the predictor at the start."""
    solution = fb.limit(fb.DiagonalNet(depth=depth, log_scale=np.log(start) / depth), *data)
    assert_certified(solution)
    assert solution.stats.factorizations <= (35 if start >= 1e-12 else 50)


def test_directions_that_only_the_lightest_branches_decide(benchmark_problem):
    """Five active features for a hundred rows: Cholesky's method alone never gets there."""
    X, _, w_true = benchmark_problem
    for scale in (0.1, 0.08):
        solution = fb.limit(fb.DiagonalNet(depth=10, scale=scale), X, X @ w_true)
        assert_certified(solution)
        assert solution.stats.factorizations <= 35


@pytest.mark.parametrize("depth", [5, 10])
@pytest.mark.parametrize("scale", [1e3, 1.0])
def test_kernel_regime_of_very_uneven_starts(data, depth, scale):
    """Slopes w0^(2D-2) over up to 72 orders of magnitude."""
    w0 = 10.0 ** np.random.default_rng(0).uniform(-2.0, 2.0, 1000)
    assert_certified(fb.limit(fb.DiagonalNet(depth=depth, scale=scale, w0=w0), *data))


def test_deep_start_far_below_the_double_range(data):
    solution = fb.limit(fb.DiagonalNet(depth=3, log_scale=-1e4), *data)
    assert_certified(solution)


def test_path_of_a_hundred_scales(data):
    log_scales = np.linspace(np.log(1e3), np.log(1e-300), 100)
    path = fb.limit_path(fb.DiagonalNet(depth=2, scale=1.0), *data, log_scales=log_scales)
    assert path.w.shape == (100, 1000)
    assert path.certified
    assert path.stats.factorizations <= 300
    for index in (0, 3, 50, 99):
        alone = fb.limit(fb.DiagonalNet(depth=2, log_scale=log_scales[index]), *data)
        bound = alone.certificate.error_bound + path[index].certificate.error_bound
        bound = min(bound, 1e-9)  # where none is proved: both carry a gap of 1e-10 at most
        assert np.linalg.norm(alone.w - path[index].w) <= bound


def test_deep_path(data):
    path = fb.limit_path(
        fb.DiagonalNet(depth=3, scale=1.0), *data, log_scales=np.linspace(2.0, -230.0, 30)
    )
    assert path.certified
    cold = fb.limit(fb.DiagonalNet(depth=3, log_scale=path.log_scales[5]), *data)
    np.testing.assert_allclose(path[5].w, cold.w, atol=1e-10)


def test_path_in_increasing_order_gives_the_same_limits(benchmark_problem):
    X, y, _ = benchmark_problem
    log_scales = np.linspace(1.0, -40.0, 8)
    model = fb.DiagonalNet(depth=2, scale=1.0)
    down = fb.limit_path(model, X, y, log_scales=log_scales)
    up = fb.limit_path(model, X, y, log_scales=log_scales[::-1])
    np.testing.assert_allclose(up.w[::-1], down.w, atol=1e-10)
