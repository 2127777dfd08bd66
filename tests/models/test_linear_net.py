"""Linear networks: their starts, their Gram matrices, and what the flow conserves."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.integrate
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.flows.loss import loss_constant
from flowbias.matrix_problems.regression import MatrixRegression
from flowbias.models import Imbalance, LinearNet, NarrowWarning
from flowbias.potentials import Provides
from flowbias.problem import InputError

N, D, M, RANK = 4, 9, 2, 4


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, D)), rng.standard_normal((N, M))


def weights(width, seed=1, d=D, m=M):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((d, width)), rng.standard_normal((m, width))


def descend(Z, problem, d, steps=40, step=0.01):
    """Gradient descent on the rows [U; V]: the products on the way."""
    products = []
    for _ in range(steps):
        product = Z[:d] @ Z[d:].T
        products.append(product)
        R = problem.adjoint(problem.measure(product) - problem.target)
        Z = Z - step * np.vstack([R @ Z[d:], R.T @ Z[:d]])
    return np.stack(products)


def follow(net, problem, t):
    """The weights at time t, by integration in parameter space."""
    d = net.shape[0]

    def slope(_, flat):
        Z = flat.reshape(-1, net.width)
        R = problem.adjoint(problem.measure(Z[:d] @ Z[d:].T) - problem.target)
        return -np.vstack([R @ Z[d:], R.T @ Z[:d]]).ravel()

    Z0 = np.vstack(net.factors).ravel()
    run = scipy.integrate.solve_ivp(slope, (0.0, t), Z0, method="DOP853", rtol=1e-12, atol=1e-13)
    return run.y[:, -1].reshape(-1, net.width)


# --- the Gram matrix ---------------------------------------------------------------------------


@pytest.mark.parametrize("width", [2, 5, 11, 30])
def test_from_weights(width):
    U, V = weights(width)
    net = LinearNet(U, V)
    Z = np.vstack([U, V])
    assert (net.shape, net.width) == ((D, M), width)
    assert net.provides == {Provides.GRAM, Provides.FACTORS}
    assert_allclose(net.gram, Z @ Z.T, rtol=1e-13, atol=1e-13)
    assert_allclose(net.gram, net.gram.T, rtol=0)
    assert_allclose(net.product, U @ V.T, rtol=1e-13, atol=1e-14)
    assert net.root.shape == (D + M, min(width, D + M))
    assert_allclose(net.root @ net.root.T, net.gram, rtol=1e-12, atol=1e-12)
    U[...] = 0.0
    assert_allclose(net.factors.V, V)
    assert net.factors.U.any()


def test_a_narrow_root_has_the_products_of_the_weights(data):
    problem = MatrixRegression(*data)
    U, V = weights(30)
    net = LinearNet(0.3 * U, 0.3 * V)
    wide = descend(np.vstack(net.factors), problem, D)
    assert_allclose(descend(net.root, problem, D), wide, rtol=1e-11, atol=1e-11)
    assert np.ptp(wide, axis=0).max() > 0.1  # something moved


# --- Gaussian starts ---------------------------------------------------------------------------


def test_weights_are_kept_where_they_are_few():
    kept = LinearNet.gaussian(D, M, width=50, scale=0.1, rng=0)
    drawn = LinearNet.gaussian(D, M, width=10**6, scale=0.1, rng=0)
    assert kept.factors is not None
    assert (drawn.factors, drawn.provides) == (None, {Provides.GRAM})
    asked = LinearNet.gaussian(D, M, width=50, scale=0.1, rng=0, keep_weights=False)
    assert asked.factors is None
    # Narrower than the Gram matrix is large: weights are the smaller of the two.
    assert LinearNet.gaussian(1500, 1, width=1200, scale=0.1, rng=0).factors is not None


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("width", [3, 60])
def test_layers_have_their_own_scales(keep, width):
    rng = np.random.default_rng(5)
    u, v, draws = 0.5, 0.02, 400
    nets = [
        LinearNet.gaussian(3, M, width=width, scale_u=u, scale_v=v, rng=rng, keep_weights=keep)
        for _ in range(draws)
    ]
    grams = np.stack([net.gram for net in nets])
    scales = np.repeat([u, v], [3, M])
    standard = grams / np.outer(scales, scales) / width
    spread = np.sqrt((1.0 + np.eye(3 + M)) / width / draws)
    assert np.abs((standard.mean(axis=0) - np.eye(3 + M)) / spread).max() < 5.0
    assert_allclose(standard[:, 0, -1].var() * width, 1.0, rtol=0.6)


def test_one_scale_serves_both_layers_unless_a_layer_has_its_own():
    def sizes(**scales):
        net = LinearNet.gaussian(3, M, width=10**9, rng=0, **scales)
        return np.sqrt(np.diag(net.gram)[[0, -1]] / 10**9)

    assert_allclose(sizes(scale=0.3), [0.3, 0.3], rtol=1e-3)
    assert_allclose(sizes(scale=0.3, scale_v=0.1), [0.3, 0.1], rtol=1e-3)
    assert_allclose(sizes(scale_u=0.2, scale_v=0.0), [0.2, 0.0], rtol=1e-3)


def test_the_same_seed_gives_the_same_start():
    first, second = (LinearNet.gaussian(D, M, width=10**8, scale=1.0, rng=3) for _ in range(2))
    assert_allclose(first.gram, second.gram, rtol=0)
    other = LinearNet.gaussian(D, M, width=10**8, scale=1.0, rng=4)
    assert np.abs(first.gram - other.gram).max() > 0


@pytest.mark.parametrize("width", [20, 10**3, 10**6, 10**9])
def test_xavier_products_are_as_large_at_any_width(width):
    # E ||U V^T||_F^2 = d m width (m width)^-1 = d: a mean over d m products, 40 draws.
    rng = np.random.default_rng(width)
    squares = [
        np.sum(LinearNet.xavier(20, 10, width=width, rng=rng).product ** 2) for _ in range(40)
    ]
    assert_allclose(np.mean(squares), 20.0, rtol=0.15)


# --- balanced starts ---------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "rng"), [(None, None), (2, 0), (7, None), (25, 3), (10**7, 3)])
def test_balanced_on_data(data, width, rng):
    X, _ = data
    product = np.random.default_rng(2).standard_normal((D, M))
    net = LinearNet.balanced(product, X, width=width, rng=rng)
    assert net.width == (M if width is None else width)
    assert_allclose(net.product, product, atol=1e-13)
    assert np.abs(net.imbalance(X).eigenvalues).max() < 1e-13
    assert np.abs(net.imbalance().eigenvalues).max() > 0.1  # only what the data moves is balanced
    if net.factors is not None:
        assert_allclose(net.factors.U @ net.factors.V.T, product, atol=1e-13)
        assert_allclose(net.root @ net.root.T, net.gram, atol=1e-13)


def test_balanced_without_data_and_of_low_rank():
    a, b = np.arange(1.0, 6.0)[:, None], np.array([[2.0, -1.0, 0.5]])
    with pytest.warns(NarrowWarning, match="width: 1 is below"):
        net = LinearNet.balanced(a @ b)
    assert net.width == 1
    assert_allclose(net.product, a @ b, atol=1e-13)
    assert np.abs(net.imbalance().eigenvalues).max() < 1e-13


# --- invariant starts --------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("width", [3, 6, 7, 40])
def test_invariant_start_is_orthogonal(data, width, keep):
    X, _ = data
    net = LinearNet.invariant(X, M, width=width, scale=0.5, rng=0, keep_weights=keep)
    assert (net.shape, net.width) == ((D, M), width)
    assert net.invariance_defect(X) < 1e-14 * np.linalg.norm(net.gram)
    still = np.linalg.norm(MatrixRegression(X, X).spectrum.off_range(net.root[:D]))
    # Rows of U1 and V fill r + m dimensions: U2 has room only beyond them.
    assert (still > 0.1) if width > RANK + M else (still < 1e-14)


def test_both_ways_to_draw_an_invariant_start_have_one_law(data):
    X, _ = data

    def mean_gram(keep, draws=300):
        rng = np.random.default_rng(8)
        return np.mean(
            [
                LinearNet.invariant(
                    X, M, width=12, scale_u=0.5, scale_v=0.2, rng=rng, keep_weights=keep
                ).gram
                for _ in range(draws)
            ],
            axis=0,
        )

    spectrum = MatrixRegression(X, X).spectrum
    seen = spectrum.P1 @ spectrum.P1.T
    expected = np.zeros((D + M, D + M))
    expected[:D, :D] = 0.25 * (12 * seen + (12 - RANK - M) * (np.eye(D) - seen))
    expected[D:, D:] = 0.04 * 12 * np.eye(M)
    # Standard error of an entry: at most 0.25 sqrt(2 * 12 / 300).
    for keep in (True, False):
        assert np.abs(mean_gram(keep) - expected).max() < 5 * 0.25 * np.sqrt(24 / 300)


def test_invariant_start_ends_at_the_min_norm_solution(data):
    problem = MatrixRegression(*data)
    X = problem.X
    distances = {}
    for name, net in {
        "invariant": LinearNet.invariant(X, M, width=20, scale=0.6, rng=0),
        "gaussian": LinearNet.gaussian(D, M, width=20, scale=0.6, rng=0),
    }.items():
        Z = follow(net, problem, t=20.0)
        product = Z[:D] @ Z[D:].T
        assert problem.relative_residual(product) < 1e-10
        distances[name] = np.linalg.norm(product - problem.min_norm)
    assert distances["invariant"] < 1e-9
    assert distances["gaussian"] > 0.1


def test_defect_is_the_overlap_with_what_does_not_move(data):
    X, _ = data
    U, V = weights(13)
    s = MatrixRegression(X, X).spectrum
    U1, U2 = s.P1.T @ U, s.P2.T @ U
    expected = np.linalg.norm(np.vstack([V @ U2.T, U1 @ U2.T]))
    assert_allclose(LinearNet(U, V).invariance_defect(X), expected, rtol=1e-12)


# --- imbalance ---------------------------------------------------------------------------------


def by_definition(U1, V):
    """spread_plus, spread_minus and level from the width x width matrix D."""
    r, m = len(U1), len(V)
    values = np.linalg.eigvalsh(U1.T @ U1 - V.T @ V)[::-1]

    def eigenvalue(ordered, i):
        return max(ordered[i - 1], 0.0) if i <= len(ordered) else 0.0

    plus = [eigenvalue(values, i) for i in (1, r)]
    minus = [eigenvalue(-values[::-1], i) for i in (1, m)]
    return plus[0] - plus[1], minus[0] - minus[1], plus[1] + minus[1]


@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 6),
    m=st.integers(1, 6),
    width=st.integers(1, 15),
    ratio=st.sampled_from([1e-4, 0.3, 1.0, 50.0]),
)
def test_imbalance_is_that_of_the_definition(seed, d, m, width, ratio):
    U, V = weights(width, seed, d, m)
    V = ratio * V
    Z = np.vstack([U, V])
    size = np.linalg.norm(Z) ** 2
    full = np.sort(np.linalg.eigvalsh(U.T @ U - V.T @ V))[::-1]
    imbalance = Imbalance.of_root(Z, d)
    measured = imbalance.spread_plus, imbalance.spread_minus, imbalance.level
    assert_allclose(measured, by_definition(U, V), atol=1e-13 * size)
    assert len(imbalance.eigenvalues) <= min(width, d + m)
    padded = np.zeros(width)
    padded[: len(imbalance.eigenvalues)] = imbalance.eigenvalues
    assert_allclose(np.sort(padded)[::-1], full, atol=1e-13 * size)


def test_imbalance_counts_only_what_the_data_moves(data):
    X, _ = data
    U, V = weights(20)
    net = LinearNet(U, V)
    U1 = MatrixRegression(X, X).spectrum.P1.T @ U
    seen = net.imbalance(X)
    assert_allclose((seen.spread_plus, seen.spread_minus, seen.level), by_definition(U1, V))
    assert len(seen.eigenvalues) == RANK + M
    whole = net.imbalance()
    assert_allclose((whole.spread_plus, whole.spread_minus, whole.level), by_definition(U, V))


def test_imbalance_is_conserved_along_the_flow(data):
    problem = MatrixRegression(*data)
    net = LinearNet.gaussian(D, M, width=6, scale=0.7, rng=2)
    Z = follow(net, problem, t=3.0)
    later = LinearNet(Z[:D], Z[D:])
    assert np.abs(later.product - net.product).max() > 0.1
    for X in (None, problem.X):
        assert_allclose(
            later.imbalance(X).eigenvalues, net.imbalance(X).eigenvalues, rtol=1e-9, atol=1e-9
        )


def test_wide_starts_have_a_level(data):
    # Lemma 11: of the order of width * variance, here with a margin of 10%.
    level = LinearNet.gaussian(D, M, width=10**6, scale=1e-3, rng=0).imbalance(data[0]).level
    assert_allclose(level, 2.0, rtol=0.1)


def test_balanced_weights_of_deficient_rank_keep_their_digits():
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0]
    Z = np.vstack([rotation, rotation])
    assert np.abs(Imbalance.of_root(Z, 6).eigenvalues).max() < 1e-13


# --- bad input ---------------------------------------------------------------------------------

X_WIDE = np.random.default_rng(0).standard_normal((N, D))
GAUSS = {"width": 5, "scale": 0.1, "rng": 0}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LinearNet(np.ones(3), np.ones((2, 3))), r"U: must have 2 dim.*\(d, width\)"),
        (lambda: LinearNet(np.ones((4, 3)), np.ones((3, 2))), r"V: must have .* \(3, .*Pass V\.T"),
        (lambda: LinearNet(np.ones((4, 3)), np.ones((2, 5))), r"V: must have as .* \(3, .*hidden"),
        (lambda: LinearNet([[np.inf]], [[1.0]]), "U: must be finite, got inf"),
        (
            lambda: LinearNet(np.zeros((4, 3)), np.zeros((2, 3))),
            "must not both be zero.*saddle.*scal",
        ),
        (
            lambda: LinearNet([[1e-200]], [[1e-200]]),
            r"largest entry between 1e-150 .* got 1e-200.*Re",
        ),
        (lambda: LinearNet([[1e200]], [[1.0]]), "largest entry between .* got 1e.200"),
        (lambda: LinearNet.gaussian(D, M, **{**GAUSS, "scale": 0.0}), "both be zero.*saddle"),
        (lambda: LinearNet.gaussian(D, M, **{**GAUSS, "scale": -1}), "scale: must be .* got -1"),
        (
            lambda: LinearNet.gaussian(D, M, **GAUSS, scale_v=np.nan),
            "scale_v: must be a finite.* nan",
        ),
        (lambda: LinearNet.gaussian(D, M, width=5, rng=0), "scale: must be given unless scale_u"),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "width": 0}),
            r"width: must be .* got 0\. It",
        ),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "width": 2.5}),
            "width: must be an integer .*2.5",
        ),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "width": "9"}),
            "width: must be an integer .*'9'",
        ),
        (
            # An integer that is no float, and one that Python refuses to print.
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "width": 10**400}),
            "width: must be an integer from 1 to 1e300, got an integer of 1329 bits",
        ),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "width": 10**301}),
            "width: must be an integer from 1 to 1e300",
        ),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "width": 10**5000}),
            "width: must be .* got an integer of 16610 bits",
        ),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "width": np.inf}),
            "width: must be .* got inf",
        ),
        (lambda: LinearNet.gaussian(10**400, M, **GAUSS), "d: must be <= .* integer of 1329 bits"),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "scale": 10**400}),
            "scale: must be a finite .* integer of 1329 bits",
        ),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "width": True}),
            "width: must be .* got True",
        ),
        (
            lambda: LinearNet.gaussian(0, M, **GAUSS),
            "d: must be an integer >= 1, got 0. Pass the num",
        ),
        (lambda: LinearNet.gaussian(D, 1.5, **GAUSS), "m: must be an integer >= 1, got 1.5"),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "rng": "a"}),
            "rng: must be an integer >= 0 or",
        ),
        (
            lambda: LinearNet.balanced(np.ones((D, M)), np.ones((3, 4))),
            "product: must have one row per",
        ),
        (
            lambda: LinearNet.balanced(np.eye(4), width=3),
            r"width: must be at least the rank .*\(4\)",
        ),
        (lambda: LinearNet.balanced(np.zeros((3, 2))), "product: must have .* got rank 0"),
        (
            # Four outputs, but X has rank 2: two directions of the product are V's to carry.
            lambda: LinearNet.balanced(np.eye(4), np.eye(2, 4), width=9),
            "product: must have outputs of its own only where X sees them, got rank 2 .*project",
        ),
        (lambda: LinearNet.invariant(X_WIDE[0], M, **GAUSS), "X: must have 2 dimension"),
        (
            lambda: LinearNet.gaussian(D, M, **GAUSS).imbalance(0.0 * X_WIDE),
            r"X: must have a nonzero entry.*leave X out",
        ),
        (
            lambda: LinearNet.gaussian(D, M, **GAUSS).invariance_defect(0.0 * X_WIDE),
            "X: must have a nonzero entry",
        ),
        (
            lambda: LinearNet.invariant(0.0 * X_WIDE, M, **GAUSS),
            "X: must have a nonzero entry",
        ),
        (
            lambda: LinearNet.balanced(np.ones((D, M)), 0.0 * X_WIDE),
            "X: must have a nonzero entry",
        ),
        (
            lambda: LinearNet.gaussian(3, M, **GAUSS).imbalance(X_WIDE),
            r"X: must have .* \(3\), got 9",
        ),
        (
            lambda: LinearNet.gaussian(3, M, **GAUSS).lifted_problem(
                MatrixRegression(X_WIDE, X_WIDE)
            ),
            r"problem: must measure matrices of the model's shape \(3, 2\), got \(9, 9\)",
        ),
    ],
)
def test_bad_input(build, message):
    with pytest.raises(InputError, match=message):
        build()


@pytest.mark.parametrize("loss", [True, False, 10**400, np.nan, -1.0, "squares"])
def test_a_loss_is_a_name_or_a_positive_number(loss):
    with pytest.raises(InputError, match=r"loss: must be one of 'half', .* got"):
        loss_constant(loss, 5)


@pytest.mark.parametrize(
    "loss", [2, np.float64(2.0), np.float32(2.0), np.int64(2), Fraction(2), "sum"]
)
def test_numbers_of_any_kind_are_losses(loss):
    assert loss_constant(loss, 5) == 2.0


@pytest.mark.parametrize(
    "call",
    [
        lambda net: fb.rich_limit(net, X_WIDE, X_WIDE[:, 0]),
        lambda net: fb.rich_limit(net, MatrixRegression(X_WIDE, X_WIDE[:, :2])),
        lambda net: fb.limit_path(net, X_WIDE, X_WIDE[:, 0], log_scales=[0.0]),
        lambda net: fb.limit_path(net, MatrixRegression(X_WIDE, X_WIDE), log_scales=[0.0]),
    ],
)
def test_calls_that_do_not_fit_a_network_name_those_that_do(call):
    wide = LinearNet.gaussian(D, M, width=10**7, scale=1e-3, rng=0)
    with pytest.raises(InputError, match=r"LinearNet, which provides GRAM\..*fb\.limit, fb\.flow"):
        call(wide)


def test_weights_that_were_not_kept_are_to_be_asked_for(data):
    wide = LinearNet.gaussian(D, M, width=10**6, scale=1e-3, rng=0)
    with pytest.raises(InputError, match=r"must provide FACTORS.*keep_weights=True.*leave out"):
        fb.flow(wide, *data, route="parameter")
    kept = LinearNet.gaussian(D, M, width=100, scale=0.1, rng=0, keep_weights=True)
    assert fb.flow(kept, *data, route="parameter").route == "parameter"


def test_a_whole_number_is_a_width_however_written():
    for width in (10**6, 1e6, np.int64(10**6), np.float64(1e6), np.float32(1e6)):
        assert LinearNet.gaussian(D, M, width=width, scale=0.1, rng=0).width == 10**6


def test_a_narrow_network_says_which_results_no_longer_apply(data):
    with pytest.warns(
        NarrowWarning, match=r"width: 1 is below min\(9, 2\) = 2.*Proposition 1"
    ) as w:
        net = LinearNet.gaussian(D, M, width=1, scale=0.3, rng=0)
    assert w[0].filename == __file__
    assert len(net.notes) == 1
    # As the note says: nothing is left of the bound on the rate.
    imbalance = net.imbalance(data[0])
    assert imbalance.level == 0.0
    assert follow(net, MatrixRegression(*data), t=1.0).shape == (D + M, 1)


def test_a_wide_enough_network_has_no_notes(recwarn):
    assert LinearNet.gaussian(D, M, width=2, scale=0.3, rng=0).notes == ()
    assert not recwarn.list
