"""
Learning in stages
==================

From a small start a coefficient stays near zero until its turn has come, then grows within a short
time: the smaller the start, the sharper the stages. The flow is followed in as many unknowns as
there are samples, on an axis of time that spans orders of magnitude.
"""

import matplotlib.pyplot as plt
import numpy as np

import flowbias as fb
from flowbias.experiments.drawing import name_line

X, y, w_true = fb.datasets.sparse_regression(n=40, d=100, sparsity=3, noise_var=0.0, rng=0)
# Coefficients of different size have their turns at different times.
w_true[w_true != 0] = [1.0, 0.4, 0.15]
y = X @ w_true

t = np.geomspace(1e-3, 20.0, 400)

figure, columns = plt.subplots(2, 2, figsize=(10, 6.4), sharex="col", sharey="row")
for (above, below), scale in zip(columns.T, (0.3, 1e-6), strict=True):
    flow = fb.flow(fb.DiagonalNet(depth=2, scale=scale), X, y, t=t)
    w = flow.w
    above.plot(t, w[:, w_true == 0], color="C0", linewidth=0.5, alpha=0.6)
    above.plot(t, w[:, w_true != 0], color="C1")
    above.set(title=f"scale {scale:g}", xscale="log")
    below.plot(t, flow.loss / flow.loss[0], color="C1")
    below.set(xscale="log", yscale="log", ylim=(1e-9, 3), xlabel="time of the flow")
columns[0, 0].set_ylabel("coefficient")
columns[1, 0].set_ylabel("loss, relative to the first")
for value in w_true[w_true != 0]:
    name_line(columns[0, 1], f"{value:g}", t[-1], value, colour="C1")
plt.show()

# %%
# How late a coefficient arrives: the time at which it has half of its final size.


def half_time(feature):
    return t[np.argmax(np.abs(w[:, feature]) >= 0.5 * np.abs(w[-1, feature]))]


for feature in np.argsort(-np.abs(w_true))[:3]:
    print(f"{w_true[feature]:5.2f} is half there at t = {half_time(feature):.3g}")
