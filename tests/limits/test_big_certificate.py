"""The certificate and the error bound over blocks, against those of the dense data."""

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import aslinearoperator

import flowbias as fb
from flowbias import designs
from flowbias.certificates import certificate
from flowbias.certificates.error_bound import box_bound
from flowbias.designs.dense import ArrayDesign, DenseDesign
from flowbias.designs.linear_operator import OperatorDesign
from flowbias.designs.sparse import SparseDesign
from flowbias.ground.arguments import InputError
from tests.limits.big_data import KINDS, WITH_ENTRIES, data, dense_limit, small_blocks

__all__ = ["small_blocks"]


@pytest.mark.parametrize("kind", WITH_ENTRIES)
@pytest.mark.parametrize(
    "model", [fb.DiagonalNet(2, 1.0), fb.DiagonalNet(2, 1e-3), fb.DiagonalNet(3, 0.05)], ids=repr
)
def test_the_certificate_is_that_of_the_dense_data(kind, model):
    X, y = data(10)
    solution = dense_limit(model, 10)
    wanted = solution.certificate
    design = KINDS[kind](X)
    found = fb.certify(design, y, solution.w, solution.dual, model.potential, model.shift)
    rounding = {"rel": 0.0, "abs": 1e-13}
    assert found.feasibility == pytest.approx(wanted.feasibility, **rounding)
    assert found.stationarity == pytest.approx(wanted.stationarity, **rounding)
    assert found.gap == pytest.approx(wanted.gap, **rounding)
    # The same argument with other sums: the same bound up to its own safety margins.
    assert wanted.error_bound / 2 < found.error_bound < 2 * wanted.error_bound
    # A wrong w, a wrong nu, a wrong y: measured alike.
    for w, nu, outputs in (
        (1.001 * solution.w, solution.dual, y),
        (solution.w, 1.001 * solution.dual, y),
        (solution.w, solution.dual, 1.001 * y),
        (np.roll(solution.w, 1), solution.dual, y),
    ):
        found = fb.certify(design, outputs, w, nu, model.potential, model.shift)
        wanted = fb.certify(X, outputs, w, nu, model.potential, model.shift)
        assert not found.ok
        for name in ("feasibility", "stationarity", "gap"):
            assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-6, abs=1e-13)
        assert found.relative == pytest.approx(wanted.relative, rel=1e-6, abs=1e-13)


def test_the_certificate_of_a_projection():
    X, y = data(11, n=30, d=12)
    model = fb.DiagonalNet(2, 0.5)
    solution = fb.limit(model, X, y)
    assert solution.status is fb.Status.PROJECTED
    for kind in WITH_ENTRIES:
        design = KINDS[kind](X)
        args = (solution.w, solution.dual, model.potential)
        assert fb.certify(design, y, *args).ok
        assert not fb.certify(design, y, 1.01 * solution.w, *args[1:]).ok


def test_the_error_bound_holds():
    """Against a limit solved much closer than the one bounded."""
    X, y = data(12)
    model = fb.DiagonalNet(2, 0.1)
    exact = fb.limit(model, X, y)
    rng = np.random.default_rng(0)
    for size in (1e-12, 1e-8, 1e-5):
        nu = exact.dual * (1 + size * rng.standard_normal(len(y)))
        w = model.potential.grad_dual(X.T @ nu)
        bound = fb.certify(SparseDesign(scipy.sparse.csc_array(X)), y, w, nu, model.potential)
        error = float(np.linalg.norm(w - exact.w))
        assert error <= bound.error_bound + exact.certificate.error_bound
        assert bound.error_bound < 1e3 * error


@pytest.mark.parametrize("times", [1, 2])
def test_a_predictor_that_is_not_finite_certifies_nothing(times):
    X, y = data(10)
    X, y = np.tile(X, (times, 1)), np.tile(y, times)
    solution = fb.limit(fb.DiagonalNet(2, 0.1), X, y)
    for bad in (np.nan, np.inf):
        w = solution.w.copy()
        w[7] = bad
        found = fb.certify(DenseDesign(X), y, w, solution.dual, solution.potential)
        assert not found.ok
        assert np.isnan(found.stationarity)


