"""Limits on big X, against the dense solver on the same numbers."""

import numpy as np
import pytest
import scipy.fft
import scipy.sparse
from numpy.testing import assert_allclose
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import flowbias as fb
from flowbias.designs.dense import DenseDesign
from flowbias.limits.blocks import newton as block_newton
from flowbias.limits.blocks.limit import watching
from tests.limits.big_data import (
    AGREE,
    KINDS,
    assert_same,
    data,
    dense_limit,
    small_blocks,
)

__all__ = ["small_blocks"]


NETS = [
    fb.DiagonalNet(depth=depth, scale=scale)
    for depth, scale in [
        *((2, 10.0), (2, 1.0), (2, 0.1), (2, 1e-3), (2, 1e-10)),
        *((3, 0.1), (3, 1e-3), (5, 0.1), (2.5, 0.01)),
    ]
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", NETS, ids=repr)
def test_same_limit_as_the_dense_solver(kind, model):
    X, y = data(0)
    found = fb.limit(model, KINDS[kind](X), y)
    assert_same(found, dense_limit(model, 0))
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
    assert_same(fb.limit(model, KINDS[kind](X), y), dense_limit(model, 1))


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
    monkeypatch.setattr(block_newton.BlockNewton, "max_steps", 3)
    with pytest.raises(fb.SolveError, match="not certified"):
        fb.limit(fb.DiagonalNet(2, 1e-3), DenseDesign(X), y)
    found = fb.limit(fb.DiagonalNet(2, 1e-3), DenseDesign(X), y, throw=False)
    assert found.status is fb.Status.STALLED


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


def test_progress_is_silent_without_a_terminal(capfd):
    X, y = data(19)
    fb.limit(fb.DiagonalNet(2, 0.1), DenseDesign(X), y, progress=True)
    assert capfd.readouterr() == ("", "")


def test_progress_shows_the_gap_on_a_terminal(monkeypatch, capfd):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("flowbias.ground.progress.BAR_AFTER", 0.0)
    with watching(True, 1e-8) as report:
        for step, gap in enumerate((0.0, 1e-2, 1e-5, 0.0)):
            report(step, gap)
    out, err = capfd.readouterr()
    assert out == ""
    assert "step 3, gap 0.0e+00" in err
