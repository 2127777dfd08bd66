"""A typed formula as a parametrization: first derivatives by jets, flows kept, work bounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from flowbias._typing import FloatArray
from flowbias.derive.parametrization import Parametrization
from flowbias.explorer.formula.jet import Jet
from flowbias.explorer.formula.typed_function import TypedFunction

# Flows from one point along one field are asked for again by every test.
_MOST_FLOWS = 256


# What torch takes for a node, differentiated, in units of what a jet takes.
_TORCH = 10


class UnfinishedError(Exception):
    """Work that was given up because all that `at_most` allows was spent."""


class _Allowance:
    """Nodes of a formula that may still be evaluated."""

    def __init__(self, nodes: int) -> None:
        self.left = nodes

    def take(self, nodes: int) -> None:
        self.left -= nodes
        if self.left < 0:
            raise UnfinishedError


# Of the thread at hand: two readers may look at the same report.
_ALLOWED: ContextVar[_Allowance | None] = ContextVar("allowed", default=None)


@contextmanager
def at_most(nodes: int) -> Iterator[None]:
    """Inside, UnfinishedError is raised once formulas have been evaluated at that many nodes."""
    token = _ALLOWED.set(_Allowance(nodes))
    try:
        yield
    finally:
        _ALLOWED.reset(token)


class TypedParametrization(Parametrization):
    """w = F(theta) of a typed formula, which torch has to differentiate twice or more only."""

    def __init__(self, function: TypedFunction, theta0: FloatArray) -> None:
        self._function = function
        self._size = function.tree.size()
        names = (*function.vectors, *function.scalars)
        self._slots = np.zeros((len(names), 1 + len(names), function.d))
        for k in range(len(names)):
            self._slots[k, 1 + k] = 1.0
        self._newest: tuple[bytes, FloatArray] | None = None
        self._flows: dict[tuple[bytes, bytes, float], FloatArray] = {}
        super().__init__(function, theta0, function.parameter_names)

    def predictor_at(self, theta: FloatArray) -> FloatArray:
        return np.array(self._rows(theta)[0])

    def pulled_back(self, theta: FloatArray, z: FloatArray) -> FloatArray:
        weighted = z * self._rows(theta)[1:]
        vectors = len(self._function.vectors)
        # A vector's entries move one coordinate each, a scalar moves all of them.
        return np.concatenate([weighted[:vectors].ravel(), weighted[vectors:].sum(axis=1)])

    def jacobian(self, theta: FloatArray) -> FloatArray:
        slopes = self._rows(theta)[1:]
        vectors = len(self._function.vectors)
        blocks = [np.diag(row) for row in slopes[:vectors]]
        return np.hstack([*blocks, slopes[vectors:].T])

    def flow_along(self, theta: FloatArray, z: FloatArray, time: float = 1.0) -> FloatArray:
        asked = np.asarray(theta, float).tobytes(), np.asarray(z, float).tobytes(), time
        if asked not in self._flows:
            if len(self._flows) >= _MOST_FLOWS:
                self._flows.clear()
            self._flows[asked] = super().flow_along(theta, z, time)
        return self._flows[asked].copy()

    def torch_function(self, flat: Any) -> Any:
        self._take(_TORCH * self._size)
        return super().torch_function(flat)

    def _take(self, nodes: int) -> None:
        allowed = _ALLOWED.get()
        if allowed is not None:
            allowed.take(nodes)

    def _rows(self, theta: FloatArray) -> FloatArray:
        """w and its derivatives, (1 + names, d); asked for at one point several times in a row."""
        theta = np.asarray(theta, dtype=np.float64).ravel()
        newest = self._newest
        if newest is None or newest[0] != theta.tobytes():
            self._take(self._size)
            newest = self._newest = theta.tobytes(), self._evaluated(theta)
        return newest[1]

    def _evaluated(self, theta: FloatArray) -> FloatArray:
        slots = self._slots.copy()
        names = {}
        for slot, (name, place) in zip(slots, self._function.places(), strict=True):
            slot[0] = theta[place]
            names[name] = Jet(slot)
        # What leaves the domain of F is NaN or infinite, as with torch.
        with np.errstate(all="ignore"):
            rows: FloatArray = self._function.tree.value(names).rows
        return rows
