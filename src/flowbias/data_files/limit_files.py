"""A limit on somebody's data as files to keep: its coefficients, its proof and its start."""

from __future__ import annotations

from typing import Any, Protocol

from flowbias.data_files.contents import csv_bytes, npz_bytes
from flowbias.data_files.measures import count_above_negligible, norms
from flowbias.data_files.regression_data import RegressionData
from flowbias.solution import Solution


class Start(Protocol):
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
    source: str, data: RegressionData, start: Start, solution: Solution
) -> dict[str, Any]:
    """Everything about the limit, for `json_text`; `source` says where the data is from."""
    l1, l2 = norms(solution.w)
    return {
        "data": source,
        "samples": len(data.problem.X),
        "features": len(solution.w),
        "model": repr(start),
        "depth": start.depth,
        "log_scale": float(start.log_scale),
        "status": solution.status.name,
        "certified": solution.status.ok,
        "message": solution.message,
        "route": solution.route,
        "certificate": certificate_numbers(solution),
        "l1": l1,
        "l2": l2,
        "nonzero": count_above_negligible(solution.w),
        "factorizations": solution.stats.factorizations,
        "seconds": solution.stats.seconds,
        "names": data.names,
        "w": solution.w.tolist(),
        "dual": solution.dual.tolist(),
    }


def limit_csv(data: RegressionData, solution: Solution) -> bytes:
    """One line per feature: its name and its coefficient."""
    named = [(data.name(i), float(value)) for i, value in enumerate(solution.w)]
    return csv_bytes(("feature", "w"), named)


def limit_npz(start: Start, solution: Solution, **more: Any) -> bytes:
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
