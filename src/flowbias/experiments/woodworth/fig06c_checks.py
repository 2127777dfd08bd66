"""What [woodworth2020, appendix B] says about Figure 6(c), judged on the table."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowbias.experiments._base import Check
from flowbias.experiments.table import Table
from flowbias.ground.typing import FloatArray

# The paper's plateaus, at its width of 5000 and at smaller ones.
SMALL, LARGE = 2.0, 50.0
# Errors of the two plateaus: 1.4% and 2.4% in the paper.
RATIO = 1.5
# "No better than": 2.4% of large starts against 2.7% of the last layer alone in the paper.
CLOSE = 0.3
# Share of the way between the plateaus that errors on one of them may differ by.
FLAT = 1 / 3
# "Just outside": half of the way is passed within this factor of α = 1.
JUST = 10.0


def chosen(rows: Table) -> Table:
    """Of each scale and replicate, the step size with the least error on the pictures for that.

    Among trainings that reached their target, where there are any.
    """
    kept = []
    for scale, replicate in {*zip(rows["scale"], rows["replicate"], strict=True)}:
        here = np.flatnonzero((rows["scale"] == scale) & (rows["replicate"] == replicate))
        order = np.lexsort((rows["choosing_error"][here], -rows["converged"][here]))
        kept.append(here[order[0]])
    return rows.rows(np.sort(kept))


def check(table: Table) -> list[Check]:
    """What appendix B and the caption say about the figure."""
    best = chosen(table.rows(table["part"] == "network"))
    last = chosen(table.rows(table["part"] == "last-layer"))
    twin = table.rows(table["part"] == "twin")
    scale, error, *_ = best.summary("error", by="scale")
    small, large = _levels(scale, error)
    return [
        _fitted(best, last),
        *_plateaus(scale, error),
        _ratio(small, large),
        _near_last_layer(large, float(np.median(last["error"]))),
        *_where(scale, error, small, large),
        _movement(best),
        *_twin(twin, chosen(table.rows(table["part"] == "same-images"))),
    ]


def _levels(scale: FloatArray, values: FloatArray) -> tuple[float, float]:
    """Medians over the small and over the large starts."""
    return float(np.median(values[scale <= SMALL])), float(np.median(values[scale >= LARGE]))


def _fitted(best: Table, last: Table) -> Check:
    accuracy, loss = float(best["accuracy"].min()), float(best["loss"].max())
    target = float(best["loss_target"][0])
    return Check(
        "all-fit",
        "every network reaches 100% train accuracy and a small loss",
        f"least accuracy {accuracy:.4f}, largest loss {loss:.1e} (target {target:g}); last layer "
        f"alone: {float(last['accuracy'].min()):.4f}",
        bool(accuracy == 1.0 and loss <= target),
    )


def _plateaus(scale: FloatArray, error: FloatArray) -> Iterator[Check]:
    small, large = _levels(scale, error)
    for name, where, words in (
        ("small", scale <= SMALL, f"α ≤ {SMALL:g}"),
        ("large", scale >= LARGE, f"α ≥ {LARGE:g}"),
    ):
        on = error[where]
        yield Check(
            f"plateau-{name}",
            f"the error is about the same for all {words}",
            f"{on.min():.2%} to {on.max():.2%} on {on.size} scales, the plateaus being "
            f"{large - small:.2%} apart",
            bool(on.size >= 2 and np.ptp(on) <= FLAT * (large - small)),
        )


def _ratio(small: float, large: float) -> Check:
    return Check(
        "large-starts-generalize-worse",
        f"large starts have {RATIO:g} times the error of small ones or more (paper: 1.7)",
        f"{large:.2%} for α ≥ {LARGE:g}, {small:.2%} for α ≤ {SMALL:g}{_times(large, small)}",
        bool(large > 0.0 and large >= RATIO * small),
    )


def _times(error: float, other: float) -> str:
    return f": {error / other:.2f} times" if other > 0.0 else ""


def _near_last_layer(large: float, last: float) -> Check:
    return Check(
        "large-starts-are-random-features",
        "large starts do no better than a linear model over random features",
        f"{large:.2%} against {last:.2%} with the last layer alone{_times(large, last)}",
        bool(abs(large - last) <= CLOSE * last),
    )


def _where(scale: FloatArray, error: FloatArray, small: float, large: float) -> Iterator[Check]:
    with np.errstate(divide="ignore", invalid="ignore"):  # two levels may be one: there is no way
        way = (error - small) / (large - small)
    crossed = np.flatnonzero(way >= 0.5)
    last_below = scale[crossed[0] - 1] if crossed.size and crossed[0] else np.nan
    first_above = scale[crossed[0]] if crossed.size else np.nan
    yield Check(
        "transition",
        f"between α = {SMALL:g} and α = {LARGE:g} the error changes from one level to the other",
        f"half of the way is passed between α = {last_below:g} and {first_above:g}",
        bool(last_below >= SMALL and first_above <= LARGE and np.all(np.diff(crossed) == 1)),
    )
    at_one = way[scale == 1.0]
    share = float(at_one[0]) if at_one.size else np.nan
    yield Check(
        "standard-start-is-outside",
        "He's own start, α = 1, generalizes as small starts do and is just outside the kernel "
        f"regime, which begins within a factor of {JUST:g}",
        f"{share:.0%} of the way at α = 1, half of it by α = {first_above:g}",
        bool(share <= FLAT and first_above <= JUST),
    )


def _movement(best: Table) -> Check:
    scale, moved, *_ = best.summary("movement", by="scale")
    first, last = _levels(scale, moved)
    return Check(
        "large-starts-hardly-move",
        "weights move far from small starts and little, relative to their size, from large ones",
        f"median {first:.3g} for α ≤ {SMALL:g}, {last:.3g} for α ≥ {LARGE:g}",
        bool(last <= 0.5 * first),
    )


def _twin(twin: Table, network: Table) -> Iterator[Check]:
    left = float(np.max(twin["residual"]))
    yield Check(
        "twin-interpolates",
        "the linearized network fits the labels of its pictures exactly",
        f"largest residual {left:.1e} of outputs for labels 0 and 1",
        bool(left <= 1e-6),
    )
    level, learned = float(np.median(twin["limit_error"])), float(np.median(network["error"]))
    scale, own, *_ = twin.summary("error", by="scale")
    yield Check(
        "twin-learns-from-small-starts",
        "from a small start the linearized network learns what it would learn from zero output",
        f"{own[0]:.2%} at α = {scale[0]:g} against {level:.2%}; the network itself, from α = 1 on "
        f"the same {twin['images'][0]:.0f} images: {learned:.2%}",
        bool(abs(own[0] - level) <= 0.1 * level),
    )
    yield Check(
        "twin-drowns-in-large-starts",
        "under squared loss with labels 0 and 1, the output of a large start drowns what the "
        "linearized network learns: no plateau as under cross-entropy",
        f"{own[-1]:.2%} at α = {scale[-1]:g}, a guess among ten being wrong in 90%",
        bool(own[-1] >= 0.8 and np.all(np.diff(own) >= -FLAT * level)),
    )
