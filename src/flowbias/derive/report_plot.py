"""A report as a picture: its potential where there is one, otherwise why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from flowbias.derive.derived_potential import DerivedPotential
from flowbias.derive.separable_potential import SeparablePotential
from flowbias.ground.look import COLOURS
from flowbias.ground.typing import FloatArray

AnyDerived: TypeAlias = DerivedPotential | SeparablePotential

if TYPE_CHECKING:
    from flowbias.derive.report import Report

_POINTS_PER_RAY = 40
_RAYS = 24
# Beyond this many axes a picture of lines says nothing.
_MOST_AXES = len(COLOURS)


def draw_report(report: Report, ax: Any) -> None:
    """The report on `ax`."""
    ax.set_title(report.verdict.value, loc="left")
    potential = report.potential
    if potential is None:
        _draw_brackets(report, ax)
    elif potential.dimension == 2:
        _draw_contours(potential, ax)
    else:
        _draw_axes(potential, ax)


def sections(
    potential: AnyDerived, reach: float | None = None, axes: Sequence[int] | None = None
) -> dict[int, FloatArray]:
    """For each axis i rows (offset, Q(w(0) + offset e_i)), NaN outside the domain."""
    model = potential.model
    far = _reach(potential) if reach is None else reach
    chosen = range(min(model.d, _MOST_AXES)) if axes is None else axes
    shares = np.linspace(0.0, 1.0, _POINTS_PER_RAY + 1)[1:]
    found = {}
    for i in chosen:
        axis = far * np.eye(model.d)[i]
        below, above = (potential.along(sign * axis, shares) for sign in (-1.0, 1.0))
        offsets = far * np.concatenate([-shares[::-1], [0.0], shares])
        found[i] = np.stack([offsets, np.concatenate([below[::-1], [0.0], above])])
    return found


def _draw_axes(potential: AnyDerived, ax: Any) -> None:
    for (i, (offset, value)), colour in zip(sections(potential).items(), COLOURS, strict=False):
        ax.plot(offset, value, color=colour, label=f"w{i + 1}")
    ax.axvline(0.0, lw=0.8, color="grey", zorder=0)
    ax.set_xlabel("distance from w(0) along one axis")
    ax.set_ylabel("potential Q")
    ax.legend(frameon=False)


def _draw_contours(potential: AnyDerived, ax: Any) -> None:
    model, far = potential.model, _reach(potential)
    shares = np.linspace(0.0, 1.0, _POINTS_PER_RAY + 1)[1:]
    points, values = [model.initial[None, :]], [np.zeros(1)]
    for angle in np.linspace(0.0, 2.0 * np.pi, _RAYS, endpoint=False):
        ray = far * np.array([np.cos(angle), np.sin(angle)])
        along = potential.along(ray, shares)
        inside = np.isfinite(along)
        points.append(model.initial + shares[inside, None] * ray)
        values.append(along[inside])
    at, height = np.concatenate(points), np.concatenate(values)
    # Levels at equal steps of the square root: a quadratic potential gives even rings.
    levels = height.max() * np.linspace(0.0, 1.0, 11)[1:] ** 2
    drawn = ax.tricontour(at[:, 0], at[:, 1], height, levels=levels)
    ax.figure.colorbar(drawn, ax=ax, label="potential Q")
    ax.plot(*model.initial, "k+", ms=9)
    ax.annotate("w(0)", model.initial, xytext=(5, 5), textcoords="offset points")
    ax.set_xlabel("w1")
    ax.set_ylabel("w2")
    ax.set_aspect("equal")


def _draw_brackets(report: Report, ax: Any) -> None:
    relative = report.findings.commuting.relative
    image = ax.imshow(relative, vmin=0.0, vmax=1.0, cmap="Greys")
    ax.figure.colorbar(image, ax=ax, label="size of [grad F_i, grad F_j] relative to its terms")
    ticks = np.arange(len(relative))
    ax.set_xticks(ticks, [str(i + 1) for i in ticks])
    ax.set_yticks(ticks, [str(i + 1) for i in ticks])
    ax.set_xlabel("i")
    ax.set_ylabel("j")


def _reach(potential: AnyDerived) -> float:
    """How far from w(0) to draw: the size of w(0), and of what one unit of theta moves."""
    model = potential.model
    moved = np.sqrt(np.trace(model.metric(model.start)) / model.d) * np.abs(model.start).max()
    return float(max(np.abs(model.initial).max(), moved)) or 1.0
