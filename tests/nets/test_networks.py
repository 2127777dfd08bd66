"""Networks at the start: their law, their scale, and what leaves their function alone."""

import copy
import io
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flowbias.ground.arguments import InputError
from flowbias.kernels import tangent_kernel
from flowbias.nets import (
    Start,
    Version,
    mlp,
    relative_layer_scales,
    scaled,
    unbiased,
    univariate,
    vgg11_like,
)

SOURCE = Path(__file__).resolve().parents[2] / "src"
POINTS = torch.linspace(-1.5, 2.0, 12, dtype=torch.float64).reshape(6, 2)


def test_importing_the_package_does_not_load_torch():
    program = (
        f"import sys; sys.path.insert(0, {str(SOURCE)!r}); import flowbias.nets; "
        "print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.split() == ["False"], run.stderr


@pytest.mark.parametrize("start", Start)
def test_weights_have_the_law_of_he(start):
    weight = mlp((50, 400, 1), scale=3.0, start=start, rng=1)[0].weight.detach().double().numpy()
    std = 3.0 * math.sqrt(2 / 50)
    # 20000 draws: the sample deviation is off by std / sqrt(40000) = 0.5%; six of that.
    assert weight.std() == pytest.approx(std, rel=0.03)
    kurtosis = np.mean((weight / weight.std()) ** 4)
    # 3 for a normal law, 9/5 for a uniform one; sampling error at most sqrt(96 / 20000) = 0.07.
    assert kurtosis == pytest.approx({Start.NORMAL: 3.0, Start.UNIFORM: 1.8}[start], abs=0.42)
    if start is Start.UNIFORM:
        assert np.abs(weight).max() <= 3.0 * math.sqrt(6 / 50) * (1 + 1e-6)


def test_leaky_units_start_with_less():
    """He's rule for the slope: the variance is 2 / ((1 + slope^2) n_in)."""
    plain, leaky = (mlp((5, 4, 1), slope=s, dtype=torch.float64) for s in (0.0, 0.5))
    torch.testing.assert_close(leaky[0].weight, plain[0].weight / math.sqrt(1.25))


def test_torchs_own_random_state_is_left_alone():
    before = torch.random.get_rng_state()
    mlp((3, 4, 1), rng=5)
    vgg11_like(width=1)
    univariate(10)
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_same_seed_is_the_same_network_at_all_depths_and_in_both_dtypes():
    shallow, deep = mlp((2, 7, 7), rng=3), mlp((2, 7, 7, 1), rng=3, dtype=torch.float64)
    for i in (0, 2):
        assert torch.equal(shallow[i].weight, deep[i].weight.float())
    assert not torch.equal(shallow[0].weight, mlp((2, 7, 7), rng=4)[0].weight)
    assert torch.equal(shallow[0].weight, mlp((2, 7, 7), rng=np.random.default_rng(3))[0].weight)


@given(
    scale=st.floats(0.1, 10.0),
    widths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    slope=st.sampled_from([0.0, 0.2, 1.0]),
    seed=st.integers(0, 100),
)
def test_the_output_is_homogeneous_in_the_scale(scale, widths, slope, seed):
    def net(s):
        return mlp((2, *widths, 1), scale=s, slope=slope, rng=seed, dtype=torch.float64)

    unit, factor = net(1.0), scale ** (len(widths) + 1)
    # No output is larger, whatever cancels in it; times the rounding of a few dozen products.
    largest = math.prod(float(weight.norm()) for weight in unit.parameters()) * float(POINTS.norm())
    rounding = 1e-14 * factor * largest
    expected = factor * unit(POINTS)
    for other in (net(scale), scaled(net(1.0), scale)):
        torch.testing.assert_close(other(POINTS), expected, rtol=0.0, atol=rounding)


@given(
    logs=st.lists(st.floats(-2.0, 2.0), min_size=2, max_size=2),
    bias=st.booleans(),
    seed=st.integers(0, 50),
)
def test_relative_layer_scales_keep_the_function_but_not_the_kernel(logs, bias, seed):
    net = mlp((2, 5, 4, 1), bias=bias, rng=seed, dtype=torch.float64)
    if bias:
        for i, layer in enumerate(net[::2]):
            torch.nn.init.constant_(layer.bias, 0.3 - 0.1 * i)
    factors = [math.exp(logs[0]), math.exp(logs[1]), math.exp(-logs[0] - logs[1])]
    kept = copy.deepcopy(net)
    other = relative_layer_scales(net, factors)
    size = 1e-12 * float(net(POINTS).detach().abs().max())
    torch.testing.assert_close(other(POINTS), net(POINTS), rtol=1e-11, atol=size + 1e-14)
    torch.testing.assert_close(net(POINTS), kept(POINTS), rtol=0, atol=0)
    for layer, before, factor in zip(other[::2], net[::2], factors, strict=True):
        torch.testing.assert_close(layer.weight, factor * before.weight)


def test_relative_layer_scales_change_the_tangent_kernel():
    net = mlp((2, 5, 1), rng=0, dtype=torch.float64)
    other = relative_layer_scales(net, (10.0, 0.1))
    before = tangent_kernel(net, POINTS, reduce="trace")
    after = tangent_kernel(other, POINTS, reduce="trace")
    assert float((after - before).norm() / before.norm()) > 1.0


def test_relative_layer_scales_go_through_convolutions():
    net = vgg11_like(width=2, dtype=torch.float64)
    pictures = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 3, 32, 32)))
    factors = [2.0, 0.5, 4.0, 0.25, 3.0, 1 / 3, 5.0, 0.2]
    torch.testing.assert_close(
        relative_layer_scales(net, factors)(pictures), net(pictures), rtol=1e-10, atol=1e-14
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: mlp((2, 6, 3), rng=1),
        lambda: torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.LayerNorm(4)),
    ],
    ids=["mlp", "normalized"],
)
def test_unbiased_is_zero_with_two_trainable_copies_and_twice_the_kernel(make):
    net = make().double()
    doubled = unbiased(net)
    assert float(doubled(POINTS).detach().abs().max()) == 0.0
    assert sum(p.numel() for p in doubled.parameters()) == 2 * sum(
        p.numel() for p in net.parameters()
    )
    torch.testing.assert_close(tangent_kernel(doubled, POINTS), 2 * tangent_kernel(net, POINTS))
    with torch.no_grad():
        for p in doubled.plus.parameters():
            p.mul_(2.0)
    torch.testing.assert_close(doubled(POINTS), doubled.plus(POINTS) - net(POINTS))


