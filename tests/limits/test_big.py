"""Limits on big X, against the dense solver on the same numbers."""

import numpy as np
import pytest
import scipy.fft
import scipy.sparse
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import flowbias as fb
from flowbias import designs
from flowbias.designs.dense import DenseDesign
from flowbias.designs.sparse import SparseDesign
from flowbias.limits.blocks import newton as block_newton
from flowbias.limits.blocks import progress as block_progress
from flowbias.problem import InputError
from tests.limits.big_data import AGREE, KINDS, WITH_ENTRIES, assert_same, data, small_blocks

__all__ = ["small_blocks"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("depth", "scale"),
    [
        (2, 10.0),
        (2, 1.0),
        (2, 0.1),
        (2, 1e-3),
        (2, 1e-10),
        (3, 0.1),
        (3, 1e-3),
        (5, 0.1),
        (2.5, 0.01),
    ],
)
def test_same_limit_as_the_dense_solver(kind, depth, scale):
    X, y = data(0)
    model = fb.DiagonalNet(depth=depth, scale=scale)
    wanted = fb.limit(model, X, y)
    found = fb.limit(model, KINDS[kind](X), y)
    assert_same(found, wanted)
    assert found.route.startswith("dual Newton over blocks")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "model",
    [
        fb.UntiedDiagonalNet(scale=0.1, shape=0.7),
        fb.DistancePotential(scale=0.3),
        fb.L2(2.0),
        fb.DiagonalNet(2, 0.1, w0=np.linspace(0.5, 2.0, 100)),
        fb.DiagonalNet(3, 0.1, w0=np.linspace(0.5, 2.0, 100)),
        fb.DiagonalNet.from_weights(
            np.linspace(0.1, 0.2, 100), np.linspace(0.3, 0.1, 100), depth=2
        ),
        fb.DiagonalNet.from_weights(
            np.linspace(0.1, 0.2, 100), np.linspace(0.3, 0.1, 100), depth=3
        ),
    ],
    ids=lambda model: repr(model)[:40],
)
def test_every_separable_potential(kind, model):
    X, y = data(1)
    assert_same(fb.limit(model, KINDS[kind](X), y), fb.limit(model, X, y))


class Unbounded(fb.Hypentropy):
    """A potential that knows no bound on its curvature, as a user's may not."""

    def hess_growth(self, z, radius):
        return np.full(np.broadcast_shapes(np.shape(z), np.shape(radius)), np.inf)


@pytest.mark.parametrize("scale", [1.0, 1e-2, 1e-4])
def test_a_potential_without_a_bound_on_its_curvature(scale):
    X, y = data(1)
    found = fb.limit(Unbounded(scale), DenseDesign(X), y)
    assert_same(found, fb.limit(fb.Hypentropy(scale), X, y))
    assert found.stats.steps < 40
    assert found.certificate.error_bound == np.inf


@pytest.mark.parametrize("kind", KINDS)
def test_min_norm_and_path(kind):
    X, y = data(2)
    assert_same(fb.min_norm(KINDS[kind](X), y), fb.min_norm(X, y))
    model, scales = fb.DiagonalNet(2, 1.0), np.linspace(1.0, -8.0, 6)
    found = fb.limit_path(model, KINDS[kind](X), y, log_scales=scales)
    wanted = fb.limit_path(model, X, y, log_scales=scales)
    assert found.certified
    assert_allclose(found.w, wanted.w, atol=AGREE)