@pytest.mark.parametrize("size", [1e-6, 1e-4, 1e-3, 1e-2, 0.1])
@pytest.mark.parametrize("scale", [1.0, 0.1, 1e-2])
def test_the_bound_is_that_of_the_dense_data(size, scale):
    """Far from the limit the bend of the potential decides, and there may be no bound."""
    X, y = data(12)
    model = fb.DiagonalNet(2, scale)
    exact = fb.limit(model, X, y)
    nu = exact.dual * (1 + size * np.random.default_rng(1).standard_normal(len(y)))
    w = model.potential.grad_dual(X.T @ nu)
    # Where the box has no bound, those of dense data go on: to the gap, and to balls.
    wanted = box_bound(ArrayDesign(X), y, w, nu, model.potential, 0.0)
    found = fb.certify(DenseDesign(X), y, w, nu, model.potential).error_bound
    # theta comes from a grid of tenfold steps: a small part of the bound where there is one.
    assert found == wanted if wanted == np.inf else 0.9 * wanted < found < 1.5 * wanted
    assert found > np.linalg.norm(w - exact.w) - exact.certificate.error_bound


def test_rounding_of_the_potential_is_counted():
    """Uneven starts at depth 3: the reaches are rounded, and with them every z."""
    X, y = data(12)
    model = fb.DiagonalNet(3, 1e-3, w0=np.linspace(0.5, 2.0, 100))
    exact = fb.limit(model, X, y)
    args = (y, exact.w, exact.dual, model.potential, model.shift)
    found, wanted = fb.certify(DenseDesign(X), *args), fb.certify(X, *args)
    assert 0.9 * wanted.error_bound < found.error_bound < 2 * wanted.error_bound


def test_no_bound_where_dropped_rows_are_not_repetitions():
    """H may be singular for want of slope, or rows merely close: neither proves anything."""
    X, y = data(13)
    close = np.vstack([X, X[:1] + 1e-12 * np.random.default_rng(0).standard_normal(X.shape[1])])
    model = fb.DiagonalNet(2, 1.0)
    alone = fb.limit(model, X, y)
    args = np.append(y, y[0]), alone.w, np.append(alone.dual, 0.0), model.potential, model.shift
    assert fb.certify(DenseDesign(close), *args).error_bound == np.inf
    twice = fb.limit(model, DenseDesign(np.vstack([X, X[:1]])), np.append(y, y[0]))
    assert twice.certificate.error_bound < 1e-12


def test_no_bound_where_it_would_cost_too_much(monkeypatch):
    X, y = data(13)
    monkeypatch.setattr(certificate, "BOUND_WORK", 20 * 20 * 100 - 1)
    solution = fb.limit(fb.DiagonalNet(2, 1.0), DenseDesign(X), y)
    assert solution.certificate.ok
    assert solution.certificate.error_bound == np.inf


def test_certify_takes_what_limit_takes(monkeypatch):
    X, y = data(20)
    model = fb.DiagonalNet(2, 0.1)
    solution = fb.limit(model, X, y)
    args = (y, solution.w, solution.dual, model.potential)
    wanted = fb.certify(X, *args)
    assert fb.certify(scipy.sparse.csr_matrix(X), *args) == wanted
    monkeypatch.setattr(designs, "DENSE_UP_TO", 99)
    for big in (scipy.sparse.csr_matrix(X), X.astype(np.float32), aslinearoperator(X)):
        found = fb.certify(big, *args)
        assert found.ok
        assert found != wanted, "over blocks: equal but for rounding"
        with pytest.raises(InputError, match="w: must have shape"):
            fb.certify(big, y, solution.w[1:], *args[2:])
    # A norm has no blocks of its own: like basis_pursuit it needs an array.
    with pytest.raises(InputError, match="X: must be an array in memory"):
        fb.certify(scipy.sparse.csr_matrix(X), y, solution.w, solution.dual, fb.L1())


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_only_the_gram_matrix_takes_for_dependent_certify_nothing(kind):
    X, y = data(11)
    close = X.copy()
    close[3] = X[2] + 1e-8 * X[3]
    # The limit where rows 2 and 3 are one, with the mean of their outputs.
    merged = np.delete(y, 3)
    merged[2] = (y[2] + y[3]) / 2
    wrong = fb.limit(fb.DiagonalNet(2, 0.1), np.delete(close, 3, axis=0), merged)
    nu = np.insert(wrong.dual, 3, wrong.dual[2] / 2)
    nu[2] /= 2
    assert not fb.certify(close, y, wrong.w, nu, wrong.potential, tol=1e-7).ok
    assert not fb.certify(KINDS[kind](close), y, wrong.w, nu, wrong.potential, tol=1e-7).ok


