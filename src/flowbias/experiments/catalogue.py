"""The experiments that there are, by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from flowbias.experiments._base import Experiment, Preset
from flowbias.experiments.azulay import fig07_1, fig07_2
from flowbias.experiments.beyond import (
    derive_gallery,
    descent_vs_flow,
    neuron_paths,
    rich_limit,
    step_to_time,
    width_collapse,
)
from flowbias.experiments.min import fig01 as min_fig01
from flowbias.experiments.min import fig02 as min_fig02
from flowbias.experiments.min import fig03 as min_fig03
from flowbias.experiments.min import fig05 as min_fig05
from flowbias.experiments.min import fig07 as min_fig07
from flowbias.experiments.woodworth import (
    fig01,
    fig02,
    fig03,
    fig05,
    fig06ab,
    fig06c,
    fig06d,
    fig07,
    fig08,
    iclr_fig03,
    iclr_fig04cd,
    iclr_fig05,
)
from flowbias.problem import InputError

#: In the order of the page.
EXPERIMENTS: tuple[Experiment, ...] = (
    fig01.EXPERIMENT,
    fig02.EXPERIMENT,
    fig03.EXPERIMENT,
    fig05.EXPERIMENT,
    fig06ab.EXPERIMENT,
    fig06c.EXPERIMENT,
    fig06d.EXPERIMENT,
    fig07.EXPERIMENT,
    fig08.EXPERIMENT,
    iclr_fig03.EXPERIMENT,
    iclr_fig04cd.EXPERIMENT,
    iclr_fig05.EXPERIMENT,
    fig07_1.EXPERIMENT,
    fig07_2.EXPERIMENT,
    min_fig01.EXPERIMENT,
    min_fig02.EXPERIMENT,
    min_fig03.EXPERIMENT,
    min_fig05.EXPERIMENT,
    min_fig07.EXPERIMENT,
    rich_limit.EXPERIMENT,
    descent_vs_flow.EXPERIMENT,
    width_collapse.EXPERIMENT,
    step_to_time.EXPERIMENT,
    neuron_paths.EXPERIMENT,
    derive_gallery.EXPERIMENT,
)


def find_experiment(name: str) -> Experiment:
    """The experiment of this name."""
    by_name = {experiment.name: experiment for experiment in EXPERIMENTS}
    return by_name[_known("experiment", name, by_name)]


def find_preset(name: str) -> Preset:
    """The preset of this name."""
    return Preset(_known("preset", name, [preset.value for preset in Preset]))


def _known(what: str, name: str, names: Iterable[str]) -> str:
    there = list(names)
    if name in there:
        return name
    near = difflib.get_close_matches(name, there, n=1, cutoff=0.5)
    advice = f"Did you mean {near[0]!r}?" if near else f"Try {there[0]!r}."
    raise InputError(f"{what}: must be one of {', '.join(there)}; got {name!r}. {advice}")
