"""Training that survives being killed: written whole or not at all, safe to load, and its own.

A checkpoint holds tensors, numbers and text alone and is read with weights_only=True, so that one
from a stranger cannot run code. It names the run that it belongs to; another run refuses it.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowbias.ground.arguments import InputError, as_float
from flowbias.ground.atomic import write_atomically
from flowbias.ground.torch import require_torch

if TYPE_CHECKING:
    from flowbias.nets.train import TrainingRun

_FORMAT = "flowbias training, version 2"
# What a run has recorded so far, under its own names.
_COURSE = {"epoch": int, "recorded": list, "losses": list, "accuracies": list, "notes": list}
_FIELDS = {
    "run": dict,
    "start": str,
    "module": dict,
    "optimizer": dict,
    "seconds": float,
    **_COURSE,
}


def fingerprint(tensors: Mapping[str, Any]) -> str:
    """SHA-256 of names, shapes, dtypes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {tuple(values.shape)} {values.dtype};".encode())
        digest.update(values.numpy().tobytes())
    return digest.hexdigest()


def read_path(checkpoint: Any) -> Path:
    """Where the checkpoint is kept."""
    if not isinstance(checkpoint, str | os.PathLike):
        raise InputError(
            f"checkpoint: must be a path, got {type(checkpoint).__name__}. "
            "Pass for instance 'run.pt'."
        )
    file = Path(checkpoint)
    if file.is_dir():
        raise InputError(
            f"checkpoint: must be a file, got the folder {file}. Pass for instance "
            f"{str(file / 'run.pt')!r}."
        )
    return file


def load(file: Path, run: Mapping[str, Any], device: Any) -> dict[str, Any]:
    """The checkpoint of this very run; an InputError that says why where it is not."""
    content = _read(file, device)
    for name, mine in run.items():
        theirs = content["run"].get(name)
        if theirs != mine and name != "start":
            raise InputError(
                f"checkpoint: must belong to this run, got {file} of a run with another {name} "
                f"({_short(theirs)}, here {_short(mine)}). Pass resume=False to start anew, or "
                "another file."
            )
    # A module that was trained in this session is where its checkpoint is, not where it started.
    at = run["start"]
    if at != content["start"] and at != fingerprint(content["module"]):
        raise InputError(
            f"checkpoint: must belong to this run, got {file} of a run that started from other "
            "parameters. Make the module with the same seed and scale, or pass resume=False."
        )
    return content


def _read(file: Path, device: Any) -> dict[str, Any]:
    torch = require_torch()
    stream = io.BytesIO(file.read_bytes())
    try:
        content = torch.load(stream, map_location=device, weights_only=True)
    # All that torch raises for what is no file of its own; the disk has been read before.
    except (RuntimeError, OSError, EOFError, LookupError, ValueError, pickle.PickleError) as error:
        raise InputError(
            f"checkpoint: must be a file written by training, got {file}, which cannot be read "
            f"safely ({_first_sentence(error)}). Delete it, or pass resume=False."
        ) from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise InputError(
            f"checkpoint: must be a file of {_FORMAT!r}, got {file} of another kind. "
            "Pass another file, or resume=False to overwrite it."
        )
    missing = [name for name, kind in _FIELDS.items() if not isinstance(content.get(name), kind)]
    if missing:
        raise InputError(
            f"checkpoint: must hold {', '.join(_FIELDS)}, got {file} without "
            f"a proper {missing[0]}. Delete it, or pass resume=False."
        )
    return content


def _first_sentence(error: Exception) -> str:
    """What torch says goes on with advice to load it unsafely."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].split(". ")[0].rstrip(". ")


def _short(value: Any) -> str:
    """Values as a message quotes them; of a hash the beginning tells enough."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:12]}...'"


@dataclass
class Keeper:
    """Writes the checkpoints of a run, where they are wanted; `file` is None where not."""

    file: Any
    identity: dict[str, Any]
    interval: float
    written: float = field(default_factory=time.monotonic)

    @classmethod
    def read(cls, run: TrainingRun, checkpoint: Any, interval: Any, resume: bool) -> Keeper:
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
        file = read_path(checkpoint)
        keeper = cls(file, _identity(run), seconds)
        if resume and file.exists():
            content = load(file, keeper.identity, run.data.x.device)
            keeper.identity["start"] = content["start"]
            _restore(run, content)
        return keeper

    def write_if_due(self, run: TrainingRun) -> None:
        if self.file is not None and time.monotonic() - self.written >= self.interval:
            self.write(run)

    def write(self, run: TrainingRun) -> None:
        """Whatever was there stays until the new one is complete."""
        if self.file is None:
            return
        content = {
            "format": _FORMAT,
            "run": self.identity,
            "start": self.identity["start"],
            "module": run.module.state_dict(),
            "optimizer": run.optimizer.state_dict(),
            "seconds": run.seconds,
            **{name: getattr(run, name) for name in _COURSE},
        }
        stream = io.BytesIO()
        require_torch().save(content, stream)
        write_atomically(self.file, stream.getvalue())
        self.written = time.monotonic()


def _identity(run: TrainingRun) -> dict[str, Any]:
    """What makes a run this one; how long it goes on is not part of it."""
    return {
        "module": f"{type(run.module).__qualname__} of {sum(1 for _ in run.module.parameters())} "
        f"parameters, {sum(p.numel() for p in run.module.parameters())} numbers",
        "loss": run.loss.name,
        "step_size": run.step_size,
        "momentum": run.momentum,
        "batch_size": run.batch,
        "rng": run.seed,
        "data": fingerprint({"x": run.data.x, "y": run.data.y}),
        "start": fingerprint(run.module.state_dict()),
    }


def _restore(run: TrainingRun, content: Mapping[str, Any]) -> None:
    run.module.load_state_dict(content["module"])
    run.optimizer.load_state_dict(content["optimizer"])
    for name in _COURSE:
        setattr(run, name, content[name])
    run.earlier_seconds = content["seconds"]