def test_unbiased_leaves_the_module_alone_and_can_be_copied_and_stored():
    net = mlp((2, 6, 1), rng=1)
    net[0].weight.requires_grad_(False)
    doubled = unbiased(net)
    assert doubled.plus[0].weight.data_ptr() != net[0].weight.data_ptr()
    assert not doubled.minus[0].weight.requires_grad
    stream = io.BytesIO()
    torch.save(doubled, stream)
    stream.seek(0)
    again = torch.load(stream, weights_only=False)
    x = torch.ones(2, 2)
    for other in (again, copy.deepcopy(doubled)):
        assert torch.equal(other.plus(x), net(x))


@pytest.mark.parametrize(
    ("version", "channels"),
    [
        ("2020", [64, 128, 256, 256, 512, 512, 512]),
        (Version.ICLR_2019, [64, 128, 256, 256, 512, 512, 512, 512]),
    ],
)
def test_vgg_has_the_layers_of_its_paper(version, channels):
    net = vgg11_like(version=version)
    layers = [p for p in net if isinstance(p, torch.nn.Conv2d)]
    assert [layer.out_channels for layer in layers] == channels
    assert all(layer.kernel_size == (3, 3) and layer.bias is None for layer in layers)
    halved = [i for i, part in enumerate(net) if isinstance(part, torch.nn.MaxPool2d)]
    before = [sum(isinstance(p, torch.nn.Conv2d) for p in net[:i]) for i in halved]
    assert before == [1, 2, 4, 6, len(channels)]
    assert net(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    weight = layers[1].weight.detach().double()
    # 73728 draws: six times std / sqrt(2 * 73728).
    assert float(weight.std()) == pytest.approx(math.sqrt(2 / (64 * 9)), rel=0.016)
    assert net[-1].bias is None


def test_unbiased_takes_arguments_by_name():
    net = unbiased(torch.nn.Bilinear(2, 2, 1))
    output = net(input1=torch.ones(3, 2), input2=torch.ones(3, 2))
    assert torch.equal(output, torch.zeros(3, 1))


def test_unbiased_wants_one_tensor():
    with pytest.raises(InputError, match=r"must return one tensor, got tuple.*Wrap it"):
        unbiased(torch.nn.LSTM(2, 3))(torch.ones(4, 2))


def test_unbiased_keeps_buffers_apart():
    """Statistics of each copy are its own, and equal as long as the copies are."""
    net = unbiased(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)))
    x = torch.randn(5, 2)
    assert torch.equal(net.train()(x), torch.zeros(5, 3))
    assert net.plus[1].running_mean is not net.minus[1].running_mean
    assert torch.equal(net.plus[1].running_mean, net.minus[1].running_mean)
    assert torch.equal(net.eval()(x), torch.zeros(5, 3))


