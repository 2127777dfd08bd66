"""What a claim is about is written in its signature; `checked` holds every call to it.

A parameter annotated with a model, a problem or a number takes nothing else: EXPECTED says, once
for all claims, what fits an annotation and how to come by it. Data X, y and Y are annotated `Any`,
since `Regression` and `MatrixRegression` read them. Where an instance lies outside a hypothesis of
the theorem, the claims come back silent, with that for a reason.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
from flowbias.ground.arguments import LARGEST_SIZE, InputError, as_float, shown
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models import DiagonalNet, UntiedDiagonalNet
from flowbias.models._base import MirrorModel
from flowbias.models.lifted import LiftedModel
from flowbias.models.neuron import Neuron, NeuronSum
from flowbias.potentials import Potential, Provides
from flowbias.problems.matrix import MatrixCompletion, MatrixProblem, MatrixRegression, shape_of
from flowbias.problems.regression import checked_array
from flowbias.results.solution import SolveError
from flowbias.theory.claim import Claim, Kind, Reference


class OutsideHypothesis(InputError):  # noqa: N818  (named for what is the matter)
    """A hypothesis is not met: a claim is silent for this reason, a number cannot be given."""


def positive(name: str, value: float, fix: str) -> float:
    """The value as a float, if it is positive and finite."""
    if not 0.0 < value < np.inf:
        raise InputError(f"{name}: must be > 0 and finite, got {value!r}. {fix}")
    return float(value)


def same_size(name: str, size: int, expected: int, what: str) -> None:
    """`size` counts `what`, of which the other arguments have `expected`."""
    if size != expected:
        raise InputError(
            f"{name}: must have {expected} {what}, got {size}. Pass arguments of one size."
        )


def something_to_fit(y: FloatArray) -> None:
    """OutsideHypothesis where w = 0 fits: errors relative to a limit that is zero say nothing."""
    if not y.any():
        raise OutsideHypothesis("y: must not be all zeros, which w = 0 fits. Pass some outputs.")


def unresolved(tolerance: float) -> str:
    """Why a number of size 1 says nothing: its tolerance leaves it fewer than three digits."""
    if not tolerance > 1e-3:
        return ""
    return f"what is compared is known to {tolerance:.1g} of its size only"


def at_most(log_scale: float | None, largest: float) -> float:
    """The log-scale, by default the largest one that the hypothesis allows."""
    return _within(log_scale, largest, 1.0, "<=", "above that scale: lower it")


def at_least(log_scale: float | None, smallest: float) -> float:
    """The log-scale, by default the smallest one that the hypothesis allows."""
    return _within(log_scale, smallest, -1.0, ">=", "below that scale: raise it")


def _within(log_scale: float | None, end: float, side: float, relation: str, beyond: str) -> float:
    """An end that was computed twice, from norms summed in another order, is that end.

    They differ in a few last digits, which are as many of the logarithm.
    """
    if log_scale is None or abs(log_scale - end) <= 1e-14 * max(1.0, abs(end)):
        return end
    if not side * log_scale <= side * end:
        raise OutsideHypothesis(
            f"log_scale: must be {relation} {end:g}, got {log_scale!r}. The statement says nothing "
            f"{beyond}, or raise eps."
        )
    return float(log_scale)


def unbiased_log_start(model: DiagonalNet, d: int) -> FloatArray:
    """log |w+(0)| = log |w-(0)| per coordinate, if the start is unbiased."""
    if model.is_biased:
        raise OutsideHypothesis(
            f"model: must start unbiased, |w+(0)| = |w-(0)|, got {model!r}. "
            "Use DiagonalNet(depth, scale, w0=w0)."
        )
    potential: Any = model.potential  # Hypentropy or DepthPotential: both know their log_scale
    return np.broadcast_to(np.asarray(potential.log_scale, dtype=np.float64), (d,))


P = ParamSpec("P")
R = TypeVar("R")

#: Arrays of one and of two dimensions. A bare `ArrayLike` is one number, or one per entry.
Vector: TypeAlias = Annotated[ArrayLike, "vector"]
Matrix: TypeAlias = Annotated[ArrayLike, "matrix"]


class Rule(Protocol):
    """What an annotation asks of a value."""

    def check(self, claim: str, name: str, value: Any) -> None: ...


class ExpectedKind(NamedTuple):
    """Something of a kind: in words, how to come by it, and whether a value is that."""

    words: str
    fix: str
    fits: Callable[[Any], bool]

    def check(self, claim: str, name: str, value: Any) -> None:
        if not self.fits(value):
            got = shown(value) if as_float(value) is not None else f"a {type(value).__name__}"
            raise InputError(f"{name}: must be {self.words} for {claim}, got {got}. {self.fix}")


class ExpectedNumbers(NamedTuple):
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


def _is_linear_neuron(value: Any) -> bool:
    return isinstance(value, Neuron) and Provides.NEURON in value.provides


def _is_number(value: Any) -> bool:
    number = as_float(value)
    return number is not None and not np.isnan(number)


def _is_count(value: Any) -> bool:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and 1 <= value <= LARGEST_SIZE


EXPECTED: dict[Any, Rule] = {
    Neuron: ExpectedKind(
        "a linear Neuron, of slope 1",
        "Pass fb.Neuron(a, w); claims about a leaky one start with fb.theory.leaky_neuron.",
        _is_linear_neuron,
    ),
    ActivatedNeuron: ExpectedKind(
        "a Neuron", "Pass fb.Neuron(a, w, slope=0.1).", lambda value: isinstance(value, Neuron)
    ),
    Callable: ExpectedKind("a function", "Pass a function of one argument.", callable),
    float: ExpectedKind("a number", "Pass a float.", _is_number),
    int: ExpectedKind(f"an integer from 1 to {LARGEST_SIZE}", "Pass an int.", _is_count),
    ArrayLike: ExpectedNumbers((0, 1)),
    Vector: ExpectedNumbers((1,)),
    Matrix: ExpectedNumbers((2,)),
}


def expects(kind: type, words: str, fix: str) -> None:
    """An annotation with this class takes its instances alone; a module says it of its own."""
    EXPECTED[kind] = ExpectedKind(words, fix, lambda value: isinstance(value, kind))


expects(
    LiftedModel,
    "a MatrixFactorization or another product U V^T",
    "Pass fb.MatrixFactorization(U, V), or a start such as fb.MatrixFactorization.gaussian.",
)
_DIAGONAL_FIX = "Pass fb.DiagonalNet(depth=2, scale=0.1)."
expects(MirrorModel, "a DiagonalNet or an UntiedDiagonalNet", _DIAGONAL_FIX)
expects(DiagonalNet, "a DiagonalNet", _DIAGONAL_FIX)
_UNTIED_FIX = "Pass fb.UntiedDiagonalNet(scale=0.1, shape=0.0)."
expects(UntiedDiagonalNet, "an UntiedDiagonalNet", _UNTIED_FIX)
expects(NeuronSum, "a NeuronSum", "Pass fb.NeuronSum(a, W).")
expects(Potential, "a potential of one coordinate", "Pass fb.Hypentropy(scale=0.1).")
expects(
    MatrixProblem,
    "a matrix problem",
    "Pass fb.MatrixSensing(matrices, values), fb.MatrixCompletion or fb.MatrixRegression.",
)
_COMPLETION_FIX = "Pass fb.MatrixCompletion(rows, cols, values, shape)."
expects(MatrixCompletion, "a MatrixCompletion", _COMPLETION_FIX)
expects(MatrixRegression, "a MatrixRegression", "Pass fb.MatrixRegression(X, Y).")
expects(np.random.Generator, "a numpy Generator", "Pass numpy.random.default_rng(0).")


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
        bound = signature.bind(*args, **kwargs)
        _check(claim, bound.arguments)
        bound.arguments.update(_as_floats(claim, bound.arguments))
        try:
            with _within_doubles(claim, bound.arguments):
                return claim(*bound.args, **bound.kwargs)
        except OutsideHypothesis as outside:
            count = _claims(claim)
            if count is None:
                raise
            silent = _silent(claim, str(outside))
            return cast(R, silent if count == 0 else (silent,) * count)

    return call


def _as_floats(claim: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, float]:
    """The single numbers among the arguments, as floats: NumPy has no roots of fractions."""
    rules = {name: rule for name, rule, _ in _parameters(claim)}
    numbers = {name: as_float(value) for name, value in given.items() if name in rules}
    return {
        name: number
        for name, number in numbers.items()
        if number is not None and rules[name] is not EXPECTED[int]
    }


# Sizes of which any power that a claim takes is a double.
_ORDINARY_SIZES = 1e-60, 1e60


@contextmanager
def _within_doubles(claim: Callable[..., Any], given: Mapping[str, Any]) -> Iterator[None]:
    """Where an argument is so large or small that numbers leave the doubles, an error names it.

    What overflowed would be compared as if it were a number: the claim would seem to fail.
    """
    least, most = _ORDINARY_SIZES
    sizes = {name: size for name, value in given.items() if (size := _size(value)) is not None}
    beyond = {name: size for name, size in sizes.items() if not least <= size <= most}
    if not beyond:
        yield
        return
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            yield
    except (InputError, SolveError):
        raise
    except (ArithmeticError, ValueError) as lost:  # ValueError: LAPACK's and SciPy's, of infinities
        name = max(beyond, key=lambda name: abs(np.log10(beyond[name])))
        raise InputError(
            f"{name}: must be of a size at which the numbers of {claim.__qualname__} are doubles, "
            f"got {beyond[name]:.3g}. Pass numbers nearer to 1."
        ) from lost


def _size(value: Any) -> float | None:
    """The largest entry of numbers; None of zeros and of what holds no numbers."""
    try:
        entries = np.abs(np.asarray(value, dtype=np.float64))
    except (TypeError, ValueError, OverflowError):
        return None
    size = float(entries.max(initial=0.0))
    return size if 0.0 < size < np.inf else None


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
