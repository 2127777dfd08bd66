"""Models declare what they provide, routes what they need; this is where the two meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from flowbias.potentials import Provides
from flowbias.problem import InputError


class Needing(Protocol):
    """A route, as far as matching is concerned."""

    @property
    def needs(self) -> frozenset[Provides]: ...


RouteT = TypeVar("RouteT", bound=Needing)


def provided_by(model: Any) -> frozenset[Provides]:
    """What the model declares; an error that says what a model is, for anything else."""
    try:
        declared: frozenset[Provides] = model.provides
    except AttributeError:
        raise InputError(
            f"model: must declare what it `provides`, got {type(model).__name__}. "
            "Pass a model such as fb.DiagonalNet(depth=2, scale=0.1), or a potential."
        ) from None
    return declared


def first_fitting(model: Any, routes: Sequence[RouteT]) -> RouteT:
    """The first of the routes whose needs the model declares."""
    declared = provided_by(model)
    for route in routes:
        if route.needs <= declared:
            return route
    missing = ", ".join(sorted(need.name for need in routes[-1].needs - declared))
    raise InputError(
        f"model: must provide {missing}, got a {type(model).__name__} that does not. "
        "Declare it in `provides`, with the attributes that go with it."
    )
