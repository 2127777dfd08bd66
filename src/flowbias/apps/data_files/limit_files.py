"""A limit on somebody's data: in a few numbers, and as files to keep with its proof and start."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from flowbias.apps.data_files.contents import csv_bytes, npz_bytes
from flowbias.apps.data_files.regression_data import RegressionData
from flowbias.ground import extended
from flowbias.ground.typing import FloatArray, Mask
from flowbias.results.solution import Solution


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


class StartedNetwork(Protocol):
    """What the files say of the network, beside its repr."""

    @property
    def depth(self) -> float: ...
    @property
    def log_scale(self) -> Any: ...


def certificate_numbers(solution: Solution) -> dict[str, float]:
    """The certificate, under the names that every output uses."""
    certificate = solution.certificate
    return {
        "feasibility": certificate.feasibility,
        "stationarity": certificate.stationarity,
        "gap": certificate.gap,
        "error_bound": certificate.error_bound,
        "tol": certificate.tol,
    }


def limit_document(
    data: RegressionData, start: StartedNetwork, solution: Solution
) -> dict[str, Any]:
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
        dual=data.dual(solution.dual).tolist(),
        per_unit=data.per_unit(solution.w).tolist(),
        intercept=data.at_zero(solution.w),
    )


def limit_csv(data: RegressionData, solution: Solution) -> bytes:
    """One line per feature: its name and its coefficient, also per unit where they differ."""
    w, intercept = [solution.w], data.at_zero(solution.w)
    if data.is_standardized:
        w.append(data.per_unit(solution.w))
    rows: list[list[str | float]] = [
        [data.name(i), *map(float, values)] for i, values in enumerate(zip(*w, strict=True))
    ]
    if intercept is not None:
        rows.append(["(intercept)", *[intercept] * len(w)])
    return csv_bytes(("feature", "w", "per_unit")[: 1 + len(w)], rows)


def limit_npz(start: StartedNetwork, solution: Solution, **more: Any) -> bytes:
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
