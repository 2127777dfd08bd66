"""scikit-learn's own checks, on every estimator."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from flowbias.estimators import (
    FlowRegressorCV,
    ImplicitBiasRegressor,
    ImplicitBiasRegressorCV,
    MinNormRegressor,
    RichRegressor,
    StagesRegressor,
    StagesRegressorCV,
)

ESTIMATORS = [
    StagesRegressor(),
    StagesRegressorCV(),
    FlowRegressorCV(n_scales=2, n_times=3, cv=3),
    ImplicitBiasRegressor(),
    ImplicitBiasRegressor(depth=3, scale=0.1, fit_intercept=False),
    ImplicitBiasRegressor(scale=0.1, shape=0.5, fit_intercept="trained"),
    MinNormRegressor(),
    RichRegressor(),
    ImplicitBiasRegressorCV(n_scales=3, cv=3),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
