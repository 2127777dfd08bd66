"""The certificate: right in 50 digits, wrong answers refused, and a bound that bounds."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowbias as fb
from tests.exact import distance, exact_limit

RNG = np.random.default_rng(11)
X, Y = RNG.standard_normal((5, 14)), RNG.standard_normal(5)
MODELS = {
    "depth 2": fb.DiagonalNet(depth=2, scale=0.03),
    "depth 3": fb.DiagonalNet(depth=3, scale=0.2),
    "depth 5": fb.DiagonalNet(depth=5, scale=0.5),
    "untied": fb.UntiedDiagonalNet(scale=0.2, shape=0.8),
    "biased": fb.UntiedDiagonalNet.from_weights(*RNG.standard_normal((4, 14))),
    "biased depth 3": fb.DiagonalNet.from_weights(*np.abs(RNG.standard_normal((2, 14))), depth=3),
}
models = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


def certificate(solution, w=None, dual=None):
    return fb.certify(
        X,
        Y,
        solution.w if w is None else w,
        solution.dual if dual is None else dual,
        solution.potential,
        solution.shift,
    )


@models
def test_recomputed_from_scratch_is_the_same(model):
    solution = fb.limit(model, X, Y)
    assert certificate(solution) == solution.certificate
    assert solution.certificate.ok


@models
def test_wrong_answers_are_refused(model):
    solution = fb.limit(model, X, Y)
    null = np.linalg.svd(X)[2][-1]  # X null = 0: feasible, but not the limit
    for wrong in (solution.w + 1e-6 * null, solution.w * (1 + 1e-6), fb.min_norm(X, Y).w):
        found = certificate(solution, w=wrong)
        assert not found.ok
        assert found.error_bound >= np.linalg.norm(wrong - solution.w) - 1e-12
    assert not certificate(solution, dual=solution.dual * (1 + 1e-6)).ok
    assert not certificate(solution, w=np.full(14, np.nan)).ok


def test_huge_dual_excuses_nothing():
    solution = fb.limit(MODELS["depth 2"], X, Y)
    assert not certificate(solution, dual=1e20 * RNG.standard_normal(5)).ok


def tied_in_mpmath(depth, scale):
    """(Q, its gradient, Q*) per coordinate, straight from the definitions [woodworth2020]."""
    a, k = mp.mpf(scale), mp.mpf(depth) / (depth - 2) if depth > 2 else None

    def h(z):
        return (1 - z) ** -k - (1 + z) ** -k

    def grad(w):
        if depth == 2:
            return mp.asinh(w / (2 * a**2))
        ratio = abs(w) / a**depth
        # In t = atanh the logarithm of h is nearly linear, so the secant method needs no bracket.
        t = mp.findroot(lambda t: mp.log(h(mp.tanh(t)) / ratio), mp.log1p(ratio) / (2 * k))
        return mp.sign(w) * a ** (2 - depth) * mp.tanh(t)

    def conjugate(z):
        if depth == 2:
            return 2 * a**2 * (mp.cosh(z) - 1)
        x, order = z * a ** (depth - 2), k - 1
        return a**2 * ((1 - x) ** -order + (1 + x) ** -order - 2) / order

    def value(w):
        z = grad(w)
        return z * w - conjugate(z)

    return value, grad, conjugate


@pytest.mark.parametrize(("depth", "scale"), [(2, 0.03), (3, 0.2), (5, 0.5)])
def test_measures_in_fifty_digits(depth, scale):
    """Feasibility, stationarity and gap once more, from the definitions, in mpmath."""
    model = fb.DiagonalNet(depth=depth, scale=scale)
    solution = fb.limit(model, X, Y)
    found = solution.certificate
    with mp.workdps(50):
        value, grad, conjugate = tied_in_mpmath(depth, scale)
        w, nu = ([mp.mpf(v) for v in array] for array in (solution.w, solution.dual))
        misfit = [mp.fdot(map(mp.mpf, row), w) - mp.mpf(t) for row, t in zip(X, Y, strict=True)]
        z = [mp.fdot(map(mp.mpf, column), nu) for column in X.T]
        size = np.linalg.norm(Y) + np.linalg.norm(np.abs(X) @ np.abs(solution.w))
        feasibility = mp.norm(misfit) / size
        unit = max(1, *(abs(v) for v in z))
        stationarity = max(abs(grad(a) - b) for a, b in zip(w, z, strict=True)) / unit
        total = mp.fsum(map(value, w))
        gap = abs(total + mp.fsum(map(conjugate, z)) - mp.fdot(nu, map(mp.mpf, Y)))
        gap /= 1 + abs(total)
        error = distance(solution.w, exact_limit(model, X, Y, solution.dual))
    # The measures in doubles may be off by the rounding of what they sum: a few eps.
    assert abs(feasibility - found.feasibility) < 1e-15
    assert abs(stationarity - found.stationarity) < 1e-14
    assert abs(gap - found.gap) < 1e-14
    assert error <= found.error_bound


PROBLEMS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "n": st.integers(1, 5),
        "extra": st.integers(0, 10),
        "log10_scale": st.floats(-8.0, 1.0),
        "kind": st.sampled_from(["tied-2", "tied-3", "tied-5", "untied", "biased", "nonuniform"]),
    }
)


def random_model(kind, log10_scale, d, rng):
    scale = 10.0**log10_scale
    return {
        "tied-2": lambda: fb.DiagonalNet(depth=2, scale=scale),
        "tied-3": lambda: fb.DiagonalNet(depth=3, scale=scale ** (2 / 3)),
        "tied-5": lambda: fb.DiagonalNet(depth=5, scale=scale ** (2 / 5)),
        "untied": lambda: fb.UntiedDiagonalNet(scale=scale, shape=rng.uniform(-0.99, 0.99)),
        "biased": lambda: fb.UntiedDiagonalNet.from_weights(*rng.standard_normal((4, d))),
        "nonuniform": lambda: fb.DiagonalNet(
            depth=3, scale=scale ** (2 / 3), w0=rng.uniform(0.3, 3, d)
        ),
    }[kind]()


@given(PROBLEMS)
def test_error_bound_is_never_below_the_error(case):
    rng = np.random.default_rng(case["seed"])
    n, d = case["n"], case["n"] + case["extra"]
    A, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    model = random_model(case["kind"], case["log10_scale"], d, rng)
    solution = fb.limit(model, A, y)
    exact = exact_limit(model, A, y, solution.dual)
    error = distance(solution.w, exact)
    assert solution.certificate.error_bound >= error


def test_error_bound_is_not_far_above_the_error():
    """200 random problems: at most 100 times too large in the median."""
    rng = np.random.default_rng(0)
    kinds = ["tied-2", "tied-3", "tied-5", "untied", "biased"]
    ratios = []
    for trial in range(200):
        n = int(rng.integers(1, 5))
        d = n + int(rng.integers(0, 8))
        A, y = rng.standard_normal((n, d)), rng.standard_normal(n)
        model = random_model(kinds[trial % len(kinds)], rng.uniform(-8, 1), d, rng)
        solution = fb.limit(model, A, y)
        exact = exact_limit(model, A, y, solution.dual, dps=30)
        error = distance(solution.w, exact)
        assert solution.certificate.error_bound >= error
        ratios.append(solution.certificate.error_bound / max(error, 1e-300))
    assert np.median(ratios) <= 100.0
