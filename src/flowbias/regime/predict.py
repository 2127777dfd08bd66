"""Before training: which regime to expect, and how to rescale the start for another one.

Linearized, training moves the parameters by delta = J^T K^+ (y - f_0) (least norm). On the way the
features change by D^2 f[delta], relatively

    feature change = ||D^2 f[delta]||_F / ||D f||_F.

Chizat, Oyallon and Bach (2019) bound it by operator norms, whatever the residual's direction:

    kappa = ||f_0 - y|| ||D^2 f|| / ||D f||^2.

Small: the linearization holds until the data are fitted (kernel regime). For a D-homogeneous
module that starts at output 0 both go as scale^(-D). Neither sees units that switch on or off on
the way; what is lost of the function by linearizing it does,

    lazy gap = ||f(theta_0 + delta) - f_0 - J delta||, on inputs that are not trained on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError, as_array
from flowbias.ground.drawing import picture
from flowbias.ground.html import facts
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import Axes, Figure
from flowbias.kernels.closed_form import declared_by
from flowbias.kernels.matrix_free import tangent_operator
from flowbias.kernels.network import (
    Network,
    Tensor,
    check_finite,
    copied_in_double,
    first_call,
    gradients,
    normals,
)
from flowbias.regime.curvature import ModuleDerivatives
from flowbias.regime.data import fresh_tensors, read_practice, read_targets
from flowbias.regime.diagnosis import finite
from flowbias.regime.drawing import prediction_panels
from flowbias.regime.thresholds import THRESHOLDS, Grounds, Thresholds, Verdict


@dataclass(frozen=True)
class Rescaling:
    """A factor on all parameters, and the change of features that is expected with it."""

    factor: float
    feature_change: float
    verdict: Verdict


@dataclass(frozen=True, repr=False)
class Prediction:
    """What to expect of training a module on (x, y) with squared loss.

    feature_change      ||D^2 f[delta]|| / ||D f||, delta the linearized way to the labels
    lazy_gap            distance from the linearization after that way, in function space
    kappa               ||f_0 - y|| ||D^2 f|| / ||D f||^2 (Chizat et al.), by power iterations when
                        it is first asked for, None where left out
    parameter_movement  ||delta|| / ||theta_0||
    degree              D if the module is D-homogeneous in its parameters, else None
    output_share        ||f_0|| / ||y - f_0||: 0 for an unbiased start
    """

    feature_change: float
    lazy_gap: float
    parameter_movement: float
    degree: float | None
    output_share: float
    thresholds: Thresholds
    _at_factor: Callable[[float], Outlook]
    _bound: Callable[[], float] | None

    @cached_property
    def kappa(self) -> float | None:
        """Chizat's criterion: it takes longer than everything else, and does not decide."""
        return None if self._bound is None else self._bound()

    @property
    def verdict(self) -> Verdict:
        """The regime to expect."""
        return self.thresholds.decide(self.evidence)

    @property
    def evidence(self) -> Grounds:
        """What the expectation rests on, as that of a diagnosis."""
        return self.thresholds.expected(self.feature_change, self.lazy_gap)

    def rescale(self, wanted: Verdict) -> Rescaling:
        """A factor on all parameters with which to expect `wanted`, a little beyond the line.

        Found by trying: `flowbias.nets.scaled(module, factor)` is the module it is meant for. Where
        no factor does, an InputError says why: a start that is not unbiased has outputs that grow
        with it.
        """
        if wanted not in tuple(Verdict):
            names = ", ".join(f"Verdict.{verdict.name}" for verdict in Verdict)
            raise InputError(
                f"wanted: must be one of {names}, got {wanted!r}. "
                "Import Verdict from flowbias.regime."
            )
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
            f"rich from {lines.rich_outlook:g} on), and the function would come to lie "
            f"{self.lazy_gap:.1%} away from its linearization (kernel up to "
            f"{lines.kernel_gap:.0%})."
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
            "lazy_gap": self.lazy_gap,
            "kappa": self.kappa,
            "parameter_movement": self.parameter_movement,
            "degree": self.degree,
            "output_share": self.output_share,
        }

    def to_json(self) -> str:
        return json.dumps(finite(self.document()), indent=2, allow_nan=False)

    @property
    def _numbers(self) -> dict[str, float | None]:
        return {
            "feature change": self.feature_change,
            "lazy gap": self.lazy_gap,
            # Printing computes nothing.
            "kappa": vars(self).get("kappa"),
            "parameter movement": self.parameter_movement,
            "degree": self.degree,
            "output share": self.output_share,
        }

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """What to expect of features and function, between the lines; on `ax` features alone."""
        return picture(*prediction_panels(self), path=path, ax=ax)

    def _repr_html_(self) -> str:
        return facts(f"Prediction: {self.verdict.name}", self._numbers, note=self.explanation)

    def __repr__(self) -> str:
        lines = [f"  {k:<20}{v:.4g}" for k, v in self._numbers.items() if v is not None]
        title = f"Prediction: {self.verdict.name}"
        return "\n".join([title, *lines, f"  {self.explanation}"])


