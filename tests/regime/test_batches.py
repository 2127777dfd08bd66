"""Inputs, labels and modules as people have them."""

import copy
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from flowbias.ground.arguments import InputError
from flowbias.nets import mlp
from flowbias.regime import Every, Monitor, diagnose, predict


@pytest.fixture(scope="module")
def trained():
    net = mlp((3, 10, 4), rng=0)
    moved = copy.deepcopy(net)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in moved.parameters():
            p += 0.1 * torch.randn(p.shape, generator=generator)
    x = torch.randn(6, 3, generator=generator)
    return net, moved, x, torch.tensor([0, 1, 2, 3, 0, 1])


class Named(torch.nn.Module):
    """Takes arguments by name and returns an object with logits, as language models do."""

    def __init__(self, body, returned):
        super().__init__()
        self.body, self.returned = body, returned

    def forward(self, *, features, mask):
        return self.returned(self.body(features * mask))


RETURNS = {
    "object": lambda logits: SimpleNamespace(loss=None, logits=logits),
    "dict": lambda logits: {"hidden": 2.0 * logits, "logits": logits},
    "tuple": lambda logits: (logits, 2.0 * logits),
}


def _known(diagnosis):
    return {name: value for name, value in diagnosis.measures().items() if value is not None}


def loader(*parts):
    return DataLoader(TensorDataset(*parts), batch_size=4)


def test_a_loader_is_its_batches(trained):
    net, moved, x, y = trained
    known = diagnose(net, moved, x, y).measures()
    assert diagnose(net, moved, loader(x, y)).measures() == known
    assert diagnose(net, moved, loader(x), y).measures() == known
    assert predict(net, loader(x, y)).document() == predict(net, x, y).document()
    with pytest.raises(InputError, match="x: must have a batch or more"):
        diagnose(net, moved, iter(()))


def test_a_long_loader_is_cut_aloud(trained):
    net, moved, x, y = trained
    many = DataLoader(TensorDataset(x.repeat(100, 1), y.repeat(100)), batch_size=64)
    with pytest.warns(UserWarning, match="the first 256 samples"):
        found = diagnose(net, moved, many, functions=False)
    assert found.samples == 256


@pytest.mark.parametrize("returned", list(RETURNS))
def test_names_and_objects_are_looked_through(trained, returned):
    net, moved, x, y = trained
    before, after = (Named(body, RETURNS[returned]) for body in (net, moved))
    batch = {"features": x, "mask": torch.ones(6, 1), "labels": y}
    known, found = diagnose(net, moved, x, y), diagnose(before, after, batch)
    assert _known(found) == pytest.approx(_known(known), rel=1e-5)
    assert diagnose(before, after.state_dict(), batch).measures() == found.measures()
    batches = [{name: part[:4] for name, part in batch.items()}]
    batches += [{name: part[4:] for name, part in batch.items()}]
    assert diagnose(before, after, iter(batches)).measures() == found.measures()
    live = copy.deepcopy(before).train()
    monitor = Monitor(live, batch, budget=None, schedule=Every(1))
    live.load_state_dict(after.state_dict())
    monitor.step()
    record = monitor.history.records[0]
    assert record.grad_distance == pytest.approx(found.grad_distance.overall, rel=1e-3)
    assert record.label_alignment == pytest.approx(found.label_alignment[1], rel=1e-3)


def test_layers_have_the_names_that_their_owner_knows(trained):
    class Gained(Named):
        def __init__(self, *args):
            super().__init__(*args)
            self.gain = torch.nn.Parameter(torch.zeros(()))

        def forward(self, *, features, mask):
            return self.returned((1.0 + self.gain) * self.body(features * mask))

    net, moved, x, _ = trained
    before, after = (Gained(body, RETURNS["object"]) for body in (net, moved))
    with torch.no_grad():
        after.gain += 0.1
    batch = {"features": x, "mask": torch.ones(6, 1)}
    found = diagnose(before, after, batch, functions=False, by_layer=True)
    plain = diagnose(net, moved, x, functions=False, by_layer=True)
    assert list(found.layers) == ["gain", *(f"body.{name}" for name in plain.layers)]
    # What started at zero moved from there, by no share of it.
    assert "from 0" in repr(found)
    assert "inf" not in repr(found)


def test_two_samples_have_no_alignment(trained):
    """Centering leaves one direction of them, whatever the kernel."""
    net, moved, x, y = trained
    found = diagnose(net, moved, x[:2], y[:2])
    assert found.kernel_alignment is found.label_alignment is None
    assert diagnose(net, moved, x[:3], y[:3]).label_alignment is not None
    live = copy.deepcopy(net)
    monitor = Monitor(live, x, y, budget=None, schedule=Every(1), most_inputs=2)
    live.load_state_dict(moved.state_dict())
    monitor.step()
    assert monitor.history.records[0].label_alignment is None


