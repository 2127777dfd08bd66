"""
Derive the bias of a parametrization
====================================

A predictor written as a torch function of its parameters, and a start. The report says whether
gradient flow minimizes a potential of the predictor, why, and brings the potential along.
"""

import matplotlib.pyplot as plt
import numpy as np

import flowbias as fb
from flowbias.experiments.drawing import name_line

start = np.array([0.3, 0.3, 0.3, 0.3])
report = fb.derive.implicit_bias(lambda theta: theta[:2] ** 3 - theta[2:] ** 3, start)
print(report)

# %%
# For this one the closed form is known: it is the diagonal network of depth 3. The derived
# potential agrees with it wherever both are evaluated.

w = np.linspace(-1.0, 1.0, 11)
closed_form = fb.DepthPotential(depth=3, scale=0.3)
derived = np.array([report.potential.value(np.array([value, 0.0])) for value in w])
printed = closed_form.value_terms(w)
# Potentials are defined up to a factor: time may run at another speed.
factor = printed[-1] / derived[-1]

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
left.plot(w, printed, color="C0")
left.plot(w, factor * derived, "o", color="C1", markersize=4)
name_line(left, "closed form", w[1], printed[1], side="right", colour="C0")
name_line(left, "derived", w[-2], printed[-2], side="left", colour="C1")
left.set(xlabel="coefficient", ylabel="potential")

# %%
# What was derived can be minimized: the limit on data, and the flow that goes there.

X, y = np.array([[1.0, 2.0]]), np.array([1.0])
limit = report.limit(X, y)
flow = fb.flow(report.model, X, y)
right.plot(*flow.w.T, color="C1")
right.plot(*limit.w, "o", color="C1", markersize=9)
line = np.linspace(-0.2, 0.8, 2)
right.plot(line, (1.0 - line) / 2.0, color="0.15", linewidth=1.2)
name_line(right, "limit of the derived potential", *limit.w, side="right", colour="C1")
name_line(right, "all fits", line[0], (1.0 - line[0]) / 2.0, side="right", colour="0.15")
right.set(xlabel="first coefficient", ylabel="second coefficient", xlim=(-0.2, 0.8))
plt.show()
