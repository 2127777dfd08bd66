"""A limit on somebody's data: in a few numbers, as files with its proof and start, and as a model.

A model is a JSON document that predicts for the columns of other files. Its coefficients are those
of the columns in their own units. It also says what the columns hold: names are looked up, not
positions, and a word that was not there before has no coefficient.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from flowbias._version import __version__
from flowbias.apps.data_files import csv_bytes, npz_bytes
from flowbias.apps.data_files.csv_columns import Column, column_from, labelled, numbers_of
from flowbias.apps.data_files.csv_table import TARGET, CsvTable, read_table
from flowbias.apps.data_files.regression_data import RegressionData, reading_an_archive
from flowbias.ground import extended
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray, Mask
from flowbias.models import DiagonalNet, UntiedDiagonalNet
from flowbias.problems.regression import checked_array, checked_outputs
from flowbias.results.solution import Solution

#: What gradient flow on a file starts from.
Network = DiagonalNet | UntiedDiagonalNet


def norms(w: FloatArray) -> tuple[float, float]:
    """l1 and l2; the second without overflow of squares."""
    return float(np.abs(w).sum()), float(extended.length(w))


def count_above_negligible(w: FloatArray) -> int:
    """How many entries matter: those above 1e-6 of the largest."""
    return int(np.count_nonzero(_matters(np.abs(w))))


def largest(w: FloatArray, count: int) -> list[int]:
    """Indices of the largest entries that matter, largest first; the first of equal ones first."""
    order = np.argsort(-np.abs(w), kind="stable")[:count]
    return [int(i) for i in order[_matters(np.abs(w[order]))]]


def _matters(size: FloatArray) -> Mask:
    """What is below a millionth of the largest counts as zero, as in the repr of a solution."""
    return np.asarray(size > 1e-6 * size.max(initial=0.0))


def certificate_numbers(solution: Solution) -> dict[str, float]:
    """The certificate, under the names that every output uses."""
    names = ("feasibility", "stationarity", "gap", "error_bound", "tol")
    return {name: getattr(solution.certificate, name) for name in names}


def limit_document(data: RegressionData, start: Network, solution: Solution) -> dict[str, Any]:
    """Everything about the limit, for `json_text`."""
    l1, l2 = norms(solution.w)
    return data.document(
        model=repr(start),
        depth=start.depth,
        log_scale=float(start.log_scale),
        status=solution.status.name,
        certified=solution.status.ok,
        message=solution.message,
        route=solution.route,
        certificate=certificate_numbers(solution),
        l1=l1,
        l2=l2,
        nonzero=count_above_negligible(solution.w),
        factorizations=solution.stats.factorizations,
        seconds=solution.stats.seconds,
        w=solution.w.tolist(),
        dual=data.units.dual_of_given(solution.dual).tolist(),
        per_unit=data.units.per_unit(solution.w).tolist(),
        intercept=data.units.at_zero(solution.w),
    )


def limit_csv(data: RegressionData, solution: Solution) -> bytes:
    """One line per feature: its name and its coefficient, also per unit where they differ."""
    w, intercept = [solution.w], data.units.at_zero(solution.w)
    if data.is_standardized:
        w.append(data.units.per_unit(solution.w))
    rows: list[list[str | float]] = [
        [data.name(i), *map(float, values)] for i, values in enumerate(zip(*w, strict=True))
    ]
    if intercept is not None:
        rows.append(["(intercept)", *[intercept] * len(w)])
    return csv_bytes(("feature", "w", "per_unit")[: 1 + len(w)], rows)


def limit_npz(start: Network, solution: Solution, **more: Any) -> bytes:
    """Coefficients, dual, proof and start as arrays, and whatever else is passed."""
    return npz_bytes(
        {
            "w": solution.w,
            "dual": solution.dual,
            **certificate_numbers(solution),
            "status": solution.status.name,
            "route": solution.route,
            "depth": start.depth,
            "log_scale": float(start.log_scale),
            **more,
        }
    )


_KIND = "flowbias model 1"


def model_document(data: RegressionData, start: Network, solution: Solution) -> dict[str, Any]:
    """What `predict` needs, and where it is from, for `json_text`."""
    return {
        "kind": _KIND,
        "version": __version__,
        "data": data.source,
        "model": repr(start),
        "status": solution.status.name,
        "certified": solution.status.ok,
        "certificate": certificate_numbers(solution),
        "target": data.target,
        "columns": [column.document() for column in data.columns],
        "features": data.names,
        "coefficients": data.units.per_unit(solution.w).tolist(),
        "intercept": data.units.at_zero(solution.w) or 0.0,
    }


class ModelPredictions(NamedTuple):
    """One per sample; and, where the file has outputs, how far these are from them."""

    values: FloatArray
    #: how many outputs there are
    judged: int = 0
    #: root mean square, and the standard deviation of the outputs
    error: float | None = None
    spread: float | None = None


@dataclass(frozen=True, eq=False)
class SavedModel:
    """Columns of a file, and a linear function of the features that they become."""

    target: str | None
    columns: tuple[Column, ...]
    coefficients: FloatArray
    intercept: float
    certified: bool

    def predict_csv(self, content: BinaryIO, *, impute: bool) -> ModelPredictions:
        """For the lines of a table."""
        table = read_table(content, self.target or TARGET, least_columns=1)
        pairs = zip(self.columns, self._places(table), strict=True)
        X = np.hstack([column.encode(table, at, impute=impute) for column, at in pairs])
        if self.target is None or table.names is None or self.target not in table.names:
            return self._predictions(X, None)
        at = table.names.index(self.target)
        has_y = labelled(table, at)
        y = numbers_of(table.of_lines(has_y), at)
        return self._predictions(X, y if len(y) else None, has_y)

    def predict_npz(self, content: BinaryIO, *, impute: bool) -> ModelPredictions:
        """For the array X of an archive."""
        with reading_an_archive(), np.load(content, allow_pickle=False) as archive:
            if "X" not in archive.files:
                raise InputError("must hold an array X, there is none. Use np.savez(file, X=X).")
            X, y = archive["X"], archive["y"] if "y" in archive.files else None
        means = [mean for column in self.columns for mean in column.means]
        if impute and X.ndim == 2 and X.dtype.kind == "f" and X.shape[1] == len(means):
            X = np.where(np.isnan(X), means, X)
        X = checked_array("X", X, 2)
        if X.shape[1] != len(means):
            raise InputError(
                f"X: must have {len(means)} columns, as the data of the model have, "
                f"got {X.shape[1]}."
            )
        return self._predictions(X, None if y is None else checked_outputs(y, len(X)))

    def _predictions(
        self, X: FloatArray, y: FloatArray | None, has_y: Mask | slice = slice(None)
    ) -> ModelPredictions:
        """Those of all rows, and their error on the rows that have an output."""
        values = np.asarray(X @ self.coefficients + self.intercept)
        if y is None:
            return ModelPredictions(values)
        error = np.sqrt(np.mean((values[has_y] - y) ** 2))
        return ModelPredictions(values, len(y), float(error), float(y.std()))

    def _places(self, table: CsvTable) -> list[int]:
        """Where each column of the model is in the table."""
        names, wanted = table.names, [column.name for column in self.columns]
        if None in wanted or names is None:
            if names is not None or set(wanted) != {None}:
                told = (
                    f"got no names. Write them into a first line, among others {wanted[0]!r}."
                    if names is None
                    else "which had no names, got some. Leave out the first line."
                )
                raise InputError(f"must name its columns as the data of the model did, {told}")
            if len(table.places) != len(wanted):
                raise InputError(
                    f"must have {len(wanted)} columns, those of the model's data without y, got "
                    f"{len(table.places)}."
                )
            return list(range(len(wanted)))
        missing = [name for name in wanted if name not in names]
        if missing:
            near = get_close_matches(str(missing[0]), set(names) - set(wanted), n=1)
            advice = f" Did you mean it by {near[0]!r}?" if near else ""
            raise InputError(
                f"must have a column {missing[0]!r}, as the data of the model do.{advice}"
            )
        return [names.index(str(name)) for name in wanted]


def read_model(content: BinaryIO) -> SavedModel:
    """The model in a document that `model_document` made; InputError for any other."""
    try:
        document = json.loads(content.read())
        if document["kind"] != _KIND:
            raise KeyError("kind")
        columns = tuple(map(column_from, document["columns"]))
        w = checked_array("coefficients", document["coefficients"], 1)
        if len(w) != sum(len(column.features) for column in columns):
            raise KeyError("coefficients")
        return SavedModel(
            document["target"], columns, w, float(document["intercept"]), document["certified"]
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"must be a model that `flowbias limit DATA --save model.json` wrote, and is not: "
            f"{type(error).__name__}: {error}."
        ) from error
