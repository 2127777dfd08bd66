"""The experiments that there are, by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flowbias.experiments._base import Experiment, Preset
from flowbias.ground.arguments import InputError


def _defined_in(module: str, name: str = "EXPERIMENT") -> Callable[[], Experiment]:
    def load() -> Experiment:
        found: Experiment = getattr(import_module(f"flowbias.experiments.{module}"), name)
        return found

    return load


#: In the order of the page. One is loaded without the others: they are many, and some need torch.
LOADERS: dict[str, Callable[[], Experiment]] = {
    "woodworth-fig1": _defined_in("woodworth.fig01"),
    "woodworth-fig2": _defined_in("woodworth.fig02"),
    "woodworth-fig3": _defined_in("woodworth.fig03"),
    "woodworth-fig5": _defined_in("woodworth.fig05"),
    "woodworth-fig6ab": _defined_in("woodworth.fig06ab"),
    "woodworth-fig6c": _defined_in("woodworth.fig06c"),
    "woodworth-fig6d": _defined_in("woodworth.cifar10"),
    "woodworth-fig7": _defined_in("woodworth.fig07"),
    "woodworth-fig8": _defined_in("woodworth.cifar10", "TRAINING_CURVES"),
    "woodworth-iclr-fig3": _defined_in("woodworth.iclr_fig03"),
    "woodworth-iclr-fig4cd": _defined_in("woodworth.iclr_fig04cd"),
    "woodworth-iclr-fig5": _defined_in("woodworth.iclr_fig05"),
    "azulay-fig7-1": _defined_in("azulay.fig07_1"),
    "azulay-fig7-2": _defined_in("azulay.fig07_2"),
    "min-fig1": _defined_in("min.fig01"),
    "min-fig2": _defined_in("min.fig02"),
    "min-fig3": _defined_in("min.fig03"),
    "min-fig5": _defined_in("min.fig02", "WITH_TEN_OUTPUTS"),
    "min-fig7": _defined_in("min.fig07"),
    "rich-limit": _defined_in("beyond.rich_limit"),
    "stages": _defined_in("beyond.stages"),
    "descent-vs-flow": _defined_in("beyond.descent_vs_flow"),
    "descent-steps": _defined_in("beyond.descent_steps"),
    "width-collapse": _defined_in("beyond.width_collapse"),
    "step-to-time": _defined_in("beyond.step_to_time"),
    "neuron-paths": _defined_in("beyond.neuron_paths"),
    "derive-gallery": _defined_in("beyond.derive_gallery"),
}

if TYPE_CHECKING:
    EXPERIMENTS: tuple[Experiment, ...]


def __getattr__(name: str) -> Any:
    if name == "EXPERIMENTS":
        return tuple(load() for load in LOADERS.values())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def find_experiment(name: str) -> Experiment:
    """The experiment of this name."""
    return LOADERS[_known("experiment", name, LOADERS)]()


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
