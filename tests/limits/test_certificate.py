"""The certificate: right in 50 digits, wrong answers refused, and a bound that bounds."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowbias as fb
from tests.exact import exact_limit

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


def distance(exact, w):
    """||exact - w||_2, the difference taken in mpmath."""
    return float(mp.sqrt(mp.fsum((a - mp.mpf(b)) ** 2 for a, b in zip(exact, w, strict=True))))


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


@pytest.mark.parametrize("name", ["depth 2", "depth 3", "depth 5", "untied"])
def test_measures_in_fifty_digits(name):
    """Feasibility, stationarity and gap once more, from the definitions, in mpmath."""
    solution = fb.limit(MODELS[name], X, Y)
    found = solution.certificate
    with mp.workdps(50):
        exact = exact_limit(MODELS[name], X, Y, solution.dual)
        residual = [mp.fsum(mp.mpf(a) * b for a, b in zip(row, exact, strict=True)) for row in X]
        assert max(abs(r - mp.mpf(t)) for r, t in zip(residual, Y, strict=True)) < mp.mpf("1e-45")
        error = distance(exact, solution.w)
        assert error <= found.error_bound
        misfit = X.astype(object) @ np.array([mp.mpf(v) for v in solution.w]) - Y
        size = np.linalg.norm(Y) + np.linalg.norm(np.abs(X) @ np.abs(solution.w))
        feasibility = mp.sqrt(mp.fsum(m**2 for m in misfit)) / size
        # The double measure may be off by the rounding of a dot product, a few eps.
        assert abs(feasibility - found.feasibility) < 1e-15


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
    error = distance(exact, solution.w)
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
        error = distance(exact, solution.w)
        assert solution.certificate.error_bound >= error
        ratios.append(solution.certificate.error_bound / max(error, 1e-300))
    assert np.median(ratios) <= 100.0
