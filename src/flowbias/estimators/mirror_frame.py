"""The problem of an estimator for those who need its potential: flows and derivatives.

A limit with a "trained" bias is solved in a way of its own; followed in time, or differentiated, it
is a network with one more coordinate, on [X, e].
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias.estimators.intercepts.frames import Frame, as_array, refuse_large
from flowbias.estimators.intercepts.trained_bias import bias_weight
from flowbias.ground.typing import FloatArray
from flowbias.models import MirrorModel
from flowbias.potentials import Potential, Provides
from flowbias.potentials.with_bias import WithBias


@dataclass(frozen=True)
class WithBiasModel:
    """A network and a bias that starts at 0, on the network's clock."""

    potential: Potential
    mirror_rate: float
    shift: float = 0.0

    @property
    def provides(self) -> frozenset[Provides]:
        return self.potential.provides


@dataclass(frozen=True, eq=False)
class MirrorFrame:
    """A model with a potential, the rows it is fitted to, and a column that costs nothing."""

    model: Any
    X: FloatArray
    free: FloatArray | None
    has_bias_column: bool = False


def _plain(frame: Frame, network: MirrorModel) -> MirrorFrame:
    return MirrorFrame(network, as_array(frame.X), None)


def _centred(frame: Frame, network: MirrorModel) -> MirrorFrame:
    return MirrorFrame(network, np.asarray(frame.X), root_weights(frame))


def _trained(frame: Frame, network: MirrorModel) -> MirrorFrame:
    rate = bias_weight(network)
    potential = WithBias(network.potential, rate, frame.X.shape[1])
    X = np.column_stack([frame.X, root_weights(frame)])
    return MirrorFrame(WithBiasModel(potential, rate), X, None, has_bias_column=True)


def root_weights(frame: Frame) -> FloatArray:
    """Square roots of the sample weights: ones where there are none."""
    root = frame.samples.root_weight
    return np.ones(len(frame.y)) if root is None else root


#: By the value of fit_intercept.
_MIRROR_FRAMES: dict[Hashable, Callable[[Frame, MirrorModel], MirrorFrame]] = {
    False: _plain,
    True: _centred,
    "centered": _centred,
    "trained": _trained,
}


def mirror_frame(frame: Frame, fit_intercept: Any, network: Any) -> MirrorFrame:
    """What `fit_intercept`, checked when the frame was made, means for this network."""
    refuse_large(frame.samples.X, "flows and derivatives")
    return _MIRROR_FRAMES[fit_intercept](frame, network)
