"""Figures on matrix completion: sound tables pass, and each check notices its corruption."""

from collections.abc import Callable

import numpy as np
import pytest

from flowbias.experiments.beyond import width_collapse
from flowbias.experiments.curves import crossing, exponent
from flowbias.experiments.table import Table
from flowbias.experiments.woodworth import fig05, iclr_fig03, iclr_fig05
from tests.experiments.conformance import Conformance
from tests.experiments.judging import Corruption, higher

MAP, COLLAPSE = fig05.EXPERIMENT, width_collapse.EXPERIMENT
RECOVERY, NORMS = iclr_fig03.EXPERIMENT, iclr_fig05.EXPERIMENT
NARROW, MIDDLE, WIDE = 20, 1000, 10**6


def spoiled(column: str, rows: Callable[[Table], np.ndarray], values: Callable) -> Corruption:
    """`column` replaced in some rows by `values` of the table."""

    def corrupt(table: Table) -> Table:
        chosen = rows(table)
        assert chosen.any()
        return table.replaced(**{column: np.where(chosen, values(table), table[column])})

    return corrupt


def at(width: int | None = None, *, levels: tuple[float, float]) -> Callable[[Table], np.ndarray]:
    """Rows with log10 of the level in a range, of one width or of all."""

    def rows(table: Table) -> np.ndarray:
        chosen = (table["log10_level"] >= levels[0]) & (table["log10_level"] <= levels[1])
        return chosen & (table["width"] == width) if width else chosen

    return rows


def share(column: str, of: float) -> Callable[[Table], np.ndarray]:
    return lambda table: of * table[column]


# --- the crossing and the exponent ---------------------------------------------------------------


def test_crossing_is_the_first_and_linear_between_points():
    x = np.array([0.0, 1.0, 3.0, 4.0])
    assert crossing(x, np.array([0.0, 1.0, 0.0, 2.0]), 0.25) == 0.25
    assert crossing(x, np.array([2.0, 2.0, 1.0, 0.0]), 1.5) == 2.0


@pytest.mark.parametrize("values", [[0.0, 0.1], [0.6, 0.7], [np.nan, 1.0], [0.0, np.nan]])
def test_no_crossing_is_nan(values):
    assert np.isnan(crossing(np.array([0.0, 1.0]), np.array(values), 0.5))


def test_exponent_is_that_of_a_power():
    x = np.array([1.0, 2.0, 4.0])
    # Of three logarithms and a least-squares solve.
    assert exponent(x, 3.0 / np.sqrt(x)) == pytest.approx(-0.5, abs=1e-14)


@pytest.mark.parametrize("value", [np.nan, 0.0, -1.0, np.inf])
def test_what_is_no_power_has_no_exponent(value):
    assert np.isnan(exponent(np.array([1.0, 2.0, 4.0]), np.array([1.0, value, 2.0])))


# --- woodworth-fig5 ------------------------------------------------------------------------------


MAP_CORRUPTIONS: list[tuple[set[str], Corruption]] = [
    (
        {"rich-excess-vanishes"},
        spoiled("excess", at(MIDDLE, levels=(-4, -4)), share("kernel_excess", 0.06)),
    ),
    (
        {"rich-excess-vanishes"},
        spoiled("excess", at(MIDDLE, levels=(-5, -5)), share("kernel_excess", -0.06)),
    ),
    ({"rich-recovers"}, spoiled("distance", at(WIDE, levels=(-5, -5)), share("unseen_size", 0.06))),
    (
        {"kernel-entries-stay"},
        spoiled("moved", at(WIDE, levels=(2, 2)), share("unseen_size", 0.06)),
    ),
    (
        {"kernel-is-frobenius"},
        spoiled("excess", at(WIDE, levels=(1, 1)), share("kernel_excess", 1.3)),
    ),
    (
        {"kernel-is-frobenius"},
        spoiled("distance", at(WIDE, levels=(1, 1)), share("unseen_size", 0.8)),
    ),
    # Narrow starts that stay, wide starts that stay too well for their width.
    (
        {"kernel-needs-width"},
        spoiled("moved", at(NARROW, levels=(3, 3)), share("unseen_size", 0.09)),
    ),
    ({"kernel-needs-width"}, spoiled("moved", at(WIDE, levels=(3, 3)), share("unseen_size", 1e-5))),
    (
        {"transition-of-excess"},
        spoiled("excess", at(MIDDLE, levels=(-2, -1)), share("kernel_excess", 0.6)),
    ),
    (
        {"transition-of-movement"},
        spoiled("moved", at(MIDDLE, levels=(-2, -1)), share("unseen_size", 0.4)),
    ),
    ({"sharper-when-wide"}, spoiled("moved", at(NARROW, levels=(0, 0)), share("unseen_size", 0.2))),
    ({"flows-followed"}, higher("residual", 1e-6)),
    ({"flows-followed"}, higher("drift", 1e-7)),
]
MAP_VALUES = ("excess", "kernel_excess", "moved", "unseen_size", "distance", "residual", "drift")