def test_a_path_saves_factorizations():
    X, y = data(2)
    model, scales = fb.DiagonalNet(2, 1.0), np.linspace(-4.0, -8.0, 12)
    design = DenseDesign(X)
    path = fb.limit_path(model, design, y, log_scales=scales)
    alone = sum(fb.limit(model.at_log_scale(s), design, y).stats.factorizations for s in scales)
    assert path.stats.factorizations < 0.6 * alone


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 8),
    extra=st.integers(0, 30),
    repeated=st.integers(0, 3),
    empty=st.integers(0, 5),
    consistent=st.booleans(),
    size=st.sampled_from([1e-100, 1e-8, 1.0, 1e8, 1e100]),
    kind=st.sampled_from(WITH_ENTRIES[::2]),
    scale=st.sampled_from([1.0, 1e-2, 1e-4]),
)
@example(0, 3, 0, 0, 0, True, 1.0, "dense", 1.0)
@example(0, 4, 10, 3, 4, False, 1.0, "sparse", 1e-2)
def test_awkward_rows_and_columns(seed, n, extra, repeated, empty, consistent, size, kind, scale):
    """Repeated rows, rows and columns of zeros, rows of all sizes, y in the range or not."""
    rng = np.random.default_rng(seed)
    d = n + extra
    X = rng.standard_normal((n, d))
    X[:, rng.permutation(d)[: min(empty, extra)]] = 0.0
    if empty:
        X[rng.integers(n)] = 0.0 if n > 1 else 1.0
    X = np.vstack([X, X[rng.integers(n, size=repeated)]]) * 10.0 ** rng.uniform(
        -3, 3, (n + repeated, 1)
    )
    y = X @ rng.standard_normal(d)
    if not consistent:
        y = y + rng.standard_normal(len(y)) * np.abs(y).max()
    # The size goes to X: the potential has a size of its own for w.
    X, y = size * X, size * y
    if not X.any():
        return
    model = fb.DiagonalNet(2, scale)
    wanted = fb.limit(model, X, y, throw=False)
    found = fb.limit(model, KINDS[kind](X), y, throw=False)
    if not wanted.certificate.ok:
        return
    assert found.status is wanted.status
    assert_allclose(found.w, wanted.w, atol=1e-8 * np.abs(wanted.w).max())


def test_the_last_digits_are_found_in_the_predictor():
    """Depth 3 at a small scale: an ulp of the dual is many of w, and w is corrected for it."""
    X, y = data(0)
    model = fb.DiagonalNet(3, 1e-5)
    found = fb.limit(model, DenseDesign(X), y)
    assert found.certificate.feasibility < 1e-13
    # What w(z) alone would leave.
    plain = model.potential.grad_dual(X.T @ found.dual)
    assert np.abs(X @ plain - y).max() > 1e-12


def test_a_start_outside_the_domain_is_left():
    """Depth 3: the dual of one scale is outside the domain of a much larger one."""
    X, y = data(0)
    model, scales = fb.DiagonalNet(3, 1.0), [-4.0, -3.9, 1.0]
    path = fb.limit_path(model, DenseDesign(X), y, log_scales=scales)
    for solution, log_scale in zip(path, scales, strict=True):
        assert_allclose(solution.w, fb.limit(model.at_log_scale(log_scale), X, y).w, atol=AGREE)


def test_an_operator_is_solved_in_the_units_of_its_certificate():
    """Rows of sizes 1e-2 to 1e2, with outputs of even size: y alone is the unit of feasibility."""
    X, y = data(22)
    X = X * np.geomspace(1e2, 1e-2, 20)[:, None]
    for seed in range(8):
        outputs = 1e-2 * np.random.default_rng(seed).permutation(y)
        found = fb.limit(fb.DiagonalNet(2, 0.1), KINDS["operator"](X), outputs)
        assert found.certificate.feasibility < 1e-12


def test_rows_given_twice_with_opposite_outputs():
    X, y = data(3)
    doubled, opposed = np.vstack([X, X]), np.concatenate([y, -y])
    for kind in WITH_ENTRIES:
        found = fb.limit(fb.DiagonalNet(2, 0.1), KINDS[kind](doubled), opposed)
        assert found.status is fb.Status.PROJECTED
        assert not found.w.any()


