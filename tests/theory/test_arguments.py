"""A claim that is handed something else than it is about says so, by name, and never stumbles.

Every public function of flowbias.theory is called as its own example calls it, with one argument
after the other replaced by something of a wrong kind or size.
"""

import inspect
import types

import numpy as np
import pytest

import flowbias as fb
from flowbias import theory
from flowbias.theory.arguments import EXPECTED, checked
from tests.hardening import awkward as hardening
from tests.theory.verdicts import why_nothing

PUBLIC = sorted(name for name in theory.__all__ if inspect.isfunction(getattr(theory, name)))
MODELS = {
    "DiagonalNet": fb.DiagonalNet(depth=2, scale=0.1),
    "UntiedDiagonalNet": fb.UntiedDiagonalNet(scale=0.5, shape=0.3),
    "LinearNet": fb.LinearNet(np.eye(2), np.eye(2)),
    "Neuron": fb.Neuron(a=1.0, w=[0.5, 0.2]),
    "leaky Neuron": fb.Neuron(a=1.0, w=[0.5, 0.2], slope=0.3),
    "NeuronSum": fb.NeuronSum([0.5, 0.4], [[0.5, 0.0], [0.0, 0.4]]),
    "Hypentropy": fb.Hypentropy(scale=0.1),
    "MatrixSensing": fb.MatrixSensing([np.eye(2)], [1.0]),
}
# What the models above fit, by the annotation of the parameter.
MEANT = {
    "MirrorModel": {"DiagonalNet", "UntiedDiagonalNet"},
    "DiagonalNet": {"DiagonalNet"},
    "UntiedDiagonalNet": {"UntiedDiagonalNet"},
    "LinearStart": {"LinearNet"},
    "LiftedModel": {"LinearNet"},
    "Neuron": {"Neuron"},
    "ActivatedNeuron": {"Neuron", "leaky Neuron"},
    "NeuronSum": {"NeuronSum"},
}
NOTHING_OF_THE_KIND = {
    "object": object(),
    "text": "text",
    "ragged": [[1.0], [1.0, 2.0]],
    "empty": [],
    "complex": 1j,
    "nan": float("nan"),
    "four dimensions": np.ones((1, 1, 1, 1)),
    # as a Neuron has one, which is no size
    "shape of its own": types.SimpleNamespace(shape=0.3),
}


def example_of(name):
    return hardening.example_of(getattr(theory, name))


def refused(name, parameter, wrong):
    with pytest.raises(fb.InputError, match=r": must .*, got .*\. \S") as error:
        getattr(theory, name)(**{**example_of(name), parameter: wrong})
    return str(error.value)


def model_parameters():
    for name in PUBLIC:
        for parameter in inspect.signature(getattr(theory, name)).parameters.values():
            if parameter.name in ("model", "net"):
                yield pytest.param(name, parameter, id=name)


@pytest.mark.parametrize(("name", "parameter"), list(model_parameters()))
def test_a_wrong_model_is_refused_by_name(name, parameter):
    for kind in MODELS.keys() - MEANT[parameter.annotation]:
        message = refused(name, parameter.name, MODELS[kind])
        assert message.startswith(f"{parameter.name}: must be a")
        assert f" for {name}, got a {type(MODELS[kind]).__name__}. Pass fb." in message


@pytest.mark.parametrize("name", PUBLIC)
def test_no_argument_may_be_of_a_wrong_kind(name):
    for parameter in inspect.signature(getattr(theory, name)).parameters:
        for wrong in NOTHING_OF_THE_KIND.values():
            assert refused(name, parameter, wrong).startswith(f"{parameter}: must ")


# Models with weights of their own size: the diagonal ones above have one scale for all features.
SIZED = {"LinearStart", "Neuron", "ActivatedNeuron", "NeuronSum"}
OTHER_SIZE = {"v": np.ones(9), "X": np.ones((1, 9))}


def sized_parameters():
    for name in PUBLIC:
        parameters = inspect.signature(getattr(theory, name)).parameters
        if next(iter(parameters.values())).annotation in SIZED:
            for parameter in OTHER_SIZE.keys() & parameters.keys():
                yield pytest.param(name, parameter, id=f"{name}-{parameter}")


@pytest.mark.parametrize(("name", "parameter"), list(sized_parameters()))
def test_data_of_another_size_than_the_model_are_refused(name, parameter):
    refused(name, parameter, OTHER_SIZE[parameter])


