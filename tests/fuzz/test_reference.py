"""The many-digit reference against methods that share nothing with it.

Gradient flow of the weights themselves, integrated; limits in the reference file; the 50-digit
Newton of `tests.exact`, in another arithmetic; and rich limits worked out by hand.
"""

import numpy as np
import pytest
import scipy.optimize
from flint import arb, arb_mat, ctx, fmpq
from mpmath import mp
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

import flowbias as fb
from tests.exact import exact_limit
from tests.fuzz import exact_data, reference
from tests.fuzz.answers import model_of
from tests.fuzz.branches import Exponentials
from tests.fuzz.mirror_path import Path
from tests.fuzz.problems import Start
from tests.fuzz.proof import proved
from tests.oracles import ORACLES

X = np.array([[1.0, 2.0, -1.0], [0.5, -1.0, 3.0]])
Y = np.array([1.0, 2.0])


def exact(X, y):
    return exact_data.rational_matrix(np.asarray(X, float)), exact_data.rational_vector(
        np.asarray(y, float)
    )


def rounded(found):
    return np.array([float(value) for value in found.w])


# --- gradient flow of the weights ----------------------------------------------------------------


def tied_flow(depth, plus, minus):
    """w = plus^D - minus^D."""

    def predictor(weights):
        p, m = np.split(weights, 2)
        return p**depth - m**depth

    def pull(weights, g):
        p, m = np.split(weights, 2)
        return np.concatenate([depth * p ** (depth - 1) * g, -depth * m ** (depth - 1) * g])

    return np.concatenate([plus, minus]), predictor, pull


def untied_flow(*weights):
    """w = u+ v+ - u- v-."""

    def predictor(weights):
        u_plus, u_minus, v_plus, v_minus = np.split(weights, 4)
        return u_plus * v_plus - u_minus * v_minus

    def pull(weights, g):
        u_plus, u_minus, v_plus, v_minus = np.split(weights, 4)
        return np.concatenate([v_plus * g, -v_minus * g, u_plus * g, -u_minus * g])

    return np.concatenate(weights), predictor, pull


def integrated(X, y, flow, time):
    start, predictor, pull = flow
    end = solve_ivp(
        lambda _, weights: pull(weights, -X.T @ (X @ predictor(weights) - y)),
        (0.0, time),
        start,
        method="LSODA",
        rtol=1e-12,
        atol=1e-14,
    )
    return predictor(end.y[:, -1])


def tied(depth, scale, w0=None):
    start = Start("tied", depth, scale=scale, weights=() if w0 is None else (np.array(w0),))
    weights = scale * (np.ones(3) if w0 is None else np.array(w0))
    return start, tied_flow(depth, weights, weights)


def weights(depth, plus, minus):
    plus, minus = np.array(plus), np.array(minus)
    return Start("tied_weights", depth, weights=(plus, minus)), tied_flow(depth, plus, minus)


def untied(*parts):
    parts = tuple(np.array(part) for part in parts)
    return Start("untied_weights", weights=parts), untied_flow(*parts)


