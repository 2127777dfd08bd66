"""Samples in one direction share one kink, and count as one sample.

sigma(k s) = k sigma(s) for k > 0, so that samples (k_i u, y_i) with one unit vector u contribute

    sum (a k_i sigma(<w, u>) - y_i)^2 = (a L sigma(<w, u>) - <k, y>/L)^2 + lost^2,   L = ||k||,

whatever the weights. Left apart, their subgradients at the common kink could differ, which Clarke's
do not: all of them are on one side of it, or none is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowbias.flows.leaky_neuron.field import EPS, Indices, LeakyStart
from flowbias.ground.extended import row_lengths
from flowbias.ground.typing import FloatArray

# Distance of unit vectors, in roundings of their entries, within which they are one.
_SAME = 8.0 * EPS


def merged_start(a: float, w: FloatArray, slope: float, X: FloatArray, y: FloatArray) -> LeakyStart:
    """The neuron on the data with parallel samples merged; the data themselves where none are."""
    lengths = row_lengths(X)
    group = _groups(X / np.where(lengths > 0.0, lengths, 1.0)[:, None], lengths > 0.0)
    count = int(group.max()) + 1
    if count == len(y):
        return LeakyStart(a, w, slope, X, y)
    totals = np.sqrt(np.bincount(group, weights=lengths**2))
    share = np.divide(lengths, totals[group], out=np.ones_like(lengths), where=lengths > 0.0)
    _, first = np.unique(group, return_index=True)
    rows = X[first] / share[first][:, None]
    targets: FloatArray = np.asarray(np.bincount(group, weights=share * y), dtype=np.float64)
    lost = float(np.linalg.norm(y - share * targets[group]))
    # Roundings of consistent data are no misfit.
    lost = lost if lost > 64.0 * EPS * float(np.linalg.norm(y)) else 0.0
    return LeakyStart(a, w, slope, rows, targets, lost, group, share)


def _groups(directions: FloatArray, is_row: NDArray[np.bool_]) -> Indices:
    """For each row the number of its direction, in the order in which they first occur."""
    group = np.full(len(directions), -1)
    nearly = directions @ directions.T > 1.0 - 1e-12
    count = 0
    for i in range(len(directions)):
        if group[i] >= 0:
            continue
        group[i] = count
        if is_row[i]:
            later = i + 1 + np.flatnonzero(nearly[i, i + 1 :])
            apart = np.abs(directions[later] - directions[i]).max(axis=1, initial=0.0)
            group[later[(apart <= _SAME) & (group[later] < 0)]] = count
        count += 1
    return group
