"""What a network learned beyond the kernel of its start.

    f_T - f_0 = J_0 (theta_T - theta_0) + rest

The first part is what the tangent features of the start can express, whatever loss, optimizer and
time led there; the rest takes features that the start did not have. Of what was learned,

    share = ||rest|| / ||f_T - f_0||

is beyond the kernel of the start: 0 for a network that is linear in its parameters or as good as
that (lazy), about 1 where its features are new. One product with J, whatever the size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowbias.ground.typing import FloatArray


@dataclass(frozen=True)
class Beyond:
    """The share, and its standard error over the inputs that it was measured on.

    >>> Beyond(share=0.123, error=0.012).in_words
    '12% (± 1%) of what was learned is beyond the kernel of the start'
    """

    share: float
    error: float

    @property
    def in_words(self) -> str:
        """The share in percent; above one the linearization went another way altogether."""
        many = "all" if self.share >= 1.0 else f"{_percent(self.share)} (± {_percent(self.error)})"
        return f"{many} of what was learned is beyond the kernel of the start"


def _percent(share: float) -> str:
    """Two digits below one percent, none above."""
    return f"{share:.0%}" if share >= 0.01 or share == 0.0 else f"{100 * share:.2g}%"


def beyond_kernel(start: FloatArray, end: FloatArray, linear: FloatArray) -> Beyond:
    """From outputs (samples, outputs) at both points, and J_0 (theta_T - theta_0) between them.

    The error is that of a ratio of sums over independent inputs, to first order; for one input
    nothing is known of it. What rounding makes of outputs that hardly moved is added to it.

    >>> half = beyond_kernel(np.zeros((2, 1)), np.ones((2, 1)), 0.5 * np.ones((2, 1)))
    >>> half.share, half.error < 1e-12
    (0.5, True)
    """
    moved = end - start
    rest, whole = ((part**2).sum(axis=1) for part in (moved - linear, moved))
    size = float(whole.sum())
    if size == 0.0:
        return Beyond(0.0, 0.0)
    ratio, samples = float(rest.sum()) / size, len(rest)
    spread = float(np.linalg.norm(rest - ratio * whole)) / size if samples > 1 else np.inf
    spread *= np.sqrt(samples / max(samples - 1, 1))
    share = float(np.sqrt(ratio))
    rounding = np.finfo(end.dtype).eps * float(np.linalg.norm(end)) / np.sqrt(size)
    error = spread / (2.0 * share) if share > 0.0 else 0.0
    return Beyond(share, float(np.hypot(error, rounding)))