def test_what_is_certified_may_be_a_list_and_must_be_real():
    X, y = data(12)
    found = fb.limit(fb.DiagonalNet(2, 0.1), X, y)
    for some in (X, DenseDesign(X)):
        given = {"y": list(y), "w": list(found.w), "nu": list(found.dual)}
        assert fb.certify(some, *given.values(), found.potential).ok
        for name in given:
            for bad in (np.asarray(given[name]) * 1j, ["a"] * len(given[name])):
                with pytest.raises(InputError, match=f"{name}: must hold real numbers"):
                    fb.certify(some, *{**given, name: bad}.values(), found.potential)
        with pytest.raises(InputError, match="shift: must be a number or one per feature"):
            fb.certify(some, *given.values(), found.potential, np.zeros(3))


def test_zero_is_no_limit_where_rounding_is_large():
    """Rows over 37 decades: their dependence is known badly, and that excuses nothing."""
    X = np.array([[8.65260321e-21], [-6.73488310e11], [3.11380537e16]])
    y = np.array([1.12829950e80, -8.78228787e111, 4.06040234e116])
    potential = fb.DepthPotential(depth=3, scale=0.3)
    for design in (X, SparseDesign(scipy.sparse.csc_array(X)), OperatorDesign(aslinearoperator(X))):
        assert not fb.certify(design, y, np.zeros(1), np.zeros(3), potential).ok


@pytest.mark.parametrize("kind", WITH_ENTRIES)
def test_an_error_that_is_known_is_judged(kind):
    """(1, 0) passes every other measure, and the limit is (1/2, 1/2)."""
    model, X, y = fb.DiagonalNet(5, 1e-4), np.array([[1.0, 1.0]]), np.array([1.0])
    dual = fb.limit(model, X, y).dual
    wrong = fb.certify(KINDS[kind](X), y, np.array([1.0, 0.0]), dual, model.potential)
    assert max(wrong.feasibility, *wrong.relative) < 1e-10
    assert np.hypot(0.5, 0.5) - 1e-9 < wrong.error_bound < np.inf
    assert not wrong.ok


# Rounded to float32 the rows would not depend on each other any more.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "float32"])
def test_rows_that_rounding_tells_apart_are_told_of(kind):
    """The sum of two rows of other sizes, rounded: to the last digit it is none of theirs."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((3, 6)) * np.array([[1.0], [1e-3], [1.0]])
    X[2] = X[0] + X[1]
    model, y = fb.DiagonalNet(2, 0.1), X @ rng.standard_normal(6)
    for rows, is_told in ((X, True), (np.vstack([X[:2], X[:1]]), False), (X[:2], False)):
        found = fb.limit(model, KINDS[kind](rows), y[: len(rows)] if is_told else rows @ np.ones(6))
        assert (found.distance > 0.0) == (found.certificate.distance > 0.0) == is_told
        assert found.distance < 1e-15
        assert found.status is (fb.Status.PROJECTED if is_told else fb.Status.CERTIFIED)


def test_that_an_error_is_not_bounded_is_said():
    X, y = data(10)
    unknown = "how far w is from the limit is not proved"
    for kind in KINDS:
        found = fb.limit(fb.DiagonalNet(2, 0.1), KINDS[kind](X), y)
        assert (unknown in found.message) == (kind not in WITH_ENTRIES)
