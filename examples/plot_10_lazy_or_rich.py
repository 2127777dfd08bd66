"""
Is my network lazy?
===================

A small ReLU network, started at several scales and trained by gradient descent: how far its tangent
kernel moved, and where its function stands between the linearized network and the leanest one.
"""

import matplotlib.pyplot as plt
import torch

from flowbias.experiments.drawing import reference_line
from flowbias.nets import mlp, unbiased
from flowbias.regime import diagnose, fit

x = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
y = torch.sign(x[:, :1])


def trained(scale):
    """What training made of a network that starts at this scale."""
    net = unbiased(mlp((3, 10, 1), scale=scale, rng=0, dtype=torch.float64))
    return diagnose(net, fit(net, x, y).after, x, y)


scales = [0.1, 0.3, 1.0, 10.0]
reports = [trained(scale) for scale in scales]
print(reports[0])

# %%
# Position 0 is the linearized twin of the start, position 1 the network of least norm with the same
# outputs on the data.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
left.plot(scales, [report.kernel_change for report in reports], "o-", color="C0")
left.set(xscale="log", yscale="log", xlabel="scale of the start", ylabel="change of the kernel")
right.plot(scales, [report.gaps.position for report in reports], "o-", color="C1")
reference_line(right, y=0.0, text="linearized twin")
reference_line(right, y=1.0, text="leanest network")
right.set(xscale="log", xlabel="scale of the start", ylabel="position of the function")
plt.show()
