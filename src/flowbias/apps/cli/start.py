"""The start of gradient flow as options: how large, how deep, of which shape."""

from __future__ import annotations

import decimal
import sys
from decimal import Decimal

from flowbias.ground.arguments import InputError
from flowbias.models import DiagonalNet, UntiedDiagonalNet
from flowbias.models.untied import diagonal_net

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
    depth: float, shape: float | None, *, scale: str | None, log_scale: float | None
) -> Network:
    """The network that gradient flow starts from."""
    if (scale is None) == (log_scale is None):
        got = "neither" if scale is None else "both"
        raise InputError(
            f"--scale, --log-scale: exactly one of them must be given, got {got}. "
            "Pass for instance --scale 1e-3."
        )
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


def scale_text(log_scale: float) -> str:
    """A scale for the eye, from its natural logarithm: 0.001, 2.5e-07, 1e-400."""
    with decimal.localcontext() as context:
        context.prec = 3
        context.Emax, context.Emin = decimal.MAX_EMAX, decimal.MIN_EMIN
        scale = Decimal(log_scale).exp().normalize()
    plain = -4 < scale.adjusted() < 5
    return f"{scale:f}" if plain else f"{scale:e}"
