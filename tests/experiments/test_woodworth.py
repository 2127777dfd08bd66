"""The figures of Woodworth et al.: their checks hold, and each of them can fail."""

from collections.abc import Callable

import numpy as np
import pytest

from flowbias.datasets import SparseRegression
from flowbias.experiments._base import Preset, Task
from flowbias.experiments.table import Table
from flowbias.experiments.woodworth import fig01, fig02, fig03
from flowbias.experiments.woodworth.sample_sizes import (
    planted_data,
    recovery_columns,
    samples_needed,
)
from flowbias.limits import limit
from flowbias.models import DiagonalNet
from flowbias.potentials import DepthPotential
from tests.experiments.conformance import Conformance
from tests.experiments.judging import smoke_table

FIGURES = {module.EXPERIMENT.name: module.EXPERIMENT for module in (fig01, fig02, fig03)}
# What is computed, as opposed to where: by part, because a scale is both.
VALUES = {
    "path": ("error", "excess_l1", "excess_l2", "l1_error", "l2_error"),
    "near": ("q", "r", "q4", "r_minimized"),
    "wide": ("q", "r", "q4", "r_minimized", "ratio", "q_power", "r_power"),
    "l1": ("l1_error", "optimality", "error_bound"),
    "potentials": ("q",),
    "ratio": ("ratio",),
    "approach": ("log10_scale",),
    "largest": (
        *("log10_scale", "log10_start", "log10_scale_above", "error", "error_above"),
        *("l1_error", "l2_error", "optimality", "error_bound"),
    ),
}


@pytest.fixture(scope="module")
def tables() -> dict[str, Table]:
    return {name: smoke_table(experiment) for name, experiment in FIGURES.items()}


def rows_of(table: Table, part: str, **values: float) -> np.ndarray:
    """Mask of the rows of a part with these values."""
    mask = table["part"] == part
    for name, value in values.items():
        mask &= np.isclose(table[name], value)
    return mask


def changed(table: Table, mask: np.ndarray, **columns: object) -> Table:
    """The table with other values in some rows; a function is applied to the old ones."""
    assert mask.any()
    new = {}
    for name, value in columns.items():
        column = table[name].copy()
        column[mask] = value(column[mask]) if callable(value) else value
        new[name] = column
    return table.replaced(**new)


def largest_rows(table: Table) -> Table:
    return table.rows(table["part"] == "largest")


def at_scale(table: Table, mask: np.ndarray, log10_scale: float) -> Table:
    """A sound, enclosed largest scale in these rows: only its size is wrong."""
    return changed(
        table,
        mask,
        log10_scale=log10_scale,
        log10_scale_above=log10_scale + 0.01,
        error=0.02,
        error_above=0.03,
    )


# --- every check can fail ----------------------------------------------------------------------


def first_figure() -> dict[str, Callable[[Table], Table]]:
    def path(table: Table, **values: float) -> np.ndarray:
        return rows_of(table, "path", **values)

    def largest(table: Table, **values: float) -> np.ndarray:
        return rows_of(table, "largest", **values)

    def line(table: Table) -> float:
        """The first size that is drawn at or beyond the dashed line."""
        return samples_needed(table).first(largest_rows(table).levels("n"))

    def last(table: Table) -> float:
        return float(largest_rows(table)["n"].max())

    def early(table: Table) -> np.ndarray:
        n = table["n"]
        return largest(table) & (n >= line(table)) & (n < 1.5 * line(table))

    return {
        "error-meets-the-l2-level": lambda t: changed(t, path(t), l2_error=lambda e: 1.03 * e),
        "error-meets-the-l1-level": lambda t: changed(t, path(t), l1_error=lambda e: e + 0.05),
        "error-falls-with-the-scale": lambda t: changed(
            t, path(t, log10_scale=-4.0), error=lambda e: e + 0.1
        ),
        "norms-exceed-the-least": lambda t: changed(t, path(t), excess_l1=lambda e: e - 0.01),
        "l1-excess-vanishes": lambda t: changed(
            t, path(t, log10_scale=-5.0, replicate=0), excess_l1=lambda e: e + 0.05
        ),
        "l2-excess-vanishes": lambda t: changed(
            t, path(t, log10_scale=-5.0, replicate=0), excess_l2=lambda e: e - 0.05
        ),
        "rich-limit-is-farther": lambda t: changed(
            t, path(t) & (t["log10_scale"] < -1.1), excess_l1=lambda e: 1e-3 * e
        ),
        "l1-needs-few-samples": lambda t: changed(t, largest(t), sparsity=50.0),
        "kernel-solution-does-not-generalize": lambda t: changed(
            t, largest(t, n=last(t), replicate=0), l2_error=0.01
        ),
        "few-work-below-the-line": lambda t: at_scale(t, largest(t) & (t["n"] < line(t)), -20.0),
        "tiny-at-the-line": lambda t: at_scale(t, early(t), -3.9),
        "much-larger-slightly-beyond": lambda t: at_scale(
            at_scale(t, early(t), -4.5), largest(t) & (t["n"] > 1.5 * line(t)), -3.4
        ),
        "more-samples-larger-scale": lambda t: at_scale(t, largest(t, n=last(t)), -3.5),
        "largest-scales-are-enclosed": lambda t: changed(
            t, largest(t, n=last(t), replicate=0), error_above=0.02
        ),
        "limits-are-certified": lambda t: changed(
            t, largest(t, n=last(t), replicate=0), optimality=1e-8
        ),
    }