def test_nearly_dependent_rows_are_an_error():
    X, y = data(4)
    close = np.vstack([X, X[:1] + 1e-9 * np.random.default_rng(0).standard_normal(X.shape[1])])
    model = fb.DiagonalNet(2, 1.0)
    # Also where both rows have the same output: the limit of one of them alone fits y to 1e-11
    # and is 12 percent away from the limit.
    for output in (y[0] + 1.0, y[0]):
        with pytest.raises(InputError, match="rows of a dense X must be independent"):
            fb.limit(model, DenseDesign(close), np.append(y, output))


def test_nearly_dependent_rows_beside_repeated_ones_are_an_error():
    # The mean of the two outputs is what can be fitted, but rounding hides it.
    row, other = np.random.default_rng(4).standard_normal((2, 4))
    X = np.array([row, -0.25 * row + 5e-8 * other, row])
    with pytest.raises(InputError, match="rows of a sparse X must be independent"):
        fb.limit(fb.DiagonalNet(2, 1.0), KINDS["sparse"](X), [1.0, 2.0, 3.0])


@pytest.mark.parametrize("seed", [0, 12, 16])
def test_rows_that_a_dense_x_tells_apart_are_not_called_dependent(seed):
    # Apart by some units of rounding: the dense limit fits both outputs.
    rng = np.random.default_rng(seed)
    row = rng.standard_normal(4)
    X = np.array([row, 3.03 * row + 1e-14 * rng.standard_normal(4)])
    with pytest.raises(InputError, match="rows of a sparse X must be independent"):
        fb.limit(fb.DiagonalNet(2, 1.0), KINDS["sparse"](X), rng.standard_normal(2))


def test_outputs_of_repeated_rows_are_averaged_to_rounding():
    row, other = np.random.default_rng(4).standard_normal((2, 4))
    X = np.array([row, -0.25 * row + 2e-6 * other, row])
    found = fb.limit(fb.DiagonalNet(2, 1.0), KINDS["sparse"](X), [1.0, 2.0, 3.0])
    # Rounding of X, amplified by its condition number, 1e6.
    assert_allclose(X @ found.w, [2.0, 2.0, 2.0], rtol=1e-9)


@pytest.mark.parametrize("in_range", [True, False])
@pytest.mark.parametrize("condition", [1e3, 1e5, 1e6])
def test_repeated_rows_among_ill_conditioned_ones(condition, in_range):
    rng = np.random.default_rng(int(np.log10(condition)))
    left, _ = np.linalg.qr(rng.standard_normal((6, 6)))
    right, _ = np.linalg.qr(rng.standard_normal((40, 6)))
    rows = left @ np.diag(np.geomspace(1.0, 1.0 / condition, 6)) @ right.T
    X = np.vstack([rows, rows[:2], rows[1] + rows[2], np.zeros(40)])
    y = X @ right @ rng.standard_normal(6) if in_range else rng.standard_normal(len(X))
    model = fb.DiagonalNet(2, 0.3)
    wanted = fb.limit(model, X, y, tol=1e-8)
    # Rounded to float32 the rows would not repeat each other any more.
    for kind in ("dense", "sparse", "operator"):
        found = fb.limit(model, KINDS[kind](X), y, tol=1e-8)
        assert found.status is wanted.status
        # Rounding of X, amplified by its condition number.
        away = np.linalg.norm(found.w - wanted.w) / np.linalg.norm(wanted.w)
        assert away < 1e-14 * condition


def test_no_outputs_at_all():
    X, _ = data(5)
    for kind in KINDS:
        assert not fb.limit(fb.DiagonalNet(2, 0.1), KINDS[kind](X), np.zeros(20)).w.any()


def test_more_samples_than_features():
    X, y = data(6, n=40, d=15)
    model = fb.DiagonalNet(2, 0.3)
    for kind in KINDS:
        assert_same(fb.limit(model, KINDS[kind](X), y), fb.limit(model, X, y))


