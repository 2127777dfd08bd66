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


@pytest.mark.parametrize("size", [1e8, 1e10, 1e12])
def test_dual_in_the_null_space_excuses_nothing(size):
    """With a duplicated row nu may be arbitrarily long; only its shortest form may count."""
    doubled_X, doubled_y = np.vstack([X, X[:1]]), np.append(Y, Y[0])
    solution = fb.limit(MODELS["depth 2"], doubled_X, doubled_y)
    longer = solution.dual + size * (np.eye(6)[0] - np.eye(6)[5])
    wrong = solution.w + 1e-5 * np.linalg.svd(X)[2][-1]
    assert not fb.certify(doubled_X, doubled_y, wrong, longer, solution.potential).ok


@pytest.mark.parametrize(
    "potential",
    [
        fb.Hypentropy(scale=1e3),
        fb.Hypentropy(scale=1e5),
        fb.DepthPotential(3, scale=1e4),
        fb.L2(1e-12),
    ],
    ids=repr,
)
def test_wrong_answers_at_large_scales_are_refused(potential):
    """There Q and the dual are tiny, and absolute measures would pass anything that fits."""
    solution = fb.limit(potential, X, Y)
    assert solution.certificate.ok
    null = np.linalg.svd(X)[2][-1]
    for wrong in (solution.w + 1e-6 * null, fb.basis_pursuit(X, Y).w):
        assert not certificate(solution, w=wrong).ok
    assert not certificate(solution, w=fb.basis_pursuit(X, Y).w, dual=np.zeros(5)).ok


def test_tiny_outputs_are_judged_by_their_own_size():
    potential = fb.Hypentropy(scale=1.0)
    solution = fb.limit(potential, X, 1e-11 * Y)
    wrong = 1e-11 * fb.basis_pursuit(X, Y).w
    assert solution.certificate.ok
    assert not fb.certify(X, 1e-11 * Y, wrong, solution.dual, potential).ok


def test_nan_is_never_a_perfect_score():
    solution = fb.limit(MODELS["depth 2"], X, Y)
    found = certificate(solution, w=np.full(14, np.nan))
    assert np.isnan(found.feasibility)
    assert np.isnan(found.stationarity)


def test_bound_of_a_vertex_needs_a_proof_of_optimality():
    pursuit = fb.basis_pursuit(X, Y)
    assert pursuit.certificate.error_bound < 1e-11
    other = np.zeros(14)
    other[:5] = np.linalg.solve(X[:, :5], Y)
    found = fb.certify(X, Y, other, pursuit.dual, fb.L1())
    assert found.error_bound >= np.linalg.norm(other - pursuit.w)
    nothing = fb.certify(X, Y, np.zeros(14), np.zeros(5), fb.L1())
    assert nothing.error_bound >= np.linalg.norm(pursuit.w)


def test_shapes_that_do_not_belong_together():
    solution = fb.limit(MODELS["depth 2"], X, Y)
    with pytest.raises(fb.InputError, match=r"w: must have shape \(14,\) .* got \(13,\)"):
        certificate(solution, w=np.ones(13))
    assert fb.certify(
        X.tolist(), Y.tolist(), solution.w.tolist(), solution.dual.tolist(), solution.potential
    ).ok


@pytest.mark.parametrize("condition", [1e4, 1e6, 1e8, 1e10])
def test_error_bound_on_nearly_dependent_rows(condition):
    rng = np.random.default_rng(1)
    for trial in range(10):
        left, right = (np.linalg.qr(rng.standard_normal((k, 4)))[0] for k in (4, 9))
        ill = (left * np.geomspace(1.0, 1.0 / condition, 4)) @ right.T
        model = fb.DiagonalNet(depth=2, scale=10.0 ** rng.uniform(-6, 3))
        y = rng.standard_normal(4) if trial % 2 else ill @ rng.standard_normal(9)
        solution = fb.limit(model, ill, y, throw=False)
        exact = exact_limit(model, ill, y, solution.dual)
        assert solution.certificate.error_bound >= distance(solution.w, exact)


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


def test_zero_is_no_limit_of_nearly_dependent_rows():
    """However badly their range is known, that does not make outputs vanish."""
    X, y = np.diag([1.0, 1e-15]), np.array([1.0, 1e-15])
    assert not fb.certify(X, y, np.zeros(2), np.zeros(2), fb.L2()).ok