def second_figure() -> dict[str, Callable[[Table], Table]]:
    def wide(table: Table, above: float, below: float = np.inf) -> np.ndarray:
        return rows_of(table, "wide") & (table["z"] >= above) & (table["z"] <= below)

    return {
        "q-and-r-look-alike": lambda t: changed(t, rows_of(t, "near", z=5.0), q=lambda q: q + 0.1),
        "r-is-the-least-distance": lambda t: changed(
            t, rows_of(t, "near") & (np.abs(t["z"]) == 10.0), r=lambda r: r + 1e-9
        ),
        "r-is-q4": lambda t: changed(t, rows_of(t, "near", z=10.0), q4=lambda q: q * (1.0 + 1e-10)),
        "q-is-no-multiple-of-r": lambda t: changed(t, wide(t, 0.0), ratio=2.0),
        "both-are-quadratic-near-zero": lambda t: changed(
            t, wide(t, 0.0, 1e-3), q=lambda q: q * (1.0 + 1e-5)
        ),
        "growth-at-infinity": lambda t: changed(t, wide(t, 1e11), q=lambda q: q * (1.0 + 1e-9)),
        "r-approaches-l1-polynomially": lambda t: changed(
            t, wide(t, 1e6), r_power=lambda p: 1.0 + 1.1 * (p - 1.0)
        ),
        "q-approaches-l1-logarithmically": lambda t: changed(
            t, wide(t, 1e6), q_power=lambda p: 1.0 + 1.01 * (p - 1.0)
        ),
        "q-needs-a-far-smaller-scale": lambda t: changed(t, wide(t, 10.0, 9e5), r_power=1.06),
    }


def third_figure() -> dict[str, Callable[[Table], Table]]:
    def some(table: Table, part: str, depth: int, **values: float) -> np.ndarray:
        return rows_of(table, part, depth=depth, **values)

    def ends(table: Table) -> tuple[float, float, float]:
        n = largest_rows(table).levels("n")
        return float(n[0]), samples_needed(table).first(n), float(n[-1])

    def two_data_sets(table: Table) -> np.ndarray:
        return rows_of(table, "largest", n=ends(table)[2]) & (table["replicate"] < 2)

    return {
        "quadratic-near-zero": lambda t: changed(
            t, some(t, "potentials", 3) & (np.abs(t["z"]) < 0.2), q=lambda q: 1.01 * q
        ),
        "slope-bounded-from-depth-3": lambda t: changed(
            t, some(t, "potentials", 3, z=10.0), q=lambda q: q + 1.0
        ),
        "ratio-falls-from-1-to-the-l1-value": lambda t: changed(
            t,
            some(t, "ratio", 5) & (np.abs(t["log10_scale"] + 8.0) < 0.05),
            ratio=lambda r: r + 1e-6,
        ),
        "l1-value-reached-from-depth-3": lambda t: changed(
            t, some(t, "ratio", 2, log10_scale=-10.0), ratio=1.01 * np.nanmax(t["d"]) ** -0.5
        ),
        "deeper-is-sharper": lambda t: changed(
            t, some(t, "ratio", 10), log10_scale=lambda x: 4.0 * x
        ),
        "exponential-at-depth-2": lambda t: changed(
            t, some(t, "approach", 2), log10_scale=lambda x: 1.01 * x
        ),
        "polynomial-from-depth-3": lambda t: changed(
            t, some(t, "approach", 5, eps=0.01), log10_scale=lambda x: x - 0.1
        ),
        "deeper-needs-less-small-scales": lambda t: changed(
            t, some(t, "approach", 10), log10_scale=lambda x: x - 1.0
        ),
        "deeper-allows-larger-starts": lambda t: changed(
            t, some(t, "largest", 10), log10_start=lambda x: x - 3.0
        ),
        "reasonable-scales-from-depth-3": lambda t: changed(
            t,
            some(t, "largest", 2, n=ends(t)[1]),
            log10_start=lambda x: np.where(np.isfinite(x), -4.0, x),
        ),
        "rich-limit-is-the-same": lambda t: changed(t, two_data_sets(t), log10_start=-np.inf),
        "kernel-solution-does-not-generalize": lambda t: changed(
            t, some(t, "largest", 5, n=ends(t)[2], replicate=0), l2_error=0.01
        ),
        "l1-needs-few-samples": lambda t: changed(t, rows_of(t, "largest"), sparsity=50.0),
        "few-work-below-the-line": lambda t: at_scale(
            t, some(t, "largest", 2, n=ends(t)[0]), -20.0
        ),
        "more-samples-larger-scale": lambda t: at_scale(
            t, some(t, "largest", 3, n=ends(t)[2]), -5.0
        ),
        "largest-scales-are-enclosed": lambda t: changed(
            t, some(t, "largest", 5, n=ends(t)[2], replicate=0), error_above=0.02
        ),
        "limits-are-certified": lambda t: changed(
            t, some(t, "largest", 5, n=ends(t)[2], replicate=0), optimality=1e-8
        ),
    }


