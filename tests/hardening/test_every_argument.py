"""Every argument of every public function: taken, or refused by the library in its own words.

Each is called as its own example calls it, with one argument after the other replaced by something
odd. What is lazy about the result is no part of it. Arguments of a wrong kind of `fb.theory`, which
are checked by their annotations, have a sweep of their own (tests/theory/test_arguments.py); here
they are of the right kind and of a size at which numbers leave the doubles.
"""

import copy
import inspect
import math
import warnings
from fractions import Fraction
from importlib import import_module
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics
import sklearn.utils

import flowbias as fb
from flowbias import theory
from flowbias.flows.trajectory import FlowError
from flowbias.models import Neuron
from flowbias.potentials.biased_depth import BiasedDepthPotential
from flowbias.potentials.with_bias import WithBias
from tests.hardening.awkward import assert_explains_itself, example_of

ROOMS = ("", "datasets", "derive", "estimators", "kernels", "nets", "regime")
# These read files or follow a path that they make, run a whole figure, or hook into a training of
# somebody else's; and what stands for results takes what the library has computed.
NOT_CALLED = {"cifar10", "fashion_mnist", "mnist", "run", "watch"}
# Flags are read by their truth; a path is made; of big numbers of steps as many are taken.
NOT_ASKED = {"out", "progress", "points", "max_epochs", "max_steps", "max_cost", "flows"}


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """A word is the name of a file where a file is asked for."""
    monkeypatch.chdir(tmp_path)


class OwnError(Exception):
    """Of the caller: what a function that is handed in raises comes out as it is."""


def raising(*_given, **_named):
    raise OwnError


NUMBERS = {
    "integer beyond the doubles": 10**400,
    "fraction": Fraction(1, 3),
    "fraction beyond the doubles": Fraction(10**400, 3),
    "not a number": math.nan,
    "infinity": math.inf,
    "minus one": -1,
    "end of the doubles": 1e308,
    "least double": 5e-324,
    "below rounding": 1e-15,
    "eight bits": np.int8(2),
    "single precision": np.float32(0.25),
    "array of no dimension": np.array(0.5),
}
NO_NUMBERS = {
    "none": None,
    "truth": True,
    "words": "text",
    "list of words": ["1", "2"],
    "empty": [],
    "ragged": [[1.0], [1.0, 2.0]],
    "complex": 1j,
    "complex array": np.array([1j, 2.0]),
    "object": object(),
    "objects": np.array([None, object()]),
    "list with an integer beyond the doubles": [10**400, 1],
    "four dimensions": np.ones((1, 1, 1, 1)),
    "set": {1, 2},
    "bytes": b"ab",
    "dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "function of nothing": lambda: 1.0,
    "function that returns words": lambda *_given, **_named: "text",
    "function that raises": raising,
}
ODD = NUMBERS | NO_NUMBERS


# What the example of a class calls is one of its other constructors.
EXAMPLES = {
    "LinearNet": {"U": [[0.1], [0.2]], "V": [[0.3]]},
    "MatrixFactorization": {"U": [[0.1], [0.2]], "V": [[0.3], [0.4]]},
}
# Of an example, where an odd value of another argument makes it long.
SHORTER = {
    "gradient_descent": {"max_steps": 20},
    "flow_copies": {"max_steps": 5},
    "ImplicitBiasRegressorCV": {"n_scales": 3, "cv": 2},
    "FlowRegressorCV": {"n_scales": 2, "n_times": 3, "cv": 2},
}


def public_functions():
    for room in ROOMS:
        module = import_module(f"flowbias.{room}".rstrip("."))
        for name in module.__all__:
            made = getattr(module, name)
            if name not in NOT_CALLED and callable(made) and f"{name}(" in (made.__doc__ or ""):
                yield pytest.param(made, id=f"{room}.{name}".lstrip("."))


def asked(function):
    for name, parameter in inspect.signature(function).parameters.items():
        is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if is_named and name not in NOT_ASKED and parameter.annotation not in ("bool", bool):
            yield name


def _by_scikit_learn(refusal):
    """Its words for data, splits and scores, which its own checks ask for, are as good as ours."""
    frame, files = refusal.__traceback__, []
    while frame is not None:
        files.append(frame.tb_frame.f_code.co_filename)
        frame = frame.tb_next
    rooms = tuple(str(Path(room.__file__).parent) for room in (sklearn.utils, sklearn.metrics))
    return any(file.startswith(rooms) for file in files)


