"""Whatever the data: fitted with a certificate, or a ValueError or SolveError that says why not."""

import numpy as np
import pytest
from hypothesis import given

import flowbias as fb
from flowbias.estimators import (
    ImplicitBiasRegressor,
    MinNormRegressor,
    RichRegressor,
    implicit_bias_path,
)
from tests.hardening.awkward import regression_data

ESTIMATORS = (
    ImplicitBiasRegressor(),
    ImplicitBiasRegressor(scale=1e-3, fit_intercept=False),
    ImplicitBiasRegressor(scale=0.3, fit_intercept="trained"),
    MinNormRegressor(),
    RichRegressor(),
)


def assert_has_reason(failure: Exception) -> None:
    """scikit-learn's own refusals are ValueErrors too; none of them is empty."""
    assert str(failure)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
@given(regression_data())
def test_fit(estimator, data):
    try:
        fitted = estimator.fit(data.X, data.y)
    except (ValueError, fb.SolveError) as failure:
        assert_has_reason(failure)
    else:
        # What is proved to fewer digits than asked for says so.
        assert fitted.certificate_.ok or fitted.status_ == "FEW_DIGITS"
        assert np.isfinite(fitted.coef_).all()
        assert np.isfinite(fitted.intercept_)


@given(regression_data())
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_path(data):
    try:
        log_scales, coefs, _ = implicit_bias_path(data.X, data.y, n_scales=3)
    except (ValueError, fb.SolveError) as failure:
        assert_has_reason(failure)
    else:
        assert coefs.shape == (np.shape(data.X)[1], len(log_scales))
