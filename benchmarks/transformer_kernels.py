"""Tangent kernels of the networks that people train, against the torch.func recipe.

Small modules of today's shapes, written in plain torch: a ViT, GPT-2 (its `Conv1D` is a transposed
`Linear` of its own class), BERT, Llama (RMSNorm, rotary positions, SwiGLU, grouped heads), an LSTM,
a ResNet, a CNN, an MLP; ten outputs each, float32. Each measurement runs in a process of its own on
one thread: seconds of the processor, and the peak of memory beyond the module. The recipe is `vmap`
of `jacrev` and `einsum`. That the numbers are right, `outside_modules.py` tells.

    python benchmarks/transformer_kernels.py [--json] [--row ViT --row GPT-2]
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from _common import Report, parser, progress
from tangent_kernel import forget_peak, recipe, resident
from torch import nn
from torch.nn import functional

OUTPUTS = 10
MIB = 2.0**20


class Attention(nn.Module):
    """Heads of one size; `grouped` heads share keys and values, `causal` ones look back."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        grouped: int = 1,
        causal: bool = False,
        linear: Any = nn.Linear,
        bias: bool = True,
        rotary: bool = False,
        fused: bool = True,
    ) -> None:
        super().__init__()
        self.heads, self.grouped, self.size = heads, grouped, width // heads
        self.causal, self.rotary, self.fused = causal, rotary, fused
        options = {} if bias else {"bias": False}
        self.q = linear(width, width, **options)
        self.k = linear(width, width // grouped, **options)
        self.v = linear(width, width // grouped, **options)
        self.out = linear(width, width, **options)

    def forward(self, x: Any) -> Any:
        q, k, v = (
            part(x).unflatten(2, (-1, self.size)).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        if self.rotary:
            q, k = rotated(q), rotated(k)
        k, v = (part.repeat_interleave(self.grouped, dim=1) for part in (k, v))
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            mixed = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(self.size), dim=-1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


def rotated(x: Any) -> Any:
    """Pairs of coordinates turned by angles that grow with the position."""
    half = x.shape[-1] // 2
    rates = 10_000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * rates
    cos, sin, first, second = angles.cos(), angles.sin(), x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Conv1D(nn.Module):
    """x W + b, W of shape (inputs, outputs): GPT-2's name for a linear layer."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.weight = nn.Parameter(0.02 * torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Any) -> Any:
        shape = (*x.shape[:-1], self.outputs)
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(shape)


class RMSNorm(nn.Module):
    """x / sqrt(mean x^2) times a weight, as Llama's code has it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Any) -> Any:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


def mixer(width: int, hidden: int, linear: Any = nn.Linear) -> Any:
    return nn.Sequential(linear(width, hidden), nn.GELU(), linear(hidden, width))


class Block(nn.Module):
    """Attention and a network on each position, normalized before (or after, as in BERT)."""

    def __init__(self, attention: Any, network: Any, norms: Any, after: bool = False) -> None:
        super().__init__()
        self.attention, self.network, self.after = attention, network, after
        self.norms = nn.ModuleList(norms)

    def forward(self, x: Any) -> Any:
        for part, norm in zip((self.attention, self.network), self.norms, strict=True):
            x = norm(x + part(x)) if self.after else x + part(norm(x))
        return x


class ViT(nn.Module):
    """Patches by a convolution, a class token, learned positions; reads the class token."""

    def __init__(self, width: int = 128, layers: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(0.1 * torch.randn(1, 65, width))
        self.blocks = nn.Sequential(
            *(
                Block(
                    Attention(width, 4, fused=False),
                    mixer(width, 4 * width),
                    [nn.LayerNorm(width), nn.LayerNorm(width)],
                )
                for _ in range(layers)
            )
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, OUTPUTS))

    def forward(self, x: Any) -> Any:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), patches], dim=1)
        return self.head(self.blocks(tokens + self.positions)[:, 0])


class Language(nn.Module):
    """Embedded tokens through blocks to ten classes, read at the first or the last position."""

    def __init__(
        self, block: Callable[[], Any], norm: Any, width: int, *, positions: bool, at: int
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(500, width)
        self.places = nn.Embedding(64, width) if positions else None
        self.blocks = nn.Sequential(*(block() for _ in range(4)))
        self.norm, self.at = norm, at
        self.head = nn.Linear(width, OUTPUTS, bias=False)

    def forward(self, x: Any) -> Any:
        hidden = self.tokens(x)
        if self.places is not None:
            hidden = hidden + self.places(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(hidden))[:, self.at])


def gpt2(width: int = 128) -> Any:
    def block() -> Any:
        return Block(
            Attention(width, 4, causal=True, linear=Conv1D),
            mixer(width, 4 * width, Conv1D),
            [nn.LayerNorm(width), nn.LayerNorm(width)],
        )

    return Language(block, nn.LayerNorm(width), width, positions=True, at=-1)


