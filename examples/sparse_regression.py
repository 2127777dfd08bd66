"""Which of infinitely many perfect fits does gradient flow pick? The scale of its start decides.

100 samples of 1000 features, five of which matter: every predictor below fits the data exactly.
Large starts end near the least l2 norm and do not generalize, small ones near the least l1 norm and
do [woodworth2020, Section 4 and Figure 1]. No limit here is integrated to; each is solved for, and
comes with a certificate. Prints a table and draws `sparse_regression.png`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import flowbias as fb

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOG_TEN = float(np.log(10.0))
# Powers of ten. 1e-10000 is no floating-point number, but its logarithm is.
TABLE = {
    2: (3, 1, 0, -0.5, -1, -1.5, -2, -3, -4, -6, -12, -30, -100, -300, -10_000),
    3: (3, 1, 0, -0.5, -1, -2, -3, -6, -12),
    5: (3, 1, 0, -0.5, -1, -2, -3, -6),
}
# Entries below this share of the largest count as zero.
NEGLIGIBLE = 1e-3
INTRODUCTION = """\
100 samples of 1000 features, five of which matter: which perfect fit does gradient flow pick?
The scale of its start decides. Each limit is solved for, not integrated to, and certified.
"""
HEADER = (
    "                                              population                     error  factor-\n"
    "depth    scale  status       |w|_1    |w|_2       error  nonzero      gap    bound  izations"
    "    ms"
)

CURVE = np.linspace(1.0, -5.0, 121)
# Dark to light, so that the depths stay apart in grey; safe for the colour-blind.
COLOURS = {2: "#14213d", 3: "#c8460f", 5: "#dd9500"}


@dataclass(frozen=True)
class Curves:
    """One depth along the scales of the figure: what is drawn, computed beforehand."""

    scale: np.ndarray
    population: np.ndarray
    excess_l1: np.ndarray
    excess_l2: np.ndarray


def print_table(data: fb.datasets.SparseRegression) -> None:
    print(f"{HEADER}\n{'-' * 98}")
    fb.limit(fb.DiagonalNet(2, 1.0), data.X[:5], data.y[:5])  # so that no row pays for first use
    for depth, powers in TABLE.items():
        for i, power in enumerate(powers):
            model = fb.DiagonalNet(depth, log_scale=power * LOG_TEN)
            label = f"{depth if i == 0 else '':>5} {scale_name(power):>8}"
            print_row(label, lambda model=model: fb.limit(model, data.X, data.y, throw=False), data)
    print_row(" least l2 norm", lambda: fb.min_norm(data.X, data.y), data)
    print_row(" least l1 norm", lambda: fb.basis_pursuit(data.X, data.y), data)


def print_row(
    label: str, solve: Callable[[], fb.Solution], data: fb.datasets.SparseRegression
) -> None:
    started = time.perf_counter()
    solution = solve()
    seconds = time.perf_counter() - started
    w, certificate = solution.w, solution.certificate
    nonzero = np.count_nonzero(np.abs(w) > NEGLIGIBLE * np.abs(w).max())
    print(
        f"{label}  {solution.status.name.lower():<10} {np.abs(w).sum():7.4f}  "
        f"{np.linalg.norm(w):7.4f}  {population_error(w, data.w_true):10.5f}  {nonzero:7d}  "
        f"{certificate.gap:7.1e}  {certificate.error_bound:7.1e}  "
        f"{solution.stats.factorizations:8d}  {1e3 * seconds:4.0f}"
    )


def scale_name(power: float) -> str:
    return f"1e{power:g}" if power == int(power) else f"{10.0**power:.2g}"


def population_error(w: np.ndarray, w_true: np.ndarray) -> np.ndarray:
    """||w - w_true||^2: the expected squared error on new samples, less their noise."""
    return np.sum(np.square(w - w_true), axis=-1)


def compute_curves(
    depth: int, data: fb.datasets.SparseRegression, least_l1: float, least_l2: float
) -> Curves:
    """All limits of one depth along the scales, in one warm-started path."""
    model = fb.DiagonalNet(depth, scale=1.0)
    path = fb.limit_path(model, data.X, data.y, log_scales=CURVE * LOG_TEN)
    return Curves(
        scale=10.0**CURVE,
        population=population_error(path.w, data.w_true),
        excess_l1=np.abs(path.w).sum(axis=1) / least_l1 - 1.0,
        excess_l2=np.linalg.norm(path.w, axis=1) / least_l2 - 1.0,
    )


def draw(curves: dict[int, Curves], ends: dict[str, float], file: Path) -> None:
    """The figure; everything in it has been computed."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    style = {"font.size": 14, "axes.spines.top": False, "axes.spines.right": False}
    with mpl.rc_context(style):
        figure, (left, right) = plt.subplots(1, 2, figsize=(12.0, 5.0), layout="constrained")
        figure.get_layout_engine().set(wspace=0.06)
        draw_population(left, curves, ends)
        draw_norms(right, curves)
        for axes in (left, right):
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel(r"scale of the start  $\alpha$")
            axes.set_xlim(10.0 ** CURVE.min(), 10.0 ** CURVE.max())
        figure.savefig(file, dpi=100)
        plt.close(figure)


