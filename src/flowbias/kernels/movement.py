"""How far two points in parameter space are apart: in parameters, and how features have turned.

"Grad distance" [woodworth2020, appendix B] is the cosine distance between the tangent feature maps
phi(x) = df(x)/dtheta at two points. Near the kernel regime 1 - cos would be nothing but rounding,
so it is put together from the difference D = phi' - phi itself:

    1 - cos(phi, phi') = (||D||^2 - (||phi'|| - ||phi||)^2) / (2 ||phi|| ||phi'||)

A layer's features are sums of g_p v_p^T, and theirs differ by sums of (g'_p - g_p) v'_p^T and
g_p (v'_p - v_p)^T: again a layer, with twice the positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flowbias.ground.arguments import InputError, as_array
from flowbias.ground.drawing import picture, stems
from flowbias.ground.html import facts
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.kernels.closed_form import declared_by, feature_route
from flowbias.kernels.features import Features
from flowbias.kernels.memory import Blocks
from flowbias.kernels.network import Network, Tensor
from flowbias.kernels.products import cells
from flowbias.kernels.tangent import TangentMap, planned_alike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class ParameterMovement:
    """||theta' - theta|| / ||theta||: of all parameters together, and of each by name."""

    overall: float
    per_parameter: dict[str, float]


def parameter_movement(before: Any, after: Any) -> ParameterMovement:
    """||theta_after - theta_before|| / ||theta_before|| over trainable parameters.

    inf for a parameter that started at zero and moved, 0 for one that did not move.

    Parameters
    ----------
    before, after : two modules of one architecture, or two models of the library

    Returns
    -------
    ParameterMovement, in all and for each parameter

    Raises
    ------
    InputError for modules of two architectures

    >>> import copy, torch
    >>> net = torch.nn.Linear(2, 1)
    >>> other = copy.deepcopy(net)
    >>> _ = [p.data.mul_(2.0) for p in other.parameters()]
    >>> round(parameter_movement(net, other).overall, 6)
    1.0
    """
    first, second = _parameters(before), _parameters(after)
    _check_shapes(
        {name: part.shape for name, part in first.items()},
        {name: part.shape for name, part in second.items()},
    )
    moved = {name: float(np.linalg.norm(second[name] - first[name])) for name in first}
    sizes = {name: float(np.linalg.norm(first[name])) for name in first}
    total = float(np.linalg.norm(list(moved.values()))), float(np.linalg.norm(list(sizes.values())))
    return ParameterMovement(
        _ratio(*total), {name: _ratio(moved[name], sizes[name]) for name in first}
    )


def require_same_parameters(before: Network, after: Network) -> None:
    """Refuse two modules whose trainable parameters differ in name, shape, dtype or device."""
    _check_shapes(
        *({n: tuple(p.shape) for n, p in net.parameters.items()} for net in (before, after))
    )
    for kind in ("dtype", "device"):
        ours, theirs = getattr(before, kind), getattr(after, kind)
        if ours != theirs:
            raise InputError(
                f"after: must have the {kind} of before, {ours}, got {theirs}. "
                "Convert one of them with module.to(...)."
            )