def predict(
    module: Any, x: Any, y: Any = None, *, kappa: bool = True, max_memory: int | str = "1GiB"
) -> Prediction:
    """Which regime to expect of training `module` on (x, y), from first and second derivatives.

    Nothing is trained and the module is left alone.

    Parameters
    ----------
    module : any torch.nn.Module in eval mode, before training
    x : inputs, as for `diagnose`
    y : one number per sample and output, or integer classes (taken one-hot); may come with x where
        that is a DataLoader
    kappa : whether Chizat's criterion is wanted: it is computed when `prediction.kappa` is first
        asked for, and does not decide
    max_memory : bytes, "1GiB" or "500MB", of what is held beyond the module and the result

    Returns
    -------
    Prediction

    Raises
    ------
    InputError for a module or data that cannot be used

    >>> import torch
    >>> from flowbias.nets import mlp, unbiased
    >>> x, y = torch.eye(3), torch.tensor([[1.0], [-1.0], [1.0]])
    >>> large = predict(unbiased(mlp((3, 50, 1), scale=20.0)), x, y)
    >>> large.verdict.name, round(large.degree, 3)
    ('KERNEL', 2.0)
    """
    with gradients():  # whatever the caller's mode
        if not declared_by(module):
            (module,), x, y = read_practice([module], x, y)
        return _predicted(read_derivatives(module, x), y, kappa, max_memory)


def _predicted(
    curvature: ModuleDerivatives, y: Any, kappa: bool, max_memory: int | str
) -> Prediction:
    inputs = curvature.inputs

    def at_factor(factor: float) -> Outlook:
        return outlook(_scaled(curvature.network.module, factor), inputs, y, max_memory)

    def bound() -> float:
        with gradients():  # whatever mode it is asked for in
            missing = _read_targets(y, curvature.values()) - curvature.values()
            return float(missing.norm()) * curvature.second_norm() / curvature.first_norm() ** 2

    now = at_factor(1.0)
    return Prediction(
        feature_change=now.feature_change,
        lazy_gap=now.lazy_gap,
        parameter_movement=now.parameter_movement,
        degree=_degree(curvature.network.module, inputs),
        output_share=now.output / now.residual,
        thresholds=THRESHOLDS,
        _at_factor=at_factor,
        _bound=bound if kappa else None,
    )


def _scaled(module: Any, factor: float) -> Any:
    result = copied_in_double(module)
    with gradients(on=False):
        for parameter in result.parameters():
            parameter.mul_(factor)
    return result


def _degree(module: Any, inputs: Any) -> float | None:
    """D with f(s theta) = s^D f(theta), read off the derivatives: f itself may start at 0.

    J(s theta) = s^(D-1) J(theta), in size and in direction, on both sides of 1.
    """
    first = read_derivatives(module, inputs)
    values = first.values()
    direction = normals(0)(values.shape, values)
    here = first.pull_back(direction)
    degrees = []
    for factor in (1.01, 1.0 / 1.01):
        there = read_derivatives(_scaled(module, factor), inputs).pull_back(direction)
        own = sum(float((a * a).sum()) for a in here)
        cross = sum(float((a * b).sum()) for a, b in zip(here, there, strict=True))
        other = sum(float((b * b).sum()) for b in there)
        if not cross > (1.0 - 1e-9) * math.sqrt(own * other) > 0.0:
            return None
        degrees.append(1.0 + 0.5 * math.log(other / own) / math.log(factor))
    mean = 0.5 * (degrees[0] + degrees[1])
    return mean if abs(degrees[0] - degrees[1]) <= 0.02 else None


def _search(prediction: Prediction, wanted: Verdict) -> Rescaling:
    """Secant steps on the logarithms of factor and feature change, towards the nearest line.

    On the way to KERNEL, whichever of the two numbers is farther beyond its line leads.
    """
    lines = prediction.thresholds

    def leading(feature_change: float, lazy_gap: float) -> float:
        led = lazy_gap / lines.kernel_gap * lines.kernel_outlook
        return max(feature_change, led) if wanted is Verdict.KERNEL else feature_change

    now = leading(prediction.feature_change, prediction.lazy_gap)
    if not now > 0.0:
        raise InputError(
            f"wanted: must be KERNEL for a module that is linear in its parameters, got "
            f"{wanted.name}. It has no features to learn at any scale."
        )
    # Aimed a little beyond the line, in a few tries, at no factor that nobody would take.
    beyond, tries, largest_factor = 1.5, 12, 1e6
    goals = {
        Verdict.KERNEL: lines.kernel_outlook / beyond,
        Verdict.RICH: lines.rich_outlook * beyond,
        Verdict.IN_BETWEEN: math.sqrt(lines.kernel_outlook * lines.rich_outlook),
    }
    goal = math.log(goals[wanted])
    slope = -(prediction.degree or 2.0)
    at, value = 0.0, math.log(now)
    for _ in range(tries):
        if slope > -1e-2:
            break  # a larger scale no longer makes it lazier
        step = max(min((goal - value) / slope, 3.0), -3.0)
        following = at + step
        if abs(following) > math.log(largest_factor):
            break
        ahead = prediction._at_factor(math.exp(following))
        expected = lines.expected(ahead.feature_change, ahead.lazy_gap)
        reached = lines.decide(expected) is wanted
        found = math.log(leading(ahead.feature_change, ahead.lazy_gap))
        if reached and abs(found - goal) < 1.0:
            return Rescaling(math.exp(following), ahead.feature_change, wanted)
        slope = (found - value) / step
        at, value = following, found
    raise InputError(
        f"wanted: must be a regime that some scale of this start reaches, got {wanted.name}: with "
        f"all parameters times {math.exp(at):.3g} the features would still change by "
        f"{math.exp(value):.3g} of their size, or as much in function space. Outputs at the start "
        "grow with the scale: make it unbiased first (flowbias.nets.unbiased)."
    )


