"""What chance decides of a descent: the samples that a step sees, and the noise on their labels.

Both are functions of the seed and of the number of the step alone, block by block. So a run is the
same alone and beside others, and any part of it can be taken again.

Every sample is seen once in an epoch, in a new order each time; where the batches do not divide the
samples, those left over at the end of an epoch wait for the next. A batch is then a uniform subset.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowbias.ground.arguments import InputError, shown
from flowbias.ground.typing import FloatArray


@dataclass(frozen=True)
class Draws:
    """Batches of n samples and the noise on their labels, for the steps of one seed."""

    n: int
    batch_size: int | None  # None: all samples
    label_noise: float  # standard deviation
    outputs: int = 1  # labels of a sample
    least: int = 256  # steps to a block, or the rest of an epoch more

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size > self.n:
            raise InputError(
                f"batch_size: must be at most the number of samples, {self.n}, "
                f"got {shown(self.batch_size)}. Leave it out for full batches."
            )

    @property
    def is_random(self) -> bool:
        return self.batch_size is not None or self.label_noise > 0.0

    @property
    def per_step(self) -> int:
        """How many samples a step sees."""
        return self.n if self.batch_size is None else self.batch_size

    @property
    def epoch(self) -> int:
        """Steps in which every sample is seen, but for a rest that makes no batch."""
        return self.n // self.per_step

    @property
    def steps(self) -> int:
        """Steps to a block: whole epochs."""
        return -(-self.least // self.epoch) * self.epoch

    def block(self, seed: int, number: int) -> tuple[NDArray[np.intp] | None, FloatArray | None]:
        """Samples and noise of the steps of a block: (steps, per_step), of noise times outputs."""
        rng = np.random.default_rng([seed, number])
        samples = None
        if self.batch_size is not None:
            orders = np.tile(np.arange(self.n), (self.steps // self.epoch, 1))
            seen = rng.permuted(orders, axis=1)[:, : self.epoch * self.batch_size]
            samples = seen.reshape(self.steps, self.batch_size)
        noise = None
        if self.label_noise > 0.0:
            noise = self.label_noise * rng.standard_normal(
                (self.steps, self.per_step * self.outputs)
            )
        return samples, noise
