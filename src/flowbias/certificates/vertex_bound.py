"""The error bound where the potential is a (weighted) l1 norm, which has no dual map.

Let nu be feasible, |X^T nu| <= weights, and g bound the gap between the least weighted norm and
<nu, y>: that of w plus what repairing its residual costs. For any minimizer w' then
sum weights |w'| - <X^T nu, w'> <= g, so that a coordinate off the support of w whose |X^T nu| stays
below (1 - margin) weights has weights |w'_i| <= g / margin. On the support
X_S (w'_S - w_S) = (y - X w) - X_off w'_off bounds the rest through the smallest singular value of
X_S. Without a margin, or with dependent columns, nothing is proved: there may be other minimizers.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from flowbias import _extended as extended
from flowbias._typing import FloatArray
from flowbias.potentials import Potential

# Margins and singular values below this are rounding.
NONE = 1e-12
# What may be left of the residual after its repair: the rounding of a least-squares solution.
REPAIRED = 1e-12


def vertex_bound(
    X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    nu: FloatArray,
    potential: Potential,
    _shift: FloatArray | float = 0.0,
) -> float:
    """Upper bound of ||w - w*||_2, or inf; a norm has no start to count from."""
    z = X.T @ nu
    support = w != 0
    # What one unit of w costs towards the sign that z favours; inf where that side is closed.
    cost = potential.value_terms(np.where(z > 0, 1.0, -1.0))[~support]
    margin = float((1.0 - np.abs(z[~support]) / cost).min(initial=1.0))
    columns = X[:, support]
    if potential.conjugate(z) != 0.0 or margin < NONE or columns.shape[1] > len(X):
        return np.inf
    residual = np.asarray(y - extended.apply(X, w), dtype=np.float64)
    leaked = _gap(X, y, w, nu, potential, residual) / (margin * float(cost.min(initial=np.inf)))
    if columns.shape[1] == 0:
        return leaked
    smallest = float(scipy.linalg.svdvals(columns)[-1])
    longest = float(np.sqrt(np.einsum("ij,ij->j", X, X).max()))
    if not smallest >= NONE * longest:
        return np.inf
    sums = extended.length(extended.absolute_apply(X, w) + np.abs(y))
    size = extended.length(residual) + (len(w) + 2) * extended.EPS * sums
    return leaked + (size + longest * leaked) / smallest


def _gap(
    X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    nu: FloatArray,
    potential: Potential,
    residual: FloatArray,
) -> float:
    """Bound of the least norm minus <nu, y>, with the rounding of its sums; inf if X w is not y."""
    repair = scipy.linalg.lstsq(X, residual)[0]
    if extended.length(X @ repair - residual) > REPAIRED * extended.length(y):
        return np.inf
    value = potential.value(w)
    rounding = (len(w) + 2) * float(np.finfo(float).eps) * (value + float(np.abs(nu) @ np.abs(y)))
    return abs(value - float(nu @ y)) + potential.value(repair) + rounding
