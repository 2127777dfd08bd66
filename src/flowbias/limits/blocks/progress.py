"""How far a long solve is: the relative gap on its way from where it began to the tolerance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from flowbias.ground.progress import shown
from flowbias.limits.blocks.newton import Watch


@contextmanager
def watching(wanted: bool, tol: float) -> Iterator[Watch]:
    """A bar on standard error, in decades of the gap; silent where not wanted or no terminal."""
    first: list[float] = []
    with shown("limit", 1.0, wanted=wanted, counted=False) as show:

        def report(step: int, gap: float) -> None:
            if 0.0 < gap < np.inf:
                first.append(gap)
            # The gap is 0 at the start and after the last step; decades are counted in between.
            begin = max(first, default=1.0)
            total = max(float(np.log10(begin / tol)), 1.0)
            done = total if gap <= tol else min(total, float(np.log10(begin / gap)))
            show(max(done, 0.0), f"step {step}, gap {gap:.1e}", total)

        yield report
