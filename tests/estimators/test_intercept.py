"""Both meanings of an intercept, each against something that knows nothing of the other code."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from sklearn.linear_model import LinearRegression

import flowbias as fb
from flowbias.estimators import ImplicitBiasRegressor, MinNormRegressor
from flowbias.estimators.intercepts import trained_bias
from flowbias.estimators.intercepts.trained_bias import (
    Elimination,
    TrainedBias,
    _power_start,
    eliminate_bias,
)
from flowbias.limits.normal_equations import Effort
from flowbias.models import DiagonalNet, UntiedDiagonalNet
from flowbias.potentials import DepthPotential, Hypentropy, check_potential
from flowbias.potentials.with_bias import WithBias
from flowbias.problems.regression import Regression

RNG = np.random.default_rng(5)
X = RNG.standard_normal((5, 9))
Y = 2.0 + RNG.standard_normal(5)
WEIGHT = np.array([1.0, 2.0, 0.5, 1.5, 1.0])


def with_trained_bias(network, A, b, column=None, tol=1e-10):
    """The limit of a network and its bias, whose column is ones by default."""
    rows = np.column_stack([A, np.ones(len(A)) if column is None else column])
    return fb.limit(TrainedBias.of(network, A.shape[1]), rows, b, tol=tol)


def trained(network, A=X, b=Y, weight=None):
    """(w, bias) at the end of gradient flow of all parameters, bias included, by an integrator."""
    start = [np.broadcast_to(part, A.shape[1:]) for part in network.initial_parameters()]
    parts, weight = len(start), np.ones(len(b)) if weight is None else weight

    def velocity(_, state):
        parameters = tuple(np.split(state[:-1], parts))
        error = weight * (A @ network.predictor(parameters) + state[-1] - b)
        moves = network.parameter_gradient(parameters, A.T @ error)
        return -np.concatenate([*moves, [error.sum()]])

    # Residuals fall exponentially; at 1e-12 per step what is left is far below 1e-8.
    run = solve_ivp(
        velocity,
        (0.0, 400.0),
        np.concatenate([*start, [0.0]]),
        method="LSODA",
        rtol=1e-12,
        atol=1e-14,
    )
    final = run.y[:, -1]
    return network.predictor(tuple(np.split(final[:-1], parts))), final[-1]


@pytest.mark.parametrize(
    ("estimator", "network"),
    [
        (ImplicitBiasRegressor(scale=1.0), DiagonalNet(2, 1.0)),
        (ImplicitBiasRegressor(scale=0.2), DiagonalNet(2, 0.2)),
        (ImplicitBiasRegressor(depth=3, scale=0.5), DiagonalNet(3, 0.5)),
        (ImplicitBiasRegressor(depth=4, scale=0.7), DiagonalNet(4, 0.7)),
        (ImplicitBiasRegressor(scale=0.4, shape=0.5), UntiedDiagonalNet(0.4, shape=0.5)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["", "weighted"])
def test_a_trained_bias_is_where_the_flow_takes_it(estimator, network, weight):
    coef, bias = trained(network, weight=weight)
    fitted = estimator.set_params(fit_intercept="trained").fit(X, Y, weight)
    assert_allclose(fitted.coef_, coef, atol=1e-8)
    assert_allclose(fitted.intercept_, bias, atol=1e-8)


def test_the_kernel_end_is_the_tangent_kernel_with_a_one():
    """Depth 2: k(x, x') = 8 scale^2 <x, x'> + 1."""
    scale = 1e3
    kernel = 8.0 * scale**2 * X @ X.T + 1.0
    dual = np.linalg.solve(kernel, Y)
    fitted = ImplicitBiasRegressor(scale=scale, fit_intercept="trained").fit(X, Y)
    assert_allclose(fitted.coef_, 8.0 * scale**2 * X.T @ dual, rtol=1e-9)
    assert_allclose(fitted.intercept_, dual.sum(), rtol=1e-9)


@pytest.mark.parametrize("depth", [2, 3])
def test_the_rich_end_is_the_centred_one(depth):
    """A bias costs b^2 beside |log scale| |w|, or scale^(2 - depth) |w|: in the end, nothing."""
    start = {"depth": depth, "log_scale": {2: -690.0, 3: -14.0}[depth]}
    free = ImplicitBiasRegressor(**start).fit(X, Y)
    costly = ImplicitBiasRegressor(**start, fit_intercept="trained").fit(X, Y)
    assert_allclose(costly.coef_, free.coef_, atol=1e-5)
    assert_allclose(costly.intercept_, free.intercept_, atol=1e-5)


@pytest.mark.parametrize(
    "network",
    [
        DiagonalNet(2, 1e-5),
        DiagonalNet(2, 1e-10),
        DiagonalNet(2, 1e-100),
        DiagonalNet(3, 1e-3),
        DiagonalNet(3, 1e-6),
        DiagonalNet(5, 1e-3),
        UntiedDiagonalNet(1e-10, shape=0.9),
    ],
    ids=repr,
)
@pytest.mark.parametrize("size", [1.0, 100.0])
def test_small_scales_are_certified(network, size):
    solution = with_trained_bias(network, X, size * Y)
    assert solution.certificate.ok
    # The certificate's own equations, by hand: b is determined by the dual alone.
    bias = solution.dual.sum() / network.mirror_rate
    # Terms up to 1e8 times their sum, each of which is rounded.
    rounding = len(Y) * np.finfo(float).eps * np.abs(solution.dual).sum() / network.mirror_rate
    assert_allclose(solution.w[-1], bias, rtol=1e-8, atol=rounding)
    assert_allclose(X @ solution.w[:-1] + solution.w[-1], size * Y, rtol=1e-8)


@pytest.mark.parametrize("network", [DiagonalNet(2, 0.1), DiagonalNet(3, 0.3)], ids=repr)
@pytest.mark.parametrize("column", [np.ones(5), np.sqrt(WEIGHT)], ids=["", "weighted"])
def test_the_two_ways_agree(network, column):
    problem = Regression(np.column_stack([X * column[:, None], column]), Y * column)
    w, _ = eliminate_bias(network, problem, Effort())
    solution = with_trained_bias(network, X * column[:, None], Y * column, column)
    assert solution.route == "dual Newton"
    assert_allclose(w, solution.w, atol=1e-10)


def test_a_dual_within_rounding_of_the_end_of_its_domain():
    """Certified after shrinking it by a few digits; unshrunk its conjugate is infinite."""
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((5, 9)), 2.0 + rng.standard_normal(5)
    assert with_trained_bias(DiagonalNet(4, 1e-8), A, b, tol=1e-8).certificate.ok


def test_a_bias_without_a_reason_stays_at_zero():
    w, dual = eliminate_bias(DiagonalNet(2, 0.1), _with_ones(X, np.zeros(5)), Effort())
    assert not w.any()
    assert not dual.any()


def _with_ones(A, b):
    return Regression(np.column_stack([A, np.ones(len(A))]), b)


@pytest.mark.parametrize("network", [DiagonalNet(2, 1e-3), DiagonalNet(3, 0.01)], ids=repr)
@pytest.mark.parametrize(
    "A",
    [
        RNG.standard_normal((8, 3)),
        np.repeat(RNG.standard_normal((2, 6)), 4, axis=0),
        RNG.standard_normal((1, 4)),
        np.zeros((3, 2)),
    ],
    ids=["more samples than features", "copies", "one sample", "zero"],
)
def test_awkward_data(network, A, monkeypatch):
    """Eliminated, whether X can do what the bias does, or not, or nothing at all."""
    eliminated = {"bias eliminated": trained_bias.WAYS["bias eliminated"]}
    monkeypatch.setattr(trained_bias, "WAYS", eliminated)
    b = 3.0 + RNG.standard_normal(len(A))
    solution = with_trained_bias(network, A, b)
    assert solution.certificate.ok
    design = np.column_stack([A, np.ones(len(A))])
    best = design @ np.linalg.lstsq(design, b)[0]
    assert_allclose(design @ solution.w, best, atol=1e-8)


@pytest.mark.parametrize(
    ("log_scale", "depth", "other"), [(400.0, 2, "False"), (-800.0, 3, '"centered"')]
)
def test_scales_at_which_the_bias_leaves_the_doubles(log_scale, depth, other):
    estimator = ImplicitBiasRegressor(depth, log_scale=log_scale, fit_intercept="trained")
    with pytest.raises(fb.InputError, match=f"log_scale: must leave .*fit_intercept={other}"):
        estimator.fit(X, Y)


def test_a_dual_too_small_for_a_double_is_certified_in_balls():
    # w = y / x = 1e-221 and its dual is w / x: no double, but w is one.
    fitted = ImplicitBiasRegressor(scale=0.3, fit_intercept="trained").fit([[1e120]], [-1e-101])
    assert_allclose(fitted.coef_, [-1e-221], rtol=1e-12)
    assert fitted.certificate_.error_bound <= 1e-12 * 1e-221


@pytest.mark.parametrize("smallest", [1e-3, 1e-12])
def test_rows_of_any_condition_can_do_what_the_bias_does(smallest):
    # As many independent rows as samples: nothing of the ones is left beside them but rounding.
    left, _, right = np.linalg.svd(np.random.default_rng(0).standard_normal((3, 8)))
    rows = left @ np.diag([1.0, 1e-2, smallest]) @ right[:3]
    task = Elimination(DiagonalNet(2, 0.3), rows, np.ones(3), np.array([1.0, 2.0, 3.0]), Effort())
    assert_allclose(task.direction, np.full(3, 1.0 / 3.0))


@pytest.mark.slow
def test_biases_whose_limits_leave_the_doubles_are_passed_in_silence():
    X = np.array([[9e11, 9.1e11], [-7.5e-2, -7.4e-2], [5.5e-20, 5.6e-20]])
    y = np.array([-4.5e99, 2e100, -1.5e100])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(fb.SolveError, match="not certified"):
            ImplicitBiasRegressor(scale=0.3, fit_intercept="trained").fit(X, y)


def test_a_trained_bias_of_over_determined_data_is_least_squares():
    A, b = RNG.standard_normal((20, 3)), RNG.standard_normal(20)
    fitted = ImplicitBiasRegressor(scale=1e-3, fit_intercept="trained").fit(A, b)
    assert_allclose(fitted.intercept_, LinearRegression().fit(A, b).intercept_, atol=1e-10)
    assert fitted.status_ == "PROJECTED"


# --- centred -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["", "weighted"])
def test_centring_makes_residuals_average_to_zero(weight):
    fitted = MinNormRegressor().fit(X[:, :2], Y, weight)
    residual = Y - fitted.predict(X[:, :2])
    assert abs(np.average(residual, weights=weight)) < 1e-14
    assert np.abs(residual).max() > 0.1


def test_centring_is_a_bias_that_costs_nothing():
    """Least ||w||^2 + (b / cheap)^2: off by O(cheap^-2)."""
    cheap = 1e5
    free = np.linalg.lstsq(np.column_stack([X, np.full(5, cheap)]), Y)[0]
    fitted = MinNormRegressor().fit(X, Y)
    assert_allclose(fitted.coef_, free[:-1], atol=1e-8)
    assert_allclose(fitted.intercept_, cheap * free[-1], atol=1e-8)


def test_true_is_centered():
    one, other = (ImplicitBiasRegressor(scale=0.1, fit_intercept=c) for c in (True, "centered"))
    np.testing.assert_array_equal(one.fit(X, Y).coef_, other.fit(X, Y).coef_)


# --- the potential -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "potential",
    [
        WithBias(Hypentropy(scale=0.1), 4.0, d=3),
        WithBias(Hypentropy(scale=[0.1, 2.0]), 4.0, d=2),
        WithBias(DepthPotential(3, scale=0.5), 3.0, d=1),
    ],
    ids=repr,
)
def test_the_potential_with_a_bias_passes_the_public_checks(potential):
    check_potential(potential)


def test_the_potential_is_a_sum():
    w = np.array([0.3, -2.0, 5.0])
    potential = WithBias(Hypentropy(scale=0.1), 4.0, d=2)
    assert_allclose(potential.value(w), Hypentropy(scale=0.1).value(w[:2]) + 2.0 * 25.0, rtol=1e-14)


def test_a_small_change_of_scale_moves_the_limit_by_its_derivative():
    """What `scale_derivative` says of the bias, 0 at fixed dual, is right."""
    step = 1e-5
    there, back = (with_trained_bias(DiagonalNet(2, log_scale=s), X, Y).w for s in (step, -step))
    at = with_trained_bias(DiagonalNet(2, 1.0), X, Y)
    design, potential = np.column_stack([X, np.ones(5)]), at.potential
    z = design.T @ at.dual
    slope, drift = potential.hess_dual(z), potential.scale_derivative(z)
    pull = np.linalg.solve(design * slope @ design.T, design @ drift)
    assert_allclose(drift - slope * (design.T @ pull), (there - back) / (2 * step), atol=1e-8)


def test_a_start_on_the_edge_of_the_dual_domain_stays_finite():
    """Rounding may put a trial there, or beyond."""
    potential = fb.DepthPotential(depth=3, scale=0.5)
    edge = np.exp(potential.log_plus * (2.0 - 3.0) - potential.log_unit)
    for beyond in (1.0, 1.0 + 1e-15, 1.5):
        moved = _power_start(potential, np.array([beyond * edge, -beyond * edge])).potential
        assert np.isfinite([moved.log_plus, moved.log_minus]).all()
