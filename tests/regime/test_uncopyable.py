"""Every part of `regime` works on copies, and refuses modules that have none."""

import pytest
import torch

from flowbias.ground.arguments import InputError
from flowbias.nets import mlp
from flowbias.regime import Monitor, diagnose, fit, predict


def test_a_module_whose_copy_would_be_the_original_is_refused():
    """A function as forward goes on using the parameters that it was made with."""
    x = torch.randn(4, 3, dtype=torch.float64)
    y = torch.ones(4, 2, dtype=torch.float64)
    net = mlp((3, 5, 2), dtype=torch.float64)
    plain = net[0].forward
    net[0].forward = lambda x: 2.0 * plain(x)
    for use in (
        lambda: diagnose(net, net, x),
        lambda: predict(net, x, y),
        lambda: Monitor(net, x),
        lambda: fit(net, x, y),
    ):
        with pytest.raises(InputError, match="module: must be copyable, got a function"):
            use()
    with pytest.raises(InputError, match=r"module: must be a torch.nn.Module"):
        Monitor("net", x)