class TestMap(Conformance):
    experiment = MAP
    corruptions = MAP_CORRUPTIONS
    values = MAP_VALUES


# --- width-collapse ------------------------------------------------------------------------------


def to_constant(value: float) -> Callable[[Table], np.ndarray]:
    return lambda table: np.full(len(table), value)


def steeper(power: float) -> Corruption:
    """The approach to infinite width at one scale with another power of the width."""

    def bent(table: Table) -> np.ndarray:
        return table["to_infinite"] * (table["width"] / NARROW) ** power

    return spoiled("to_infinite", at(levels=(-1, -1)), bent)


COLLAPSE_CORRUPTIONS: list[tuple[set[str], Corruption]] = [
    (
        {"both-regimes-at-infinite-width"},
        spoiled("infinite_distance", at(levels=(2, 2)), to_constant(0.97)),
    ),
    (
        {"both-regimes-at-infinite-width"},
        spoiled("infinite_distance", at(levels=(1, 1)), to_constant(1.01)),
    ),
    (
        {"collapse-along-level"},
        spoiled("distance", at(MIDDLE, levels=(-2, -2)), lambda t: t["distance"] + 0.11),
    ),
    # Far from the scale at which widths are compared at fixed sigma.
    (
        {"collapse-along-level"},
        spoiled("distance", at(10**9, levels=(-3, -3)), lambda t: t["distance"] + 0.11),
    ),
    (
        {"width-decides-at-fixed-sigma"},
        spoiled("distance", at(NARROW, levels=(-2, -1)), to_constant(0.6)),
    ),
    (
        {"width-decides-at-fixed-sigma"},
        spoiled("distance", at(10**9, levels=(1, 2)), to_constant(0.93)),
    ),
    ({"approach-as-root-of-width"}, steeper(0.1)),
    ({"approach-as-root-of-width"}, steeper(-0.1)),
    ({"flows-followed"}, higher("residual", 1e-8)),
    ({"flows-followed"}, higher("drift", 1e-7)),
]
COLLAPSE_VALUES = ("distance", "infinite_distance", "to_infinite", "residual", "drift")


class TestCollapse(Conformance):
    experiment = COLLAPSE
    corruptions = COLLAPSE_CORRUPTIONS
    values = COLLAPSE_VALUES


# --- woodworth-iclr-fig3 -------------------------------------------------------------------------


def identity(*levels: float) -> Callable[[Table], np.ndarray]:
    """Rows of starts from the identity with log10 of the level in a range."""
    within = at(levels=(min(levels), max(levels)))
    return lambda table: within(table) & (table["part"] == "identity")


def gaussian(*levels: float) -> Callable[[Table], np.ndarray]:
    within = at(levels=(min(levels), max(levels)))
    return lambda table: within(table) & (table["part"] == "gaussian")