def test_float32_is_solved_in_double_precision():
    rng = np.random.default_rng(7)
    X = rng.standard_normal((15, 200)).astype(np.float32)
    y = rng.standard_normal(15)
    found = fb.limit(fb.DiagonalNet(2, 1e-2), DenseDesign(X), y)
    # Residual in exact arithmetic of the float32 entries: float32 products would leave 1e-7.
    assert np.abs(X.astype(float) @ found.w - y).max() < 1e-13
    assert found.w.dtype == np.float64


def test_matrix_free(monkeypatch):
    """A subsampled cosine transform: no entries anywhere, and the certificate holds."""
    d, rng = 512, np.random.default_rng(8)
    kept = np.sort(rng.choice(d, 60, replace=False))

    def adjoint(u):
        full = np.zeros(d)
        full[kept] = u.ravel()
        return scipy.fft.idct(full, norm="ortho")

    X = LinearOperator(
        (60, d),
        matvec=lambda v: scipy.fft.dct(v.ravel(), norm="ortho")[kept],
        rmatvec=adjoint,
        dtype=float,
    )
    w = np.zeros(d)
    w[rng.choice(d, 5, replace=False)] = rng.standard_normal(5)
    rows = X @ np.eye(d)
    for scale in (1.0, 1e-3, 1e-8):
        model = fb.DiagonalNet(2, scale)
        assert_same(fb.limit(model, X, X @ w), fb.limit(model, rows, rows @ w))


def test_conjugate_gradients_are_preconditioned():
    """Badly conditioned rows and a small scale: few iterations per step, few matrices formed."""
    X, y = data(9, n=60, d=300)
    X = X @ np.diag(np.geomspace(1.0, 1e-3, 300))
    calls = []

    def counted(u):
        calls.append(1)
        return X.T @ u

    operator = LinearOperator(X.shape, matvec=lambda v: X @ v, rmatvec=counted, dtype=float)
    solution = fb.limit(fb.DiagonalNet(2, 1e-6), operator, y)
    assert solution.certificate.ok
    # Measured: about 470. With the first preconditioner for good 1000, with none at all 2100.
    assert len(calls) < 700


def test_what_is_not_certified_says_so(monkeypatch):
    X, y = data(14)
    monkeypatch.setattr(block_newton, "MAX_STEPS", 3)
    with pytest.raises(fb.SolveError, match="not certified"):
        fb.limit(fb.DiagonalNet(2, 1e-3), DenseDesign(X), y)
    found = fb.limit(fb.DiagonalNet(2, 1e-3), DenseDesign(X), y, throw=False)
    assert found.status is fb.Status.STALLED


def test_big_input_reaches_the_solver_by_itself(monkeypatch):
    X, y = data(15)
    monkeypatch.setattr(designs, "SMALL", 99)
    wanted = fb.limit(fb.DiagonalNet(2, 0.1), X, y)
    assert wanted.route == "dual Newton" or "interior" in wanted.route
    for big in (scipy.sparse.csr_matrix(X), scipy.sparse.coo_array(X), X.astype(np.float32)):
        assert_same(fb.limit(fb.DiagonalNet(2, 0.1), big, y), wanted)


def test_calls_that_need_an_array_say_what_to_do(monkeypatch):
    X, y = data(16)
    monkeypatch.setattr(designs, "SMALL", 99)
    model = fb.DiagonalNet(2, 0.1)
    calls = (
        fb.basis_pursuit,
        lambda X, y: fb.rich_limit(model, X, y),
        lambda X, y: fb.flow(model, X, y),
    )
    inputs = {"toarray": scipy.sparse.csr_array(X), "np.eye": aslinearoperator(X)}
    for call in calls:
        for fix, big in inputs.items():
            with pytest.raises(
                InputError, match=rf"X: must be an array in memory.*fb.limit.*{fix}"
            ):
                call(big, y)
        # What is an array already is simply used.
        call(X.astype(np.float32), y)
    with pytest.raises(InputError, match="must be an array in memory"):
        fb.limit(fb.LinearNet.gaussian(100, 1, width=5, scale=0.1, rng=0), inputs["toarray"], y)


