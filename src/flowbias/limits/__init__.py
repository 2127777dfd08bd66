"""Limits of gradient flow, without integration wherever theory allows."""

from flowbias.limits.basis_pursuit import basis_pursuit
from flowbias.limits.rich_limit import rich_limit
from flowbias.limits.scale_path import LimitPath, limit_path
from flowbias.limits.solve import limit, min_norm
from flowbias.limits.spectral import frobenius_norm, nuclear_norm, schatten_limit
from flowbias.limits.stage_path import StagePath
from flowbias.limits.stages import stages

__all__ = [
    "LimitPath",
    "StagePath",
    "basis_pursuit",
    "frobenius_norm",
    "limit",
    "limit_path",
    "min_norm",
    "nuclear_norm",
    "rich_limit",
    "schatten_limit",
    "stages",
]
