"""
Imbalance speeds up a linear network
====================================

Gradient flow conserves U^T U - V^T V. Its spectrum at the start guarantees a rate at which the loss
of a two-layer linear network falls, for ever. Wide starts are more imbalanced, and faster.
"""

import matplotlib.pyplot as plt
import numpy as np

import flowbias as fb
from flowbias.experiments.drawing import reference_line

rng = np.random.default_rng(0)
X = rng.standard_normal((30, 10)) / np.sqrt(30)
Y = X @ rng.standard_normal((10, 3))
t = np.linspace(0.0, 4.0, 80)

# %%
# Theorem 3 of Min et al. (2021), evaluated on both starts: the least mean rate that was measured,
# and what the start alone guarantees.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
for width, colour in ((20, "C0"), (500, "C1")):
    net = fb.LinearNet.xavier(10, 3, width=width, rng=0)
    flow = fb.flow(net, X, Y, t=t)
    claim = fb.theory.exponential_guarantee(net, X, Y, trajectory=flow)
    print(f"width {width}: rate {claim.measured:.2f}, guaranteed {claim.predicted:.2f}")
    eigenvalues = net.imbalance(X).eigenvalues
    numbers = 1 + np.arange(len(eigenvalues))
    left.plot(numbers, eigenvalues, "o", color=colour, label=f"width {width}")
    right.plot(t, flow.loss / flow.loss[0], color=colour)
    right.plot(t, np.exp(-claim.predicted * t), "--", color=colour, linewidth=1.4)
reference_line(left, y=0.0, text="")
left.set(xlabel="number of the eigenvalue", ylabel="eigenvalue of the imbalance")
right.set(yscale="log", ylim=(1e-8, 2), xlabel="time of the flow", ylabel="loss, relative")
right.set_title("dashed: guaranteed by the start")
left.legend(frameon=False)
plt.show()
