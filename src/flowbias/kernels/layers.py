"""Operations that take a parameter, and its share of the kernel from what they leave in the graph.

A product h = v A at positions p (a sequence, the patches of a convolution, several calls) has
df_a/dA = sum_p v_p g_{a,p}^T, g_a = df_a/dh, and so the share

    sum_{p,q} (<v_p, v'_q> + 1) <g_{a,p}, g'_{b,q}>

of K_ab(x, x'), where the 1 belongs to the bias. It is kept as v with a column of ones, and g; or,
where there are more positions than inputs, as the gradient of each sample. Looking up rows of a
table is such a product with v_p a unit vector, kept as its index. What multiplies or adds a
parameter position by position (normalizations, biases, learned positions, class tokens) has the
gradient sum_p g_p * factor_p, which is as small as the parameter.

Gradients put together by a rule are compared with what torch gives of each sample alone, and only
then is it used (`trial.py`). A parameter may be transposed, viewed, sliced ahead of that. Such a
map L leaves inner products of gradients alone if L L^T = I, which is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from flowbias.ground.torch import require_torch
from flowbias.kernels.gemm import each_times
from flowbias.kernels.network import Tensor, half_the_digits, normals

if TYPE_CHECKING:
    from flowbias.kernels.graph import Path, Recording


@dataclass(frozen=True)
class Product:
    """h = v A, row by row: `seen` are the rows of v by groups, `made` those of a gradient by h.

    Both (rows, groups, size), v once it is called for.
    """

    seen: Callable[[Any], Callable[[], Tensor]]
    made: Callable[[Any, Tensor], Tensor]
    #: whether the node takes A as (inputs, units)
    transposed: bool = True


@dataclass(frozen=True)
class Term:
    """A gradient of sum_p g_p * factor_p; `rows` adds up over all but rows.

    That is, from g * factor and the shape that the parameter has there to (rows, size).
    """

    factor: Callable[[Any], Any] | None
    rows: Callable[[Tensor, tuple[int, ...]], Tensor]


@dataclass(frozen=True)
class Lookup:
    """Rows of a table, by the indices of all rows that were made."""

    seen: Callable[[Any], Callable[[], Tensor]]
    made: Callable[[Any, Tensor], Tensor]


def _looked_up_rows(node: Any, gradient: Tensor) -> Tensor:
    # The row that pads has no gradient.
    padding = node._saved_indices == node._saved_padding_idx
    return _matrix_rows(node, gradient.masked_fill(padding[..., None], 0.0))


def _matrix_rows(node: Any, gradient: Tensor) -> Tensor:
    return gradient.flatten(0, -2)[:, None]


def _kept(v: Tensor) -> Callable[[], Tensor]:
    """Without its place in the graph, which would keep alive all of it."""
    detached = v.detach()
    return lambda: detached


def _patches(node: Any) -> Callable[[], Tensor]:
    """(samples * pixels, groups, inputs): the patch that each pixel of the output sees."""
    functional, groups = require_torch().nn.functional, int(node._saved_groups)
    v, weight = node._saved_input.detach(), node._saved_weight
    line = v.ndim == 3
    window = tuple(weight.shape[2:])
    # A padding by its name ("valid") is one number for all dimensions.
    sizes = (
        size * (len(window) // len(size))
        for size in (window, node._saved_dilation, node._saved_padding, node._saved_stride)
    )
    # A line is an image of one row.
    ahead = ((1,), (1,), (0,), (1,)) if line else ((),) * 4
    shape = [(*more, *size) for more, size in zip(ahead, sizes, strict=True)]

    pixels = prod(node._input_metadata[0].shape[2:])

    def unfolded() -> Tensor:
        rows = v.new_empty(len(v), pixels, v.shape[1] * prod(window))
        # torch has pixels last. One sample at a time, as all of them twice would be the most that
        # a convolution takes.
        for own, sample in zip(rows, v[:, :, None] if line else v, strict=True):
            own.copy_(functional.unfold(sample, *shape).T)
        by_group: Tensor = rows.flatten(0, 1).unflatten(1, (groups, -1))
        return by_group

    return unfolded


def _pixel_rows(node: Any, gradient: Tensor) -> Tensor:
    pixels = gradient.flatten(2).transpose(1, 2).flatten(0, 1)
    return pixels.unflatten(1, (int(node._saved_groups), -1))


def _broadcast(terms: Tensor, shape: tuple[int, ...]) -> Tensor:
    """(rows, size of the parameter): added up where the operation repeats the parameter.

    Rows are the dimensions ahead of the parameter's own.
    """
    aligned = (*(1,) * (terms.ndim - len(shape)), *shape)
    ahead = _ahead(shape, terms.ndim)
    repeated = [i for i in range(ahead, terms.ndim) if aligned[i] == 1 != terms.shape[i]]
    if repeated:
        terms = terms.sum(repeated, keepdim=True)
    return terms.reshape(prod(terms.shape[:ahead]), -1)


def _ahead(shape: tuple[int, ...], dimensions: int) -> int:
    """How many dimensions an operation puts ahead of those of a parameter."""
    own = next((i for i, size in enumerate(shape) if size != 1), len(shape))
    return dimensions - len(shape) + own


def _per_channel(terms: Tensor, shape: tuple[int, ...]) -> Tensor:
    return terms.flatten(2).sum(2) if terms.ndim > 2 else terms


def _layer_normed(node: Any) -> Tensor:
    return (node._saved_input - node._saved_result1) * node._saved_result2


def _batch_normed(node: Any) -> Tensor:
    v = node._saved_input
    mean, scale = node._saved_running_mean, node._saved_running_var
    shape = (-1, *(1,) * (v.ndim - 2))
    return (v - mean.view(shape)) * (scale + node._saved_eps).rsqrt().view(shape)


def _group_normed(node: Any) -> Tensor:
    v = node._saved_input
    grouped = v.reshape(len(v), node._saved_group, -1)
    mean, scale = node._saved_result1[..., None], node._saved_result2[..., None]
    return ((grouped - mean) * scale).view(v.shape)


class Misfit(Exception):  # noqa: N818 - a signal to plan again, never seen by a caller
    """Parameters that turned out to be used in ways that their rule does not cover.

    `positions`: no more than where their gradients are other than zero.
    """

    def __init__(self, names: frozenset[str], positions: bool = False) -> None:
        super().__init__(", ".join(sorted(names)))
        self.names, self.positions = names, positions


Rule = Product | Term | Lookup
_CHANNELS_SECOND = (
    "ConvolutionBackward0",
    "NativeBatchNormBackward0",
    "NativeGroupNormBackward0",
)
#: by the name of the node, and which of its inputs the parameter is
RULES: dict[tuple[str, int], Rule] = {
    ("AddmmBackward0", 0): Term(lambda node: node._saved_beta, _broadcast),
    ("AddmmBackward0", 2): Product(
        lambda node: (
            _kept(node._saved_mat1[:, None] * node._saved_alpha)
            if node._saved_alpha != 1
            else _kept(node._saved_mat1[:, None])
        ),
        _matrix_rows,
    ),
    ("MmBackward0", 1): Product(lambda node: _kept(node._saved_self[:, None]), _matrix_rows),
    ("ConvolutionBackward0", 1): Product(_patches, _pixel_rows, transposed=False),
    ("ConvolutionBackward0", 2): Term(None, _per_channel),
    ("EmbeddingBackward0", 0): Lookup(
        lambda node: _kept(node._saved_indices.flatten()), _looked_up_rows
    ),
    ("NativeLayerNormBackward0", 1): Term(_layer_normed, _broadcast),
    ("NativeLayerNormBackward0", 2): Term(None, _broadcast),
    ("NativeBatchNormBackward0", 1): Term(_batch_normed, _per_channel),
    ("NativeBatchNormBackward0", 2): Term(None, _per_channel),
    ("NativeGroupNormBackward0", 1): Term(_group_normed, _per_channel),
    ("NativeGroupNormBackward0", 2): Term(None, _per_channel),
    ("FusedRmsNormBackward0", 1): Term(
        lambda node: node._saved_input * node._saved_result1, _broadcast
    ),
    ("MulBackward0", 0): Term(lambda node: node._saved_other, _broadcast),
    ("MulBackward0", 1): Term(lambda node: node._saved_self, _broadcast),
    ("AddBackward0", 0): Term(None, _broadcast),
    ("AddBackward0", 1): Term(lambda node: node._saved_alpha, _broadcast),
    ("SubBackward0", 0): Term(None, _broadcast),
    ("SubBackward0", 1): Term(lambda node: -node._saved_alpha, _broadcast),
    ("ExpandBackward0", 0): Term(None, _broadcast),
    ("RepeatBackward0", 0): Term(None, _broadcast),
}


class Use(NamedTuple):
    """The node that a rule is about, the one whose output it takes, and what both make."""

    node: Any
    taken: Any
    makes: tuple[int, ...]
    #: the shape that the parameter has there
    takes: tuple[int, ...]


def row_dimensions(rule: Rule, use: Use) -> int:
    """How many dimensions of what the node made may be that of the samples, being rows.

    0 where the operation is not as its rule takes it to be.
    """
    node, name, made = use.node, use.node.name(), use.makes
    if name == "ConvolutionBackward0":
        covered = not node._saved_transposed and len(made) in (3, 4)
    elif name == "NativeBatchNormBackward0":
        covered = not node._saved_training
    elif name == "EmbeddingBackward0":
        covered = not node._saved_scale_grad_by_freq
    elif name in ("ExpandBackward0", "RepeatBackward0"):
        taken = tuple(node._saved_self_sym_sizes)
        aligned = (*(1,) * (len(made) - len(taken)), *taken)
        covered = all(size in (1, out) for size, out in zip(aligned, made, strict=True))
    else:
        covered = True
    if not covered:
        return 0
    if name in _CHANNELS_SECOND:
        return 1
    rows = _ahead(use.takes, len(made)) if isinstance(rule, Term) else len(made) - 1
    return max(1, rows)


@dataclass(frozen=True)
class OwnGradient:
    """Gradients of a sample as torch gives them, by name."""

    gradients: dict[str, Tensor]

    @cached_property
    def rounding(self) -> float:
        """All that some gradients are, those of parameters that move nothing."""
        torch = require_torch()
        sizes = torch.stack([gradient.abs().max() for gradient in self.gradients.values()])
        return len(sizes) * float(sizes.max()) * float(torch.finfo(sizes.dtype).eps)


@dataclass(frozen=True)
class Part:
    """Parameters with one rule: a weight, a weight and the bias of the same nodes, or any other."""

    names: tuple[str, ...]
    rule: Rule
    #: ways of the first of them into the graph, up to the node that the rule is about
    words: tuple[tuple[tuple[str, int], ...], ...]
    #: what each node makes of one sample, and the dimension that grows with the samples
    shapes: tuple[tuple[tuple[int, ...], int], ...]
    #: whether rows come sample by sample, or position by position
    samples_first: bool = True
    #: whether the gradient of each sample is kept
    dense: bool = True
    #: positions at which a gradient may be other than zero, where they are few
    active: tuple[int, ...] | None = None

    @property
    def positions(self) -> int:
        """Rows per sample, whether or not gradients arrive there."""
        if isinstance(self.rule, Term):
            return 1
        if self.words[0][-1][0] == "ConvolutionBackward0":
            return sum(prod(shape[2:]) for shape, _ in self.shapes)
        return sum(prod(shape[:-1]) for shape, _ in self.shapes)

    def uses(self, recording: Recording) -> list[Use]:
        """Where the recording takes the parameters; `Misfit` if not as in the trial."""
        # Asked for some ten times of each recording, and as dear as a small layer.
        key = (self.names, self.words, self.shapes)
        if key not in recording.uses:
            recording.uses[key] = self._uses(recording)
        return recording.uses[key]

    def _uses(self, recording: Recording) -> list[Use]:
        length, count = len(self.words[0]), len(recording.outputs)
        nodes: dict[tuple[Any, int], Path] = {}
        for path in recording.paths.get(self.names[0], ()):
            if len(path.nodes) >= length:
                nodes.setdefault((path.nodes[length - 1], path.places[length - 1]), path)
            else:
                nodes[path.nodes[-1], -1] = path
        words = tuple(path.words[:length] for path in nodes.values())
        shapes = tuple(
            (*shape[:dim], count * shape[dim], *shape[dim + 1 :]) for shape, dim in self.shapes
        )
        beside = [
            [path.nodes[0] for path in recording.paths.get(name, ())] for name in self.names[1:]
        ]
        if words == self.words:
            uses = [path.use(length - 1) for path in nodes.values()]
            made = {use.node for use in uses}
            if tuple(use.makes for use in uses) == shapes and all(
                set(others) == made for others in beside
            ):
                return uses
        raise Misfit(frozenset(self.names))

    def is_used_by(self, recordings: Sequence[Recording]) -> bool:
        """Whether each of them uses the parameters as the one that we were found in."""
        try:
            return all(self.uses(recording) for recording in recordings)
        except Misfit:
            return False

    def keeps_products(self, recording: Recording) -> bool:
        """Whether inner products of gradients are those of what the operation takes: L L^T = I."""
        if all(name in _REARRANGED for words in self.words for name, _ in words[:-1]):
            return True
        parameter, draw = recording.network.parameters[self.names[0]], normals(0)
        for use in self.uses(recording):
            one, other = draw(use.takes, parameter), draw(use.takes, parameter)
            pulled = _pulled(use.taken, parameter, one), _pulled(use.taken, parameter, other)
            change = abs(float((pulled[0] * pulled[1]).sum() - (one * other).sum()))
            if change > half_the_digits(one) * float(one.norm() * other.norm()):
                return False
        return True

    def is_like(
        self, recording: Recording, found: dict[Any, Tensor], sample: int, expected: OwnGradient
    ) -> bool:
        """Whether the gradient of a sample, by the rule and `found`, is the expected one."""
        uses, count = self.uses(recording), len(recording.outputs)
        mine = [found[use.node] for use in uses]
        own = self.largest_term(uses, mine, count, sample)
        if own == 0.0:
            # Nothing to compare, and rows of several positions may come in another order.
            return all(use.makes[0] == count for use in uses)
        share = self.shares(uses, mine, count)[sample].reshape(uses[0].takes)
        name = self.names[0]
        pulled = _pulled(uses[0].taken, recording.network.parameters[name], share)
        change = float((pulled - expected.gradients[name]).abs().max())
        return change <= half_the_digits(share) * own + expected.rounding

    def by_sample(self, rows: Sequence[Tensor], samples: int) -> Tensor:
        """Rows of all nodes as (samples, positions, ...)."""
        parts = [
            part.unflatten(0, (samples, -1))
            if self.samples_first
            else part.unflatten(0, (-1, samples)).transpose(0, 1)
            for part in rows
        ]
        joined: Tensor = parts[0] if len(parts) == 1 else require_torch().cat(parts, dim=1)
        return joined

    def seen(self, uses: Sequence[Use], samples: int) -> Callable[[], Tensor]:
        """v: (groups, samples, positions, inputs), with a one where the bias belongs to us.

        Of a table: indices (1, samples, positions).
        """
        rule: Any = self.rule
        # Asked for now, so that no node is held on to.
        return partial(self._seen, [rule.seen(use.node) for use in uses], samples)

    def _seen(self, rows: Sequence[Callable[[], Tensor]], samples: int) -> Tensor:
        v = self.by_sample([one() for one in rows], samples)
        if self.active is not None:
            v = v[:, list(self.active)]
        if isinstance(self.rule, Lookup):
            return v[None]
        if len(self.names) > 1:
            v = require_torch().nn.functional.pad(v, (0, 1), value=1.0)
        return v.permute(2, 0, 1, 3)

    def made(self, uses: Sequence[Use], found: Sequence[Tensor], samples: int) -> Tensor:
        """g: (groups, samples, positions, units) of one output; a table has one group.

        Raises `Misfit` where a gradient is not zero at a position that is taken to be idle.
        """
        rule: Any = self.rule
        rows = [rule.made(use.node, g) for use, g in zip(uses, found, strict=True)]
        g = self.by_sample(rows, samples).permute(2, 0, 1, 3)
        if self.active is None:
            return g
        alive, count = g[:, :, list(self.active)], require_torch().count_nonzero
        if bool(count(g) != count(alive)):
            raise Misfit(frozenset(self.names), positions=True)
        return alive

    def shares(
        self,
        uses: Sequence[Use],
        found: Sequence[Tensor],
        samples: int,
        seen: list[Any] | None = None,
    ) -> Tensor:
        """The gradient of each sample, (samples, size), in the layout of what the nodes take.

        `seen`: what `held` gave, where it serves for many.
        """
        if isinstance(self.rule, Term):
            return self._terms(uses, found, samples, seen).sum(1)
        g = self.made(uses, found, samples)
        v = self.seen(uses, samples)() if seen is None else seen[0]
        if isinstance(self.rule, Lookup):
            total = g.new_zeros(samples, *uses[0].takes)
            return total.scatter_add_(1, v[0, ..., None].expand_as(g[0]), g[0]).flatten(1)
        product = each_times(g.flatten(0, 1), v.flatten(0, 1)).unflatten(0, (-1, samples))
        if self.rule.transposed:
            product = product.transpose(2, 3)
        return product.transpose(0, 1).flatten(1)

    def held(self, uses: Sequence[Use], samples: int) -> list[Any]:
        """v, or the factors at each use: what gradients of all outputs are multiplied by."""
        if isinstance(self.rule, Term):
            factor = self.rule.factor
            return [None if factor is None else factor(use.node) for use in uses]
        return [self.seen(uses, samples)()]

    def _terms(
        self,
        uses: Sequence[Use],
        found: Sequence[Tensor],
        samples: int,
        factors: list[Any] | None = None,
    ) -> Tensor:
        factors = self.held(uses, samples) if factors is None else factors
        rule: Any = self.rule
        rows = [
            rule.rows(g if factor is None else g * factor, use.takes)
            for use, g, factor in zip(uses, found, factors, strict=True)
        ]
        return self.by_sample(rows, samples)

    def largest_term(
        self, uses: Sequence[Use], found: Sequence[Tensor], samples: int, sample: int
    ) -> float:
        """A bound on what adds up to the gradient of a sample, which rounding compares with."""
        if isinstance(self.rule, Term):
            return float(self._terms(uses, found, samples)[sample].abs().sum(0).max())
        sizes = self.made(uses, found, samples)[:, sample].abs().amax(2)
        if isinstance(self.rule, Product):
            sizes = sizes * self.seen(uses, samples)()[:, sample].abs().amax(2)
        return float(sizes.sum(1).max())


#: operations that leave every entry as it is
_REARRANGED = frozenset(f"{name}Backward0" for name in ("T", "Transpose", "Permute", "View"))


def _pulled(taken: Any, parameter: Any, gradient: Tensor) -> Tensor:
    """The gradient by a parameter from that by what became of it."""
    leaf = "torch::autograd::AccumulateGrad"
    if taken.name() == leaf:
        return gradient.reshape(parameter.shape)
    if taken.name() == "TBackward0" and taken.next_functions[0][0].name() == leaf:
        return gradient.T  # the weight of every Linear: it needs no pass back
    autograd = require_torch().autograd
    edge = autograd.graph.GradientEdge(taken, 0)
    (found,) = autograd.grad([edge], [parameter], [gradient], retain_graph=True)
    dense: Tensor = found.to_dense()
    return dense
