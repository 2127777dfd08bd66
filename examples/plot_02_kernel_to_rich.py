"""
From kernel to rich
===================

One data set, sixty scales of the start: the limit goes from the fit of least l2 norm to the fit of
least l1 norm, and the error on new samples falls on the way.
"""

import matplotlib.pyplot as plt
import numpy as np

import flowbias as fb
from flowbias.experiments.drawing import name_line, reference_line

X, y, w_true = fb.datasets.sparse_regression(n=40, d=200, sparsity=4, noise_var=0.01, rng=0)
model = fb.DiagonalNet(depth=2, scale=1.0)
log_scales = np.linspace(np.log(10.0), np.log(1e-12), 60)
path = fb.limit_path(model, X, y, log_scales=log_scales)
print(f"all certified: {bool(np.all(path.certified))}, {path.stats.factorizations} factorizations")

# %%
# Each line on the left is a coefficient of the limit; those that belong to the truth are red. The
# norms on the right are relative to the least ones that fit the data.

scales = np.exp(path.log_scales)
least_l1 = np.abs(fb.basis_pursuit(X, y).w).sum()
least_l2 = np.linalg.norm(fb.min_norm(X, y).w)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
left.plot(scales, path.w[:, w_true == 0], color="C0", linewidth=0.6, alpha=0.6)
left.plot(scales, path.w[:, w_true != 0], color="C1")
left.set(xscale="log", xlabel="scale of the start", ylabel="coefficient of the limit")

l1 = np.abs(path.w).sum(axis=1) / least_l1
l2 = np.linalg.norm(path.w, axis=1) / least_l2
right.plot(scales, l1, color="C1")
right.plot(scales, l2, color="C0")
name_line(right, "l1 norm", scales[12], l1[12], side="left", colour="C1")
name_line(right, "l2 norm", scales[45], l2[45], side="below", colour="C0")
reference_line(right, y=1.0, text="least possible")
right.set(xscale="log", xlabel="scale of the start", ylabel="norm over the least one")
plt.show()
