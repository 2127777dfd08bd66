"""Data that are not in general position, not in range, or not of ordinary size."""

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

import flowbias as fb

RNG = np.random.default_rng(7)
N, D = 12, 40
X, Y = RNG.standard_normal((N, D)), RNG.standard_normal(N)
MODELS = [
    fb.DiagonalNet(depth=2, scale=3.0),
    fb.DiagonalNet(depth=2, scale=1e-3),
    fb.DiagonalNet(depth=2, scale=1e-50),
    fb.DiagonalNet(depth=3, scale=1e-2),
    fb.UntiedDiagonalNet(scale=0.1, shape=-0.7),
]
models = pytest.mark.parametrize("model", MODELS, ids=repr)
# Two certified solutions of the same problem: each within its own rounding of the limit.
SAME = {"rtol": 1e-9, "atol": 1e-11}


@models
def test_duplicated_rows_change_nothing(model):
    plain = fb.limit(model, X, Y)
    doubled = fb.limit(model, np.vstack([X, X[:4]]), np.concatenate([Y, Y[:4]]))
    assert doubled.status is fb.Status.CERTIFIED
    assert_allclose(doubled.w, plain.w, **SAME)
    assert np.isfinite(doubled.certificate.error_bound)


@models
def test_contradicting_rows_give_the_least_squares_limit(model):
    contradicting = fb.limit(model, np.vstack([X, X[:1]]), np.concatenate([Y, Y[:1] + 2.0]))
    assert contradicting.status is fb.Status.PROJECTED
    assert "least-squares limit" in contradicting.message
    average = Y + np.eye(N)[0]  # the two values of the first sample, averaged
    assert_allclose(contradicting.w, fb.limit(model, X, average).w, **SAME)


@pytest.mark.parametrize("seed", range(12))
def test_rows_repeated_with_other_outputs(seed):
    """Rows twice, y at random: the singular values that should be 0 are any size below rounding."""
    rng = np.random.default_rng(seed)
    n, repeated, d = rng.integers(2, 15), rng.integers(1, 4), rng.integers(40, 100)
    rows = rng.standard_normal((n, d))
    copies = rng.integers(n, size=repeated)
    y = rng.standard_normal(n + repeated)
    solution = fb.limit(fb.DiagonalNet(depth=2, scale=0.1), np.vstack([rows, rows[copies]]), y)
    assert solution.status is fb.Status.PROJECTED
    average = [np.mean([y[i], *y[n:][copies == i]]) for i in range(n)]
    assert_allclose(solution.w, fb.limit(fb.DiagonalNet(2, 0.1), rows, average).w, **SAME)


@pytest.mark.parametrize("model", [*MODELS, fb.L2()], ids=repr)
def test_opposite_outputs_of_the_same_row_leave_nothing_to_fit(model):
    nothing = fb.limit(model, np.vstack([X, X]), np.concatenate([Y, -Y]))
    assert nothing.status is fb.Status.PROJECTED
    assert nothing.distance == 1.0
    assert not nothing.w.any()
    assert not fb.min_norm(np.vstack([X, X]), np.concatenate([Y, -Y])).w.any()


def test_zero_is_no_limit_where_something_can_be_fitted():
    """A small part of y in the range of X, far above rounding: w = 0 is not certified for it."""
    doubled = np.vstack([X, X])
    y = np.concatenate([Y, -Y]) + 1e-4 * np.concatenate([Y, Y])
    potential = fb.L2()
    wrong = fb.certify(doubled, y, np.zeros(D), np.zeros(2 * N), potential)
    assert wrong.feasibility == pytest.approx(1.0)
    assert not wrong.ok
    assert fb.limit(potential, doubled, y).certificate.ok


def test_a_row_of_zeros_counts_whatever_the_size_of_the_others():
    tiny = 1e-100 * X
    hopeless = fb.limit(
        fb.DiagonalNet(2, 0.1), np.vstack([tiny, np.zeros(D)]), 1e-100 * np.append(Y, 5.0)
    )
    assert hopeless.status is fb.Status.PROJECTED
    assert_allclose(hopeless.w, fb.limit(fb.DiagonalNet(2, 0.1), X, Y).w, **SAME)