NETWORKS = {
    "depth 2": tied(2.0, 0.5),
    "depth 2, uneven": tied(2.0, 0.3, [1.0, 0.2, 3.0]),
    "depth 3": tied(3.0, 0.6),
    "depth 2.5, uneven": tied(2.5, 0.7, [1.0, 0.5, 1.5]),
    "depth 5": tied(5.0, 0.8),
    "biased": weights(2.0, [0.5, 0.2, 0.9], [0.1, 0.6, 0.3]),
    "biased, depth 4": weights(4.0, [0.9, 0.6, 0.8], [0.7, -0.8, 0.6]),
    "negative, depth 3": weights(3.0, [-0.9, 0.6, 0.8], [-0.7, 0.8, 0.6]),
    "one-sided": weights(2.0, [0.5, 0.2, 0.9], [0.0, 0.6, 0.0]),
    "one-sided, depth 3": weights(3.0, [0.0, 0.7, 0.9], [0.8, 0.6, 0.0]),
    "frozen": weights(2.0, [0.0, 0.2, 0.9], [0.0, 0.6, 0.3]),
    "untied": untied([0.5, 0.1, -0.3], [0.2, 0.4, 0.6], [0.7, -0.2, 0.3], [0.1, 0.5, 0.2]),
    "untied, one-sided": untied([0.5, 0.3, 0.3], [0, 0, 0], [0.5, -0.3, 0.2], [0, 0, 0]),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("y", [Y, -Y, [1.0, -4.0]], ids=["y", "-y", "another y"])
def test_the_flow_of_the_weights_ends_there(name, y):
    start, flow = NETWORKS[name]
    found = rounded(reference.limit(*exact(X, y), start))
    # 1e-8: what the integrator's relative tolerance leaves after some thousand steps.
    assert_allclose(integrated(X, np.array(y), flow, 400.0), found, atol=1e-8)


def test_the_flow_on_dependent_rows_ends_at_the_projection():
    rows = np.array([[1.0, 2.0], [2.0, 4.0], [1.0, -1.0], [0.0, 3.0]])
    y = np.array([1.0, -1.0, 2.0, 0.5])
    both = np.array([0.6, 0.3])
    found = reference.limit(*exact(rows, y), Start("tied", 3.0, scale=1.0, weights=(both,)))
    assert not found.in_range
    assert_allclose(integrated(rows, y, tied_flow(3.0, both, both), 400.0), rounded(found))


# --- other many-digit limits ---------------------------------------------------------------------

STARTS = {
    "diag_D": lambda given: Start("tied", float(given["D"]), given["alpha"], **_w0(given)),
    "diag_D2_nonuniform": lambda given: Start("tied", 2.0, given["alpha"], **_w0(given)),
    "biased_diag": lambda given: Start(
        "untied_weights",
        weights=tuple(np.array(given[name]) for name in ("u_plus", "u_minus", "v_plus", "v_minus")),
    ),
}


def _w0(given):
    return {"weights": (np.array(given["w0"], float),)} if given.get("w0") is not None else {}


CASES = [
    pytest.param(problem, case, id=f"{problem['id']}-{case['model']}-{i}")
    for problem in ORACLES["problems"]
    for i, case in enumerate(problem["limits"])
    if case["model"] in STARTS
]


@pytest.mark.parametrize(("problem", "case"), CASES)
def test_the_reference_file_agrees(problem, case):
    start = STARTS[case["model"]](case["params"])
    found = reference.limit(*exact(problem["X"], problem["y"]), start)
    # The file carries 15 digits.
    assert_allclose(rounded(found), case["beta"], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    "start",
    [
        Start("tied", 2.0, scale=1e-3),
        Start("tied", 2.0, log_scale=-40.0),
        Start("tied", 3.0, scale=0.01),
        Start("tied", 2.125, scale=1e-4),
        Start("untied", 2.0, scale=0.5, shape=0.75),
    ],
    ids=lambda start: f"{start.kind}-{start.depth}",
)
def test_newton_in_another_arithmetic_agrees_to_many_digits(start):
    model = model_of(start)
    dual = fb.limit(model, X, Y, throw=False).dual
    other = exact_limit(model, X, Y, dual, dps=40)
    found = reference.limit(*exact(X, Y), start)
    with mp.workdps(60), ctx.workdps(60):
        for value, one in zip(other, found.w, strict=True):
            assert abs(arb(mp.nstr(value, 55)) - one) < arb(10) ** -30


# --- extreme ends --------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [3.0, 5.0])
def test_what_has_settled_is_what_more_digits_find(depth, monkeypatch):
    start = Start("tied", depth, scale=1e-250)
    settled = reference.limit(*exact(X, Y), start)
    monkeypatch.setattr(reference, "MOST_DIGITS", 10**6)
    followed = reference.limit(*exact(X, Y), start)
    assert followed.distance([float(v) for v in settled.w]) <= 1e-15 * followed.norm
    assert settled.error <= reference.ENOUGH * settled.norm


@pytest.mark.parametrize("depth", [2.0, 3.0, 6.0])
def test_of_several_l1_minimizers_the_one_that_theory_names(depth):
    # w = (0.2 + t, 0.8 - 2 t, t), 0 <= t <= 0.4: one number to find.
    def merit(t):
        w = np.array([0.2 + t, 0.8 - 2.0 * t, t])
        return np.sum(w * np.log(w)) if depth == 2 else -np.sum(w ** (2.0 / depth))

    t = scipy.optimize.minimize_scalar(
        merit, bounds=(1e-9, 0.4 - 1e-9), method="bounded", options={"xatol": 1e-10}
    ).x
    rows = [[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]]
    target = [fmpq(1), fmpq(4, 5)]
    found = reference.rich_limit(exact(rows, Y)[0], target, Start("tied", depth, scale=1.0))
    # Near its minimum a function shows half of the digits of its argument.
    assert_allclose(rounded(found), [0.2 + t, 0.8 - 2.0 * t, t], atol=1e-6)


def test_a_part_that_starts_far_below_the_others_is_waited_for():
    start = Start("tied", 2.0, scale=1.0, weights=(np.array([1.0, 1e-300]),))
    found = reference.rich_limit(*exact([[1.0, 2.0]], [1.0]), start)
    assert_allclose(rounded(found), [0.0, 0.5], atol=1e-15)


def test_an_absent_part_is_not_waited_for():
    # Upwards the first column is cheapest, but its part that is needed is absent.
    start = Start("tied_weights", 2.0, weights=(np.array([1.0, 1.0]), np.array([0.0, 1.0])))
    found = reference.rich_limit(*exact([[3.0, 1.0]], [-1.0]), start)
    assert_allclose(rounded(found), [0.0, -1.0], atol=1e-15)


def test_what_rests_at_the_kernel_end_is_waited_for():
    start = Start("tied", 2.0, scale=1.0, weights=(np.array([1.0, 1.0, 1e300, 1e300]),))
    blocks = [[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 1.0, 2.0]]
    found = reference.rich_limit(*exact(blocks, [1.0, 1.0]), start)
    assert_allclose(rounded(found), [0.0, 0.5, 0.0, 0.5], atol=1e-15)


def test_the_kernel_end_joins_the_path():
    scale = 1e12  # (w / scale^3)^2 is 1e-72: either way will do
    start = Start("tied", 3.0, scale=scale, weights=(np.array([1.0, 2.0, 3.0]),))
    stiffness = (scale * np.array([1.0, 2.0, 3.0])) ** 4.0
    found = rounded(reference.limit(*exact(X, Y), start))
    assert_allclose(
        found, stiffness * (X.T @ np.linalg.solve((X * stiffness) @ X.T, Y)), rtol=1e-13
    )


# --- exact data, and the proof -------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_nonnegative_fit_is_that_of_scipy(seed):
    rng = np.random.default_rng(seed)
    A = rng.integers(-3, 4, (4, 6)).astype(float)
    y = rng.integers(-5, 6, 4).astype(float)
    _, distance = scipy.optimize.nnls(A, y)
    columns = [exact_data.rational_vector(column) for column in A.T]
    fit = exact_data.nonnegative_fit([], columns, exact_data.rational_vector(y))
    assert all(value >= 0 for value in fit.coefficients)
    squares = sum((r * r for r in fit.residual), fmpq(0))
    assert_allclose((int(squares.p) / int(squares.q)) ** 0.5, distance, atol=1e-12)


def test_a_coordinate_forced_to_its_boundary_is_exactly_zero():
    # w1 >= 0 and w2 >= 0 with w1 + w2 = 0 after the projection of y = -1.
    start = Start("tied_weights", 2.0, weights=(np.array([1.0, 2.0]), np.zeros(2)))
    found = reference.limit(*exact([[1.0, 1.0]], [-1.0]), start)
    assert rounded(found).tolist() == [0.0, 0.0]
    assert not found.in_range


def test_the_proof_covers_the_error_of_a_poor_dual():
    with ctx.workdps(reference.DIGITS):
        rows, y = exact(X, Y)
        target = arb_mat(2, 1, [arb(value) for value in y])
        logs = [arb(-6), arb(-5), arb(-4)]
        path = Path(arb_mat(rows), target, Exponentials(logs, logs))
        u, dual = path.start(arb(0), unbiased=True)
        good = proved(path, *path.follow(u, dual, arb(0), settle=False))
        end = path.follow(u, dual, arb(0), settle=False)[1]
        path.correct = lambda u, dual, goal, most: (dual, 1)
        poor = proved(path, arb(0), (end * arb("1.001")).mid())
        distance = sum((a - b) ** 2 for a, b in zip(good.w, poor.w, strict=True)).sqrt()
    assert good.error < 1e-25
    assert distance < poor.error
    assert distance > 1e-12