@dataclass(frozen=True)
class Outlook:
    """What is expected of a module at one scale of its parameters."""

    feature_change: float
    #: how far the network delta away is from its linearization there, relative as in `Gaps`
    lazy_gap: float
    #: ||delta|| / ||theta_0||
    parameter_movement: float
    #: ||f_0 - y||, and ||f_0|| beside it
    residual: float
    output: float


def outlook(module: Any, x: Any, y: Any, max_memory: int | str = "1GiB") -> Outlook:
    """The expected relative change of features of a module (in double precision)."""
    curvature = read_derivatives(module, x)
    start = curvature.values()
    check_finite(start, "x", 0)
    missing = _read_targets(y, start) - start
    if not float(missing.norm()) > 0.0:
        raise InputError(
            "y: must differ from the module's outputs at the start, got the same. "
            "Nothing would be trained."
        )
    network = curvature.network
    dual = _solve(tangent_operator(network.module, x, max_memory=max_memory), missing)
    delta = curvature.pull_back(dual)
    features = curvature.size()
    if not features > 0.0:
        raise InputError(
            "module: must have outputs that react to its parameters, got derivatives of zero on "
            "x. Start from other parameters than zero."
        )
    size = math.sqrt(sum(float(p.detach().norm()) ** 2 for p in curvature.parameters))
    moved = math.sqrt(sum(float(part.norm()) ** 2 for part in delta))
    return Outlook(
        feature_change=curvature.change_along(delta) / features,
        lazy_gap=_lazy_gap(curvature, delta),
        parameter_movement=moved / size if size > 0.0 else math.inf,
        residual=float(missing.norm()),
        output=float(start.norm()),
    )


def _lazy_gap(curvature: ModuleDerivatives, delta: list[Tensor]) -> float:
    """||f(theta_0 + delta) - f_0 - J delta|| on new inputs: all orders, and units that switch."""
    new = fresh_tensors(curvature.inputs)
    here = ModuleDerivatives(curvature.network, new)
    start, along = here.values(), here.push_forward(delta)
    moved = Network.read(copied_in_double(curvature.network.module))
    with gradients(on=False):
        for parameter, part in zip(moved.parameters.values(), delta, strict=True):
            parameter += part
        away = float((moved.outputs(new) - start - along).norm())
    sizes = [size for size in (float(along.norm()), float((start + along).norm())) if size > 0.0]
    return away / min(sizes) if sizes else 0.0


def read_derivatives(module: Any, x: Any) -> ModuleDerivatives:
    """The module in double precision on x; parameters of the caller's module stay as they are."""
    if declared_by(module):
        raise InputError(
            f"module: must be a torch.nn.Module, got {type(module).__name__}. For models of this "
            "library the limit itself is known: flowbias.limit, or flow and diagnose."
        )
    Network.read(module)
    network = Network.read(copied_in_double(module))
    inputs = network.cast_inputs("x", x)
    with gradients(on=False):
        first_call(network, "x", tuple(part[:1] for part in inputs))
    return ModuleDerivatives(network, inputs)


def _read_targets(y: Any, outputs: Tensor) -> Tensor:
    """Labels as a tensor of the shape of the outputs."""
    samples, many = outputs.shape
    return require_torch().as_tensor(read_targets(y, (samples, many)).numbers).to(outputs)


def _solve(operator: Any, missing: Tensor, left: float = 1e-2, most: int = 200) -> Tensor:
    """nu with K nu = missing, by conjugate gradients from 0, up to the share `left`.

    By hand, as K may be singular: directions that are slower to learn than that are hardly learned
    in training either, and those that cannot be learned end it.
    """
    torch = require_torch()
    residual = as_array(missing).reshape(-1).copy()
    solution, goal = np.zeros_like(residual), left * float(np.linalg.norm(residual))
    way, size = residual.copy(), float(residual @ residual)
    for _ in range(most):
        image = operator.matvec(way)
        along = float(way @ image)
        if math.sqrt(size) <= goal or not along > 0.0:
            break
        step = size / along
        solution += step * way
        residual -= step * image
        last, size = size, float(residual @ residual)
        way = residual + (size / last) * way
    return torch.as_tensor(solution).to(missing).reshape(missing.shape)
