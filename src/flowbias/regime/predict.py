"""Before training: which regime to expect, and how to rescale the start for another one."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flowbias._torch import require_torch
from flowbias.problem import InputError
from flowbias.regime.diagnosis import finite
from flowbias.regime.outlook import Outlook, outlook, read_curvature, read_targets
from flowbias.regime.thresholds import THRESHOLDS, Thresholds, Verdict

# A factor on all parameters at which the degree of homogeneity is read off.
PROBE = 1.01
# Homogeneous, if the degrees on both sides agree to this.
SAME_DEGREE = 0.02
# Rescaling: how far beyond its line the change of features is aimed at, how many tries, and the
# factors beyond which no one would go.
BEYOND = 1.5
TRIES = 12
LARGEST_FACTOR = 1e6


@dataclass(frozen=True)
class Rescaling:
    """A factor on all parameters, and the change of features that is expected with it."""

    factor: float
    feature_change: float
    verdict: Verdict


@dataclass(frozen=True, repr=False)
class Prediction:
    """What to expect of training a module on (x, y) with squared loss.

    feature_change      ||D^2 f[delta]|| / ||D f||, delta the linearized way to the labels: decides
    kappa               ||f_0 - y|| ||D^2 f|| / ||D f||^2 (Chizat et al.), None where left out
    parameter_movement  ||delta|| / ||theta_0||
    degree              D if the module is D-homogeneous in its parameters, else None
    output_share        ||f_0|| / ||y - f_0||: 0 for an unbiased start
    """

    feature_change: float
    kappa: float | None
    parameter_movement: float
    degree: float | None
    output_share: float
    thresholds: Thresholds
    _at_factor: Callable[[float], Outlook]

    @property
    def verdict(self) -> Verdict:
        """The regime to expect."""
        return self.thresholds.by_outlook(self.feature_change)

    def rescale(self, wanted: Verdict) -> Rescaling:
        """A factor on all parameters with which to expect `wanted`, a little beyond the line.

        Found by trying: `flowbias.nets.scaled(module, factor)` is the module it is meant for. Where
        no factor does, an InputError says why: a start that is not unbiased has outputs that grow
        with it.
        """
        if self.verdict is wanted:
            return Rescaling(1.0, self.feature_change, wanted)
        return _search(self, wanted)

    @property
    def explanation(self) -> str:
        """What to expect, in words."""
        lines = self.thresholds
        text = (
            f"Expected: {self.verdict.value}. On the way to the labels the features would change "
            f"by {self.feature_change:.3g} of their size (kernel up to {lines.kernel_outlook:g}, "
            f"rich from {lines.rich_outlook:g} on)."
        )
        if self.degree is None:
            return f"{text} The module is not homogeneous: rescaling changes more than its scale."
        power = f"It is {self.degree:.3g}-homogeneous"
        if self.output_share > 1e-6:
            return (
                f"{text} {power}, with outputs at the start: a larger scale enlarges these too, "
                "and need not make it lazy (flowbias.nets.unbiased does away with them)."
            )
        return f"{text} {power}: the change goes as scale^-{self.degree:.3g}."

    def document(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "verdict": self.verdict.name,
            "explanation": self.explanation,
            "feature_change": self.feature_change,
            "kappa": self.kappa,
            "parameter_movement": self.parameter_movement,
            "degree": self.degree,
            "output_share": self.output_share,
        }

    def to_json(self) -> str:
        return json.dumps(finite(self.document()), indent=2, allow_nan=False)

    def __repr__(self) -> str:
        numbers = {
            "feature change": self.feature_change,
            "kappa": self.kappa,
            "parameter movement": self.parameter_movement,
            "degree": self.degree,
            "output share": self.output_share,
        }
        lines = [f"  {k:<20}{v:.4g}" for k, v in numbers.items() if v is not None]
        title = f"Prediction: {self.verdict.name}"
        return "\n".join([title, *lines, f"  {self.explanation}"])


def predict(
    module: Any, x: Any, y: Any, *, kappa: bool = True, max_memory: int | str = "1GiB"
) -> Prediction:
    """Which regime to expect of training `module` on (x, y), from first and second derivatives.

    y has one number per sample and output (classes one-hot). Nothing is trained and the module is
    left alone. kappa=False leaves out Chizat's criterion, which takes power iterations of its own
    and does not decide.

    >>> import torch
    >>> from flowbias.nets import mlp, unbiased
    >>> x, y = torch.eye(3), torch.tensor([[1.0], [-1.0], [1.0]])
    >>> large = predict(unbiased(mlp((3, 50, 1), scale=20.0)), x, y)
    >>> large.verdict.name, round(large.degree, 3)
    ('KERNEL', 2.0)
    """
    curvature = read_curvature(module, x)
    inputs = curvature.inputs

    def at_factor(factor: float) -> Outlook:
        return outlook(_scaled(curvature.network.module, factor), inputs, y, max_memory)

    now = at_factor(1.0)
    bound = None
    if kappa:
        missing = read_targets(y, curvature.values()) - curvature.values()
        bound = float(missing.norm()) * curvature.second_norm() / curvature.first_norm() ** 2
    return Prediction(
        feature_change=now.feature_change,
        kappa=bound,
        parameter_movement=now.parameter_movement,
        degree=_degree(curvature.network.module, inputs),
        output_share=now.output / now.residual,
        thresholds=THRESHOLDS,
        _at_factor=at_factor,
    )


def _scaled(module: Any, factor: float) -> Any:
    torch = require_torch()
    result = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in result.parameters():
            parameter.mul_(factor)
    return result


def _degree(module: Any, inputs: Any) -> float | None:
    """D with f(s theta) = s^D f(theta), read off the derivatives: f itself may start at 0.

    J(s theta) = s^(D-1) J(theta), in size and in direction, on both sides of 1.
    """
    first = read_curvature(module, inputs)
    direction = _random_outputs(first)
    here = first.pull_back(direction)
    degrees = []
    for factor in (PROBE, 1.0 / PROBE):
        there = read_curvature(_scaled(module, factor), inputs).pull_back(direction)
        own = sum(float((a * a).sum()) for a in here)
        cross = sum(float((a * b).sum()) for a, b in zip(here, there, strict=True))
        other = sum(float((b * b).sum()) for b in there)
        if not cross > (1.0 - 1e-9) * math.sqrt(own * other) > 0.0:
            return None
        degrees.append(1.0 + 0.5 * math.log(other / own) / math.log(factor))
    mean = 0.5 * (degrees[0] + degrees[1])
    return mean if abs(degrees[0] - degrees[1]) <= SAME_DEGREE else None


def _random_outputs(curvature: Any) -> Any:
    torch = require_torch()
    values = curvature.values()
    generator = torch.Generator().manual_seed(0)
    return torch.randn(values.shape, generator=generator, dtype=torch.float64).to(values)


def _search(prediction: Prediction, wanted: Verdict) -> Rescaling:
    """Secant steps on the logarithms of factor and feature change, towards the nearest line."""
    lines = prediction.thresholds
    goals = {
        Verdict.KERNEL: lines.kernel_outlook / BEYOND,
        Verdict.RICH: lines.rich_outlook * BEYOND,
        Verdict.IN_BETWEEN: math.sqrt(lines.kernel_outlook * lines.rich_outlook),
    }
    goal = math.log(goals[wanted])
    slope = -(prediction.degree or 2.0)
    at, value = 0.0, math.log(prediction.feature_change)
    for _ in range(TRIES):
        if slope > -1e-2:
            break  # a larger scale no longer makes it lazier
        step = max(min((goal - value) / slope, 3.0), -3.0)
        following = at + step
        if abs(following) > math.log(LARGEST_FACTOR):
            break
        found = prediction._at_factor(math.exp(following)).feature_change
        if prediction.thresholds.by_outlook(found) is wanted and abs(math.log(found) - goal) < 1.0:
            return Rescaling(math.exp(following), found, wanted)
        slope = (math.log(found) - value) / step
        at, value = following, math.log(found)
    raise InputError(
        f"wanted: must be a regime that some scale of this start reaches, got {wanted.name}: the "
        f"features would still change by {math.exp(value):.3g} of their size with all parameters "
        f"times {math.exp(at):.3g}. Outputs at the start grow with the scale: make it unbiased "
        "first (flowbias.nets.unbiased)."
    )