RECOVERY_CORRUPTIONS: list[tuple[set[str], Corruption]] = [
    ({"start-is-zero"}, higher("start", 1e-10)),
    ({"identity-recovers"}, spoiled("error", identity(-5), share("unseen", 0.02))),
    ({"identity-stands-still"}, spoiled("error", identity(3), share("unseen", 0.98))),
    (
        {"identity-stands-still", "identity-moves-less-with-scale"},
        spoiled("moved", identity(3), share("unseen", 2e-4)),
    ),
    (
        {"identity-moves-less-with-scale"},
        spoiled("moved", identity(-4, -3), share("unseen", 1.0)),
    ),
    ({"identity-transition"}, spoiled("error", identity(-3, -1), share("unseen", 0.6))),
    (
        {"gaussian-recovers"},
        spoiled("error", at(MIDDLE, levels=(-5, -5)), share("unseen", 0.02)),
    ),
    ({"gaussian-stands-still-when-wide"}, spoiled("moved", gaussian(3), share("moved", 30.0))),
    (
        {"gaussian-kernel-becomes-delta"},
        spoiled("moved", at(10**5, levels=(3, 3)), share("moved", 0.01)),
    ),
    ({"flows-followed"}, higher("residual", 1e-6)),
    ({"flows-followed"}, higher("drift", 1e-7)),
]
RECOVERY_VALUES = ("error", "moved", "start", "unseen", "residual", "drift")


class TestRecovery(Conformance):
    experiment = RECOVERY
    corruptions = RECOVERY_CORRUPTIONS
    values = RECOVERY_VALUES


# --- woodworth-iclr-fig5 -------------------------------------------------------------------------


# Of the smoke preset: the planted matrix has the least nuclear norm on the last one only.
OTHERS, PLANTED = (0, 1), (2,)


def of_scale(power: float, replicates: tuple[int, ...] = (0, 1, 2)) -> Callable:
    return lambda t: (t["log10_scale"] == power) & np.isin(t["replicate"], replicates)


NORMS_CORRUPTIONS: list[tuple[set[str], Corruption]] = [
    (
        {"end-of-least-nuclear-norm"},
        spoiled("to_nuclear", of_scale(-3, PLANTED), share("between", 0.06)),
    ),
    (
        {"end-of-least-frobenius-norm"},
        spoiled("to_frobenius", of_scale(1), share("between", 0.06)),
    ),
    (
        {"rich-end-recovers-the-planted"},
        spoiled("to_planted", of_scale(-3, (1,)), share("between", 0.06)),
    ),
    (
        {"low-rank-before-least-nuclear"},
        spoiled("to_nuclear", of_scale(-3, OTHERS), share("planted_to_nuclear", 0.5)),
    ),
    (
        {"low-rank-before-least-nuclear"},
        spoiled("nuclear", of_scale(-3, OTHERS), share("least_nuclear", 1.0)),
    ),
    (
        {"no-norm-below-the-least"},
        spoiled("nuclear", of_scale(0, (0,)), share("least_nuclear", 1.0 - 1e-5)),
    ),
    (
        {"no-norm-below-the-least"},
        spoiled("frobenius", of_scale(0, (0,)), share("least_frobenius", 1.0 - 1e-5)),
    ),
    (
        {"one-norm-for-the-other"},
        spoiled("frobenius", of_scale(-1, PLANTED), share("frobenius_of_rich", 1.1)),
    ),
    (
        {"one-norm-for-the-other"},
        spoiled("nuclear", of_scale(-1, PLANTED), share("nuclear_of_kernel", 1.1)),
    ),
    ({"least-nuclear-norm-certified"}, higher("gap", 1e-5)),
    ({"least-nuclear-norm-certified"}, higher("dual_norm", 1e-6)),
    ({"flows-followed"}, higher("residual", 1e-7)),
    ({"flows-followed"}, higher("drift", 1e-7)),
]
NORMS_VALUES = (
    *("nuclear", "frobenius", "to_nuclear", "to_frobenius", "to_planted", "residual", "drift"),
    *("least_nuclear", "nuclear_of_kernel", "least_frobenius", "frobenius_of_rich", "between"),
    *("planted_excess", "planted_to_nuclear", "dual_norm", "gap"),
)


class TestNorms(Conformance):
    experiment = NORMS
    corruptions = NORMS_CORRUPTIONS
    values = NORMS_VALUES
