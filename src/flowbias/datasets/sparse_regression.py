"""Sparse regression: the problem on which scale decides generalization.  [woodworth2020, Section 4]

    x_n ~ N(0, I_d),   y_n ~ N(<w_true, x_n>, noise_var),   w_true has r entries 1/sqrt(r), else 0

The small-scale (l1) limit generalizes from the order of r log(d) samples; the large-scale (l2)
limit needs the order of d.
"""

import math
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np

from flowbias.ground.typing import FloatArray


class SparseRegression(NamedTuple):
    """Samples X (n, d), targets y (n,), and the planted predictor w_true (d,) of unit norm."""

    X: FloatArray
    y: FloatArray
    w_true: FloatArray


def sparse_regression(
    n: int = 100,
    d: int = 1000,
    sparsity: int = 5,
    noise_var: float = 0.01,
    rng: int | np.random.Generator = 0,
) -> SparseRegression:
    """Draw n samples in d dimensions from a planted predictor with `sparsity` entries.

    The support is drawn at random. For one integer `rng` the problems are nested: a larger n
    appends rows, a larger sparsity adds to the support, and noise_var only rescales the noise, so
    that along a sweep only what is swept changes.

    Parameters
    ----------
    n, d : samples and features
    sparsity : entries of the truth that are not zero, each 1/sqrt(sparsity)
    noise_var : variance of the noise in y
    rng : seed or generator

    Returns
    -------
    SparseRegression, which unpacks to X, y, w_true

    Raises
    ------
    InputError for numbers that make no problem

    >>> X, y, w_true = fb.datasets.sparse_regression(n=20, d=50, sparsity=5, noise_var=0.0, rng=0)
    >>> X.shape, int(np.count_nonzero(w_true)), bool(np.allclose(X.dot(w_true), y))
    ((20, 50), 5, True)
    """
    _require_integer("n", n, at_least=1, fix="Pass the number of samples to draw.")
    _require_integer("d", d, at_least=1, fix="Pass the number of features.")
    _require_integer("sparsity", sparsity, at_least=1, fix="Pass the number of non-zero entries.")
    if sparsity > d:
        raise ValueError(
            f"sparsity: must be <= d = {d}, got {sparsity}. Lower sparsity or raise d."
        )
    _require_variance(noise_var)
    # One stream per quantity: drawing more of one leaves the others as they were.
    sample_rng, support_rng, noise_rng = _generator(rng).spawn(3)
    X = sample_rng.standard_normal((n, d))
    w_true = np.zeros(d)
    w_true[support_rng.permutation(d)[:sparsity]] = 1.0 / math.sqrt(sparsity)
    y = X @ w_true + math.sqrt(noise_var) * noise_rng.standard_normal(n)
    return SparseRegression(X, y, w_true)


def _require_integer(name: str, value: object, *, at_least: int, fix: str) -> None:
    # bool is an Integral, but n=True is a slip, not a size.
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise ValueError(f"{name}: must be an integer >= {at_least}, got {value!r}. {fix}")


def _require_variance(noise_var: object) -> None:
    # The chained comparison also turns away nan.
    if not isinstance(noise_var, Real) or not 0.0 <= float(noise_var) < math.inf:
        raise ValueError(
            f"noise_var: must be a finite number >= 0, got {noise_var!r}. "
            "Pass the variance of the noise, or 0 for none."
        )


def _generator(rng: int | np.random.Generator) -> np.random.Generator:
    if isinstance(rng, np.random.Generator):
        return rng
    _require_integer(
        "rng", rng, at_least=0, fix="Pass a seed, or a generator from numpy.random.default_rng."
    )
    return np.random.default_rng(rng)
