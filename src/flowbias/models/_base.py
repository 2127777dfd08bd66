"""What a model is: a parametrization of the predictor, at its start.

`Model` asks for the little that following gradient flow in parameter space takes. `MirrorModel`
adds what turns that flow into mirror flow of the predictor, where a potential exists:

    d/dt grad Q(w) = -mirror_rate c X^T (X w - y)    for the loss (c/2) ||X w - y||^2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.potentials import Potential, Provides

#: Weights by name: in practice a NamedTuple of arrays.
Parameters = tuple[FloatArray, ...]


class HasPotential(Protocol):
    """What limits and mirror flows need of a model: a potential and the dual point of its start."""

    @property
    def provides(self) -> frozenset[Provides]: ...
    @property
    def potential(self) -> Potential: ...
    @property
    def shift(self) -> FloatArray | float: ...


class Model(ABC):
    """A predictor w = F(parameters) and where the parameters start.

    A parameter of shape () stands for one value shared by all features.
    """

    @property
    def provides(self) -> frozenset[Provides]:
        return frozenset({Provides.PARAMETERS})

    @abstractmethod
    def initial_parameters(self) -> Parameters:
        """The parameters at t = 0."""

    @abstractmethod
    def predictor(self, parameters: Parameters) -> FloatArray:
        """w = F(parameters)."""

    @abstractmethod
    def parameter_gradient(self, parameters: Parameters, g: FloatArray) -> Parameters:
        """(dF/dparameters)^T g: the gradient of <g, F(parameters)>."""

    def conserved(self, parameters: Parameters) -> FloatArray:
        """Quantities that gradient flow keeps constant whatever the data."""
        raise NotImplementedError(
            f"{type(self).__name__} does not say what its flow conserves. "
            "Write conserved(parameters) to have it checked along trajectories."
        )


class MirrorModel(Model):
    """A model whose gradient flow is mirror flow of its predictor, coordinate by coordinate.

    Duals z are in the units of the potential, exp(potential.log_unit), and counted from the start.
    """

    @property
    def provides(self) -> frozenset[Provides]:
        return self.potential.provides | {Provides.PARAMETERS, Provides.SCALE}

    @property
    @abstractmethod
    def potential(self) -> Potential:
        """The potential Q that the flow implicitly minimizes."""

    @property
    @abstractmethod
    def shift(self) -> FloatArray | float:
        """grad Q(w(0)): 0 unless the start is biased."""

    @property
    @abstractmethod
    def initial(self) -> FloatArray | float:
        """The predictor at the start, w(0)."""

    @property
    @abstractmethod
    def mirror_rate(self) -> float:
        """g in d/dt grad Q(w) = -g c X^T r; 0 or inf where it leaves the double range."""

    @abstractmethod
    def parameters(self, z: FloatArray) -> Parameters:
        """The weights, signs included, at the time when grad Q(w) = shift + z."""

    @abstractmethod
    def metric(self, parameters: Parameters) -> FloatArray:
        """Diagonal of J J^T, J = dF/dparameters: how fast each coordinate of w can move."""

    @property
    @abstractmethod
    def log_scale(self) -> FloatArray:
        """log of the scale of the start, one number or one per feature."""

    @abstractmethod
    def at_log_scale(self, log_scale: float) -> MirrorModel:
        """The same start with its scale set to exp(log_scale)."""

    def restarted(self, parameters: Parameters) -> MirrorModel:
        """The same parametrization from other weights."""
        raise NotImplementedError(
            f"{type(self).__name__} does not say how it starts from other weights. "
            "Write restarted(parameters) and declare Provides.RESTART."
        )

    def tangent_kernel(
        self, X1: ArrayLike, X2: ArrayLike | None = None, parameters: Parameters | None = None
    ) -> FloatArray:
        """X1 J J^T X2^T at the given parameters, by default at the start."""
        first = _features("X1", X1)
        second = first if X2 is None else _features("X2", X2)
        if first.shape[1] != second.shape[1]:
            raise InputError(
                f"X2: must have as many columns as X1 ({first.shape[1]}), got {second.shape[1]}. "
                "Both are samples x features."
            )
        metric = self.metric(self.initial_parameters() if parameters is None else parameters)
        if metric.size not in (1, first.shape[1]):
            raise InputError(
                f"X1: must have one column per feature of the model ({metric.size}), "
                f"got {first.shape[1]}. Pass samples x features."
            )
        return np.asarray((first * metric) @ second.T)


def _features(name: str, X: ArrayLike) -> FloatArray:
    array = np.asarray(X, dtype=np.float64)
    if array.ndim != 2:
        raise InputError(
            f"{name}: must have 2 dimensions, got shape {array.shape}. Pass samples x features, "
            f"for one sample {name}.reshape(1, -1)."
        )
    return array