def trouble_with(call):
    """None, or what came out that should not have."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            found = call()
    except (fb.InputError, fb.SolveError, FlowError) as refusal:
        assert_explains_itself(refusal)
        return None if len(str(refusal)) < 2000 else f"{len(str(refusal))} letters"
    except OwnError:
        return None
    except (ValueError, TypeError) as refusal:
        return None if _by_scikit_learn(refusal) else repr(refusal)
    except (ArithmeticError, LookupError, AttributeError, RuntimeError, Warning) as foreign:
        return repr(foreign)
    status = getattr(found, "status", None)
    if getattr(status, "ok", False) and hasattr(found, "w") and not np.isfinite(found.w).all():
        return f"{status} of a w that is not finite"
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", list(public_functions()))
def test_every_argument_is_taken_or_refused(function):
    name = function.__name__
    example = EXAMPLES.get(name) or {**example_of(function), **SHORTER.get(name, {})}
    wrong = {}
    for name, (kind, value) in product(asked(function), ODD.items()):
        given = {**copy.deepcopy(example), name: value}
        trouble = trouble_with(lambda given=given: function(**given))
        if trouble is not None:
            wrong[f"{name}: {kind}"] = trouble
    assert not wrong


CLAIMS = [name for name in theory.__all__ if inspect.isfunction(getattr(theory, name))]
SIZES = ("fraction", "minus one", "end of the doubles", "least double", "below rounding")


def of_odd_size(value):
    """Numbers of the same shape as an argument; none in place of a model or a function."""
    try:
        entries = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        return {}
    if entries.ndim == 0:
        return {kind: NUMBERS[kind] for kind in SIZES}
    unit = entries / np.abs(entries).max()
    return {f"of size {size:g}": size * unit for size in (1e308, 1e-308, 0.0)}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_takes_numbers_of_any_size_or_refuses_them(name):
    claim, wrong = getattr(theory, name), {}
    example = example_of(claim)
    for argument in inspect.signature(claim).parameters:
        for kind, value in of_odd_size(example.get(argument, 1.0)).items():
            given = {**copy.deepcopy(example), argument: value}
            trouble = trouble_with(lambda given=given: claim(**given))
            if trouble is not None:
                wrong[f"{argument}: {kind}"] = trouble
    assert not wrong


ESTIMATORS = [
    made
    for made in (getattr(fb.estimators, name) for name in fb.estimators.__all__)
    if inspect.isclass(made) and hasattr(made, "fit")
]
DATA = np.vstack([np.eye(4), -np.ones((2, 4))]), np.array([1.0, 2.0, 0.0, -1.0, 0.5, 1.5])


def odd_fits(estimator):
    """Every call of an estimator with one thing in it odd."""
    X, y = DATA
    short = SHORTER.get(estimator.__name__, {})
    fitted = estimator(**short).fit(X, y)
    for kind, odd in ODD.items():
        yield f"X of fit: {kind}", lambda odd=odd: estimator(**short).fit(odd, y)
        yield f"y of fit: {kind}", lambda odd=odd: estimator(**short).fit(X, odd)
        yield f"X of predict: {kind}", lambda odd=odd: fitted.predict(odd)
        yield f"X of score: {kind}", lambda odd=odd: fitted.score(odd, y)
        yield f"y of score: {kind}", lambda odd=odd: fitted.score(X, odd)
        for name in asked(estimator):
            # A score is a function of the caller's.
            if name == "scoring" and callable(odd):
                continue
            given = {**short, name: odd}
            yield (
                f"{name}: {kind}",
                lambda given=given: estimator().set_params(**given).fit(X, y),
            )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_estimator_takes_or_refuses_all_that_it_is_given(estimator):
    found = {what: trouble_with(call) for what, call in odd_fits(estimator)}
    assert not {what: trouble for what, trouble in found.items() if trouble is not None}


@pytest.mark.parametrize("optimizer", [object(), "text", None, lambda: 1.0])
def test_a_descent_is_recorded_of_an_optimizer_alone(optimizer):
    example = example_of(fb.nets.record_descent)
    with pytest.raises(fb.InputError, match=r"^optimizer: must be a torch\.optim\.SGD of the"):
        fb.nets.record_descent(example["model"], optimizer, example["weights"])


def test_a_claim_follows_a_flow_no_further_than_it_moves():
    example = example_of(theory.asymptotic_rate)
    with pytest.raises(fb.InputError, match=r"^t: must be at most .*, got 1e\+150\. Leave it out"):
        theory.asymptotic_rate(**{**example, "t": [1e150]})


POTENTIALS = {
    "hypentropy": fb.Hypentropy(scale=[0.1, 0.2]),
    "hypentropy in logarithms": fb.Hypentropy(log_scale=-1e4),
    "depth": fb.DepthPotential(3, scale=0.2),
    "untied": fb.UntiedPotential(scale=0.4, shape=0.5),
    "distance": fb.DistancePotential(scale=0.3),
    "biased depth": BiasedDepthPotential(3, -1.0, -2.0),
    "l1": fb.L1(weights=[1.0, 2.0]),
    "l2": fb.L2(),
    "with bias": WithBias(fb.Hypentropy(scale=0.1), weight=4.0, d=1),
    "neuron": Neuron(2.0, [0.5, 0.2]).potential,
}
METHODS = ("value", "grad", "grad_dual", "hess_dual", "conjugate")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("potential", POTENTIALS.values(), ids=POTENTIALS)
def test_a_potential_takes_real_numbers_alone(potential, method):
    if isinstance(potential, fb.L1) and method in ("grad_dual", "hess_dual"):
        pytest.skip("it has none, and says so")
    refused = NO_NUMBERS.keys() - {"truth", "empty", "four dimensions"}
    for kind in sorted(refused | {"integer beyond the doubles", "fraction beyond the doubles"}):
        with pytest.raises(fb.InputError, match=r"^[wz]: must hold real numbers, got .+\. Pass"):
            getattr(potential, method)(ODD[kind])


@pytest.mark.parametrize("method", METHODS[:4])
@pytest.mark.parametrize("potential", POTENTIALS.values(), ids=POTENTIALS)
def test_of_what_is_not_a_number_a_potential_knows_nothing(potential, method):
    """NaN comes out as NaN: solvers count on it, and no number is made of none."""
    if isinstance(potential, fb.L1 | fb.L2 | WithBias) and method in METHODS[1:]:
        pytest.skip("slopes of a norm, the same everywhere")
    assert not np.isfinite(getattr(potential, method)(np.full(2, np.nan))).any()


def test_exact_numbers_are_read_as_doubles():
    potential = fb.Hypentropy(scale=0.1)
    exact = potential.grad([Fraction(1, 2), 10**30])
    np.testing.assert_array_equal(exact, potential.grad([0.5, 1e30]))


@pytest.mark.parametrize("loss", ["half", 5e-324])
def test_a_descent_of_steps_beyond_the_doubles_is_refused(loss):
    step = 1e308 if loss == "half" else 1e-3
    with pytest.raises(fb.InputError, match=r"^step_size: must leave .* a double, got .*\. Lower"):
        fb.gradient_descent(fb.DiagonalNet(2, 0.1), [[4.0, 2.0]], [1.0], step_size=step, loss=loss)


def test_a_flow_is_followed_no_closer_than_doubles_allow():
    model = fb.DiagonalNet(2, 0.1)
    with pytest.raises(fb.InputError, match=r"^rtol: must be at least 2\.2e-14, .*got 1e-15\. "):
        fb.flow(model, [[1.0, 2.0]], [1.0], rtol=1e-15)
    assert fb.flow(model, [[1.0, 2.0]], [1.0], t=[1.0], rtol=2.3e-14).status.ok


SCHEDULES = {
    "takes nothing": (lambda: 1.0, "be a function of the step's number, got <function"),
    "returns words": (lambda _: "1", "return a finite number >= 0, got '1' at step 0"),
    "returns no number": (lambda _: math.nan, "return a finite number >= 0, got nan at step 0"),
    "goes back": (lambda k: 1 - k, "return a finite number >= 0, got -1 at step 2"),
    "raises": (lambda k: [1.0][k], r"return a finite number >= 0, got IndexError\(.* at step 1"),
}


@pytest.mark.parametrize(("schedule", "words"), SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize(
    ("model", "y"),
    [(fb.DiagonalNet(2, 0.1), [1.0]), (fb.LinearNet([[0.1], [0.2]], [[0.3]]), [[1.0]])],
    ids=["diagonal", "product"],
)
def test_a_schedule_that_is_none_is_refused(schedule, words, model, y):
    with pytest.raises(fb.InputError, match=f"^schedule: must {words}"):
        fb.gradient_descent(model, [[1.0, 2.0]], y, step_size=1e-3, schedule=schedule)
