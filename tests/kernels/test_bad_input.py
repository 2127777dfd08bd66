"""Bad input is refused with the argument, the constraint, the value and the fix."""

import copy

import numpy as np
import pytest

from flowbias import DiagonalNet
from flowbias.ground.arguments import InputError
from flowbias.kernels import (
    chosen_outputs,
    grad_distance,
    kernel_alignment,
    kernel_matrix,
    label_alignment,
    lazy_gap,
    linearize,
    linearized_flow,
    parameter_movement,
    relative_kernel_change,
    tangent_kernel,
    tangent_vector_product,
    top_eigenpairs,
)
from tests.kernels.architectures import build, torch

nn = torch.nn
X = torch.ones(4, 3)


def mlp():
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


class Function(nn.Module):
    """A linear layer and a function of its output."""

    def __init__(self, function):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.function = function

    def forward(self, x):
        return self.function(self.linear(x))


def frozen():
    return mlp().requires_grad_(False)


def inferred():
    with torch.inference_mode():
        return nn.Linear(3, 2)


def overridden():
    """A function as forward, which a copy would share with the original."""
    module = mlp()
    plain = module[0].forward
    module[0].forward = lambda x: plain(x) ** 2
    return module


def uncopyable():
    """A tensor that is part of a graph, as the old weight norm leaves it behind."""
    module = nn.Linear(3, 2)
    module.kept = module.weight * 2.0
    return module


def mixed():
    module = mlp()
    module[0].double()
    return module


TRAINING = [
    (nn.Dropout(0.5), r"Dropout \(1\).*drops units at random.*module.eval\(\)"),
    (nn.BatchNorm1d(3), r"BatchNorm1d \(1\).*statistics of the batch.*module.eval\(\)"),
    (nn.RReLU(), r"RReLU.*at random"),
    (nn.TransformerEncoderLayer(3, 1, 4), r"drops units at random"),
    (
        nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)),
        r"_SpectralNorm .*at each call.*module.eval\(\)",
    ),
]


@pytest.mark.parametrize(("layer", "message"), TRAINING)
def test_training_mode(layer, message):
    module = nn.Sequential(nn.Linear(3, 3), layer, nn.Linear(3, 2))
    state = copy.deepcopy(module.state_dict())
    for use in (
        lambda: tangent_kernel(module, X),
        lambda: tangent_vector_product(module, X, torch.ones(4, 2)),
        lambda: linearize(module),
        lambda: linearized_flow(module, X, torch.ones(4, 2)),
        lambda: grad_distance(module, module, X),
    ):
        with pytest.raises(InputError, match=f"(?s)must not be in training mode.*{message}"):
            use()
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    tangent_kernel(module.eval(), X)


def test_training_mode_of_harmless_layers_is_fine():
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0), nn.LayerNorm(3)).train()
    tangent_kernel(module, X)


@pytest.mark.parametrize(
    "module",
    [
        Function(lambda h: nn.functional.dropout(h, 0.5)),
        Function(lambda h: h - h.mean(0)),
    ],
)
def test_chance_and_other_samples(module):
    torch.manual_seed(0)
    with pytest.raises(InputError, match=r"(?s)outputs of its own.*module.eval\(\)"):
        tangent_kernel(module, torch.randn(4, 3))


