"""
Is my network lazy?
===================

A small ReLU network, started at several scales and trained by gradient descent: how far its tangent
kernel moved, and how much of what was learned is beyond the kernel of the start.
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
# At 0 all that was learned is what the tangent features of the start can express.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
left.plot(scales, [report.kernel_change for report in reports], "o-", color="C0")
left.set(xscale="log", yscale="log", xlabel="scale of the start", ylabel="change of the kernel")
right.plot(scales, [report.beyond.share for report in reports], "o-", color="C1")
reference_line(right, y=0.0, text="linearized")
right.set(xscale="log", xlabel="scale of the start", ylabel="learned beyond the kernel")
plt.show()