@models
def test_zero_row(model):
    plain = fb.limit(model, X, Y)
    harmless = fb.limit(model, np.vstack([X, np.zeros(D)]), np.append(Y, 0.0))
    assert harmless.status is fb.Status.CERTIFIED
    assert_allclose(harmless.w, plain.w, **SAME)
    hopeless = fb.limit(model, np.vstack([X, np.zeros(D)]), np.append(Y, 5.0))
    assert hopeless.status is fb.Status.PROJECTED
    assert_allclose(hopeless.w, plain.w, **SAME)


@models
def test_more_samples_than_features(model):
    tall, y = RNG.standard_normal((60, 25)), RNG.standard_normal(60)
    solution = fb.limit(model, tall, y)
    assert solution.status is fb.Status.PROJECTED
    assert_allclose(solution.w, np.linalg.lstsq(tall, y)[0], rtol=1e-9, atol=1e-12)


@models
def test_zero_outputs(model):
    solution = fb.limit(model, X, np.zeros(N))
    assert solution.status is fb.Status.CERTIFIED
    assert not solution.w.any()


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("log_scale", [0.0, -1582.0])
@pytest.mark.parametrize("depth", [2, 3, 30])
def test_one_feature_with_a_start_of_its_own(depth, log_scale, samples):
    model = fb.DiagonalNet(depth=depth, log_scale=log_scale, w0=[1.25])
    solution = fb.limit(model, np.ones((samples, 1)), np.full(samples, 0.35))
    # What fits is one number; tol of the solve.
    assert_allclose(solution.w, [0.35], rtol=1e-10)


@pytest.mark.parametrize("size", [1e-150, 1e150])
@models
def test_size_of_the_data(model, size):
    """Scaling X and y together changes nothing; the flow only runs at another speed."""
    assert_allclose(fb.limit(model, size * X, size * Y).w, fb.limit(model, X, Y).w, **SAME)


@pytest.mark.parametrize("size", [1e-100, 1e-10, 1e10, 1e100])
def test_size_of_the_outputs(size):
    """At depth 2, y -> s y and scale -> sqrt(s) scale takes w to s w."""
    small = fb.limit(fb.DiagonalNet(depth=2, scale=1e-2), X, Y)
    large = fb.limit(
        fb.DiagonalNet(depth=2, log_scale=np.log(1e-2) + 0.5 * np.log(size)), X, size * Y
    )
    assert_allclose(large.w / size, small.w, rtol=1e-8, atol=1e-11)


def test_rows_of_very_different_units():
    units = 10.0 ** RNG.uniform(-90, 90, N)
    model = fb.DiagonalNet(depth=2, scale=1e-3)
    assert_allclose(
        fb.limit(model, units[:, None] * X, units * Y).w, fb.limit(model, X, Y).w, **SAME
    )


@pytest.mark.parametrize(
    "convert",
    [
        np.asfortranarray,
        lambda A: scipy.sparse.csr_array(A) if A.ndim == 2 else A,
        lambda A: A.tolist(),
        lambda A: np.broadcast_to(A, A.shape),  # read-only
        lambda A: A[::-1][::-1],  # strided view
    ],
    ids=["fortran", "sparse", "list", "read-only", "strided"],
)
def test_forms_of_the_same_data(convert):
    model = fb.DiagonalNet(depth=2, scale=1e-3)
    assert_allclose(fb.limit(model, convert(X), convert(Y)).w, fb.limit(model, X, Y).w, **SAME)


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.float32, np.float16, bool])
def test_other_number_types(dtype):
    integers = RNG.integers(0, 2 if dtype is bool else 5, (6, 20))
    y = RNG.integers(0, 2 if dtype is bool else 5, 6)
    model = fb.DiagonalNet(depth=2, scale=0.1)
    expected = fb.limit(model, integers.astype(float), y.astype(float)).w
    assert_allclose(
        fb.limit(model, integers.astype(dtype), y.astype(dtype)).w, expected, rtol=1e-12
    )


def test_input_is_left_alone():
    before_X, before_y = X.copy(), Y.copy()
    fb.limit(fb.DiagonalNet(depth=3, scale=0.1), X, Y)
    assert np.array_equal(X, before_X)
    assert np.array_equal(Y, before_y)