CASES = [
    (lambda: tangent_kernel(lambda x: x, X), r"module: must be a torch.nn.Module.*function"),
    (lambda: tangent_kernel(frozen(), X), r"module: must have a trainable parameter.*4 .*frozen"),
    (lambda: tangent_kernel(nn.ReLU(), X), r"module: must have a trainable parameter.*0 param"),
    (lambda: tangent_kernel(mlp().half(), X.half()), r"float32 or float64.*float16.*'0.weight'"),
    (
        lambda: tangent_kernel(mlp().to(torch.complex64), X),
        r"float32 or float64.*complex64.*view_as_complex",
    ),
    (lambda: tangent_kernel(mixed(), X), r"one dtype, got torch.float32, torch.float64"),
    (lambda: tangent_kernel(Function(lambda h: (h, h)), X), r"must return one tensor, got tuple"),
    (lambda: tangent_kernel(Function(lambda h: {"h": h}), X), r"must return one tensor, got dict"),
    (
        lambda: tangent_kernel(Function(torch.sum), X),
        r"one output per sample.*got \(\)",
    ),
    (lambda: tangent_kernel(Function(lambda h: h.argmax(1)), X), r"real numbers, got torch.int64"),
    (lambda: tangent_kernel(Function(torch.detach), X), r"depend on a trainable parameter.*detach"),
    (
        lambda: tangent_kernel(Function(lambda h: h.exp_().mul_(2.0)), X),
        r"module: must be differentiable, got RuntimeError.*modified by an inplace",
    ),
    (lambda: tangent_kernel(mlp(), X.to("meta")), r"x1: must be on the module's device, cpu.*meta"),
    (lambda: tangent_kernel(mlp(), X, X.to("meta")), r"x2: must be on the module's device.*meta"),
    (lambda: tangent_kernel(mlp(), X.long()), r"x1: must have the dtype.*float32.*got torch.int64"),
    (lambda: tangent_kernel(mlp(), X.double()), r"x1: must have the dtype.*got torch.float64"),
    (
        lambda: tangent_kernel(nn.BatchNorm1d(3, track_running_stats=False).eval(), X),
        r"must have running statistics in BatchNorm1d \(the module itself\)",
    ),
    (
        lambda: tangent_kernel(mlp(), {"ids": X, "mask": X}),
        r"x1: must be a tensor, or a tuple.*got a dict of ids, mask. Pass tuple\(x1.values\(\)\)",
    ),
    (
        lambda: tangent_kernel(mlp(), X, torch.utils.data.DataLoader(X)),
        r"x2: must be a tensor.*got a DataLoader. Join the inputs of its batches: torch.cat",
    ),
    (
        lambda: tangent_kernel(chosen_outputs(mlp(), [0, 9]), X),
        r"outputs: must be below the 2 outputs that the module has, got 9",
    ),
    (
        lambda: tangent_kernel(chosen_outputs(mlp(), [-3]), X),
        r"outputs: must be below the 2 outputs.*got -3",
    ),
    (lambda: tangent_kernel(mlp(), X.numpy()), r"x1: must be a tensor.*ndarray.*torch.as_tensor"),
    (lambda: tangent_kernel(mlp(), X[:0]), r"x1: must have one sample or more.*\(0, 3\)"),
    (lambda: tangent_kernel(mlp(), (X, X[:2])), r"x1: .*the same number.*\(4, 3\), \(2, 3\)"),
    (lambda: tangent_kernel(mlp(), X * float("nan")), r"x1: .*must be finite, got nan at sample 0"),
    (lambda: tangent_kernel(mlp(), X, reduce="mean"), r"reduce: must be None, 'trace'.*'mean'"),
    (
        lambda: tangent_kernel(mlp(), X, max_memory="lots"),
        r"max_memory: must be a .*'lots'",
    ),
    (lambda: tangent_kernel(mlp(), X, max_memory=-1), r"max_memory: must be a positive size.*-1"),
    (lambda: tangent_kernel(mlp(), X, max_memory=True), r"max_memory: must be a positive.*True"),
    (
        lambda: tangent_kernel(mlp(), X, max_memory="10B"),
        r"max_memory: must be at least what one row of the kernel needs, .* for this module",
    ),
    (
        lambda: tangent_vector_product(mlp(), X, torch.ones(4, 2), max_memory=1),
        r"max_memory: must be at least what one row of the kernel needs",
    ),
    (
        lambda: tangent_vector_product(mlp(), X, torch.ones(3)),
        r"vector: must have one entry per sample and output, shape \(4, 2\), got \(3,\)",
    ),
    (lambda: top_eigenpairs(mlp(), X, 8), r"count: must be .* below samples \* outputs = 8, got 8"),
    (lambda: top_eigenpairs(mlp(), X, 0), r"count: must be an integer, at least 1"),
    (lambda: top_eigenpairs(mlp(), X, 2.5), r"count: must be an integer.*got 2.5"),
    (
        lambda: top_eigenpairs(Function(lambda h: 0.0 * h), X, 2),
        r"module: must have a tangent kernel above zero on x",
    ),
    (
        lambda: tangent_vector_product(
            DiagonalNet(depth=2, scale=0.1), np.ones((4, 3)), np.ones(3)
        ),
        r"vector: must have one entry per sample and output, shape \(4, 1\), got \(3,\).*of x1",
    ),
    (lambda: tangent_kernel(DiagonalNet(depth=2, scale=0.1), [[np.nan, 1.0]]), r"x1: .*finite"),
    (lambda: tangent_kernel(mlp(), torch.ones(4, 5)), r"x1: must be what the module takes.*\(5,\)"),
    (lambda: tangent_kernel(mlp(), torch.ones(3)), r"x1: must be what the module takes"),
    (lambda: tangent_kernel(nn.Embedding(4, 3), torch.rand(2, 2)), r"x1: must be what the module"),
    (lambda: tangent_kernel(nn.Embedding(4, 3), torch.tensor([[9]])), r"x1: must have the dtype"),
    (lambda: tangent_kernel(nn.Linear(3, 2, device="meta"), X.to("meta")), r"with values"),
    (lambda: tangent_kernel(nn.LazyLinear(2), X), r"module: must have parameters with values"),
    (lambda: tangent_kernel(inferred(), X), r"module: .*'weight' made in inference mode"),
    (lambda: tangent_kernel(Function(lambda h: h[:, :0]), X), r"one number or more per sample"),
    (lambda: linearize(overridden()), r"module: must be copyable.*forward of 0.*subclass"),
    (lambda: linearized_flow(uncopyable(), X, torch.ones(4, 2)), r"module: must be copyable by"),
    (
        lambda: linearize(nn.EmbeddingBag(4, 3))(torch.tensor([[1, 2]])),
        r"module: must have derivatives in forward mode, or twice backward",
    ),
    (lambda: label_alignment(np.eye(3), [1.0, np.nan, 2.0]), r"y: must be finite"),
    (
        lambda: linearized_flow(mlp(), torch.eye(3), torch.ones(3, 2)).outputs("a"),
        r"t: must be a time >= 0, got 'a'",
    ),
    (
        lambda: grad_distance(mlp(), nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2)), X),
        r"after: must have the trainable parameters of before, got \(6, 3\) for '0.weight'",
    ),
    (
        lambda: parameter_movement(mlp(), nn.Linear(3, 5)),
        r"after: must have the trainable parameters.*no such parameter",
    ),
    (
        lambda: grad_distance(mlp(), mlp().double(), X),
        r"after: must have the dtype of before, torch.float32, got torch.float64",
    ),
    (lambda: relative_kernel_change(np.eye(2), np.eye(3)), r"after: must have the shape of before"),
    (lambda: relative_kernel_change(np.zeros((2, 2)), np.eye(2)), r"before: must not vanish"),
    (lambda: kernel_alignment(np.ones(3), np.ones(3)), r"first: must be a kernel of shape"),
    (lambda: kernel_alignment(np.ones((2, 3)), np.ones((2, 3))), r"first: .*to be centered"),
    (lambda: kernel_alignment(np.ones((3, 3)), np.eye(3)), r"must not vanish.*centered=False"),
    (lambda: kernel_alignment(np.eye(3), np.full((3, 3), np.nan)), r"second: must be finite"),
    (lambda: label_alignment(np.eye(3), np.ones(4)), r"y: must have one row per sample.*\(4,\)"),
    (lambda: label_alignment(np.ones((3, 3, 2)), np.ones((3, 2))), r"kernel: must be \(n, n\)"),
    (lambda: kernel_matrix(np.ones((3, 3, 2))), r"kernel: must have shape \(n1, n2, c, c\)"),
    (lambda: lazy_gap(np.ones(2), np.ones(3), np.ones(3)), r"must be outputs of one shape"),
    (lambda: lazy_gap(np.ones(2), np.ones(2), np.ones(2)), r"twin: must have moved"),
    (
        lambda: linearized_flow(mlp(), X, torch.ones(4)),
        r"y: must have one entry per sample and output, shape \(4, 2\), got \(4,\)",
    ),
    (
        lambda: linearized_flow(mlp(), X, torch.full((4, 2), float("nan"))),
        r"y: must be finite",
    ),
    (
        lambda: linearized_flow(mlp(), torch.eye(3), torch.ones(3, 2)).predict(X, -1.0),
        r"t: must be a time >= 0, got -1.0",
    ),
    (lambda: linearize(frozen()), r"module: must have a trainable parameter"),
]


