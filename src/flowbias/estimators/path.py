"""The coefficients at many scales, in the style of `sklearn.linear_model.lasso_path`."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_X_y

from flowbias.estimators.fitting import fit_scales, warn_of
from flowbias.estimators.intercepts.frames import plain
from flowbias.estimators.samples import Samples
from flowbias.estimators.start import log_scales_of, network
from flowbias.ground.typing import FloatArray
from flowbias.limits.solve import check_tol


def implicit_bias_path(
    X: Any,
    y: Any,
    *,
    scales: Any = None,
    log_scales: Any = None,
    n_scales: int = 100,
    eps: float = 1e-10,
    depth: float = 2,
    shape: float = 0.0,
    tol: float = 1e-8,
) -> tuple[FloatArray, FloatArray, dict[str, Any]]:
    """Limits of a diagonal network from the kernel regime to the rich one, with warm starts.

    Returns log_scales (n_scales,), largest first; coefs (n_features, n_scales), or (n_targets,
    n_features, n_scales) for y of two dimensions; and a dict with

    certified     (n_scales,) whether the limits are; where not, a ConvergenceWarning says so
    certificates  one per scale, without error bounds (a list per scale for y of two dimensions)
    dual_coefs    (n_samples, n_scales), or (n_targets, n_samples, n_scales)
    n_iters       (n_scales,) steps, of all outputs together

    As `lasso_path` it fits no intercept: centre X and y for one. By default scale^depth falls from
    10 times the l2 norm of the least-norm fit to eps times that.

    >>> X, y, _ = fb.datasets.sparse_regression(n=10, d=30, rng=0)
    >>> log_scales, coefs, info = fb.estimators.implicit_bias_path(X, y, n_scales=4)
    >>> coefs.shape, bool(info["certified"].all())
    ((30, 4), True)
    """
    check_tol(tol)
    X, y = check_X_y(X, y, accept_sparse="csr", dtype=np.float64, multi_output=True, y_numeric=True)
    frame = plain(Samples.of(X, y))
    net = network(depth, shape=shape)
    logs = log_scales_of(scales, log_scales, frame, net.depth, shape, n_scales, eps)
    fits = fit_scales(frame, net, logs, tol)
    warn_of([(s, fit.failure) for s, fit in zip(logs, fits, strict=True)], "implicit_bias_path")
    certificates = [[solution.certificate for solution in fit.solutions] for fit in fits]
    coefs = np.stack([fit.coef for fit in fits], axis=-1)
    duals = np.stack([fit.dual for fit in fits], axis=-1)
    single = frame.samples.single
    return (
        logs,
        coefs[0] if single else coefs,
        {
            "certified": np.array([fit.failure is None for fit in fits]),
            "certificates": [c[0] for c in certificates] if single else certificates,
            "dual_coefs": duals[0] if single else duals,
            "n_iters": np.array([sum(s.stats.steps for s in fit.solutions) for fit in fits]),
        },
    )
