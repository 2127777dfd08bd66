"""The start of gradient flow as options: how large, how deep, of which shape."""

from __future__ import annotations

import decimal
import math
import sys
from decimal import Decimal
from typing import TYPE_CHECKING

from flowbias.ground.arguments import InputError
from flowbias.models import DiagonalNet, UntiedDiagonalNet
from flowbias.models.untied import diagonal_net

if TYPE_CHECKING:
    from flowbias.apps.data_files.regression_data import RegressionData

Network = DiagonalNet | UntiedDiagonalNet


def log_of(option: str, text: str) -> float:
    """The natural logarithm of a positive decimal number, however large or small: 1e-400 too."""
    with decimal.localcontext() as context:
        # More than a double has, also when the exponent has eighteen digits of its own.
        context.prec = 40
        context.Emax, context.Emin = decimal.MAX_EMAX, decimal.MIN_EMIN
        try:
            number = Decimal(text)
            positive = number.is_finite() and number > 0
        except decimal.InvalidOperation:
            positive = False
        if not positive:
            raise InputError(
                f"{option}: must be a positive number, got {text!r}. "
                "Pass for instance 0.1 or 1e-400; the start itself must not be zero."
            )
        return float(number.ln())


def start_of(
    depth: float,
    shape: float | None,
    *,
    scale: str | None,
    log_scale: float | None,
    cv: bool = False,
) -> Network:
    """The network that gradient flow starts from; with `cv` its scale is yet to be chosen."""
    given = (scale is not None) + (log_scale is not None) + cv
    if given != 1:
        got = {0: "neither", 2: "both"}.get(given, "all")
        raise InputError(
            f"--scale, --log-scale, --cv: exactly one of them must be given, got {got}. "
            "Pass for instance --scale 1e-3, or --cv to have it chosen."
        )
    if cv:
        log_scale = 0.0
    size: dict[str, float | None] = {"log_scale": log_scale}
    if scale is not None:
        size = {"log_scale": log_of("--scale", scale)}
        # An ordinary number is passed on as it is: the way through its logarithm costs digits.
        if sys.float_info.min <= float(scale) <= sys.float_info.max:
            size = {"scale": float(scale)}
    refusal = (
        "--shape: must come with --depth 2, got depth {depth:g}. "
        "Only networks of two layers have a shape (|v|-|u|)/(|v|+|u|)."
    )
    return diagonal_net(depth, **size, shape=shape, refusal=refusal)


def cross_validated(
    start: Network, shape: float | None, data: RegressionData, folds: int = 5
) -> tuple[Network, str]:
    """The network at the scale whose limits predict best what they have not seen; and words."""
    from sklearn.model_selection import KFold

    from flowbias.estimators import ImplicitBiasRegressorCV

    units = data.units
    if units is None or len(units.given.y) < 2 * folds:
        raise InputError(
            f"--cv: must have at least {2 * folds} samples, got {data.shape[0]}. "
            "Pass a scale, for instance --scale 1e-3."
        )
    # Shuffled: files are often sorted, and a fold of the largest says nothing of the others.
    splits = KFold(folds, shuffle=True, random_state=0)
    chosen = ImplicitBiasRegressorCV(
        depth=start.depth, shape=shape or 0.0, fit_intercept=units.intercept, cv=splits
    ).fit(units.scaled, units.given.y)
    error = math.sqrt(chosen.mse_path_.mean(axis=1).min())
    said = (
        f"the scale is the best of {len(chosen.log_scales_)} in {folds}-fold cross-validation: "
        f"root mean square error {error:.3g} (y itself varies by {units.given.y.std():.3g})"
    )
    return start.at_log_scale(chosen.log_scale_), said


def scale_text(log_scale: float) -> str:
    """A scale for the eye, from its natural logarithm: 0.001, 2.5e-07, 1e-400."""
    with decimal.localcontext() as context:
        context.prec = 3
        context.Emax, context.Emin = decimal.MAX_EMAX, decimal.MIN_EMIN
        scale = Decimal(log_scale).exp().normalize()
    plain = -4 < scale.adjusted() < 5
    return f"{scale:f}" if plain else f"{scale:e}"
