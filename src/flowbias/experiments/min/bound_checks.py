"""What must be true of every flow of a linear network: bounds, conservation, descent beside it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowbias.experiments._base import Check
from flowbias.experiments.min.loss_and_bounds import INTEGRATION
from flowbias.experiments.table import Table


def runs(rows: Table) -> Iterator[Table]:
    """One flow after the other, in the order of the rows."""
    begins = np.flatnonzero(rows["t"] == 0.0)
    for begin, end in zip(begins, [*begins[1:], len(rows)], strict=True):
        yield rows.rows(np.arange(begin, end))


def check_bounds(rows: Table) -> Iterator[Check]:
    """No bound is crossed anywhere."""
    for column, bound, sign, name, claim in (
        ("loss", "loss_bound", 1.0, "theorem-3", "the loss stays below the bound of Theorem 3"),
        ("rate", "rate_bound", -1.0, "proposition-1", "the rate stays above Proposition 1"),
    ):
        excess = sign * (rows[column] / rows[bound] - 1.0)
        yield Check(
            f"{name}-never-crossed",
            claim,
            f"{column}/bound − 1 is at {'most' if sign > 0 else 'least'} "
            f"{sign * float(np.max(excess)):.1e} over {len(rows)} points",
            bool((excess <= INTEGRATION).all()),
        )


def check_drift(rows: Table) -> Check:
    """1e-8 is what a flow promises."""
    worst = float(np.max(rows["drift"]))
    return Check(
        "imbalance-is-conserved",
        "the imbalance UᵀU − VᵀV is the same at all times",
        f"largest relative change {worst:.1e}",
        bool(worst <= 1e-8),
    )


def check_descent(rows: Table, tolerance: float) -> Check:
    """Steps s at a rate l change a loss exp(-l t) by exp(-l^2 s t/4): the share l s/4 of ln L."""
    # Relative to how far the loss has fallen, in powers of e; at the start nothing has.
    ways = list(runs(rows))
    way = np.concatenate([np.log(part["loss"][0] / part["loss"]) for part in ways])
    fallen = np.concatenate([np.log(part["loss"] / part["descent_loss"]) for part in ways])
    apart = float(np.max(np.abs(fallen) / np.maximum(way, 1.0)))
    return Check(
        "descent-follows-the-flow",
        "gradient descent with the paper's step is the flow, one step taking the time of its size",
        f"ln L differs by at most {apart:.1e} of the fall of ln L so far",
        bool(apart <= tolerance),
    )