@pytest.mark.parametrize("scale", [10.0, 1e-3, 1e-50])
def test_condition_number_1e10(scale):
    rng = np.random.default_rng(3)
    left = np.linalg.qr(rng.standard_normal((30, 30)))[0]
    right = np.linalg.qr(rng.standard_normal((200, 30)))[0]
    ill = (left * np.geomspace(1.0, 1e-10, 30)) @ right.T
    model = fb.DiagonalNet(depth=2, scale=scale)
    generic = fb.limit(model, ill, rng.standard_normal(30))
    assert generic.status is fb.Status.CERTIFIED
    assert generic.certificate.feasibility <= 1e-10
    # A planted solution is degenerate as well: certified, or the status says that it is not.
    truth = np.eye(200)[3]
    planted = fb.limit(model, ill, ill @ truth, throw=False)
    if planted.status is fb.Status.CERTIFIED and scale < 1e-10:
        assert_allclose(planted.w, truth, atol=1e-4)


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e120])
def test_outputs_near_the_ends_of_the_double_range(size):
    """At a large scale the limit is the least-norm solution, linear in y."""
    model = fb.DiagonalNet(depth=2, log_scale=400.0)
    expected = fb.min_norm(X, Y).w
    assert_allclose(fb.limit(model, X, size * Y).w / size, expected, rtol=1e-9, atol=1e-12)


def test_data_at_the_end_of_the_double_range():
    model = fb.DiagonalNet(depth=2, scale=1e-2)
    assert_allclose(fb.limit(model, 1e300 * X, 1e300 * Y).w, fb.limit(model, X, Y).w, **SAME)


def test_memory_beyond_x():
    """No copy of X: at most 0.2 times X plus 5 n^2 doubles."""
    import tracemalloc

    n, d = 200, 20_000
    wide, y = RNG.standard_normal((n, d)), RNG.standard_normal(n)
    tracemalloc.start()
    solution = fb.limit(fb.DiagonalNet(depth=2, scale=1e-3), wide, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert solution.status is fb.Status.CERTIFIED
    # The figure is for n = 1000 (benchmarks/growth.py measures it there). At n = 200 the 40 or so
    # vectors of length 2 d that the two sides of every coordinate need are not small beside it.
    assert peak <= 0.2 * wide.nbytes + 8 * (5 * n * n + 40 * 2 * d)


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize(
    ("plus", "minus"), [([1.0, 2.0, 3.0], [2.0, 0.1, 0.1]), ([1e-3, 2.0, 1e-8], [2.0, 1e-3, 1.0])]
)
def test_zero_outputs_from_a_biased_start(depth, size, plus, minus):
    """The predictor at the start is not zero, so neither is the limit; the flow agrees."""
    model = fb.DiagonalNet.from_weights(size * np.array(plus), size * np.array(minus), depth=depth)
    solution = fb.limit(model, [[1.0, 2.0, -1.5]], [0.0])
    assert solution.status is fb.Status.CERTIFIED
    assert solution.stats.factorizations <= 60
    reached = fb.flow(model, [[1.0, 2.0, -1.5]], [0.0]).w[-1]
    assert_allclose(solution.w, reached, rtol=1e-6)


@pytest.mark.parametrize("light", [1e-6, 1e-10])
def test_weights_over_many_orders_of_magnitude(light):
    """Fewer light features than samples: the rest is decided by what the heavy ones cost."""
    weights = np.where(np.arange(10) < 7, 1.0, light)
    solution = fb.min_norm(X[:5, :10], Y[:5], weights=weights)
    assert solution.stats.factorizations <= 6
    scaled = X[:5, :10] / np.sqrt(weights)
    # An orthogonal method on the scaled features loses only their own condition number.
    expected = np.linalg.lstsq(scaled, Y[:5], rcond=None)[0] / np.sqrt(weights)
    assert_allclose(solution.w, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("seed", range(10))
def test_zero_outputs_from_starts_over_six_orders_of_magnitude(seed):
    rng = np.random.default_rng(seed)
    plus, minus = 10.0 ** rng.uniform(-5.0, 1.0, (2, 6))
    model = fb.DiagonalNet.from_weights(plus, minus, depth=2)
    assert fb.limit(model, X[:3, :6], np.zeros(3)).status is fb.Status.CERTIFIED