def alone(wrong):
    """Each check with the table that it alone refuses."""
    return [({name}, corrupt) for name, corrupt in wrong.items()]


class TestFigure1(Conformance):
    experiment = fig01.EXPERIMENT
    corruptions = alone(first_figure())
    whole = ("error", "excess_l1", "excess_l2", "l1_error", "l2_error")


class TestFigure2(Conformance):
    experiment = fig02.EXPERIMENT
    corruptions = alone(second_figure())
    whole = ("q", "r", "q4", "r_minimized", "ratio", "q_power", "r_power")


class TestFigure3(Conformance):
    experiment = fig03.EXPERIMENT
    corruptions = alone(third_figure())
    whole = ("q", "ratio", "log10_scale", "log10_start", "l2_error", "optimality")


def test_depth_4_from_its_definition_is_the_librarys():
    z = np.concatenate([[0.0], -np.logspace(-4.0, 12.0, 33), np.logspace(-4.0, 12.0, 33)])
    # A few roundings on both sides.
    expected = DepthPotential(4, scale=1.0).value_terms(z)
    np.testing.assert_allclose(fig02._depth_4_by_definition(z), expected, rtol=1e-14)


@pytest.mark.parametrize("figure", FIGURES)
def test_nothing_measured_means_nothing_holds(figure, tables):
    table = tables[figure]
    for part, names in VALUES.items():
        if (table["part"] == part).any():
            there = {name: np.nan for name in names if name in table.columns}
            table = changed(table, table["part"] == part, **there)
    assert [check.name for check in FIGURES[figure].check(table) if check.holds] == []


@pytest.mark.parametrize("figure", FIGURES)
def test_each_missing_value_is_noticed(figure, tables):
    table = tables[figure]
    for part, names in VALUES.items():
        for name in names:
            mask = table["part"] == part
            if mask.any() and name in table.columns:
                checks = FIGURES[figure].check(changed(table, mask, **{name: np.nan}))
                assert not all(check.holds for check in checks), (part, name)


# --- tasks, computation, pictures --------------------------------------------------------------


@pytest.mark.parametrize("figure", FIGURES)
def test_presets_differ_in_size_alone(figure):
    experiment = FIGURES[figure]
    keys = {preset: set(experiment.settings[preset]) for preset in Preset}
    assert len(set(map(frozenset, keys.values()))) == 1
    for preset in Preset:
        names = [task.name for task in experiment.task_list(preset)]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("figure", ["woodworth-fig1", "woodworth-fig3"])
def test_the_paper_preset_adds_data_sets_to_the_laptop_one(figure):
    """So that what the laptop computed is not computed again."""
    laptop, paper = (
        {task.name for task in FIGURES[figure].task_list(preset) if task.part == "largest"}
        for preset in (Preset.LAPTOP, Preset.PAPER)
    )
    assert laptop < paper


def test_the_papers_setting():
    for figure in ("woodworth-fig1", "woodworth-fig3"):
        settings = dict(FIGURES[figure].settings[Preset.PAPER])
        assert (settings["d"], settings["sparsity"]) == (1000, 5)
        assert (settings["noise_var"], settings["threshold"]) == (0.01, 0.025)


@pytest.mark.parametrize("figure", FIGURES)
def test_computing_again_gives_the_same(figure, tables):
    experiment = FIGURES[figure]
    task = experiment.task_list(Preset.SMOKE)[0]
    again, once = (Table.of(experiment.compute(task)) for _ in range(2))
    assert again.digest == once.digest


@pytest.mark.parametrize("figure", FIGURES)
def test_every_panel_can_be_drawn(figure, tables):
    experiment = FIGURES[figure]
    drawn = experiment.plot(tables[figure])
    assert len(drawn.axes) == len(experiment.panels)
    for axes in drawn.axes:
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert axes.lines


