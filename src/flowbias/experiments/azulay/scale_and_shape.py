"""Limits over scale and shape of the start of a two-layer diagonal network.

    w = u+ v+ - u- v-,    alpha = |u||v|,    s = (|v|-|u|)/(|v|+|u|),
    control = alpha (1+s^2)/(1-s^2) = sqrt(k)/4                       [azulay2021, section 7.1]

The shapes are chosen so that growth = (1+s^2)/(1-s^2) falls on the grid of alpha: one path of tied
limits then has the control of every point of the map.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowbias._typing import FloatArray
from flowbias.datasets import SparseRegression, sparse_regression
from flowbias.experiments._base import Settings, Task
from flowbias.experiments.table import Columns
from flowbias.flows import flow
from flowbias.limits import basis_pursuit, limit, limit_path, min_norm
from flowbias.models import DiagonalNet, UntiedDiagonalNet

# log10 of the controls whose level lines are drawn.
LEVELS = (-8.0, -6.0, -4.0, -2.0, 0.0, 2.0)
# Shape and log10 of the control where the weights themselves are followed, on a small problem.
INTEGRATED = ((0.9, -1.0), (-0.99, -1.0), (0.999, -1.0), (0.9, -2.0))
FLOW_RESIDUAL = 1e-8


def shape_of(log10_growth: FloatArray) -> FloatArray:
    """The shape s >= 0 with (1+s^2)/(1-s^2) = 10^log10_growth."""
    growth = np.power(10.0, log10_growth)
    return np.asarray(np.sqrt((growth - 1.0) / (growth + 1.0)))


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One task per data set with all its scales and shapes; then what the map is checked against.

    All columns of the map share their data, so that only the shape changes along a row.
    """
    rest = {name: value for name, value in settings.items() if name != "replicates"}
    for replicate in range(int(settings["replicates"])):
        yield "grid", {**rest, "replicate": replicate}
    yield "sign", rest
    for shape, log10_control in INTEGRATED:
        yield "flow", {"shape": shape, "log10_control": log10_control}
    yield "level", {"log10_growth_high": rest["log10_growth_high"]}


def compute(task: Task) -> Columns:
    parts = {"grid": _grid, "sign": _sign, "flow": _flow, "level": _level}
    return parts[task.part](task)


def _grid(task: Task) -> Columns:
    """Untied limits at every (alpha, s) beside the tied limits of the same control."""
    data = _problem(task)
    log10_alpha, log10_growth = _axes(task)
    steps = task.integer("per_decade")
    first, last = log10_alpha[-1], log10_alpha[0] + log10_growth[-1]
    log10_tied = np.linspace(last, first, round((last - first) * steps) + 1)
    tied = limit_path(
        DiagonalNet(depth=2, scale=1.0), data.X, data.y, log_scales=_log_scales(log10_tied)
    )
    tied_error = _population_error(tied.w, data.w_true)
    columns = []
    for shape, growth in zip(shape_of(log10_growth), log10_growth, strict=True):
        net = UntiedDiagonalNet(scale=1.0, shape=shape)
        path = limit_path(net, data.X, data.y, log_scales=_log_scales(log10_alpha))
        at = np.rint((last - log10_alpha - growth) * steps).astype(int)
        size = np.linalg.norm(path.w, axis=1)
        columns.append(
            {
                "shape": np.full(len(path), shape),
                "log10_alpha": log10_alpha,
                "log10_control": log10_tied[at],
                "error": _population_error(path.w, data.w_true),
                "tied_error": tied_error[at],
                "tied_distance": np.linalg.norm(path.w - tied.w[at], axis=1) / size,
                "error_bound": [sol.certificate.error_bound for sol in path] / size,
            }
        )
    # What every row of the data set shares: the errors of the two extremes.
    rich = basis_pursuit(data.X, data.y).w
    kernel = min_norm(data.X, data.y).w
    return {
        **{name: np.concatenate([part[name] for part in columns]) for name in columns[0]},
        "l1_error": _population_error(rich, data.w_true),
        "l2_error": _population_error(kernel, data.w_true),
    }


def _sign(task: Task) -> Columns:
    """The limits of s and -s at the scale where the control is 1e-4, in the transition."""
    data = _problem(task)
    log10_growth = _axes(task)[1][1:]
    shapes, distances = shape_of(log10_growth), []
    for shape, growth in zip(shapes, log10_growth, strict=True):
        log_scale = float(_log_scales(-4.0 - growth))
        one, other = (
            limit(UntiedDiagonalNet(log_scale=log_scale, shape=signed), data.X, data.y).w
            for signed in (shape, -shape)
        )
        distances.append(np.linalg.norm(one - other) / np.linalg.norm(one))
    return {"shape": shapes, "sign_distance": distances}


def _flow(task: Task) -> Columns:
    """The four weight vectors integrated to the end, without potential, beside the tied limit."""
    data = sparse_regression(n=10, d=40, sparsity=3, noise_var=0.01, rng=task.rng())
    shape, control = task.number("shape"), 10.0 ** task.number("log10_control")
    alpha = control * (1.0 - shape**2) / (1.0 + shape**2)
    net = UntiedDiagonalNet(scale=np.sqrt(alpha), shape=shape)
    end = flow(net, data.X, data.y, residual=FLOW_RESIDUAL, route="parameter").w[-1]
    tied = limit(DiagonalNet(depth=2, scale=np.sqrt(control)), data.X, data.y).w
    return {"flow_distance": np.linalg.norm(end - tied) / np.linalg.norm(tied)}


def _level(task: Task) -> Columns:
    """Along which (s, alpha) the control keeps its value: alpha = control (1-s^2)/(1+s^2)."""
    growth = np.linspace(0.0, task.number("log10_growth_high"), 60)
    levels = np.repeat(np.array(LEVELS), growth.size)
    return {
        "log10_control": levels,
        "shape": np.tile(shape_of(growth), len(LEVELS)),
        "log10_alpha": levels - np.tile(growth, len(LEVELS)),
    }


def _problem(task: Task) -> SparseRegression:
    n, d, sparsity = (task.integer(name) for name in ("n", "d", "sparsity"))
    return sparse_regression(n, d, sparsity, task.number("noise_var"), task.rng())


def _axes(task: Task) -> tuple[FloatArray, FloatArray]:
    """log10 of alpha, decreasing as warm starts like it, and of (1+s^2)/(1-s^2), increasing."""
    high, low = task.number("log10_alpha_high"), task.number("log10_alpha_low")
    growth, steps = task.number("log10_growth_high"), task.integer("per_decade")
    return (
        np.linspace(high, low, round((high - low) * steps) + 1),
        np.linspace(0.0, growth, round(growth * steps) + 1),
    )


def _log_scales(log10_alpha: FloatArray | float) -> FloatArray:
    """The paper's alpha is the square of the library's scale."""
    return np.asarray(0.5 * np.log(10.0) * log10_alpha)


def _population_error(w: FloatArray, w_true: FloatArray) -> FloatArray:
    """||w - w_true||^2: the expected squared error on new samples, less the noise."""
    return np.asarray(np.sum((w - w_true) ** 2, axis=-1))
