"""
What the flow minimizes, seen in the plane
==========================================

Two coefficients and one equation: all fits lie on a line. Gradient flow ends where the line touches
a level set of its potential; the scale of the start decides what those level sets look like.
"""

import matplotlib.pyplot as plt
import numpy as np

import flowbias as fb

X, y = np.array([[1.0, 2.0]]), np.array([1.0])
l1, l2 = fb.basis_pursuit(X, y).w, fb.min_norm(X, y).w

# %%
# The potential is a sum over coefficients, so its level sets need one value per axis.

grid = np.linspace(-0.35, 0.85, 161)


def potential_on_grid(potential):
    terms = potential.value_terms(grid)
    return terms[:, None] + terms[None, :]


figure, panels = plt.subplots(1, 3, figsize=(13, 4.4), sharex=True, sharey=True)
for axes, scale in zip(panels, (3.0, 0.3, 1e-4), strict=True):
    model = fb.DiagonalNet(depth=2, scale=scale)
    flow = fb.flow(model, X, y)
    limit = fb.limit(model, X, y)
    height = potential_on_grid(model.potential)
    touching = model.potential.value(limit.w)
    levels = touching * np.array([0.1, 0.35, 0.65, 1.0, 1.5])
    axes.contour(grid, grid, height.T, levels=levels, colors="0.15", linewidths=0.7, alpha=0.6)
    axes.plot(grid, (y - X[0, 0] * grid) / X[0, 1], color="0.15", linewidth=1.2)
    axes.plot(*flow.w.T, color="C1")
    axes.plot(*limit.w, "o", color="C1", markersize=9, label="limit of the flow")
    axes.plot(*l1, "s", color="C0", markersize=9, mfc="none", mew=2, label="least l1 norm")
    axes.plot(*l2, "D", color="C0", markersize=8, mfc="none", mew=2, label="least l2 norm")
    axes.set(title=f"scale {scale:g}", xlabel="first coefficient", aspect="equal")
    axes.set(xlim=(-0.35, 0.85), ylim=(-0.35, 0.85))
panels[0].set_ylabel("second coefficient")
panels[0].legend(frameon=False, loc="upper right", fontsize=10)
plt.show()
