"""When a training writes its checkpoints, and how it goes on from one."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from flowbias.models.lifted_input import as_float
from flowbias.nets import checkpoint as checkpoints
from flowbias.nets.descent import Descent
from flowbias.problem import InputError


@dataclass
class Keeper:
    """Writes the checkpoints of a run, where they are wanted; `file` is None where not."""

    file: Any
    identity: dict[str, Any]
    interval: float
    written: float = field(default_factory=time.monotonic)

    @classmethod
    def read(cls, run: Descent, checkpoint: Any, interval: Any, resume: bool) -> Keeper:
        if checkpoint is None:
            if resume:
                raise InputError(
                    "resume: must be False without a checkpoint, got True. Pass checkpoint=file."
                )
            return cls(None, {}, 0.0)
        seconds = as_float(interval)
        if seconds is None or not seconds >= 0.0:
            raise InputError(
                f"checkpoint_every: must be a number of seconds >= 0, got {interval!r}. "
                "Pass 0 to write after each epoch."
            )
        file = checkpoints.read_path(checkpoint)
        keeper = cls(file, _identity(run), seconds)
        if resume and file.exists():
            progressed = checkpoints.load(file, keeper.identity, run.data.x.device)
            keeper.identity["start"] = progressed.start
            _restore(run, progressed)
        return keeper

    def write_if_due(self, run: Descent) -> None:
        if self.file is not None and time.monotonic() - self.written >= self.interval:
            self.write(run)

    def write(self, run: Descent) -> None:
        if self.file is None:
            return
        progressed = checkpoints.Progressed(
            start=self.identity["start"],
            epoch=run.epoch,
            module=run.module.state_dict(),
            optimizer=run.optimizer.state_dict(),
            recorded=run.recorded,
            losses=run.losses,
            accuracies=run.accuracies,
            seconds=run.seconds,
        )
        checkpoints.save(self.file, self.identity, progressed)
        self.written = time.monotonic()


def _identity(run: Descent) -> dict[str, Any]:
    """What makes a run this one; how long it goes on is not part of it."""
    return {
        "module": f"{type(run.module).__qualname__} of {sum(1 for _ in run.module.parameters())} "
        f"parameters, {sum(p.numel() for p in run.module.parameters())} numbers",
        "loss": run.loss.name,
        "step_size": run.step_size,
        "momentum": run.momentum,
        "batch_size": run.batch,
        "rng": run.seed,
        "data": checkpoints.fingerprint({"x": run.data.x, "y": run.data.y}),
        "start": checkpoints.fingerprint(run.module.state_dict()),
    }


def _restore(run: Descent, progressed: checkpoints.Progressed) -> None:
    run.module.load_state_dict(progressed.module)
    run.optimizer.load_state_dict(progressed.optimizer)
    run.epoch = progressed.epoch
    run.recorded, run.losses = list(progressed.recorded), list(progressed.losses)
    run.accuracies, run.earlier_seconds = list(progressed.accuracies), progressed.seconds