@pytest.mark.parametrize(
    ("name", "parameter", "wrong", "message"),
    [
        ("conserved_k", "weights", np.ones((3, 2)), "4 rows"),
        ("closest_interpolator", "w0", np.ones(9), "2 entries"),
        ("distance_by_minimization", "w0", np.ones(9), "2 entries"),
        ("distance_by_minimization", "scale", -1.0, "> 0"),
        ("equal_magnitudes", "v", np.ones(9), "2 entries"),
        ("equal_magnitudes", "X", np.ones((1, 9)), "2 columns"),
        ("error_operator", "U", np.ones((2, 2)), "1 rows"),
        ("error_operator", "V", np.ones((2, 2)), "1 rows"),
        ("error_operator", "V", np.ones((1, 3)), "2 columns"),
        ("kernel_norm", "matrix", np.ones((2, 3)), "as many as columns"),
        ("kernel_norm", "w", np.ones(9), "2 entries"),
        ("start_kernel", "model", fb.DiagonalNet(depth=2, scale=0.1, w0=np.ones(9)), "9 columns"),
        ("symmetric_velocity", "W", np.ones((9, 1)), "2 rows"),
        ("symmetric_velocity", "problem", fb.MatrixSensing([np.ones((2, 3))], [1.0]), "square"),
        ("infinitely_wide", "shape", (2, 0), "two integers"),
        ("effective_log_scale", "shape", -1.0, "in \\(-1, 1\\)"),
        ("depth_potential_small", "depth", 2.0, "depth"),
        ("depth_potential_large", "depth", 2.0, "depth"),
        ("sharp_rich_log_scale", "depth", 1.5, "depth: must be >= 2"),
        ("sharp_kernel_log_scale", "depth", 0.0, "depth: must be >= 2"),
        ("sparse_to_dense_cost", "d", 0.0, "> 0"),
        ("rich_log_scale", "d", 0.0, "d: must be > 0"),
        ("sharp_rich_log_scale", "d", -1.0, "d: must be > 0"),
        ("l1_log_scale", "d", 0.0, "d: must be > 0"),
        ("l1_approach_log_scale", "least", 0.0, "rho below"),
        ("loss_gap", "t", [0.0, 1.0], "> 0"),
        ("gaussian_singular_values", "samples", 0, "an integer from 1 to"),
        ("wide_start", "bounds", (1.0,) * 7, "fb.theory.wide_start_bounds"),
    ],
)
def test_values_that_say_nothing_are_refused(name, parameter, wrong, message):
    with pytest.raises(fb.InputError, match=message):
        getattr(theory, name)(**{**example_of(name), parameter: wrong})


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_a_flow_whose_time_scale_is_next_to_none_is_refused():
    start = {**example_of("exponential_guarantee"), "loss": 1e300}
    reason = why_nothing(lambda: theory.exponential_guarantee(**start))
    assert reason.startswith("t: must be at most ")


@pytest.mark.parametrize("make", [theory.LinearizedFactorization, theory.Reach.of])
def test_what_is_made_of_a_model_and_a_problem_checks_both(make):
    factors, problem = fb.MatrixFactorization(np.eye(2), np.eye(2)), MODELS["MatrixSensing"]
    make(factors, problem)
    with pytest.raises(fb.InputError, match=r"^model: must be a MatrixFactorization .* got a Neu"):
        make(MODELS["Neuron"], problem)
    with pytest.raises(fb.InputError, match=r"^problem: must be a matrix problem .* got a tuple"):
        make(factors, (np.eye(2), [1.0]))


def test_every_annotation_is_known():
    """A parameter that is neither data nor in the table would go unchecked."""
    read_elsewhere = {"Any", "str | float", "tuple[int, int]"}
    known = {getattr(kind, "__name__", "") for kind in EXPECTED} | {"Vector", "Matrix", "ArrayLike"}
    for name in PUBLIC:
        function = getattr(theory, name)
        assert inspect.unwrap(function) is not function, f"{name} is not `checked`"
        for parameter in inspect.signature(function).parameters.values():
            kind = parameter.annotation.removesuffix(" | None").removeprefix("np.random.")
            kind = kind.split("[")[0] if kind.startswith("Callable") else kind
            assert kind in known | read_elsewhere, f"{name}({parameter})"


def test_the_rest_of_a_call_is_as_without_the_check():
    @checked
    def claim(model: fb.Neuron, *, t: float | None = None) -> float | None:
        """Words."""
        return t

    assert claim(MODELS["Neuron"]) is None
    assert claim(MODELS["Neuron"], t=2) == 2
    assert claim.__doc__ == "Words."
    with pytest.raises(TypeError, match="missing a required argument: 'model'"):
        claim(t=2)