@pytest.mark.parametrize("kind", KINDS)
def test_bad_input(kind):
    X, y = data(17)
    make = KINDS[kind]
    with pytest.raises(InputError, match="y: must have one entry per row of X"):
        fb.limit(fb.DiagonalNet(2, 0.1), make(X), y[:-1])
    with pytest.raises(InputError, match="y: must be finite"):
        fb.limit(fb.DiagonalNet(2, 0.1), make(X), y * np.nan)
    with pytest.raises(InputError, match="X: must have one column per coordinate"):
        fb.limit(fb.DiagonalNet(2, 0.1, w0=np.ones(7)), make(X), y)
    with pytest.raises(InputError, match="tol: must be a positive number"):
        fb.limit(fb.DiagonalNet(2, 0.1), make(X), y, tol=0.0)
    with pytest.raises(InputError, match="X: must have a nonzero entry"):
        fb.limit(fb.DiagonalNet(2, 0.1), make(0.0 * X), y)
    one_sided = fb.DiagonalNet.from_weights(np.ones(100), np.r_[0.0, np.ones(99)], depth=2)
    with pytest.raises(InputError, match=r"both signs open.*1 coordinates closed"):
        fb.limit(one_sided, make(X), y)
    with pytest.raises(InputError, match="sensitivity: needs d x n numbers"):
        fb.limit(fb.DiagonalNet(2, 0.1), make(X), y).sensitivity()


def test_an_operator_that_returns_nan_is_named():
    X, y = data(18)
    broken = LinearOperator(
        X.shape, matvec=lambda v: X @ v * np.nan, rmatvec=lambda u: X.T @ u, dtype=float
    )
    with pytest.raises(InputError, match="X: must be finite"):
        fb.limit(fb.DiagonalNet(2, 0.1), broken, y)


def test_operators_of_any_magnitude():
    X, y = data(18)
    model = fb.DiagonalNet(2, 0.1)
    wanted = fb.limit(model, X, y)
    for size in (1e-170, 1e-100, 1e100, 1e160):
        found = fb.limit(model, aslinearoperator(size * X), size * y)
        assert_allclose(found.w, wanted.w, rtol=0, atol=1e-9 * np.abs(wanted.w).max())
    # Rows of very different magnitudes.
    sizes = np.geomspace(1e-100, 1e100, len(X))
    found = fb.limit(model, aslinearoperator(sizes[:, None] * X), sizes * y, throw=False)
    assert_allclose(found.w, wanted.w, rtol=0, atol=1e-9 * np.abs(wanted.w).max())


@pytest.mark.parametrize("make", [DenseDesign, SparseDesign])
def test_rows_close_to_each_other_that_are_told_apart(make):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((6, 30)), rng.standard_normal(6)
    X[3], y[3] = X[2] + 1e-6 * X[3], y[2] + 0.3e-6
    model = fb.DiagonalNet(2, 0.1)
    found = fb.limit(model, make(scipy.sparse.csc_array(X) if make is SparseDesign else X), y)
    assert_allclose(found.w, fb.limit(model, X, y).w, rtol=0, atol=1e-8)


def test_progress_is_silent_without_a_terminal(capfd):
    X, y = data(19)
    fb.limit(fb.DiagonalNet(2, 0.1), DenseDesign(X), y, progress=True)
    assert capfd.readouterr() == ("", "")


def test_progress_shows_the_gap_on_a_terminal(monkeypatch, capfd):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with block_progress.watching(True, 1e-8) as report:
        for step, gap in enumerate((0.0, 1e-2, 1e-5, 0.0)):
            report(step, gap)
    out, err = capfd.readouterr()
    assert out == ""
    assert "step 3, gap 0.0e+00" in err
