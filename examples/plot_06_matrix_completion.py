"""
Matrix completion and width
===========================

A matrix of rank one, seen at 60 of 100 places, completed by gradient flow on U V^T. What decides
between recovery and standstill is scale^2 times width, so a wide network needs a smaller start.
"""

import matplotlib.pyplot as plt
import numpy as np

import flowbias as fb

rows, cols, values, truth = fb.datasets.low_rank_completion((10, 10), rank=1, observed=60, rng=1)
problem = fb.MatrixCompletion(rows, cols, values, (10, 10))
width = 1000


def recovered(product):
    """The limit from a Gaussian start with scale^2 width = product."""
    scale = np.sqrt(product / width)
    model = fb.MatrixFactorization.gaussian((10, 10), width=width, scale=scale, rng=0)
    return fb.limit(model, problem)


small, large = recovered(1e-3), recovered(10.0)
print(small.message)
print(large.message)

# %%
# From the small start the unseen entries are those of the truth; from the large one they stay where
# they started, and the singular values have no gap.

seen = np.full(truth.shape, np.nan)
seen[rows, cols] = values
pictures = {
    "truth": truth,
    "seen": seen,
    "scale$^2$ width = 0.001": small.M,
    "scale$^2$ width = 10": large.M,
}
bound = np.abs(truth).max()

figure, panels = plt.subplots(1, 5, figsize=(15, 3.4))
for axes, (name, matrix) in zip(panels, pictures.items(), strict=False):
    image = axes.imshow(matrix, cmap="PuOr", vmin=-bound, vmax=bound)
    axes.set(title=name, xlabel="column", xticks=[], yticks=[])
panels[0].set_ylabel("row")
figure.colorbar(image, ax=panels[:4], shrink=0.8, label="entry")

spectra = ((truth, "0.15", "truth"), (small.M, "C1", "small start"), (large.M, "C0", "large start"))
for matrix, colour, name in spectra:
    singular_values = np.maximum(np.linalg.svd(matrix, compute_uv=False), 1e-9)
    panels[4].semilogy(1 + np.arange(10), singular_values, "o-", color=colour, label=name)
panels[4].set(xlabel="number", title="singular values", ylim=(1e-6, 40))
panels[4].legend(frameon=False, fontsize=9)
plt.show()
