"""Callbacks, called as Lightning and transformers call them; with the packages where they are."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from flowbias.ground.arguments import InputError
from flowbias.nets import mlp
from flowbias.regime import Every, Monitor, lightning_callback, trainer_callback, watch

X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
Y = torch.randn(6, 1, generator=torch.Generator().manual_seed(1))
OPTIONS = {"budget": None, "schedule": Every(2)}


def descend(net, steps, after_step):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(steps):
        loss = ((net(X) - Y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after_step(loss)


@pytest.fixture
def stand_in(monkeypatch):
    """A package of that name with a base class for callbacks and nothing else."""

    def install(name, base):
        module = ModuleType(name)
        setattr(module, base, type(base, (), {}))
        for part in (name.partition(".")[0], name):
            monkeypatch.setitem(sys.modules, part, module)
        return getattr(module, base)

    return install


def check(monitor):
    history = monitor.history
    assert [record.step for record in history.records] == [2, 4, 5]
    assert (history.steps, len(history.losses)) == (5, 5)
    assert history.records[-1].kernel_change > 0.0


def test_lightning_calls_it(stand_in):
    base = stand_in("lightning.pytorch", "Callback")
    callback, net = lightning_callback(X, Y, **OPTIONS), mlp((3, 4, 1), rng=0)
    assert isinstance(callback, base)
    callback.on_train_start(None, net)
    descend(net, 5, lambda loss: callback.on_train_batch_end(None, net, {"loss": loss}, X, 0))
    callback.on_train_end(None, net)
    check(callback.monitor)
    assert callback.monitor.history.losses[0] > callback.monitor.history.losses[-1]


def test_the_trainer_of_transformers_calls_it(stand_in):
    base = stand_in("transformers", "TrainerCallback")
    callback, net = trainer_callback(X, Y, **OPTIONS), mlp((3, 4, 1), rng=0)
    assert isinstance(callback, base)
    state = SimpleNamespace(log_history=[])
    callback.on_train_begin(None, state, None, model=net, optimizer=None)

    def step(loss):
        callback.on_step_end(None, state, None, model=net)
        state.log_history += [{"loss": loss.item()}, {"eval_loss": 1.0}]

    descend(net, 5, step)
    callback.on_train_end(None, state, None)
    check(callback.monitor)
    losses = callback.monitor.history.losses
    assert losses[0] is None
    assert losses[1] > losses[-1]


def test_an_optimizer_is_watched():
    net = mlp((3, 4, 1), rng=0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with Monitor(net, X, **OPTIONS) as monitor:
        handle = watch(monitor, optimizer)
        for _ in range(5):
            optimizer.step()
        handle.remove()
        optimizer.step()
    assert monitor.history.steps == 5
    with pytest.raises(InputError, match="optimizer: must be a torch"):
        watch(monitor, net)


@pytest.mark.parametrize("make", [lightning_callback, trainer_callback])
def test_what_is_not_installed_is_named(make, monkeypatch):
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match="must be installed for its callback"):
        make(X)


def test_scalars_go_to_a_writer():
    net, written = mlp((3, 4, 1), rng=0), []
    with Monitor(net, X, **OPTIONS) as monitor:
        descend(net, 5, monitor.step)
    writer = SimpleNamespace(add_scalar=lambda name, value, step: written.append((name, step)))
    monitor.history.write_scalars(writer)
    assert ("regime/kernel_change", 4) in written
    assert [step for name, step in written if name == "regime/loss"] == [1, 2, 3, 4, 5]
    assert all(name != "regime/label_alignment" for name, _ in written)


def test_with_the_real_lightning(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.body = mlp((3, 4, 1), rng=0)

        def forward(self, x):
            return self.body(x)

        def training_step(self, batch, index):
            return ((self(batch[0]) - batch[1]) ** 2).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    callback = lightning_callback(X, Y, **OPTIONS)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=6)
    trainer = lightning.Trainer(
        max_epochs=5, callbacks=[callback], accelerator="cpu", default_root_dir=tmp_path
    )
    trainer.fit(Net(), data)
    check(callback.monitor)


def test_with_the_real_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp((3, 4, 1), rng=0)

        def forward(self, x, labels=None):
            logits = self.body(x)
            loss = None if labels is None else ((logits - labels) ** 2).mean()
            return {"loss": loss, "logits": logits}

    callback = trainer_callback({"x": X}, Y, **OPTIONS)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=5,
        per_device_train_batch_size=6,
        use_cpu=True,
        report_to=[],
    )
    data = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
    transformers.Trainer(Net(), arguments, train_dataset=data, callbacks=[callback]).train()
    check(callback.monitor)
