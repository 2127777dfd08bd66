"""Every potential, model, flow and limit once; the test files parametrize over these lists.

A potential comes with its round-trip tolerance: the relative error of grad_dual(grad(w)) on top of
conditioning, |w| + |z| w'(z), in which the argument's own rounding is counted.
"""

import numpy as np

from flowbias.models import DiagonalNet, UntiedDiagonalNet
from flowbias.potentials import (
    L1,
    L2,
    BiasedDepthPotential,
    DepthPotential,
    DistancePotential,
    Hypentropy,
    HyperbolicPotential,
    UntiedPotential,
)
from flowbias.potentials.with_bias import WithBias

ABSENT = -np.inf
# A few dozen roundings in closed forms; more where logarithms of the start enter (biased depth).
CLOSED_FORM, THROUGH_LOGS = 5e-15, 5e-14

# (name, potential, round-trip tolerance). L1 is apart: it is not smooth and has no dual map.
POTENTIALS = [
    ("hypentropy", Hypentropy(scale=0.1), CLOSED_FORM),
    ("hypentropy-large", Hypentropy(scale=1e3), CLOSED_FORM),
    ("hypentropy-nonuniform", Hypentropy(scale=[1e-3, 0.5, 20.0]), CLOSED_FORM),
    ("hypentropy-rich", Hypentropy(log_scale=-1e4), CLOSED_FORM),
    ("hypentropy-kernel", Hypentropy(log_scale=[1e4, 1e4 - 1.0]), CLOSED_FORM),
    ("untied", UntiedPotential(scale=0.4, shape=0.5), CLOSED_FORM),
    ("untied-shapes", UntiedPotential(log_scale=-3.0, shape=[0.0, -0.9, 1.0 - 1e-12]), CLOSED_FORM),
    ("untied-sqrt-k", UntiedPotential.from_sqrt_k([1e-12, 1.0, 1e6]), CLOSED_FORM),
    ("hyperbolic-tilted", HyperbolicPotential([0.0, -3.0], [1.0, -900.0], rate=2.0), CLOSED_FORM),
    (
        "hyperbolic-one-sided",
        HyperbolicPotential([0.5, ABSENT, ABSENT], [ABSENT, -2e3, ABSENT]),
        CLOSED_FORM,
    ),
    ("depth-3", DepthPotential(depth=3, scale=0.2), CLOSED_FORM),
    ("depth-5-nonuniform", DepthPotential(depth=5, scale=[0.1, 1.0, 3.0]), CLOSED_FORM),
    ("depth-10-log", DepthPotential(depth=10, log_scale=-2.0), CLOSED_FORM),
    ("depth-just-above-2", DepthPotential(depth=2.05, scale=0.3), CLOSED_FORM),
    ("depth-3-kernel", DepthPotential(depth=3, log_scale=1e3), CLOSED_FORM),
    ("distance", DistancePotential(scale=0.3), CLOSED_FORM),
    ("distance-nonuniform", DistancePotential(scale=[0.3, 4.0]), CLOSED_FORM),
    ("distance-kernel", DistancePotential(log_scale=1e3), CLOSED_FORM),
    ("biased-depth-3", BiasedDepthPotential(3, log_plus=-1.0, log_minus=-2.0), THROUGH_LOGS),
    (
        "biased-depth-4-mixed",
        BiasedDepthPotential(4, [-1.0, 0.0, ABSENT, ABSENT], [ABSENT, -40.0, -3.0, ABSENT]),
        THROUGH_LOGS,
    ),
    ("l2", L2(weights=[1.0, 0.5]), CLOSED_FORM),
    ("with-bias", WithBias(Hypentropy(scale=[0.1, 20.0]), weight=4.0, d=2), CLOSED_FORM),
]
NONSMOOTH_POTENTIALS = [("l1", L1(weights=[1.0, 2.0]))]

# (name, model), each for six features: scalar starts fit any number of them.
FEATURES = 6
_W0 = [1.0, -2.0, 0.5, -0.3, 1.5, 2.0]
_W0_POSITIVE = np.abs(_W0)
MODELS = [
    ("tied", DiagonalNet(depth=2, scale=0.3)),
    ("tied-log", DiagonalNet(depth=2, log_scale=-3.0)),
    ("tied-nonuniform", DiagonalNet(depth=2, scale=0.3, w0=_W0)),
    ("tied-large", DiagonalNet(depth=2, scale=10.0)),
    ("depth-3", DiagonalNet(depth=3, scale=0.5)),
    # Negative weights: at odd depth the two branches swap roles.
    ("depth-3-signs", DiagonalNet(depth=3, scale=0.5, w0=_W0)),
    ("depth-4-signs", DiagonalNet(depth=4, scale=0.6, w0=_W0)),
    ("depth-2.5", DiagonalNet(depth=2.5, scale=0.5, w0=_W0_POSITIVE)),
    ("depth-6", DiagonalNet(depth=6, log_scale=-0.3)),
    (
        "biased-2",  # two-sided, one-sided, frozen, nearly unbiased, signs
        DiagonalNet.from_weights(
            [0.4, 0.8, 0.0, 0.0, -0.5, 0.3], [0.4, 0.2, 0.5, 0.0, 0.5 + 1e-9, -0.6], depth=2
        ),
    ),
    (
        "biased-3",
        DiagonalNet.from_weights(
            [0.4, 0.8, 0.0, 0.0, -0.5, -0.3], [0.4, 0.5, 0.6, 0.0, -0.4, -0.6], depth=3
        ),
    ),
    (
        "biased-4",
        DiagonalNet.from_weights(
            [0.4, 0.8, 0.0, 0.0, -0.5, 0.6], [0.4, 0.5, 0.6, 0.0, 0.4, -0.7], depth=4
        ),
    ),
    ("untied", UntiedDiagonalNet(scale=0.4, shape=0.5)),
    ("untied-arrays", UntiedDiagonalNet(scale=_W0_POSITIVE, shape=[0.0, 0.9, -0.9, 0.5, -0.5, 0])),
    (
        "untied-biased",  # generic twice, k = 0 twice (P or M zero), frozen, signs
        UntiedDiagonalNet.from_weights(
            u_plus=[0.5, 0.9, 0.6, 0.0, 0.0, -0.5],
            u_minus=[0.5, -0.4, 0.0, 0.4, 0.0, 0.3],
            v_plus=[0.4, 0.3, 0.6, 0.0, 0.0, 0.2],
            v_minus=[-0.1, 0.3, 0.0, 0.4, 0.0, 0.9],
        ),
    ),
]
# Scales that exist only as logarithms; for closed forms, not for integrating.
EXTREME_MODELS = [
    ("tied-rich", DiagonalNet(depth=2, log_scale=-1e4)),
    ("depth-3-rich", DiagonalNet(depth=3, log_scale=-1e3)),
    ("depth-5-rich", DiagonalNet(depth=5, log_scale=-1e4)),
    ("untied-rich", UntiedDiagonalNet(log_scale=-1e4, shape=-0.9)),
    (
        "biased-2-rich",
        DiagonalNet.from_weights([1.0, 0.0] * 3, [2.0, 1.0] * 3, depth=2).at_log_scale(-2e3),
    ),
]
