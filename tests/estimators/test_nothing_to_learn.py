"""Where X is zero the flow stays at its start, and that too is proved."""

import numpy as np
import pytest
import scipy.sparse

import flowbias as fb
from flowbias.estimators.inference.linear_response import linear_response
from flowbias.estimators.inference.weighted_rows import WeightedRows

Y = np.array([1.0, 2.0, -3e5, 0.5])


@pytest.mark.parametrize("as_given", [np.asarray, scipy.sparse.csr_array], ids=["array", "sparse"])
@pytest.mark.parametrize("column", [0.0, 0.1], ids=["zeros", "constant"])
def test_the_start_is_certified_by_its_certificate(as_given, column):
    X = as_given(np.full((4, 3), column))
    fitted = fb.estimators.ImplicitBiasRegressor(fit_intercept=True).fit(X, Y)
    tol = fitted.certificate_.tol
    proof = fb.certify(np.zeros((4, 3)), Y - Y.mean(), fitted.coef_, np.zeros(4), fb.L2(), tol=tol)
    assert fitted.certificate_.measures == proof.measures
    assert proof.ok
    assert fitted.status_ == "PROJECTED"


def test_a_start_away_from_zero_has_the_error_of_its_rounding():
    model = fb.DiagonalNet.from_weights([0.1, 0.2, 0.3], [0.3, 0.1, 0.1], depth=2)
    nothing = WeightedRows(np.zeros((4, 3)), Y, None, np.zeros(3), np.ones(4))
    solution = linear_response(model, nothing).solution
    assert solution.status is fb.Status.CERTIFIED
    # Computed: nobody writes down the rounding of grad Q at the start.
    assert 0.0 < solution.certificate.error_bound <= 1e-12
    assert np.allclose(solution.w, [-0.08, 0.03, 0.08], rtol=1e-12)
