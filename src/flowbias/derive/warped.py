"""The potential of a flow that is mirror flow after a change of time.  [azulay2021, section 5]

With g H = Hess Q, H = (J J^T)^{-1}, the flow d/dt grad Q(w) = -g c X^T r has the limit of mirror
flow in Q. The warp follows from J alone. Along theta' = J^T c, for d >= 2 predictors,

    (d - 1) d log g = 1/2 d log det(J J^T) - tr(P Hess <c, F>) ds,    P = J^T H J,

because contracting  d_k H_ij - d_j H_ik = H_ik phi_j - H_ij phi_k  with (J J^T)_ik leaves
(d - 1) phi_j (docs/derive.md has the steps). One linear neuron w = a v: g = |a|.

That g H is a Hessian is not checked here: `time_warp` does it, and so does the potential's own
conformance, since without it Q would depend on the path.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flowbias.derive.derived_potential import DerivedPotential
from flowbias.derive.parametrization import Parametrization
from flowbias.derive.unit_time_flow import Warp
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray


class HessianWarp:
    """The only g, up to a constant, for which g (J J^T)^{-1} can be a Hessian."""

    def __init__(self, model: Parametrization) -> None:
        self._model = model
        self._torch = require_torch()
        # With one predictor any metric is a second derivative; g = 1 is as good as any other.
        self._share = 1.0 / (model.d - 1) if model.d > 1 else 0.0

    def volume(self, theta: FloatArray) -> float:
        """log det(J J^T) / (2 (d - 1)); -inf where J has lost rank."""
        values = np.linalg.svd(self._model.jacobian(theta), compute_uv=False)
        return self._share * float(np.log(values).sum())

    def stretch(self, theta: FloatArray, c: FloatArray) -> float:
        """tr(P Hess <c, F>) / (d - 1): curvature of <c, F> summed over what the flow can move."""
        _, _, basis = np.linalg.svd(self._model.jacobian(theta), full_matrices=False)
        gradient = self._torch.autograd.grad
        # Plain double backward: a tenth of the overhead of the composed transforms, and this is
        # where integration spends its time.
        point = self._model.tensor(theta).requires_grad_()
        w = self._model.torch_function(point)
        (slope,) = gradient(w, point, self._model.tensor(c), create_graph=True)
        if not slope.requires_grad:
            return 0.0  # F is linear
        total = 0.0
        for direction in self._torch.tensor(np.ascontiguousarray(basis)):
            (turned,) = gradient(slope, point, direction, retain_graph=True)
            total += float(direction @ turned)
        return self._share * total


@dataclass(frozen=True, eq=False)
class WarpedPotential(DerivedPotential):
    """Q with Hess Q = g (J J^T)^{-1}, g = 1 at the start, by integration.

    >>> report = fb.derive.implicit_bias(lambda theta: theta[0] * theta[1:], [1.0, 0.5, 0.2])
    >>> report.verdict.value, type(report.potential).__name__
    ('mirror flow after a time warp', 'WarpedPotential')
    """

    warp: Warp = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "warp", HessianWarp(self.model))
