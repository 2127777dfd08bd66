"""A fitted model as a JSON document, and what it predicts for the columns of another file.

Coefficients are those of the columns in their own units. The document also says what the columns
hold: names are looked up, not positions, and a word that was not there before has no coefficient.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from flowbias._version import __version__
from flowbias.apps.data_files.csv_columns import Column, column_from, numbers_of
from flowbias.apps.data_files.csv_table import TARGET, CsvTable, read_table
from flowbias.apps.data_files.limit_files import StartedNetwork, certificate_numbers
from flowbias.apps.data_files.regression_data import RegressionData, reading_an_archive
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.problems.regression import checked_array, checked_outputs
from flowbias.results.solution import Solution

_KIND = "flowbias model 1"


def model_document(
    data: RegressionData, start: StartedNetwork, solution: Solution
) -> dict[str, Any]:
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
        "coefficients": data.per_unit(solution.w).tolist(),
        "intercept": data.at_zero(solution.w) or 0.0,
    }


class Predictions(NamedTuple):
    """One per sample; and, where the file has outputs, how far these are from them."""

    values: FloatArray
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

    def predict_csv(self, content: BinaryIO, *, impute: bool) -> Predictions:
        """For the lines of a table."""
        table = read_table(content, self.target or TARGET, least_columns=1)
        pairs = zip(self.columns, self._places(table), strict=True)
        X = np.hstack([column.encode(table, at, impute=impute) for column, at in pairs])
        return self._predictions(X, self._outputs(table))

    def predict_npz(self, content: BinaryIO, *, impute: bool) -> Predictions:
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

    def _predictions(self, X: FloatArray, y: FloatArray | None) -> Predictions:
        values = np.asarray(X @ self.coefficients + self.intercept)
        if y is None:
            return Predictions(values)
        return Predictions(values, float(np.sqrt(np.mean((values - y) ** 2))), float(y.std()))

    def _places(self, table: CsvTable) -> list[int]:
        """Where each column of the model is in the table."""
        names, wanted = table.names, [column.name for column in self.columns]
        if None in wanted or names is None:
            if names is not None or set(wanted) != {None}:
                raise InputError(
                    "must name its columns as the data of the model do, got "
                    f"{'no names' if names is None else 'names'} here and not there."
                )
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

    def _outputs(self, table: CsvTable) -> FloatArray | None:
        if self.target is None or table.names is None or self.target not in table.names:
            return None
        return numbers_of(table, table.names.index(self.target))


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
