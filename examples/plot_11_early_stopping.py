"""
Early stopping
==============

With much noise the limit of the flow fits what it should not. Stopped in time it is a regularized
fit; cross-validation chooses when.
"""

import matplotlib.pyplot as plt
import numpy as np

import flowbias as fb
from flowbias.estimators import EarlyStoppedRegressorCV
from flowbias.experiments.drawing import name_line, reference_line

X, y, w_true = fb.datasets.sparse_regression(n=60, d=100, sparsity=4, noise_var=0.5, rng=0)
chosen = EarlyStoppedRegressorCV(depth=2, scale=1e-2, n_times=15, fit_intercept=False).fit(X, y)
print(f"stopped at t = {chosen.time_:.3g}")

# %%
# The error on new samples along the flow, beside the loss on the data that it was trained on.

times = chosen.times_[np.isfinite(chosen.times_)]
model = fb.DiagonalNet(depth=2, scale=1e-2)
w = fb.flow(model, X, y, t=times, loss="half_mean").w
population = np.sum((w - w_true) ** 2, axis=1)
training = np.mean((w @ X.T - y) ** 2, axis=1)

figure, axes = plt.subplots(figsize=(7, 4.4))
axes.plot(times, population, color="C1")
axes.plot(times, training, color="C0")
axes.set(xscale="log", yscale="log", xlabel="time of the flow", ylabel="squared error")
name_line(axes, "population error", times[-5], population[-5], side="above", colour="C1")
name_line(axes, "error on the data", times[-1], training[-1], side="left", colour="C0")
reference_line(axes, x=chosen.time_, text="chosen by cross-validation")
plt.show()
