"""What Sparse regression says of its scene."""

from __future__ import annotations

import numpy as np

from flowbias._typing import FloatArray
from flowbias.explorer.controls import power_of_ten
from flowbias.explorer.views.planted_data import population_error, proof_of
from flowbias.explorer.views.sparse_regression_scene import PATH_EXPONENTS, ScalePath, SparseScene

# Share of the way between the two extremes that counts as having arrived.
LITTLE = 0.01
# Errors and relative excesses below these lie below the picture.
LEAST_ERROR, LEAST_EXCESS = 3e-4, 1e-6
TO_COME = (
    f"The {len(PATH_EXPONENTS)} limits on the curves are being computed; "
    "faint curves belong to the settings before."
)


def in_words(scene: SparseScene) -> str:
    """Error, norms and proof at the cursor, with its place on the curves where they are known."""
    path, proof = scene.path, f"At the cursor: {proof_of(scene.at_cursor)}."
    if path is None:
        parts = (f"{_error_in_words(scene)}. {_hits(scene)}", TO_COME, proof)
    else:
        error = f"{_error_in_words(scene)}; {_ends_in_words(path)}. {_hits(scene)}"
        norms = _norms_in_words(path, scene.at_cursor.w)
        parts = (error, norms, f"{proof} {_curves_in_words(path)}")
    return "\n\n".join(parts)


def _error_in_words(scene: SparseScene) -> str:
    return (
        f"From scale **{power_of_ten(scene.exponent)}** the flow ends with population error "
        f"**{_error(scene):.3g}**"
    )


def _error(scene: SparseScene) -> float:
    return float(population_error(scene.at_cursor.w, scene.w_true))


def _ends_in_words(path: ScalePath) -> str:
    rich, kernel = (float(path.error(one)) for one in (path.least_l1, path.least_l2))
    return f"the least l1 norm has {rich:.3g}, the least l2 norm {kernel:.3g}"


def _hits(scene: SparseScene) -> str:
    found = np.argsort(-np.abs(scene.at_cursor.w))[: scene.sparsity]
    hits = int(np.count_nonzero(scene.w_true[found]))
    return (
        f"Of its {scene.sparsity} largest coefficients {hits} belong to the truth."
        f"{' Errors that small lie below the picture.' if _error(scene) < LEAST_ERROR else ''}"
    )


def _norms_in_words(path: ScalePath, w: FloatArray) -> str:
    l1, l2 = float(path.excess_l1(w)), float(path.excess_l2(w))
    l1_span, l2_span = path.excess_l1(path.least_l2), path.excess_l2(path.least_l1)
    if max(l1_span, l2_span) < LEAST_EXCESS:
        return (
            "One predictor alone fits these data best, so the scale changes nothing; "
            "excess norms of zero lie below the picture."
        )
    size = f"Its l1 norm is {_percent(l1)} above the least possible, its l2 norm {_percent(l2)}"
    if l2 <= LITTLE * l2_span:
        return f"{size}: this is the **kernel** end, where the l2 norm decides."
    if l1 <= LITTLE * l1_span:
        return f"{size}: this is the **rich** end, where the l1 norm decides."
    return f"{size}: it lies **between** the two ends."


def _percent(share: float) -> str:
    return f"{share:.2%}" if share >= 1e-4 else "less than 0.01%"


def _curves_in_words(path: ScalePath) -> str:
    limits, missing = len(PATH_EXPONENTS), path.uncertified
    return (
        f"{missing} of the {limits} limits on the curves are not certified."
        if missing
        else f"All {limits} limits on the curves are certified."
    )
