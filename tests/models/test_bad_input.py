"""Bad input names the argument, the constraint, the value and the fix."""

import numpy as np
import pytest

from flowbias.models import DiagonalNet, UntiedDiagonalNet

NAN = float("nan")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DiagonalNet(), "exactly one of them must be given, got neither"),
        (lambda: DiagonalNet(2, 0.1, log_scale=-1.0), "exactly one of them must be given, got bot"),
        (lambda: DiagonalNet(2, -0.1), r"scale: must be > 0 and finite, got -0.1\. .*log_scale"),
        (lambda: DiagonalNet(2, [0.1, 0.2]), r"scale: must be a single number, got shape \(2,\)"),
        (lambda: DiagonalNet(1, 0.1), r"depth: must be >= 2 and finite, got 1\. .*min_norm"),
        (lambda: DiagonalNet(NAN, 0.1), "depth: must be >= 2"),
        (lambda: DiagonalNet("three", 0.1), "depth: must be a real number"),
        (lambda: DiagonalNet([2, 3], 0.1), "depth: must be a single number"),
        (lambda: DiagonalNet(2, 0.1, w0=[1.0, 0.0]), r"w0: must have no zero .* got 0\. .*from_we"),
        (lambda: DiagonalNet(2, 0.1, w0=[1.0, NAN]), "w0: must be finite, got nan"),
        (lambda: DiagonalNet(2, 0.1, w0=np.eye(2)), r"w0: must be a number or a vector, got .*2"),
        (lambda: DiagonalNet(2.5, 0.1, w0=[-1.0]), r"must be >= 0 at depth 2.5, got -1\. .*integ"),
        (
            lambda: DiagonalNet.from_weights([0.1, 0.2], [0.1, -0.2], 3),
            "same sign per coordinate at odd depth 3, got opposite signs at index 1.*flip the sign",
        ),
        (
            lambda: DiagonalNet.from_weights([0.1, 0.2], [0.1, 0.2, 0.3], 2),
            r"w_minus: must broadcast against w_plus of shape \(2,\), got shape \(3,\)",
        ),
        (lambda: DiagonalNet.from_weights([0.1, np.inf], 0.1, 2), "w_plus: must be finite, got i"),
        (lambda: DiagonalNet(2, 0.1).at_log_scale(NAN), "log_scale: must be finite, got nan"),
        (lambda: UntiedDiagonalNet(0.1, shape=1.0), r"shape: must lie in \(-1, 1\), got 1\. .*u ="),
        (lambda: UntiedDiagonalNet([0.1, 0.2], shape=[0.0] * 3), "shape: must broadcast against s"),
        (
            lambda: UntiedDiagonalNet.from_weights([0.1] * 2, 0.1, [0.1] * 3, 0.1),
            "u_plus: must broadcast against v_plus",
        ),
        (lambda: DiagonalNet(2, 0.1).tangent_kernel([1.0, 2.0]), "X1: must have 2 dimensions"),
        (
            lambda: DiagonalNet(2, 0.1).tangent_kernel(np.ones((2, 3)), np.ones((2, 4))),
            r"X2: must have as many columns as X1 \(3\), got 4",
        ),
        (
            lambda: DiagonalNet(2, 0.1, w0=[1.0, 2.0]).tangent_kernel(np.ones((2, 3))),
            r"X1: must have one column per feature of the model \(2\), got 3",
        ),
    ],
)
def test_message(build, message):
    with pytest.raises(ValueError, match=message):
        build()