def test_half_precision_is_measured_in_single(trained):
    net, moved, x, y = trained
    halves = [copy.deepcopy(module).bfloat16() for module in (net, moved)]
    with pytest.warns(UserWarning, match=r"a module in torch.bfloat16 is measured in float32"):
        found = diagnose(*halves, x.bfloat16(), y)
    singles = [module.float() for module in copy.deepcopy(halves)]
    assert found.measures() == diagnose(*singles, x.bfloat16().float(), y).measures()
    live = copy.deepcopy(halves[0])
    with pytest.warns(UserWarning, match="measured in float32"):
        monitor = Monitor(live, x.bfloat16(), budget=None, schedule=Every(1))
    live.load_state_dict(halves[1].state_dict())
    monitor.step()
    change = monitor.history.records[0].kernel_change
    assert change == pytest.approx(found.kernel_change, rel=1e-3)


def test_a_plain_tensor_is_no_reason_to_warn(trained):
    net, moved, x, y = trained
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        diagnose(net, moved, x, y, functions=False)


def test_what_cannot_be_measured_is_named(trained):
    net, moved, x, _ = trained
    with pytest.raises(InputError, match=r"module: must have parameters with values"):
        diagnose(copy.deepcopy(net).to("meta"), moved, x)
    dropping = torch.nn.Sequential(copy.deepcopy(net), torch.nn.Dropout(0.5))
    with pytest.raises(InputError, match=r"Call module.eval\(\) first"):
        diagnose(dropping, copy.deepcopy(dropping), x)
    complex_module = torch.nn.Linear(3, 2, dtype=torch.complex64)
    with pytest.raises(InputError, match="view_as_complex"):
        diagnose(complex_module, copy.deepcopy(complex_module), x)


def test_wrappers_are_looked_through(trained):
    net, moved, x, y = trained
    known = diagnose(net, moved, x, y, functions=False).measures()
    parallel = [torch.nn.DataParallel(module) for module in (net, moved)]
    assert diagnose(*parallel, x, y, functions=False).measures() == known


def test_labels_beside_batches_that_are_drawn_are_refused(trained):
    """They would be paired with whatever is drawn first."""
    net, moved, x, y = trained
    data = TensorDataset(x)
    drawn = (
        DataLoader(data, batch_size=4, shuffle=True),
        DataLoader(data, batch_size=None, shuffle=True),
        DataLoader(data, batch_sampler=[[5, 4, 3], [2, 1, 0]]),
        DataLoader(data, sampler=[5, 4, 3, 2, 1, 0]),
    )
    known = diagnose(net, moved, x, y).measures()
    assert diagnose(net, moved, loader(x), y).measures() == known
    for batches in drawn:
        with pytest.raises(InputError, match=r"y: must come with the batches.*shuffle=False"):
            diagnose(net, moved, batches, y)
    # Nothing to pair, or paired already.
    diagnose(net, moved, drawn[0])
    torch.manual_seed(0)
    shuffled = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
    aligned, _ = diagnose(net, moved, shuffled).label_alignment
    assert abs(aligned - known["label_alignment_before"]) < 1e-6


def test_labels_beside_labels_are_refused(trained):
    net, moved, x, y = trained
    rows = [{"features": x[i], "mask": x[i], "labels": y[i]} for i in range(6)]
    named = Named(net, lambda logits: logits), Named(moved, lambda logits: logits)
    for modules, batches in (((net, moved), loader(x, y)), (named, DataLoader(rows, batch_size=4))):
        with pytest.raises(
            InputError, match=r"y: must not be passed beside batches that bring lab"
        ):
            diagnose(*modules, batches, y)


class Two(torch.nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, mask):
        return self.body(x * mask)


def test_batches_of_two_inputs_have_their_labels_beside_them(trained):
    net, moved, x, y = trained
    found = diagnose(Two(net), Two(moved), loader(x, torch.ones_like(x)), y)
    assert found.measures() == diagnose(net, moved, x, y).measures()


@pytest.mark.parametrize(
    "prefix", ["_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module."]
)
def test_a_state_dict_of_what_wraps_a_module_is_unwrapped(trained, prefix):
    net, moved, x, _ = trained
    known = diagnose(net, moved, x).measures()
    state = {f"{prefix}{name}": value for name, value in moved.state_dict().items()}
    assert diagnose(net, state, x).measures() == known
    # A module that calls a part of its own so is no wrapper.
    inner = Adapted(net), Adapted(moved)
    assert diagnose(inner[0], inner[1].state_dict(), x).measures() == known
    with pytest.raises(InputError, match="after: must be a state dict of before"):
        diagnose(net, {f"{prefix}other": x}, x)


class Adapted(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


def test_state_dicts_of_compiled_modules_and_data_parallel(trained):
    net, moved, x, _ = trained
    known = diagnose(net, moved, x).measures()
    for wrap in (torch.compile, torch.nn.DataParallel):
        assert diagnose(wrap(net), wrap(moved).state_dict(), x).measures() == known
