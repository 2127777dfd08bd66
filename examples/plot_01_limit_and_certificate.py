"""
A limit and its certificate
===========================

Gradient flow on a diagonal network, from a small and from a large start, on the same data. Each
limit is solved for, not trained towards, and comes with numbers that prove it.
"""

import matplotlib.pyplot as plt
import numpy as np

import flowbias as fb

X, y, w_true = fb.datasets.sparse_regression(n=40, d=120, sparsity=4, noise_var=0.01, rng=1)

rich = fb.limit(fb.DiagonalNet(depth=2, scale=1e-6), X, y)
kernel = fb.limit(fb.DiagonalNet(depth=2, scale=10.0), X, y)
print(rich.certificate)

# %%
# The certificate can be computed again from the data, the predictor and its dual alone. A predictor
# that is a little off fails it.

potential = fb.Hypentropy(scale=1e-6)
print(fb.certify(X, y, rich.w, rich.dual, potential).ok)
print(fb.certify(X, y, rich.w + 1e-6, rich.dual, potential).ok)

# %%
# From the small start the flow finds the four relevant features; from the large one it spreads the
# same fit over all of them.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
features, relevant = np.arange(len(w_true)), np.flatnonzero(w_true)
for axes, solution, colour, scale in ((left, rich, "C1", "1e-6"), (right, kernel, "C0", "10")):
    axes.vlines(features, 0, solution.w, color=colour, linewidth=1.4)
    axes.plot(relevant, w_true[relevant], "o", color="0.15", mfc="none", label="truth")
    axes.set(xlabel="feature", title=f"scale {scale}: l1 norm {np.abs(solution.w).sum():.2f}")
left.set_ylabel("coefficient of the limit")
left.legend(frameon=False)
plt.show()
