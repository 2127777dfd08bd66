"""How much a kernel may hold at once, and the blocks of samples and outputs that follow from it.

A tile of the kernel belongs to two cells, each a block of samples and a block of outputs. What a
cell holds grows linearly in both; the amounts are measured on one sample of the module at hand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flowbias.ground.arguments import WIDEST, InputError
from flowbias.kernels.gemm import np_dtype

_UNITS = {
    "": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
    "b": 1,
}
_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+]?[0-9]+)?)\s*([a-z]*)\s*")


def read_bytes(max_memory: Any) -> int:
    """Bytes meant by 2**30, "1GiB", "500MB", "1.5 GiB"."""
    text = str(max_memory).lower()
    match = None if isinstance(max_memory, bool) else _SIZE.fullmatch(text)
    if match is None or match[2] not in _UNITS or not 0.0 < float(match[1]) < WIDEST:
        raise InputError(
            f"max_memory: must be a positive size, got {max_memory!r}. "
            'Pass bytes such as 2**30, or text such as "1GiB" or "500MB".'
        )
    return int(float(match[1]) * _UNITS[match[2]])


def shown_bytes(size: float) -> str:
    """In the largest unit that leaves a number of at least one: 3.2 MiB."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1024**power:
            return f"{size / 1024**power:.4g} {unit}"
    return f"{size:.0f} bytes"


def opened(out: Any, shape: tuple[int, ...], like: Any) -> NDArray[Any]:
    """The array that a kernel of the dtype of `like` is written to, a file mapped into memory."""
    dtype = np_dtype(like)
    if like.device.type != "cpu":
        raise InputError(
            f"out: must be None for a module on {like.device}, got {out!r}. Compute on the CPU, or "
            "block by block of samples by TangentMap.kernel."
        )
    if isinstance(out, str | PathLike):
        return np.lib.format.open_memmap(out, mode="w+", dtype=dtype, shape=shape)
    if not isinstance(out, np.ndarray):
        raise InputError(
            f"out: must be the path of a .npy file, or an array of NumPy's, got "
            f"{type(out).__name__}. Pass a path: the file is made."
        )
    if out.shape != shape or out.dtype != dtype or not out.flags.writeable:
        raise InputError(
            f"out: must be a writable array of shape {shape} and dtype {dtype}, got "
            f"{'one' if out.flags.writeable else 'one to be read only,'} of {out.shape} and "
            f"{out.dtype}. Pass a path: the file is made as it has to be."
        )
    return out


@dataclass(frozen=True)
class Footprint:
    """Bytes that one sample takes: whatever the outputs, and for each output."""

    per_sample: int
    per_output: int
    #: of all memory, what cells may take; the rest is for products on their way into the result
    share_of_cells: ClassVar[float] = 0.7

    def joined(self, other: Footprint) -> Footprint:
        """Enough for samples of either kind."""
        return Footprint(
            max(self.per_sample, other.per_sample), max(self.per_output, other.per_output)
        )

    def cell(self, samples: int, outputs: int) -> int:
        return samples * (self.per_sample + outputs * self.per_output)


@dataclass(frozen=True)
class Blocks:
    """Samples and outputs of a cell, and the bytes that are left for products."""

    samples: int
    outputs: int
    room: int


def row_bytes(footprint: Footprint) -> int:
    """What one row of the kernel (one sample, one output against another) needs."""
    return ceil(2 * footprint.cell(1, 1) / footprint.share_of_cells)


def choose_blocks(
    footprint: Footprint,
    counts: tuple[int, int],
    outputs: int,
    *,
    paired: bool,
    symmetric: bool,
    budget: int,
) -> Blocks:
    """The blocks that repeat the least work; refused where one row does not fit.

    `paired`: the reduction asks for products of equal outputs only.
    """
    needed = row_bytes(footprint)
    if budget < needed:
        raise InputError(
            f"max_memory: must be at least what one row of the kernel needs, "
            f"{shown_bytes(needed)} for this module and these inputs, got {shown_bytes(budget)}. "
            f"Raise it to {needed} bytes or more."
        )
    cells = int(footprint.share_of_cells * budget)
    most = max(counts)
    if symmetric and footprint.cell(most, outputs) <= cells:
        # One cell against itself: nothing is computed twice.
        return Blocks(most, outputs, budget - footprint.cell(most, outputs))

    def at(block: int) -> Blocks:
        samples = min(most, cells // (2 * footprint.cell(1, block)))
        return Blocks(samples, block, budget - 2 * footprint.cell(max(samples, 1), block))

    def cost(blocks: Blocks) -> float:
        # A pass forward is one unit of work per sample, a pass back two per sample and output.
        rows, columns = (ceil(count / blocks.samples) for count in counts)
        parts = ceil(outputs / blocks.outputs)
        tiles = rows * columns * parts * (1 if paired else parts)
        return (rows * parts + tiles) * blocks.samples * (1.0 + 2.0 * blocks.outputs)

    halvings = range(outputs.bit_length())
    candidates = [at(ceil(outputs / 2**halving)) for halving in halvings] + [at(1)]
    return min((blocks for blocks in candidates if blocks.samples), key=cost)