def _check_shapes(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name in (*before, *after):
        ours, theirs = before.get(name, "no such parameter"), after.get(name, "no such parameter")
        if ours != theirs:
            raise InputError(
                f"after: must have the trainable parameters of before, got {theirs} for {name!r} "
                f"where before has {ours}. Pass one architecture at two points, for instance "
                "before = copy.deepcopy(module) ahead of training."
            )


def _parameters(model: Any) -> dict[str, Any]:
    if declared_by(model):
        return feature_route(model).parameters(model)
    found = Network.read(model).parameters
    return {key: as_array(part).astype(np.float64) for key, part in found.items()}


def _ratio(moved: float, size: float) -> float:
    if moved == 0.0:
        return 0.0
    return moved / size if size > 0.0 else float("inf")


@dataclass(frozen=True)
class GradDistance:
    """Cosine distance of tangent features (all outputs): per sample, and of all samples as one.

    0 where a sample's features vanish at both points, 1 where they do at one of them.
    """

    per_sample: FloatArray
    overall: float

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The distance of each sample; on `ax` if given, written to `path` if given."""

        def panel(axes: Axes) -> None:
            stems(axes, self.per_sample, label="grad distance")
            axes.set_xlabel("sample")

        return picture(panel, path=path, ax=ax)

    def _repr_html_(self) -> str:
        return facts(
            "Grad distance",
            {
                "overall": self.overall,
                "samples": f"{len(self.per_sample)}",
                "median": float(np.median(self.per_sample)),
                "largest": float(self.per_sample.max()),
            },
        )


def grad_distance(
    before: Any, after: Any, x: Any, *, max_memory: int | str = "1GiB"
) -> GradDistance:
    """1 - cos(phi_before(x), phi_after(x)), phi the tangent features.  [woodworth2020, appendix B]

    Exact also where hardly anything moved.

    Parameters
    ----------
    before, after : two modules of one architecture at two parameter points (copy.deepcopy before
        training), or two models of the library
    x : inputs
    max_memory : bytes, "1GiB" or "500MB", of what is held beyond the module and the result

    Returns
    -------
    GradDistance

    Raises
    ------
    InputError for modules or inputs that cannot be used

    >>> import copy, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    >>> grad_distance(net, copy.deepcopy(net), torch.ones(1, 2)).overall
    0.0
    """
    if declared_by(before):
        features = [feature_route(model).features(model, "x", x) for model in (before, after)]
        return distance_from_products(*_numpy_products(*features))
    require_same_parameters(Network.read(before), Network.read(after))
    return map_distance(
        TangentMap(before, x, max_memory=max_memory), TangentMap(after, x, max_memory=max_memory)
    )


def map_distance(before: TangentMap, after: TangentMap) -> GradDistance:
    """Of one architecture at two points, on the same inputs."""
    found = planned_alike(before, after, partial(_accumulated, before, after), paired=True)
    return distance_from_products(*(as_array(part).astype(np.float64) for part in found))


class _FeatureProducts(NamedTuple):
    """Per sample: ||phi||^2, <phi, D> and ||D||^2."""

    own: Any
    cross: Any
    change: Any


def _numpy_products(first: FloatArray, second: FloatArray) -> _FeatureProducts:
    if first.shape != second.shape:
        raise InputError(
            f"after: must have as many parameters as before, got features of shape {second.shape} "
            f"and {first.shape}. Pass one architecture at two points."
        )
    change = second - first
    return _FeatureProducts(
        *(
            np.einsum("ip,ip->i", a, b)
            for a, b in ((first, first), (first, change), (change, change))
        )
    )


def distance_from_products(own: FloatArray, cross: FloatArray, change: FloatArray) -> GradDistance:
    per_sample = _from_products(own, cross, change)
    overall = _from_products(*(np.array([part.sum()]) for part in (own, cross, change)))
    return GradDistance(per_sample, float(overall[0]))


def _from_products(own: FloatArray, cross: FloatArray, change: FloatArray) -> FloatArray:
    growth = 2.0 * cross + change  # ||phi'||^2 - ||phi||^2
    first = np.sqrt(own)
    second = np.sqrt(np.maximum(own + growth, 0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        longer = growth / (first + second)  # ||phi'|| - ||phi||
        distance = (change - longer**2) / (2.0 * first * second)
    one_vanishes = np.where((first == 0.0) & (second == 0.0), 0.0, 1.0)
    regular = (first > 0.0) & (second > 0.0)
    return np.where(regular, np.clip(distance, 0.0, 2.0), one_vanishes)


def _accumulated(
    before: TangentMap, after: TangentMap, rows: Tensor, blocks: Blocks
) -> _FeatureProducts:
    total = _FeatureProducts(*(rows.new_zeros(before.samples) for _ in range(3)))
    for part, outputs in cells(before.samples, len(rows), blocks):
        first, second = (tangent.cell(part, rows[outputs]) for tangent in (before, after))
        with require_torch().no_grad():
            found = _cell_products(first, second, blocks.room)
            for sums, more in zip(total, found, strict=True):
                sums[part] += more
    return total


def _cell_products(first: Features, second: Features, room: int) -> _FeatureProducts:
    sums: list[Any] = [0.0, 0.0, 0.0]
    for names, factors in first.factors.items():
        others = second.factors[names]
        v = factors.v(), others.v()
        if factors.lookup:
            v = _unit_vectors(*v, factors.g)
        for group in range(len(v[0])):
            ours = _Layer(v[0][group], factors.g[group].flatten(2))
            theirs = _Layer(v[1][group], others.g[group].flatten(2))
            change = _difference(ours, theirs)
            for index, (a, b) in enumerate(((ours, ours), (ours, change), (change, change))):
                sums[index] = sums[index] + matched_products(a, b, room)
    for one, other in zip(first.gradients, second.gradients, strict=True):
        own, moved = one.values, other.values - one.values
        for index, pair in enumerate(((own, own), (own, moved), (moved, moved))):
            sums[index] = sums[index] + (pair[0] * pair[1]).sum((1, 2))
    return _FeatureProducts(*sums)


def _unit_vectors(ours: Tensor, theirs: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of a table that a sample looks up, as unit vectors: two are equal where indices are."""
    torch = require_torch()
    indices = torch.cat([ours, theirs], dim=2)
    first = (indices[..., None] == indices[:, :, None]).to(torch.uint8).argmax(3)
    found = torch.nn.functional.one_hot(first, indices.shape[2]).to(like)
    return found[:, :, : ours.shape[2]], found[:, :, ours.shape[2] :]


class _Layer(NamedTuple):
    """v (samples, positions, inputs) and g (samples, positions, outputs * units) of one group."""

    v: Tensor
    g: Tensor


def _difference(before: _Layer, after: _Layer) -> _Layer:
    torch = require_torch()
    return _Layer(
        torch.cat([after.v, after.v - before.v], dim=1),
        torch.cat([after.g - before.g, before.g], dim=1),
    )


def matched_products(first: _Layer, second: _Layer, room: int) -> Tensor:
    """<phi, phi'> of each sample with itself, the cheaper way round as in products.py."""
    torch = require_torch()
    (samples, t1, inputs), t2, units = first.v.shape, second.v.shape[1], first.g.shape[2]
    number = first.v.element_size()
    by_position = t1 * t2 * (inputs + units) <= (t1 + t2 + 1) * inputs * units
    per_sample = number * (2 * t1 * t2 if by_position else 2 * inputs * units)
    step = max(1, room // per_sample)
    parts = []
    for start in range(0, samples, step):
        (v1, g1), (v2, g2) = (
            (layer.v[start : start + step], layer.g[start : start + step])
            for layer in (first, second)
        )
        if by_position:
            product = (v1 @ v2.transpose(1, 2)) * (g1 @ g2.transpose(1, 2))
        else:
            product = (g1.transpose(1, 2) @ v1) * (g2.transpose(1, 2) @ v2)
        parts.append(product.sum((1, 2)))
    return torch.cat(parts)
