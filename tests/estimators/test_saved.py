"""Fitted estimators survive a file: pickle's, and skops', which runs no code of the file."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import flowbias as fb
from flowbias import estimators

X, Y, _ = fb.datasets.sparse_regression(n=20, d=30, rng=0)
FITTED = {
    "limit": estimators.ImplicitBiasRegressor(scale=1e-2),
    "trained": estimators.ImplicitBiasRegressor(scale=1e-2, fit_intercept="trained"),
    "min-norm": estimators.MinNormRegressor(),
    "rich": estimators.RichRegressor(),
    "limit CV": estimators.ImplicitBiasRegressorCV(n_scales=3, cv=2),
    "stopped": estimators.EarlyStoppedRegressor(time=1.0),
    "stopped CV": estimators.EarlyStoppedRegressorCV(n_times=3, cv=2),
    "flow CV": estimators.FlowRegressorCV(n_scales=2, n_times=3, cv=2),
    "stages": estimators.StagesRegressor(),
    "stages CV": estimators.StagesRegressorCV(cv=2),
}


def by_pickle(fitted):
    return pickle.loads(pickle.dumps(fitted))


def by_skops(fitted):
    skops = pytest.importorskip("skops.io")
    data = skops.dumps(fitted)
    names = skops.get_untrusted_types(data=data)
    assert all(name.startswith("flowbias.") for name in names)
    return skops.loads(data, trusted=names)


@pytest.mark.parametrize("again", [by_pickle, by_skops])
@pytest.mark.parametrize("kind", FITTED)
def test_a_fitted_estimator_comes_back(kind, again):
    fitted = FITTED[kind].fit(X, Y)
    back = again(fitted)
    assert_array_equal(back.predict(X), fitted.predict(X))
    assert back.get_params() == fitted.get_params()
    assert back.status_ == fitted.status_
    assert back.status_ is None or isinstance(back.status_, str)
    if fitted.certificate_ is not None:
        assert back.certificate_.ok
    if hasattr(fitted, "path_"):
        assert back.path_.status is fitted.path_.status
        assert_array_equal(back.path_.w, np.asarray(fitted.path_.w))
