"""A `Monitor` in somebody else's training loop: any optimizer, Lightning, transformers.

    watch(monitor, optimizer)                                  # each step of the optimizer
    lightning.Trainer(callbacks=[lightning_callback(x, y)])    # x, y as for a Monitor
    transformers.Trainer(callbacks=[trainer_callback(x, y)])

Both callbacks make their monitor where training starts and hold it as `monitor`, whose history has
JSON, a picture and `write_scalars` for TensorBoard. The packages are loaded by the call that needs
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from flowbias.ground.arguments import InputError
from flowbias.regime.monitor import Monitor


def watch(monitor: Monitor, optimizer: Any) -> Any:
    """Count each step of a torch optimizer; returns the handle whose `remove()` ends that.

    Without a loss, which an optimizer does not know: call `monitor.step(loss)` yourself to keep it.

    Parameters
    ----------
    monitor : of the module that the optimizer moves
    optimizer : a torch.optim.Optimizer

    Returns
    -------
    the handle, torch's own

    Raises
    ------
    InputError for what is no optimizer of torch

    >>> import torch
    >>> net = torch.nn.Linear(2, 1)
    >>> monitor = fb.regime.Monitor(net, torch.eye(2), budget=None)
    >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> handle = fb.regime.watch(monitor, optimizer)
    >>> net(torch.eye(2)).sum().backward()
    >>> optimizer.step()
    >>> monitor.history.steps
    1
    """
    if not hasattr(optimizer, "register_step_post_hook"):
        raise InputError(
            f"optimizer: must be a torch.optim.Optimizer, got {type(optimizer).__name__}. "
            "Call monitor.step() after each step of any other."
        )
    return optimizer.register_step_post_hook(lambda *_: monitor.step())


def lightning_callback(x: Any, y: Any = None, **options: Any) -> Any:
    """A callback for Lightning's Trainer.

    Parameters
    ----------
    x, y, options : those of a Monitor

    Returns
    -------
    a lightning.pytorch.Callback with `monitor`, once training has started

    Raises
    ------
    InputError where Lightning is not installed

    >>> fb.regime.lightning_callback.__name__
    'lightning_callback'
    """
    base = _first_installed("Lightning", ("lightning.pytorch", "pytorch_lightning")).Callback

    class RegimeCallback(base):  # type: ignore[misc, valid-type, unused-ignore]
        monitor: Monitor | None = None

        def on_train_start(self, trainer: Any, module: Any) -> None:
            self.monitor = Monitor(module, x, y, **options).__enter__()

        def on_train_batch_end(
            self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            if self.monitor is not None:
                loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
                self.monitor.step(loss)

        def on_train_end(self, trainer: Any, module: Any) -> None:
            if self.monitor is not None:
                self.monitor.__exit__(None, None, None)

    return RegimeCallback()


def trainer_callback(x: Any, y: Any = None, **options: Any) -> Any:
    """A callback for the Trainer of transformers.

    The loss is the one that the Trainer logged last: its `logging_steps` say how often.

    Parameters
    ----------
    x, y, options : those of a Monitor

    Returns
    -------
    a transformers.TrainerCallback with `monitor`, once training has started

    Raises
    ------
    InputError where transformers is not installed

    >>> fb.regime.trainer_callback.__name__
    'trainer_callback'
    """
    base = _first_installed("transformers", ("transformers",)).TrainerCallback

    class RegimeCallback(base):  # type: ignore[misc, valid-type, unused-ignore]
        monitor: Monitor | None = None

        def on_train_begin(
            self, args: Any, state: Any, control: Any, model: Any = None, **more: Any
        ) -> None:
            self.monitor = Monitor(model, x, y, **options).__enter__()

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if self.monitor is not None:
                logged = [entry["loss"] for entry in state.log_history if "loss" in entry]
                self.monitor.step(logged[-1] if logged else None)

        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if self.monitor is not None:
                self.monitor.__exit__(None, None, None)

    return RegimeCallback()


def _first_installed(package: str, names: tuple[str, ...]) -> Any:
    for name in names:
        try:
            return import_module(name)
        except ImportError:
            continue
    raise InputError(
        f"{package}: must be installed for its callback, got none of {', '.join(names)}. Install "
        "it, or call monitor.step(loss) in a loop of your own."
    )
