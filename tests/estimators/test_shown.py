"""What estimators show of themselves: tables with names, curves, and the scale they chose."""

import pickle

import numpy as np
import pytest

import flowbias as fb
from flowbias.estimators import (
    ImplicitBiasRegressor,
    ImplicitBiasRegressorCV,
    MinNormRegressor,
    StagesRegressor,
)

X, Y, TRUE = fb.datasets.sparse_regression(n=40, d=200, sparsity=4, noise_var=0.01, rng=0)


def test_the_table_names_and_ranks_coefficients():
    pandas = pytest.importorskip("pandas")
    names = [f"gene {i}" for i in range(200)]
    fitted = ImplicitBiasRegressor(scale=1e-3).fit(pandas.DataFrame(X, columns=names), Y)
    table = fitted.coefficient_table()
    assert len(table) == 201
    order = np.argsort(-np.abs(fitted.coef_))
    assert list(table.names) == [*(names[i] for i in order), "(intercept)"]
    assert table.rows[0] == (names[order[0]], fitted.coef_[order[0]])
    assert table.rows[-1] == ("(intercept)", fitted.intercept_)


def test_the_table_fits_on_a_screen():
    fitted = MinNormRegressor().fit(X, np.c_[Y, -Y])
    lines = repr(fitted.coefficient_table()).splitlines()
    assert len(lines) == 1 + 20 + 1 + 1
    assert lines[0].split() == ["feature", "of", "output", "0", "of", "output", "1"]
    assert lines[-2] == "... 180 more"
    assert "<caption" in fitted.coefficient_table()._repr_html_()


def test_uncertainty_fits_on_a_screen():
    found = ImplicitBiasRegressor(scale=0.1).fit(X, Y).uncertainty(X, Y)
    lines = repr(found).splitlines()
    assert len(lines) == 7
    assert max(map(len, lines)) < 80
    assert "(w_error)" in repr(found)


def test_the_status_is_a_word():
    """A string, so that formats that refuse to run code can keep a fitted estimator."""
    for fitted in (ImplicitBiasRegressor().fit(X, Y), StagesRegressor(n_features=3).fit(X, Y)):
        assert type(pickle.loads(pickle.dumps(fitted)).status_) is str


def test_the_default_scale_is_between_the_regimes():
    """And follows the units of the data."""
    fitted = ImplicitBiasRegressor().fit(X, Y)
    least = MinNormRegressor().fit(X, Y)
    assert fitted.scale_**2 == pytest.approx(1e-4 * np.linalg.norm(least.coef_))
    assert fitted.log_scale_ == pytest.approx(np.log(fitted.scale_))
    # Planted sparse data: no disguise of the least norm, which misses most of them.
    assert np.sum((fitted.coef_ - TRUE) ** 2) < 0.1 * np.sum((least.coef_ - TRUE) ** 2)
    other = ImplicitBiasRegressor().fit(X * 1e3, Y * 10.0)
    np.testing.assert_allclose(100.0 * other.coef_, fitted.coef_, atol=1e-6)
    at_default = ImplicitBiasRegressor(log_scale=fitted.log_scale_).fit(X, Y)
    np.testing.assert_array_equal(at_default.coef_, fitted.coef_)
    assert fitted.leave_one_out(X, Y).shape == (40,)
    deep = ImplicitBiasRegressor(depth=3).fit(X, Y)
    assert deep.scale_**3 == pytest.approx(fitted.scale_**2)


def test_a_given_scale_is_kept():
    fitted = ImplicitBiasRegressor(scale=0.3).fit(X, Y)
    assert fitted.scale_ == pytest.approx(0.3)
    assert ImplicitBiasRegressor(log_scale=-1000.0).fit(X, Y).scale_ == 0.0


@pytest.mark.parametrize("depth", [2, [2, 3]])
def test_the_curve_of_cross_validation(depth, tmp_path):
    chosen = ImplicitBiasRegressorCV(n_scales=6, cv=4, depth=depth).fit(X, Y)
    figure = chosen.plot(tmp_path / "cv.png")
    (axes,) = figure.axes
    curves = [line for line in axes.lines if len(line.get_xdata()) > 1]
    assert len(curves) == np.size(depth)
    grids = np.atleast_2d(chosen.log_scales_)
    np.testing.assert_allclose(curves[0].get_xdata(), grids[0] / np.log(10.0))
    (dot,) = (line for line in axes.lines if len(line.get_xdata()) == 1)
    assert dot.get_xdata()[0] == pytest.approx(chosen.log_scale_ / np.log(10.0))
    # The least of the means, and the point that was chosen for it.
    assert dot.get_ydata()[0] == pytest.approx(chosen.mse_path_.mean(axis=-1).min())
    assert (tmp_path / "cv.png").stat().st_size > 1000