def shared_bias():
    net = mlp((2, 2, 2), bias=True)
    net[2].bias = net[0].bias
    return net


@pytest.mark.parametrize(
    "make",
    [
        shared_bias,
        lambda: torch.nn.Sequential(*[torch.nn.Linear(2, 2)] * 2),
        lambda: torch.nn.Sequential(
            torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2)), mlp((2, 2))
        ),
    ],
    ids=["shared bias", "shared layer", "weight norm"],
)
def test_relative_layer_scales_are_refused_where_the_function_would_change(make):
    with pytest.raises(InputError, match=r"^module: must .* got "):
        relative_layer_scales(make(), (10.0, 0.1))


def test_vgg_scales_with_its_degree():
    pictures = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 1, 64, 64)))
    one, two = (vgg11_like(1, 4, width=2, side=64, scale=s, dtype=torch.float64) for s in (1, 2))
    torch.testing.assert_close(two(pictures), 2.0**8 * one(pictures), rtol=1e-12, atol=0)


def test_univariate_follows_the_caption():
    net = univariate(4000, rng=0, dtype=torch.float64)
    first, last = net[0], net[2]
    # Six times the sampling error of a standard deviation from 4000 draws, 1 / sqrt(8000).
    assert float(first.weight.detach().std()) == pytest.approx(1.0, rel=0.07)
    assert float(first.bias.detach().std()) == pytest.approx(1.0, rel=0.07)
    assert float(last.weight.detach().std()) == pytest.approx(math.sqrt(2 / 4000), rel=0.07)
    assert float(last.bias) == 0.0
    x = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    other = univariate(4000, scale=3.0, relative_scale=5.0, rng=0, dtype=torch.float64)
    torch.testing.assert_close(other(x), 9.0 * net(x), rtol=1e-10, atol=1e-12)
    assert torch.equal(net[0].weight[:100], univariate(100, rng=0, dtype=torch.float64)[0].weight)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: mlp((2,)), "widths"),
        (lambda: mlp("23"), "widths"),
        (lambda: mlp((2, 0, 1)), "widths"),
        (lambda: mlp((2, 3.0, 1)), "widths"),
        (lambda: mlp((2, 1), scale=0.0), "scale"),
        (lambda: mlp((2, 1), scale=float("nan")), "scale"),
        (lambda: mlp((2, 1), start="xavier"), "start"),
        (lambda: mlp((2, 1), bias=1), "bias"),
        (lambda: mlp((2, 1), slope=-0.1), "slope"),
        (lambda: mlp((2, 1), rng=-1), "rng"),
        (lambda: mlp((2, 1), dtype=torch.int64), "dtype"),
        (lambda: vgg11_like(side=28), "side"),
        (lambda: vgg11_like(version="2021"), "version"),
        (lambda: vgg11_like(width=0), "width"),
        (lambda: univariate(0), "width"),
        (lambda: univariate(5, relative_scale=-1.0), "relative_scale"),
        (lambda: unbiased("net"), "module"),
        (lambda: unbiased(torch.nn.ReLU()), "module"),
        (lambda: scaled(mlp((2, 1)), -1.0), "scale"),
        (lambda: relative_layer_scales(mlp((2, 2, 1)), (2.0, 2.0)), "factors"),
        (lambda: relative_layer_scales(mlp((2, 2, 1)), (1.0,)), "factors"),
        (lambda: relative_layer_scales(mlp((2, 2, 1)), (-1.0, -1.0)), "factors"),
        (lambda: relative_layer_scales(torch.nn.GRUCell(2, 3), (1.0,)), "module"),
        (
            lambda: relative_layer_scales(
                torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh()), (1.0,)
            ),
            "module",
        ),
        (lambda: relative_layer_scales(unbiased(mlp((2, 1))), (1.0,)), "module"),
    ],
)
def test_bad_input_is_refused_by_name(call, argument):
    with pytest.raises(InputError, match=rf"^{argument}: must .* got "):
        call()
