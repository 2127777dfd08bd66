"""All views, in the order in which the page lists them. Each is imported when it is opened."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from flowbias.apps.explorer.view import View

# Name in the address, what the navigation says, and where the class is.
_PLACES = {
    "geometry": ("Geometry", "geometry:GeometryView"),
    "geometry-3d": ("Geometry in 3D", "geometry:GeometrySpaceView"),
    "sparse-regression": ("Sparse regression", "sparse_regression:SparseRegressionView"),
    "time": ("Time", "learning_in_time:LearningInTimeView"),
    "stages": ("Stages", "stages:StagesView"),
    "steps": ("Steps", "steps:StepsView"),
    "matrices": ("Width and matrices", "matrices:MatricesView"),
    "linear-networks": ("Linear networks", "linear_networks:LinearNetworksView"),
    "your-data": ("Your data", "own_data:OwnDataView"),
    "your-formula": ("Your formula", "own_formula:OwnFormulaView"),
}
NAMES = tuple(_PLACES)
TITLES = {name: title for name, (title, _) in _PLACES.items()}


@cache
def view(name: str) -> View[Any]:
    """The view of that name; the first one for a name that is none."""
    module, _, kind = _PLACES.get(name, _PLACES[NAMES[0]])[1].partition(":")
    made: View[Any] = getattr(importlib.import_module(f"{__name__}.{module}"), kind)()
    return made