@pytest.mark.parametrize(("use", "message"), CASES, ids=range(len(CASES)))
def test_is_refused_in_words(use, message):
    with pytest.raises(InputError, match=f"(?s){message}"):
        use()


def test_nan_in_a_later_sample_is_located():
    x = torch.randn(9, 3)
    x[7] = float("inf")
    with pytest.raises(InputError, match=r"x1: .*finite, got (nan|-?inf) at sample 7"):
        tangent_kernel(mlp(), x, max_memory="20kB")
    with pytest.raises(InputError, match=r"x2: .*finite, got (nan|-?inf) at sample 7"):
        tangent_kernel(mlp(), x[:7], x)


def test_infinite_gradients_of_finite_outputs():
    module = Function(lambda h: torch.sqrt(h.abs()))
    with torch.no_grad():
        module.linear.weight.zero_()
        module.linear.bias.copy_(torch.tensor([1.0, 0.0]))
    x = torch.zeros(5, 3)
    with pytest.raises(InputError, match="finite gradients, got NaN or infinity at sample 0 of x1"):
        tangent_kernel(module, x)
    torch.nn.init.ones_(module.linear.weight)
    # The samples that are tried, the first and one unlike it, are fine.
    x[:4], x[1] = 1.0, 2.0
    with pytest.raises(InputError, match=r"finite gradients.*samples \(0, 4\)"):
        tangent_kernel(module, x)


def test_how_much_one_row_needs_is_enough():
    module, x = build("mlp", 4)
    with pytest.raises(InputError, match="Raise it to") as caught:
        tangent_kernel(module, x, max_memory=1)
    needed = int(str(caught.value).split("Raise it to ")[1].split(" ")[0])
    tangent_kernel(module, x, max_memory=needed)
    with pytest.raises(InputError, match="one row"):
        tangent_kernel(module, x, max_memory=needed - 1)
