"""
An estimator beside Lasso and ridge
===================================

The limits as scikit-learn regressors. The scale of the start is a parameter like any other:
cross-validation picks it, as it picks the penalty of Lasso.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LassoCV, RidgeCV

import flowbias as fb
from flowbias.estimators import ImplicitBiasRegressorCV, MinNormRegressor

sizes = np.array([20, 30, 40, 55, 70])
makers = {
    "scale by cross-validation": (lambda: ImplicitBiasRegressorCV(n_scales=8, cv=4), "C1", "o-"),
    "Lasso": (lambda: LassoCV(cv=4, alphas=30), "C0", "s-"),
    "ridge": (lambda: RidgeCV(np.geomspace(1e-3, 1e3, 20)), "0.15", "^-"),
    "least l2 norm": (MinNormRegressor, "0.15", "v:"),
}


def error(estimator, n, seed):
    X, y, w_true = fb.datasets.sparse_regression(n=n, d=100, sparsity=4, noise_var=0.01, rng=seed)
    return np.sum((estimator.fit(X, y).coef_ - w_true) ** 2)


# %%
# The median error over three data sets of each size. With few samples the interpolator finds what
# Lasso finds. With more of them Lasso is ahead: it does not have to fit the noise.

figure, axes = plt.subplots(figsize=(7, 4.4))
for name, (make, colour, style) in makers.items():
    errors = [np.median([error(make(), n, seed) for seed in range(3)]) for n in sizes]
    axes.plot(sizes, errors, style, color=colour, label=name)
axes.set(yscale="log", xlabel="samples (100 features)", ylabel="population error, median of 3")
axes.legend(frameon=False)
plt.show()