def draw_population(axes: Axes, curves: dict[int, Curves], ends: dict[str, float]) -> None:
    for name, value in ends.items():
        axes.axhline(value, color="0.3", linewidth=0.9, linestyle=(0, (1, 2)))
        at = (10.0 ** CURVE.min(), value)
        axes.annotate(name, at, (8, -5), textcoords="offset points", va="top", color="0.3")
    # Where a curve has room beside it: height, and the side on which its name goes.
    places = {2: (0.15, "right"), 3: (0.0125, "right"), 5: (0.15, "left")}
    for depth, curve in curves.items():
        axes.plot(curve.scale, curve.population, color=COLOURS[depth], linewidth=2.6)
        height, side = places[depth]
        name_line(axes, depth, curve.scale, curve.population, height, side)
    axes.set_ylim(5e-3, 1.4)
    axes.set_ylabel(r"population error  $\|\beta - \beta^*\|^2$")
    axes.set_title("Small starts generalize", loc="left", fontsize=15)


def draw_norms(axes: Axes, curves: dict[int, Curves]) -> None:
    heights = {2: 0.045, 3: 3e-4, 5: 6e-6}
    for depth, curve in curves.items():
        colour = COLOURS[depth]
        axes.plot(curve.scale, curve.excess_l1, color=colour, linewidth=2.6)
        axes.plot(curve.scale, curve.excess_l2, color=colour, linewidth=1.8, linestyle=(0, (4, 2)))
        name_line(axes, depth, curve.scale, curve.excess_l1, heights[depth], "right")
    for name, x, side in (
        ("$\\ell_2$ norm (dashed)", 0.02, "left"),
        ("$\\ell_1$ norm", 1, "right"),
    ):
        axes.text(x, 0.915, name, transform=axes.transAxes, ha=side, va="bottom", color="0.3")
    axes.set_ylim(1e-6, 10.0)
    axes.set_ylabel(r"excess norm  $\|\beta\| / \min\|\beta\| - 1$")
    axes.set_title("because they end near the least $\\ell_1$ norm", loc="left", fontsize=15)


def name_line(
    axes: Axes, depth: int, x: np.ndarray, y: np.ndarray, height: float, side: str
) -> None:
    """The depth, beside its line where that first rises through `height`."""
    at = int(np.flatnonzero(y < height)[0])
    axes.annotate(
        f"depth {depth}",
        (x[at], height),
        (-9 if side == "right" else 9, 0),
        textcoords="offset points",
        ha=side,
        va="center",
        color=COLOURS[depth],
        fontweight="bold",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes")
    options = parser.parse_args()
    data = fb.datasets.sparse_regression(n=100, d=1000, sparsity=5, noise_var=0.01, rng=0)
    print(INTRODUCTION)
    print_table(data)
    l1, l2 = fb.basis_pursuit(data.X, data.y).w, fb.min_norm(data.X, data.y).w
    least_l1, least_l2 = float(np.abs(l1).sum()), float(np.linalg.norm(l2))
    curves = {depth: compute_curves(depth, data, least_l1, least_l2) for depth in TABLE}
    ends = {
        r"least $\ell_2$ norm": float(population_error(l2, data.w_true)),
        r"least $\ell_1$ norm": float(population_error(l1, data.w_true)),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "sparse_regression.png"
    draw(curves, ends, file)
    print(f"\npicture: {file}")


if __name__ == "__main__":
    main()
