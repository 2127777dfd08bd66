"""Where the blocks of a dask.array come from, settled so that X does not travel at every pass."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowbias.designs.mapped_file import MappedFile
from flowbias.ground.arguments import InputError

# Bytes of a block where its width is ours to choose: a small part of any worker's memory, and
# enough work to be worth a task.
BLOCK_BYTES = 2**25
# Share of the workers' memory that X may take: Dask begins to spill at 60 percent.
HELD_SHARE = 0.4


def mapped_columns(mapped: NDArray[Any], width: int | None = None) -> Any:
    """A dask.array over a memory-mapped file, `width` columns a chunk, of which no copy is made.

    `mapped` is what np.memmap or np.load(file, mmap_mode="r") gives. Only the path of the file goes
    to the workers, which read their own blocks; `dask.array.from_array` would read all of it here.
    """
    import dask.array as da

    file = MappedFile.of(mapped)
    if file is None:
        raise InputError(
            f"mapped: must be a whole memory-mapped matrix, got {type(mapped).__name__} of shape "
            f"{np.shape(mapped)}. Pass np.load(file, mmap_mode='r') or np.memmap(file, ...) as it "
            "is, not a part of it nor of mode 'c', and take parts of the dask.array."
        )
    chunks = (file.shape[0], block_width(file.shape, file.dtype) if width is None else width)
    # A name of its own, because the entries of a file change and its path does not.
    return da.from_array(file, chunks=chunks, name=False, fancy=False)


def block_width(shape: tuple[int, int], dtype: np.dtype[Any]) -> int:
    """Columns of a block."""
    n, d = shape
    return min(d, max(1, BLOCK_BYTES // (n * dtype.itemsize)))


def settled(X: Any, client: Any, *, travels: bool = False) -> Any:
    """X ready for many passes: held by the workers where its entries would travel at each of them.

    A graph is sent to the workers at every pass, and a NumPy array inside it with it. So such an X
    is sent once and held there, as is one that `travels` for another reason, if it fits.
    """
    import dask
    from dask.sizeof import sizeof

    (X,) = dask.optimize(X)
    if client is None:
        return X
    # Without entries of X a node of the graph has a few kilobytes.
    carried = any(sizeof(node) > 100_000 for node in dict(X.dask).values())
    if not (carried or travels):
        return X
    limits = [worker["memory_limit"] for worker in client.scheduler_info()["workers"].values()]
    # A limit of 0 or None is none.
    if not all(limits) or X.nbytes <= HELD_SHARE * sum(limits):
        return client.persist(X)
    if carried:
        raise InputError(
            f"X: its {X.nbytes / 1e9:.3g} GB are inside the graph, which is sent to the workers, "
            f"and these have {sum(limits) / 1e9:.3g} GB in all. Keep X where every worker can read "
            "it: in a .npy file, by flowbias.designs.dask_source.mapped_columns, or in zarr."
        )
    return X
