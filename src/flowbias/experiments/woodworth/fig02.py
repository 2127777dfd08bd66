"""Implicit against explicit: the potential q of depth 2 beside the distance r to the start.

[woodworth2020, Figure 2 and the text around (8)-(9)], per coordinate and in units of scale^2:

    q(z) = 2 - sqrt(4 + z^2) + z asinh(z/2)                        what gradient flow minimizes
    r(z) = min (u - 1)^2 + (v - 1)^2  s.t.  u^2 - v^2 = z          the distance in the weights

r is q_4, the potential of depth 4 (docs/errata.md, W4), which the paper defines by

    q_4(z) = int_0^z h^-1,    h(x) = (1 - x)^-2 - (1 + x)^-2                      (Theorem 3)

The local power d ln f / d ln z says which norm a function f resembles at z: 2 for l2, 1 for l1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task
from flowbias.experiments.check import at_least, at_most, more_than
from flowbias.experiments.curves import first
from flowbias.experiments.drawing import name_line, reference_line
from flowbias.experiments.table import Columns, Table
from flowbias.ground.drawing import BLUE, RED
from flowbias.ground.typing import Axes, FloatArray
from flowbias.potentials import DistancePotential, Hypentropy, Potential
from flowbias.theory import Reference, distance_by_minimization

# Both functions are computed to a few units in the last place.
ROUNDING = 1e-14


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """The functions near zero, as the paper draws them, and over many decades."""
    yield "near", {"points": settings["points"]}
    yield "wide", {"points": settings["points"]}


def compute(task: Task) -> Columns:
    """q and r by the library, and from their definitions r once more and q_4."""
    points = task.integer("points")
    near = task.part == "near"
    z = np.linspace(-10.0, 10.0, points) if near else np.logspace(-4.0, 12.0, points)
    implicit, explicit = Hypentropy(scale=1.0), DistancePotential(scale=1.0)
    q, r = implicit.value_terms(z), explicit.value_terms(z)
    both: Columns = {
        "z": z,
        "q": q,
        "r": r,
        "q4": _depth_4_by_definition(z),
        "r_minimized": [distance_by_minimization([one], 1.0).measured for one in z],
    }
    if near:
        return both
    powers = {"q_power": _local_power(implicit, z), "r_power": _local_power(explicit, z)}
    return {**both, "ratio": q / r, **powers}


def _depth_4_by_definition(z: FloatArray) -> FloatArray:
    """int_0^z h^-1 = z x - int_0^x h at h(x) = |z|; an error in x counts only by its square."""
    size = np.abs(z)
    low, high = np.zeros_like(size), np.ones_like(size)
    middle = 0.5 * high
    # Until no double lies between the ends anywhere.
    while ((low < middle) & (middle < high)).any():
        below = (1.0 - middle) ** -2.0 - (1.0 + middle) ** -2.0 < size
        low, high = np.where(below, middle, low), np.where(below, high, middle)
        middle = 0.5 * (low + high)
    return np.asarray(size * low - 2.0 * low**2 / (1.0 - low**2))


def _local_power(potential: Potential, z: FloatArray) -> FloatArray:
    return np.asarray(z * potential.grad(z) / potential.value_terms(z))


# --- panels ------------------------------------------------------------------------------------


def draw_functions(axes: Axes, table: Table) -> None:
    near = table.part("near")
    axes.plot(near["z"], near["q"], color=BLUE)
    axes.plot(near["z"], near["r"], color=RED, linestyle="--")
    right, inner = len(near) - 1, int(np.searchsorted(near["z"], 6.0))
    name_line(axes, "q", near["z"][right], near["q"][right], colour=BLUE)
    name_line(axes, "r = q₄", 7.0, near["r"][inner], side="right", colour=RED)
    axes.set_xticks([-10, -5, 0, 5, 10])
    axes.set(xlabel="z = β / α²", ylabel="cost of one coordinate")


def draw_ratio(axes: Axes, table: Table) -> None:
    wide = table.part("wide")
    axes.plot(wide["z"], wide["ratio"], color=BLUE)
    axes.set(xscale="log", ylim=(0.0, None), xlabel="z = β / α²", ylabel="q / r")
    reference_line(axes, y=2.0, text="at zero: 2")


def draw_powers(axes: Axes, table: Table) -> None:
    wide = table.part("wide")
    axes.set(xscale="log", yscale="log", ylim=(1e-6, 3.0))
    styles = (("q", BLUE, "-"), ("r", RED, "--"))
    for name, colour, line in styles:
        excess = wide[f"{name}_power"] - 1.0
        axes.plot(wide["z"], excess, color=colour, linestyle=line)
        at = int(np.searchsorted(wide["z"], 1e8))
        name_line(axes, name, wide["z"][at], excess[at], side="above", colour=colour)
    reference_line(axes, y=1.0, text="l2: power 2")
    axes.set(xlabel="z = β / α²", ylabel="local power − 1 (l1: 0)")


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> list[Check]:
    """What the text says about q and r; that r is q_4 is ours."""
    near, wide = (table.rows(table["part"] == part) for part in ("near", "wide"))
    return [_alike(near), *_distance(table), *_grows(wide), *_approaches_to_l1(wide)]


def _alike(near: Table) -> Check:
    """What the eye sees in panel (a)."""
    curves = [near[name] for name in ("q", "r")]
    even = max(float(np.max(np.abs(f - f[::-1]) / f.max())) for f in curves)
    bend = min(float(np.diff(f, 2).min()) for f in curves)
    return Check(
        "q-and-r-look-alike",
        "q and r are similar: even, convex, and least at zero, where both vanish",
        f"asymmetry {even:.1e}, least second difference {bend:.1e}",
        at_most(even, ROUNDING),
        more_than(bend, 0.0),
        at_most([abs(f.min()) for f in curves], ROUNDING),
        silence="" if (near["z"] == 0.0).any() else "no point of the grid is at zero",
    )


def _distance(table: Table) -> Iterator[Check]:
    # The minimum is located to 1e-8, its value to the square of that, relative to 1 + z.
    minimized = 1e-12
    apart = np.abs(table["r"] - table["r_minimized"]) / (1.0 + np.abs(table["z"]))
    yield Check(
        "r-is-the-least-distance",
        "r is the least squared distance between the start and weights that give z",
        f"differs from a minimization over the weights by {apart.max():.1e} (1 + z)",
        at_most(apart, minimized),
    )
    # By definition on both sides: one formula serves both in the library.
    apart = np.abs(table["r_minimized"] - table["q4"]) / (1.0 + np.abs(table["z"]))
    yield Check(
        "r-is-q4",
        "staying close to a depth-2 start is the implicit bias of depth 4: r = q_4",
        f"the least distance and the integral of Theorem 3 differ by {apart.max():.1e} (1 + z)",
        at_most(apart, minimized),
    )


def _grows(wide: Table) -> Iterator[Check]:
    ratio = wide["ratio"]
    yield Check(
        "q-is-no-multiple-of-r",
        "q and r are similar but not the same, nor is one a multiple of the other",
        f"q/r grows from {ratio[0]:.4g} to {ratio[-1]:.4g}",
        more_than(np.diff(ratio), -ROUNDING * ratio[:-1]),
        at_least(ratio[-1], 2.0 * ratio[0]),
    )
    small = wide.rows(wide["z"] <= 0.1)
    z, square = small["z"], np.square(small["z"])
    # The next terms of both series: z^2/48 and z^2/16, alternating, so that they are bounds.
    q_off = np.abs(small["q"] / (square / 4.0) - 1.0) - square / 48.0
    r_off = np.abs(small["r"] / (square / 8.0) - 1.0) - square / 16.0
    yield Check(
        "both-are-quadratic-near-zero",
        "for small z both behave like l2: q = z^2/4 and r = z^2/8, up to terms in z^4",
        f"at z = {z[0]:.1g}: q/z^2 = {small['q'][0] / square[0]:.6g}, "
        f"r/z^2 = {small['r'][0] / square[0]:.6g}",
        at_most(max(q_off.max(), r_off.max()), ROUNDING),
    )
    large = wide.rows(wide["z"] >= 1e3)
    z, root = large["z"], np.sqrt(large["z"])
    entropy, distance = z * np.log(z) - z + 2.0, z - 2.0 * root + 1.5
    # The next terms: -1/z for q, and less than 1/sqrt z for r.
    q_off = np.abs(large["q"] - entropy) - 1.0 / z
    r_off = np.abs(large["r"] - distance) - 1.0 / root
    yield Check(
        "growth-at-infinity",
        "q grows like z ln z and r like z: q = z ln z - z + 2 + O(1/z), "
        "r = z - 2 sqrt z + 3/2 + O(1/sqrt z)",
        f"at z = {z[0]:.1g}: q / (z ln z - z + 2) - 1 = {large['q'][0] / entropy[0] - 1.0:.1e}, "
        f"r / (z - 2 sqrt z + 3/2) - 1 = {large['r'][0] / distance[0] - 1.0:.1e}",
        at_most(q_off, ROUNDING * entropy),
        at_most(r_off, ROUNDING * distance),
    )


def _approaches_to_l1(wide: Table) -> Iterator[Check]:
    """How the local power comes down to 1: like 1/(ln z - 1) for q, like 1/sqrt z for r."""
    z = wide["z"]
    q, r = wide["q_power"] - 1.0, wide["r_power"] - 1.0
    far = z >= 1e6
    product = r[far] * np.sqrt(z[far])
    yield Check(
        "r-approaches-l1-polynomially",
        "the distance r approaches l1 like a power of the scale",
        f"for z >= 1e6 its local power exceeds 1 by {product.min():.4f} to {product.max():.4f} "
        "/ sqrt z",
        # The next term of the expansion, for z >= 1e6.
        at_most(np.abs(product - 1.0), 2e-3),
    )
    product = q[far] * (np.log(z[far]) - 1.0)
    yield Check(
        "q-approaches-l1-logarithmically",
        "the potential q approaches l1 only like the logarithm of the scale",
        f"for z >= 1e6 its local power exceeds 1 by {product.min():.6f} to {product.max():.6f} "
        "/ (ln z - 1)",
        at_most(np.abs(product - 1.0), 1e-4),
    )
    nearly = 0.05
    at_q, at_r = (first(z, excess <= nearly) for excess in (q, r))
    yield Check(
        "q-needs-a-far-smaller-scale",
        f"to come within {nearly:g} of the power of l1, q needs a far smaller scale than r",
        f"z = beta/alpha^2 must be {at_q:.1e} for q, {at_r:.1e} for r",
        at_least(at_q, at_r**3),
    )


EXPERIMENT = Experiment(
    name="woodworth-fig2",
    title="The implicit bias is not a distance",
    reference=Reference("woodworth2020", "Figure 2"),
    summary=(
        "One might think that gradient flow ends at the weights closest to its start that fit the "
        "data. That distance has a closed form r per coordinate, and it is not what gradient flow "
        "minimizes, which is q. Panel (b) shows that q is no multiple of r, panel (c) how each "
        "turns from l2 into l1: the local power falls from 2 to 1. No randomness, no data."
    ),
    paper_says=(
        "The two are similar but differ, and not only by a factor: r is algebraic, q is not. The "
        "distance approaches the l1 norm polynomially in the scale, q needs an exponentially "
        "small one. (We add: r is exactly the potential of depth 4.)"
    ),
    settings={
        Preset.SMOKE: {"points": 161},
        Preset.LAPTOP: {"points": 321},
        Preset.PAPER: {"points": 641},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Implicit q, explicit r", draw_functions),
        Panel("b", "Not a multiple of each other", draw_ratio),
        Panel("c", "From l2 to l1", draw_powers),
    ),
    check=check,
)
