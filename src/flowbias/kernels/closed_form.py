"""Tangent kernels of the library's own models, without any differentiation.

A model whose predictor is w = F(parameters), f(x) = <w, x>, has the tangent features J^T x; a
product M = U V^T measured by A has dM = A V (for U) and A^T U (for V), and so

    K(A, B) = <A V V^T, B> + <U U^T A, B>,

which the Gram matrix of the rows of U and V gives at any width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.routing import first_fitting
from flowbias.ground.typing import FloatArray
from flowbias.potentials import Provides
from flowbias.problems.matrix import MatrixProblem, MatrixRegression, MatrixSensing
from flowbias.problems.regression import checked_array


@dataclass(frozen=True)
class ClosedForm:
    """One closed form, and what a model must provide for it."""

    needs: frozenset[Provides]
    #: K (n1, n2, c, c) of the model on two sets of inputs, the second None for the first
    kernel: Callable[[Any, Any, Any], FloatArray]


def _own(model: Any, x1: Any, x2: Any) -> FloatArray:
    first = checked_array("x1", x1, 2)
    second = None if x2 is None else checked_array("x2", x2, 2)
    return np.asarray(model.tangent_kernel(first, second))[:, :, None, None]


def _by_parameters(model: Any, x1: Any, x2: Any) -> FloatArray:
    first = parameter_features(model, "x1", x1)
    second = first if x2 is None else parameter_features(model, "x2", x2)
    return (first @ second.T)[:, :, None, None]


def parameter_features(model: Any, name: str, x: Any) -> FloatArray:
    """J^T x for each row x: (samples, parameters)."""
    X = checked_array(name, x, 2)
    parameters = model.initial_parameters()
    features = np.size(model.predictor(parameters))
    if features not in (1, X.shape[1]):
        raise InputError(
            f"{name}: must have one column per feature of the model ({features}), "
            f"got {X.shape[1]}. Pass samples x features."
        )
    rows = (model.parameter_gradient(parameters, row) for row in X)
    return np.array([np.concatenate([np.ravel(part) for part in row]) for row in rows])


def _by_gram(model: Any, x1: Any, x2: Any) -> FloatArray:
    first, outputs = _measurements(model, "x1", x1)
    second, others = (first, outputs) if x2 is None else _measurements(model, "x2", x2)
    if outputs != others:
        raise InputError(
            f"x2: must measure as many outputs per sample as x1 ({outputs}), got {others}. "
            "Pass both as samples x features, or both as measurements."
        )
    rows = model.shape[0]
    left, right = model.gram[:rows, :rows], model.gram[rows:, rows:]
    moved = left @ first + first @ right
    kernel = model.rate * moved.reshape(len(first), -1) @ second.reshape(len(second), -1).T
    shape = len(first) // outputs, outputs, len(second) // outputs, outputs
    return np.asarray(kernel.reshape(shape).transpose(0, 2, 1, 3))


def _measurements(model: Any, name: str, x: Any) -> tuple[FloatArray, int]:
    """The matrices that inputs measure M with, (samples * outputs, d, m), and outputs.

    x is samples x features of a network, a stack of matrices (n, d, m), or a matrix problem, whose
    measurements are one output each.
    """
    if isinstance(x, MatrixProblem):
        problem, outputs = x, 1
    elif np.ndim(x) == 3:
        problem, outputs = MatrixSensing(x, np.zeros(len(x))), 1
    else:
        rows = checked_array(name, x, 2)
        outputs = model.shape[1]
        problem = MatrixRegression(rows, np.zeros((len(rows), outputs)))
    lifted = model.lifted_problem(problem)
    units = np.eye(lifted.target.size).reshape(-1, *lifted.target.shape)
    return np.array([lifted.adjoint(unit) for unit in units]), outputs


#: In order of preference.
_CLOSED_FORMS = (
    ClosedForm(frozenset({Provides.POTENTIAL, Provides.PARAMETERS}), _own),
    ClosedForm(frozenset({Provides.NEURON}), _own),
    ClosedForm(frozenset({Provides.ACTIVATED_NEURON}), _own),
    ClosedForm(frozenset({Provides.PARAMETERS}), _by_parameters),
    ClosedForm(frozenset({Provides.GRAM}), _by_gram),
)


def declared_by(module: Any) -> frozenset[Provides]:
    """What a model of the library declares; nothing for a torch module, which declares nothing."""
    declared: frozenset[Provides] = getattr(module, "provides", frozenset())
    return declared


def closed_kernel(model: Any, x1: Any, x2: Any) -> FloatArray:
    """K (n1, n2, c, c) of a model of the library."""
    return first_fitting(model, _CLOSED_FORMS).kernel(model, x1, x2)


def _factor_features(model: Any, name: str, x: Any) -> FloatArray:
    """(A V, A^T U) for each measurement A: (samples, outputs * parameters)."""
    matrices, outputs = _measurements(model, name, x)
    U, V = model.factors
    parts = (matrices @ V, np.swapaxes(matrices, 1, 2) @ U)
    rows = np.hstack([part.reshape(len(matrices), -1) for part in parts])
    return np.asarray(np.sqrt(model.rate) * rows.reshape(len(matrices) // outputs, -1))


@dataclass(frozen=True)
class FeatureRoute:
    """Tangent features themselves, one row per sample, and the parameters behind them."""

    needs: frozenset[Provides]
    features: Callable[[Any, str, Any], FloatArray]
    parameters: Callable[[Any], dict[str, FloatArray]]


def _named(parts: Any) -> dict[str, FloatArray]:
    """By the names of a NamedTuple, by position otherwise."""
    names = getattr(parts, "_fields", map(str, range(len(parts))))
    return {name: np.asarray(part) for name, part in zip(names, parts, strict=True)}


FEATURES = (
    FeatureRoute(
        frozenset({Provides.PARAMETERS}),
        parameter_features,
        lambda model: _named(model.initial_parameters()),
    ),
    FeatureRoute(
        frozenset({Provides.FACTORS}), _factor_features, lambda model: _named(model.factors)
    ),
)


def feature_route(model: Any) -> FeatureRoute:
    """How the tangent features of a model of the library are computed."""
    return first_fitting(model, FEATURES)