def bert(width: int = 128) -> Any:
    def block() -> Any:
        return Block(
            Attention(width, 4),
            mixer(width, 4 * width),
            [nn.LayerNorm(width), nn.LayerNorm(width)],
            after=True,
        )

    pooler = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.Tanh())
    return Language(block, pooler, width, positions=True, at=0)


def llama(width: int = 128) -> Any:
    def block() -> Any:
        return Block(
            Attention(width, 4, grouped=2, causal=True, bias=False, rotary=True),
            SwiGLU(width, 352),
            [RMSNorm(width), RMSNorm(width)],
        )

    return Language(block, RMSNorm(width), width, positions=False, at=-1)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 128, num_layers=2, batch_first=True)
        self.head = nn.Linear(128, OUTPUTS)

    def forward(self, x: Any) -> Any:
        return self.head(self.lstm(x)[0][:, -1])


class Residual(nn.Module):
    """Two convolutions with batch norms beside the identity (or one by one, with a stride)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        straight = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.outer = nn.Identity() if inputs == outputs and stride == 1 else straight

    def forward(self, x: Any) -> Any:
        return torch.relu(self.inner(x) + self.outer(x))


def resnet() -> Any:
    blocks = [Residual(16, 32, 1), Residual(32, 64, 2), Residual(64, 128, 2)]
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    return nn.Sequential(
        stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, OUTPUTS)
    )


def cnn() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 64, OUTPUTS),
    )


def mlp() -> Any:
    layers = [nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1024, OUTPUTS))


def images(count: int) -> Any:
    return torch.randn(count, 3, 32, 32)


def sentences(count: int) -> Any:
    return torch.randint(1, 500, (count, 32))


#: how to build it, its inputs, how many
ROWS: dict[str, tuple[Callable[[], Any], Callable[[int], Any], int]] = {
    "MLP": (mlp, lambda n: torch.randn(n, 784), 64),
    "CNN": (cnn, images, 64),
    "ResNet": (resnet, images, 32),
    "LSTM": (Recurrent, lambda n: torch.randn(n, 24, 32), 64),
    "BERT": (bert, sentences, 32),
    "Llama": (llama, sentences, 32),
    "ViT": (ViT, images, 32),
    "GPT-2": (gpt2, sentences, 32),
}


def ours(module: Any, x: Any) -> Any:
    from flowbias.kernels import tangent_kernel

    return tangent_kernel(module, x)


METHODS: dict[str, Callable[[Any, Any], Any]] = {"ours": ours, "recipe": recipe}


def built(row: str, count: int | None = None) -> tuple[Any, Any]:
    torch.manual_seed(0)
    build, inputs, usual = ROWS[row]
    return build().eval(), inputs(count or usual)


def measure(row: str, method: str) -> None:
    """The child: prints the processor's seconds and the peak of memory."""
    torch.set_num_threads(1)
    module, x = built(row)
    METHODS[method](module, x[:2])  # what is loaded or compiled once
    forget_peak()
    before, spent = resident("VmRSS"), []
    for _ in range(2):
        started = time.process_time()
        METHODS[method](module, x)
        spent.append(time.process_time() - started)
    peak = (resident("VmHWM") - before) / MIB
    print(json.dumps({"seconds": min(spent), "MB": peak}))


def in_a_child(*task: str) -> dict[str, Any]:
    progress(" ".join(task))
    run = subprocess.run(
        [sys.executable, __file__, "--child", *task], capture_output=True, text=True
    )
    if run.returncode:
        reason = run.stderr.strip().splitlines()[-1:] or [f"signal {-run.returncode}"]
        return {"note": f"failed: {reason[0][:60]}"}
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def side_by_side(row: str) -> dict[str, Any]:
    found: dict[str, Any] = {"network": row, "inputs": ROWS[row][2]}
    sides = {method: in_a_child(row, method) for method in METHODS}
    for method, side in sides.items():
        found.update({f"{method}: {name}": value for name, value in side.items()})
    if all("seconds" in side for side in sides.values()):
        for name in ("seconds", "MB"):
            found[f"share of {name}"] = sides["ours"][name] / sides["recipe"][name]
    return found


def main() -> None:
    if "--child" in sys.argv:
        row, method = sys.argv[sys.argv.index("--child") + 1 :]
        measure(row, method)
        return
    arguments = parser(__doc__)
    arguments.add_argument("--row", action="append", choices=tuple(ROWS))
    options = arguments.parse_args()
    report, rows = Report(options.json), options.row or list(ROWS)
    report.table(
        "Whole kernels, 10 outputs, float32, one thread", [side_by_side(row) for row in rows]
    )
    report.finish()


if __name__ == "__main__":
    main()
