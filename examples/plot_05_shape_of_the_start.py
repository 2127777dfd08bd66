"""
The shape of the start
======================

Two layers of different size: the shape says how unequal they are, the scale how large their product
is. Only one combination of the two matters for the limit, and near shape 1 every scale is a kernel.
"""

import matplotlib.pyplot as plt
import numpy as np

import flowbias as fb
from flowbias.experiments.drawing import name_line

X, y, w_true = fb.datasets.sparse_regression(n=40, d=200, sparsity=4, noise_var=0.01, rng=0)
shapes = (0.0, 0.9, 0.99, 0.999)
scales = np.geomspace(1e-4, 1.0, 30)


def error(w):
    return np.sum((w - w_true) ** 2, axis=-1)


# %%
# Against the scale, the curves of different shapes lie apart. Against the scale of the network with
# equal layers that has the same limit, sqrt((1 + s^2)/(1 - s^2)) times as large, they are one.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
for shape, colour in zip(shapes, ("C0", "C1", "C2", "C3"), strict=True):
    model = fb.UntiedDiagonalNet(scale=1.0, shape=shape)
    path = fb.limit_path(model, X, y, log_scales=np.log(scales))
    errors = error(path.w)
    equivalent = scales * np.sqrt((1 + shape**2) / (1 - shape**2))
    left.plot(scales, errors, color=colour)
    right.plot(equivalent, errors, "o", color=colour, markersize=4, label=f"shape {shape:g}")
    middle = np.argmin(np.abs(errors - errors.mean()))
    name_line(left, f"{shape:g}", scales[middle], errors[middle], side="left", colour=colour)
left.set(xscale="log", yscale="log", xlabel="scale of the start", ylabel="population error")
right.set(xscale="log", xlabel="scale with equal layers and the same limit")
right.legend(frameon=False)
plt.show()
