"""
A potential of your own
=======================

Five functions per coordinate make a potential; the public checks say whether they belong together,
and every solver and certificate of the library works with it.
"""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np

import flowbias as fb
from flowbias.potentials import Potential, check_potential


@dataclass(frozen=True)
class Power(Potential):
    """Q(w) = sum |w|^p / p with p > 1; its dual map is w = sign(z) |z|^(q - 1), 1/p + 1/q = 1."""

    p: float

    @property
    def q(self):
        return self.p / (self.p - 1.0)

    def value_terms(self, w):
        return np.abs(w) ** self.p / self.p

    def grad(self, w):
        return np.sign(w) * np.abs(w) ** (self.p - 1.0)

    def grad_dual(self, z):
        return np.sign(z) * np.abs(z) ** (self.q - 1.0)

    def hess_dual(self, z):
        return (self.q - 1.0) * np.abs(z) ** (self.q - 2.0)

    def conjugate_terms(self, z):
        return np.abs(z) ** self.q / self.q


powers = (1.5, 1.7, 2.0)
for p in powers:
    check_potential(Power(p))

# %%
# The fit of least p-norm, certified, between the sparse one and the one of least l2 norm.

X, y, w_true = fb.datasets.sparse_regression(n=30, d=60, sparsity=3, noise_var=0.0, rng=0)
fits = {f"p = {p:g}": fb.limit(Power(p), X, y) for p in powers}
for name, solution in fits.items():
    print(name, solution.status.name, f"gap {solution.certificate.gap:.0e}")

figure, axes = plt.subplots(figsize=(8, 4.2))
for name, solution in fits.items():
    axes.plot(np.sort(np.abs(solution.w))[::-1], "o-", markersize=4, label=name)
rich = np.sort(np.abs(fb.basis_pursuit(X, y).w))[::-1]
axes.plot(rich, "k.:", label="least l1 norm")
axes.set(yscale="log", ylim=(1e-4, 2), xlabel="coefficients by size", ylabel="size")
axes.legend(frameon=False)
plt.show()
