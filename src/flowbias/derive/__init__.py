"""The implicit bias of a new parametrization w = F(theta), handed in as a torch function."""

from flowbias.derive.commuting import Commuting, commuting
from flowbias.derive.conservation import ConservationLaws, Polynomial, conservation_laws
from flowbias.derive.derived_potential import DerivedPotential, WarpedPotential
from flowbias.derive.hessian_map import HessianMap, hessian_map, hessian_map_of_metric
from flowbias.derive.orbit import OrbitDimension, orbit_dimension
from flowbias.derive.parametrization import Parametrization
from flowbias.derive.report import Evidence, Report, implicit_bias
from flowbias.derive.separable_potential import SeparablePotential
from flowbias.derive.time_warp import TimeWarp, WarpedFlow, log_warp_along, time_warp
from flowbias.derive.verdict import Verdict
from flowbias.derive.zoo import EXAMPLES, Example

__all__ = [
    "EXAMPLES",
    "Commuting",
    "ConservationLaws",
    "DerivedPotential",
    "Evidence",
    "Example",
    "HessianMap",
    "OrbitDimension",
    "Parametrization",
    "Polynomial",
    "Report",
    "SeparablePotential",
    "TimeWarp",
    "Verdict",
    "WarpedFlow",
    "WarpedPotential",
    "commuting",
    "conservation_laws",
    "hessian_map",
    "hessian_map_of_metric",
    "implicit_bias",
    "log_warp_along",
    "orbit_dimension",
    "time_warp",
]
