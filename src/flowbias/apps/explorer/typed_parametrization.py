"""A typed formula as a parametrization w = F(theta): derivatives by jets, flows kept, work bounded.

theta holds the vectors of the formula, d entries each, and then its scalars. A jet holds x in row 0
and dx/dname in one row per name, so that each rule of differentiation is one line of arithmetic:

    d(x y) = x dy + y dx,    d(x / y) = (dx - (x / y) dy) / y,    d f(x) = f'(x) dx

For the two or three coordinates of a picture that is several times quicker than a backward pass.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.interpolate import CubicHermiteSpline

from flowbias.apps.explorer.formula import (
    FUNCTIONS,
    SCALARS,
    VECTORS,
    Arithmetic,
    Formula,
    parse,
)
from flowbias.derive.derived_potential import NoWarp, along_dual, start_of
from flowbias.derive.parametrization import Parametrization
from flowbias.ground.typing import FloatArray


def jets(names: int) -> Arithmetic:
    """The rules of differentiation, for jets (1 + names, d); numbers have no derivative."""

    def product(x: FloatArray, y: FloatArray) -> FloatArray:
        return _with_value(x * y[0] + x[0] * y, x[0] * y[0])

    def quotient(x: FloatArray, y: FloatArray) -> FloatArray:
        ratio = x[0] / y[0]
        return _with_value((x - ratio * y) / y[0], ratio)

    def power(x: FloatArray, number: FloatArray) -> FloatArray:
        exponent = float(number[0, 0])
        # x^0 is 1 at x = 0 as well, where x^-1 is not finite.
        slope = exponent * x[0] ** (exponent - 1.0) if exponent else 0.0
        return _with_value(slope * x, x[0] ** exponent)

    def called(function: Callable[[Any], tuple[Any, Any]], x: FloatArray) -> FloatArray:
        value, slope = function(x[0])
        return _with_value(slope * x, value)

    number = np.eye(1 + names, 1)
    return Arithmetic(
        {
            ast.Add: np.add,
            ast.Sub: np.subtract,
            ast.Mult: product,
            ast.Div: quotient,
            ast.Pow: power,
        },
        {name: partial(called, function) for name, function in FUNCTIONS.items()},
        number=lambda value: value * number,
    )


def _with_value(rows: FloatArray, value: FloatArray) -> FloatArray:
    rows[0] = value
    return rows


@dataclass(frozen=True)
class TypedFunction:
    """w = F(theta) for d predictors."""

    formula: Formula
    d: int

    @classmethod
    def of(cls, text: str, d: int) -> TypedFunction:
        """From what the reader typed; InputError where that is no formula."""
        return cls(parse(text), d)

    def __call__(self, theta: Any) -> Any:
        """The predictor at a tensor of parameters."""
        return self.formula.value({name: theta[place] for name, place in self.places()})

    @cached_property
    def vectors(self) -> tuple[str, ...]:
        """The vectors in it, in the order of theta."""
        return tuple(name for name in VECTORS if name in self.formula.names)

    @cached_property
    def scalars(self) -> tuple[str, ...]:
        """The scalars in it, in the order of theta."""
        return tuple(name for name in SCALARS if name in self.formula.names)

    @property
    def separates(self) -> bool:
        """Whether every coordinate has parameters of its own."""
        return not self.scalars

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """u1, u2, ..., a: one per entry of theta."""
        numbered = (f"{name}{i + 1}" for name in self.vectors for i in range(self.d))
        return (*numbered, *self.scalars)

    def start(self, scale: float, ratio: float) -> FloatArray:
        """The first vector at `scale`, all other parameters at `ratio` times that."""
        theta = np.full(len(self.parameter_names), scale * ratio)
        theta[: self.d] = scale
        return theta

    def source(self) -> str:
        """The same function as Python, for people to copy."""
        lines = ["def F(theta):"]
        for name, place in self.places():
            index = place if isinstance(place, int) else f"{place.start}:{place.stop}"
            lines.append(f"    {name} = theta[{index}]")
        return "\n".join([*lines, f"    return {self.formula.python}"])

    def places(self) -> Iterator[tuple[str, int | slice]]:
        """Each name with its entries of theta."""
        place = 0
        for name in self.vectors:
            yield name, slice(place, place + self.d)
            place += self.d
        for name in self.scalars:
            yield name, place
            place += 1


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

    # Flows from one point along one field are asked for again by every test.
    most_flows = 256

    def __init__(self, function: TypedFunction, theta0: FloatArray) -> None:
        self._function = function
        self._size = function.formula.size
        names = (*function.vectors, *function.scalars)
        self._jets = jets(len(names))
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
            if len(self._flows) >= self.most_flows:
                self._flows.clear()
            self._flows[asked] = super().flow_along(theta, z, time)
        return self._flows[asked].copy()

    def torch_function(self, flat: Any) -> Any:
        # What torch takes for a node, differentiated, in units of what a jet takes.
        self._take(10 * self._size)
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
            names[name] = slot
        # What leaves the domain of F is NaN or infinite, as with torch.
        with np.errstate(all="ignore"):
            rows: FloatArray = self._function.formula.value(names, self._jets)
        return rows


def section_of(
    function: TypedFunction, theta0: FloatArray, window: tuple[float, float], count: int = 8
) -> CubicHermiteSpline | None:
    """The potential q of one coordinate, from `count` points to each end of the window.

    NaN beyond them; None where q cannot be followed away from the start.

    One coordinate's gradient field commutes with itself, so that q is reached along the dual:
    steps of dz = (wanted step in w)/M, since dw/dz = M.
    """
    model = TypedParametrization(function, theta0)
    first = start_of(model)
    middle = float(model.initial[0])
    found = [(middle, 0.0, 0.0)]
    for edge in window:
        state, w, step = first, middle, (edge - middle) / (count - 1)
        for _ in range(count):
            if not step:
                break
            slope = model.pulled_back(state.theta, np.ones(1))
            dz = np.array([step / float(slope @ slope)])
            state = along_dual(model, NoWarp(), state, dz)
            reached = float(model.predictor_at(state.theta)[0]) if state.inside else w
            # What moves by less than that share of what was meant is at the end of the domain.
            if not abs(reached - w) > 0.05 * abs(step):
                break
            w = reached
            found.append((w, state.potential, float(state.z[0])))
    w, q, z = np.array(sorted(found)).T
    return CubicHermiteSpline(w, q, z, extrapolate=False) if w.size > 1 else None
