"""Models declare what they provide, routes what they need; this is where the two meet."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol, TypeVar

from flowbias.ground.arguments import InputError


class Provides(Enum):
    """What a potential or a model declares, so that a route can say what it needs."""

    POTENTIAL = "a smooth strictly convex potential with an explicit dual map"
    EXPONENTIAL_DUAL = "w(z) = exp(log_plus + rate z) - exp(log_minus - rate z)"
    POWER_DUAL = "w(z) = (c_plus - z)^-k - (c_minus + z)^-k, c = a^(2-depth)"
    COSTS = "a norm whose sides, the positive and the negative values of w, have costs(d)"
    JOINT_POTENTIAL = "a smooth strictly convex potential of all coordinates together"
    RICH_COSTS = (
        "rich_costs(): what a unit of w costs on either side as a homogeneous start vanishes"
    )
    PARAMETERS = "the weights behind the predictor"
    SCALE = "log_scale and at_log_scale(log_scale): the same start at another scale"
    SQUARES = "squares, step_rate, with_squares(p, m): w = p^2 - m^2, each multiplied by a step"
    RESTART = "restarted(parameters): the same parametrization from other weights"
    GRAM = "the Gram matrix [U; V][U; V]^T of a product U V^T: its flow at any width"
    FACTORS = "the factors U and V of a product themselves"
    NEURON = "one linear neuron a <w, x>: its limit in closed form"
    NEURON_SUM = "a sum of linear neurons"
    OWN_LIMIT = "limit(X, y, tol=, throw=): a way to the limit of its own"
    ACTIVATED_NEURON = "one neuron a sigma(<w, x>) with a leaky ReLU"

    # Members are singletons; Enum hashes their names, in Python, wherever a set is made of them.
    __hash__ = object.__hash__


class Needing(Protocol):
    """A route, as far as matching is concerned."""

    @property
    def needs(self) -> frozenset[Provides]: ...


RouteT = TypeVar("RouteT", bound=Needing)

_LIMIT, _FLOW = "fb.limit(model, X, y)", "fb.flow(model, X, y)"
_DESCENT = "fb.gradient_descent(model, X, y, step_size=...)"
#: The calls that take a model, by what it provides: what an error offers in place of what failed.
CALLS: dict[Provides, tuple[str, ...]] = {
    Provides.POTENTIAL: (_LIMIT, _FLOW),
    Provides.PARAMETERS: (_FLOW, _DESCENT),
    Provides.GRAM: (
        "fb.limit, fb.flow or fb.gradient_descent on data (X, Y) or on a matrix problem such as "
        "fb.MatrixCompletion",
    ),
    Provides.NEURON: (_LIMIT, _FLOW),
    Provides.NEURON_SUM: (_LIMIT, _FLOW),
    Provides.ACTIVATED_NEURON: (_LIMIT, _FLOW),
    Provides.OWN_LIMIT: (_LIMIT,),
}

#: How to come by what is missing, where there is more to say than to declare it.
REMEDIES: dict[Provides, str] = {
    Provides.FACTORS: (
        "A wide start keeps its Gram matrix only: draw it with keep_weights=True, or leave out "
        "the route, since the flow of the Gram matrix is the same."
    ),
}
_DECLARE = (
    "Declare it in `provides`, with the attributes that go with it. fb.basis_pursuit(X, y) and "
    "fb.min_norm(X, y), the extremes, need no model."
)


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
    missing = sorted(routes[-1].needs - declared, key=lambda need: need.name)
    raise unfitting(
        model,
        f"provide {', '.join(need.name for need in missing)}",
        " ".join(dict.fromkeys(REMEDIES.get(need, _DECLARE) for need in missing)),
    )


def unfitting(model: Any, must: str, fix: str) -> InputError:
    """The error for a model that lacks what a call needs: says which calls it does fit."""
    declared = provided_by(model)
    has = ", ".join(sorted(need.name for need in declared)) or "nothing"
    fitting = (call for need in Provides if need in declared for call in CALLS.get(need, ()))
    calls = ", or ".join(dict.fromkeys(fitting))
    fits = f" Or, with this model, {calls}." if calls else ""
    return InputError(
        f"model: must {must}, got a {type(model).__name__}, which provides {has}. {fix}{fits}"
    )
