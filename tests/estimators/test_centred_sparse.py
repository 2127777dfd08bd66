"""A large sparse X is centred without being filled."""

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

from flowbias.estimators import ImplicitBiasRegressor, ImplicitBiasRegressorCV, MinNormRegressor
from flowbias.estimators.intercepts import frames
from flowbias.estimators.intercepts.centred_sparse import CentredSparseDesign
from tests.designs.conformance import check_design

RNG = np.random.default_rng(2)
X = scipy.sparse.random_array((20, 300), density=0.1, rng=RNG, format="csr")
Y = RNG.standard_normal(20) + 3.0
WEIGHT = RNG.uniform(0.5, 2.0, 20)


def test_the_design_is_the_centred_matrix():
    e, m = RNG.uniform(0.5, 1.0, 20), RNG.standard_normal(300)
    check_design(CentredSparseDesign(X, e, m), X.toarray() - np.outer(e, m))


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["", "weighted"])
@pytest.mark.parametrize(
    "estimator",
    [
        ImplicitBiasRegressor(scale=0.1),
        ImplicitBiasRegressor(scale=0.1, fit_intercept=False),
        MinNormRegressor(),
        ImplicitBiasRegressorCV(n_scales=3, cv=2),
    ],
    ids=repr,
)
def test_large_is_small(estimator, weight, monkeypatch):
    """The way for large X, taken on a small one, gives what its dense copy gives."""
    expected = estimator.fit(X.toarray(), Y, weight)
    coef, constant = expected.coef_, expected.intercept_
    for module in ("flowbias.designs", "flowbias.estimators.intercepts.samples"):
        monkeypatch.setattr(f"{module}.DENSE_UP_TO", 1)
    assert frames.is_large(X)
    fitted = estimator.fit(X, Y, weight)
    assert fitted.certificate_.ok
    # Certified to 1e-8, by two solvers.
    assert_allclose(fitted.coef_, coef, atol=1e-8)
    assert_allclose(fitted.intercept_, constant, atol=1e-8)