def test_more_samples_are_appended():
    """At each size the same data set is used, with rows added at its end."""
    task = FIGURES["woodworth-fig1"].task_list(Preset.SMOKE)[-1]
    large, small = planted_data(task, 50), planted_data(task, 20)
    np.testing.assert_array_equal(large.X[:20], small.X)
    # BLAS may add up a product of another shape in another order.
    np.testing.assert_allclose(large.y[:20], small.y, rtol=1e-12)
    np.testing.assert_array_equal(large.w_true, small.w_true)


def test_columns_are_what_the_limits_give():
    """Population errors at both ends of a bracket, once more from scratch."""
    task = FIGURES["woodworth-fig3"].task_list(Preset.SMOKE)[-1]
    data = planted_data(task, 70)
    table = Table.of(recovery_columns(data, (70,), (2, 5), 0.025))
    part = SparseRegression(data.X[:70], data.y[:70], data.w_true)
    for row in range(len(table)):
        for suffix in ("", "_above"):
            log_scale = table[f"log10_scale{suffix}"][row] * np.log(10.0)
            net = DiagonalNet(table["depth"][row], log_scale=log_scale)
            error = part.population_error(limit(net, part.X, part.y).w)
            np.testing.assert_allclose(table[f"error{suffix}"][row], error, rtol=1e-8)


def passing(shares: dict[int, float], data_sets: int = 20) -> Table:
    """Basis pursuits of which these shares pass."""
    rows = [
        {"n": n, "l1_error": np.where(np.arange(data_sets) < share * data_sets, 0.01, 0.5)}
        for n, share in shares.items()
    ]
    table = Table.stack(Table.of(row) for row in rows)
    return table.replaced(part=np.full(len(table), "l1"), threshold=0.025)


@pytest.mark.parametrize(
    ("shares", "needed"),
    [
        ({40: 0.2, 50: 0.5, 60: 0.8}, 50.0),
        ({40: 0.25, 50: 0.5, 60: 0.9}, (50.0, 0.55, 0.0325)),
        ({40: 0.5, 44: 0.6, 48: 0.7}, 40.0),
    ],
)
def test_samples_needed(shares, needed):
    """Where the fitted share of data sets below the threshold is one half."""
    if isinstance(needed, tuple):
        centre, share, slope = needed
        needed = centre + (0.5 - share) / slope
    found = samples_needed(passing(shares))
    assert found.n == pytest.approx(needed)
    assert found.data_sets == 60


def test_the_error_of_the_line_is_that_of_repeated_draws():
    """Shares that rise by 3% a sample, 40 data sets at each of five sizes, drawn 400 times."""
    rng, lines = np.random.default_rng(0), []
    sizes = np.repeat([44, 48, 52, 56, 60], 40)
    for _ in range(400):
        low = rng.random(sizes.size) < 0.5 + 0.03 * (sizes - 51.0)
        errors = np.where(low, 0.01, 0.5)
        columns = {"part": "l1", "n": sizes, "l1_error": errors, "threshold": 0.025}
        lines.append(samples_needed(Table.of(columns)))
    found, told = np.array([line.n for line in lines]), np.array([line.error for line in lines])
    # 400 draws give a deviation to 4% and a mean to a twentieth of it.
    assert np.median(told) == pytest.approx(np.std(found), rel=0.15)
    assert np.mean(found) == pytest.approx(51.0, abs=0.2 * np.std(found))


def test_the_line_is_the_same_in_both_figures():
    """Its data sets are named by what they are, not by the figure that asks for them."""
    settings = (("d", 60), ("sparsity", 2), ("noise_var", 0.01), ("threshold", 0.025), ("n", 20))
    one, other = (
        FIGURES[name].compute(Task(name, "l1", (*settings, ("batch", 0))))["l1_error"]
        for name in ("woodworth-fig1", "woodworth-fig3")
    )
    assert one == other
    assert len(set(one)) == len(one)


def test_the_ratio_at_depth_2_from_its_formula(tables):
    """q(z) = 2 - sqrt(4 + z^2) + z asinh(z/2), where that form keeps its digits."""
    table = tables["woodworth-fig3"]
    rows = table.rows(rows_of(table, "ratio", depth=2) & (np.abs(table["log10_scale"] + 1) <= 1))
    d, square = rows["d"][0], 10.0 ** (2.0 * rows["log10_scale"])

    def q(z):
        return 2.0 - np.sqrt(4.0 + z**2) + z * np.arcsinh(z / 2.0)

    expected = q(1.0 / square) / (d * q(1.0 / (np.sqrt(d) * square)))
    # At scale 1 the dense entries have z = 0.07: q loses four digits there.
    np.testing.assert_allclose(rows["ratio"], expected, rtol=1e-10)
