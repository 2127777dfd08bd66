"""Last corrections to a dual of the power law: into its domain, and onto the weights in use.

Duals of the power law are counted from the start, so that there is no shift.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from flowbias.ground.typing import FloatArray
from flowbias.potentials import Potential

# A relative gap at which the dual is not touched any more.
GOOD_GAP = 1e-12


def inside_domain(
    potential: Potential, X: FloatArray, w: FloatArray, dual: FloatArray
) -> FloatArray:
    """The dual, shrunk by what rounding may have put it outside its open domain, or too close.

    Near its end the conjugate has a pole, and one ulp of the dual can be more than the slack there.
    """
    value = potential.value_terms(w)

    def gap(shrink: float) -> float:
        # As the certificate will evaluate it: the product of a shrunk dual rounds differently.
        z = X.T @ ((1.0 - shrink) * dual)
        terms = value + potential.conjugate_terms(z) - z * w
        return float(np.abs(np.sum(terms)))

    best, best_gap = 0.0, gap(0.0)
    if best_gap > GOOD_GAP * (1.0 + abs(float(value.sum()))):
        for shrink in np.geomspace(1e-15, 1e-6, 19):
            if (candidate := gap(float(shrink))) < best_gap:
                best, best_gap = float(shrink), candidate
    return (1.0 - best) * dual


def asked_for(potential: Potential, X: FloatArray, w: FloatArray, dual: FloatArray) -> FloatArray:
    """The dual, moved by least squares to X^T nu = grad Q(w) where w is in use.

    Below a certain scale the law P = (mu / slack)^k is solved at a larger mu, whose slacks are
    above the rounding of their cost (`rich_regime`). The weights do not depend on that, but the
    slack of a light one does: mu P^(-1/k) may exceed the tolerance, the true one being far below.
    """
    in_use = potential.determined(w)
    off = (potential.grad(w) - X.T @ dual)[in_use]
    if not np.isfinite(off).all():
        return dual
    change = np.asarray(scipy.linalg.lstsq(X[:, in_use].T, off)[0])
    return inside_domain(potential, X, w, dual + change)
