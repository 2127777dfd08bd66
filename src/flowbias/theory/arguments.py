"""What a claim is about is written in its signature; `checked` holds every call to it.

A parameter annotated with a model, a problem or a number takes nothing else: EXPECTED says, once
for all claims, what fits an annotation and how to come by it. Data X, y and Y are annotated `Any`,
since `Regression` and `MatrixRegression` read them. Where an instance lies outside a hypothesis of
the theorem (conditions.py), the claims come back silent, with that for a reason.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import (
    Annotated,
    Any,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from flowbias.flows.leaky_neuron.follow import ActivatedNeuron
from flowbias.ground.arguments import InputError, as_float, shown
from flowbias.ground.typing import ArrayLike
from flowbias.models import DiagonalNet, UntiedDiagonalNet
from flowbias.models._base import MirrorModel
from flowbias.models.lifted import LiftedModel
from flowbias.models.neuron import Neuron
from flowbias.models.neuron_sum import NeuronSum
from flowbias.potentials import Potential, Provides
from flowbias.problems.matrix._base import MatrixProblem
from flowbias.problems.matrix.completion import MatrixCompletion
from flowbias.problems.matrix.reading import shape_of
from flowbias.problems.matrix.regression import MatrixRegression
from flowbias.problems.regression import checked_array
from flowbias.theory.claim import Claim, Kind, Reference
from flowbias.theory.conditions import OutsideHypothesis
from flowbias.theory.measured_factors import MeasuredFactors, ProductPath
from flowbias.theory.reduced_net import LinearStart
from flowbias.theory.wide_bounds import WideStart

P = ParamSpec("P")
R = TypeVar("R")

#: Arrays of one and of two dimensions. A bare `ArrayLike` is one number, or one per entry.
Vector: TypeAlias = Annotated[ArrayLike, "vector"]
Matrix: TypeAlias = Annotated[ArrayLike, "matrix"]


class Rule(Protocol):
    """What an annotation asks of a value."""

    def check(self, claim: str, name: str, value: Any) -> None: ...


class Expected(NamedTuple):
    """Something of a kind: in words, how to come by it, and whether a value is that."""

    words: str
    fix: str
    fits: Callable[[Any], bool]

    def check(self, claim: str, name: str, value: Any) -> None:
        if not self.fits(value):
            got = shown(value) if as_float(value) is not None else f"a {type(value).__name__}"
            raise InputError(f"{name}: must be {self.words} for {claim}, got {got}. {self.fix}")


class Numbers(NamedTuple):
    """A finite array of some number of dimensions."""

    dimensions: tuple[int, ...]

    def check(self, claim: str, name: str, value: Any) -> None:
        shape = shape_of(value)
        if shape is not None and len(shape) not in self.dimensions:
            allowed = " or ".join(map(str, self.dimensions))
            raise InputError(
                f"{name}: must have {allowed} dimension(s) for {claim}, got shape {shape}. "
                "Reshape it, or pass one part at a time."
            )
        checked_array(name, value, len(shape or ()))


def _a(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _is_linear_neuron(value: Any) -> bool:
    return isinstance(value, Neuron) and Provides.NEURON in value.provides


def _is_number(value: Any) -> bool:
    number = as_float(value)
    return number is not None and not np.isnan(number)


def _is_count(value: Any) -> bool:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and value >= 1


EXPECTED: dict[Any, Rule] = {
    LinearStart: Expected(
        "a LinearNet",
        "Pass fb.LinearNet(U, V), or a start such as fb.LinearNet.gaussian.",
        _a(LinearStart),
    ),
    LiftedModel: Expected(
        "a MatrixFactorization or another product U V^T",
        "Pass fb.MatrixFactorization(U, V), or a start such as fb.MatrixFactorization.gaussian.",
        _a(LiftedModel),
    ),
    MirrorModel: Expected(
        "a DiagonalNet or an UntiedDiagonalNet",
        "Pass fb.DiagonalNet(depth=2, scale=0.1).",
        _a(MirrorModel),
    ),
    DiagonalNet: Expected(
        "a DiagonalNet", "Pass fb.DiagonalNet(depth=2, scale=0.1).", _a(DiagonalNet)
    ),
    UntiedDiagonalNet: Expected(
        "an UntiedDiagonalNet",
        "Pass fb.UntiedDiagonalNet(scale=0.1, shape=0.0).",
        _a(UntiedDiagonalNet),
    ),
    Neuron: Expected(
        "a linear Neuron, of slope 1",
        "Pass fb.Neuron(a, w); claims about a leaky one start with fb.theory.leaky_neuron.",
        _is_linear_neuron,
    ),
    ActivatedNeuron: Expected("a Neuron", "Pass fb.Neuron(a, w, slope=0.1).", _a(Neuron)),
    NeuronSum: Expected("a NeuronSum", "Pass fb.NeuronSum(a, W).", _a(NeuronSum)),
    Potential: Expected(
        "a potential of one coordinate", "Pass fb.Hypentropy(scale=0.1).", _a(Potential)
    ),
    MatrixProblem: Expected(
        "a matrix problem",
        "Pass fb.MatrixSensing(matrices, values), fb.MatrixCompletion or fb.MatrixRegression.",
        _a(MatrixProblem),
    ),
    MatrixCompletion: Expected(
        "a MatrixCompletion",
        "Pass fb.MatrixCompletion(rows, cols, values, shape).",
        _a(MatrixCompletion),
    ),
    MatrixRegression: Expected(
        "a MatrixRegression", "Pass fb.MatrixRegression(X, Y).", _a(MatrixRegression)
    ),
    MeasuredFactors: Expected(
        "a MeasuredFactors", "Leave it out to have the flow followed.", _a(MeasuredFactors)
    ),
    ProductPath: Expected(
        "a trajectory with times t and products M",
        "Pass fb.flow(net, X, Y, t=t), or leave it out to have the flow followed.",
        _a(ProductPath),
    ),
    WideStart: Expected(
        "a WideStart", "Pass fb.theory.wide_start_bounds(d, m, rank, width).", _a(WideStart)
    ),
    np.random.Generator: Expected(
        "a numpy Generator", "Pass numpy.random.default_rng(0).", _a(np.random.Generator)
    ),
    Callable: Expected("a function", "Pass a function of one argument.", callable),
    float: Expected("a number", "Pass a float.", _is_number),
    int: Expected("an integer >= 1", "Pass an int.", _is_count),
    ArrayLike: Numbers((0, 1)),
    Vector: Numbers((1,)),
    Matrix: Numbers((2,)),
}


class Parameter(NamedTuple):
    """One checked parameter of a claim."""

    name: str
    rule: Rule
    optional: bool


def checked(claim: Callable[P, R]) -> Callable[P, R]:
    """The claim, with an InputError for an argument that is not what its annotation says."""
    signature = inspect.signature(claim)

    @functools.wraps(claim)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        _check(claim, signature.bind(*args, **kwargs).arguments)
        try:
            return claim(*args, **kwargs)
        except OutsideHypothesis as outside:
            count = _claims(claim)
            if count is None:
                raise
            silent = _silent(claim, str(outside))
            return cast(R, silent if count == 0 else (silent,) * count)

    return call


@functools.cache
def _claims(claim: Callable[..., Any]) -> int | None:
    """How many claims a function returns in a tuple: 0 for one by itself, None for no claim."""
    returned = get_type_hints(claim).get("return")
    if returned is Claim:
        return 0
    parts = get_args(returned)
    return sum(part is Claim for part in parts) if Claim in parts else None


_CITED = re.compile(r"\[(\w+\d{4}), ([^\],;]+)(?:, ([^\]]+))?\]")


def _silent(claim: Callable[..., Any], reason: str) -> Claim:
    """What a claim is where its hypotheses are not met; its docstring says what it would state."""
    words = inspect.cleandoc(claim.__doc__ or "")
    cited = _CITED.search(" ".join(words.split()))
    return Claim(
        claim.__name__.replace("_", " "),
        np.nan,
        np.nan,
        Kind.EQUAL,
        Reference(*(part or "" for part in cited.groups()))
        if cited
        else Reference("flowbias", f"fb.theory.{claim.__name__}"),
        words.split("\n\n")[0],
        "nothing was measured",
        silence=reason,
    )


def check_fields(made: Any) -> None:
    """The same for the annotated fields of a dataclass."""
    _check(type(made), vars(made))


def _check(claim: Callable[..., Any], given: Mapping[str, Any]) -> None:
    for name, rule, optional in _parameters(claim):
        if name in given and not (optional and given[name] is None):
            rule.check(claim.__qualname__, name, given[name])


@functools.cache
def _parameters(claim: Callable[..., Any]) -> tuple[Parameter, ...]:
    """At the first call: annotations may name what stands further down in the module."""
    hints = get_type_hints(claim, include_extras=True)
    return tuple(
        Parameter(name, rule, optional)
        for name, hint in hints.items()
        for kind, rule in EXPECTED.items()
        if (optional := hint == kind | None) or kind in (hint, get_origin(hint))
    )
