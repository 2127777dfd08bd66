"""A training on its way: the steps, and what was recorded of them."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flowbias._torch import require_torch
from flowbias.nets.losses import Loss
from flowbias.nets.training import DIVERGED_ABOVE, Training, TrainingStatus
from flowbias.nets.training_data import TrainingData, right_labels


@dataclass
class Descent:
    """Where a training stands."""

    module: Any
    data: TrainingData
    loss: Loss
    batch: int | None
    step_size: float
    momentum: float
    seed: int
    epoch: int = 0
    recorded: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    earlier_seconds: float = 0.0
    started: float = field(default_factory=time.perf_counter)
    optimizer: Any = None

    def __post_init__(self) -> None:
        torch = require_torch()
        trainable = [p for p in self.module.parameters() if p.requires_grad]
        self.optimizer = torch.optim.SGD(trainable, lr=self.step_size, momentum=self.momentum)

    @property
    def seconds(self) -> float:
        return self.earlier_seconds + time.perf_counter() - self.started

    def record(self, loss: float, accuracy: float) -> None:
        self.recorded.append(self.epoch)
        self.losses.append(loss)
        self.accuracies.append(accuracy)

    def forward(self) -> tuple[Any, float]:
        """Loss of the full batch, to be differentiated, and accuracy."""
        outputs = self.module(self.data.x)
        right = (
            right_labels(outputs, self.data.y) / len(self.data) if self.loss.labels else math.nan
        )
        return self.loss.of(outputs, self.data.y), right

    def step(self, value: Any) -> None:
        self.optimizer.zero_grad()
        value.backward()
        self.optimizer.step()

    def batches(self) -> float:
        """One epoch in batches; the sum of their losses, which shows a divergence on the way."""
        torch = require_torch()
        data, total = self.data, 0.0
        order = np.random.default_rng((self.seed, self.epoch)).permutation(len(data))
        for part in torch.from_numpy(order).to(data.x.device).split(self.batch):
            value = self.loss.of(self.module(data.x[part]), data.y[part])
            self.step(value)
            total = total + value.detach()
        return float(total)

    def diverged(self, loss: float) -> bool:
        reference = max(self.losses[0], self.data.zero_level)
        return not loss <= DIVERGED_ABOVE * reference

    def result(self, status: TrainingStatus) -> Training:
        return Training(
            recorded=np.array(self.recorded, dtype=np.int64),
            losses=np.array(self.losses),
            accuracies=np.array(self.accuracies) if self.loss.labels else None,
            status=status,
            seconds=self.seconds,
        )
