"""A dask.array chunked over features: each worker reduces its own blocks, X never moves.

One pass over X is one task per block, which reads the block, reduces it to sums of size n or n x n,
and drops it; the sums are added in a fixed tree. Tasks are pure functions, so what a lost worker
was doing is done again elsewhere, and the order of the sums does not depend on who did what. Where
the blocks come from is settled first, so that X does not travel at every pass.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from flowbias.designs._base import (
    BlockTask,
    Design,
    EntriesBlock,
    Totals,
    check_dtype,
)
from flowbias.designs.dask_cluster import Processes, active_client, client_of, computed
from flowbias.designs.dense import DenseBlock, MappedFile
from flowbias.designs.sparse import SparseBlock, sound
from flowbias.ground.arguments import InputError, depth_inside, refuse_masked
from flowbias.ground.sources import SameSources
from flowbias.ground.typing import FloatArray

# Bytes of a vector of length d up to which it is a NumPy array at the caller.
GATHERED_BYTES = 2**30


class DaskDesign(Design):
    """X as dask.array.Array, on whatever scheduler Dask is set to.

    A cluster is remembered: where it goes away nothing is computed here instead.
    """

    kind = "dask"

    def __init__(self, X: Any) -> None:
        _check(X)
        self.n, self.d = (int(size) for size in X.shape)
        self._client, self._processes = client_of(X), Processes()
        self.array = _with_whole_columns(X, self._client)
        widths = self.array.chunks[1]
        (keys,) = self.array.__dask_keys__()
        #: columns and key of every block
        self._blocks = [
            (slice(end - width, end), key)
            for end, width, key in zip(np.cumsum(widths).tolist(), widths, keys, strict=True)
            if width > 0
        ]

    def blocks(self) -> Iterator[EntriesBlock]:
        graph, keys = self._visits(_Fetch(), ())
        for key in keys:
            yield self._computed(graph, [key])[0]

    def reduce(self, task: BlockTask, *columns: Any) -> Totals:
        from dask.task_spec import Task as Node
        from dask.task_spec import TaskRef

        graph, level = self._visits(task, columns)
        while len(level) > 1:
            # Four sums added by one task: few enough to hold at once, and the tree is flat.
            groups = [level[i : i + 4] for i in range(0, len(level), 4)]
            level = [(f"add-{level[0][0]}", i) for i in range(len(groups))]
            for key, group in zip(level, groups, strict=True):
                graph[key] = Node(key, _sent(_added), *map(TaskRef, group))
        (total,) = self._computed(graph, level)
        return total  # type: ignore[no-any-return]

    def gather(self, task: BlockTask, *columns: Any) -> FloatArray:
        """One number per column: a NumPy array up to 1 GiB, above that a lazy dask.array."""
        import dask.array as da
        from dask.task_spec import Alias

        graph, keys = self._visits(task, columns)
        if self.d * 8 <= GATHERED_BYTES:
            return np.concatenate(self._computed(graph, keys))
        name = f"gathered-{keys[0][0]}"
        chunks = {(name, i): Alias((name, i), key) for i, key in enumerate(keys)}
        widths = tuple(part.stop - part.start for part, _ in self._blocks)
        # With the graph of X as it is: where workers hold X, this keeps them from dropping it.
        whole = {**dict(self.array.dask), **graph, **chunks}
        lazy: FloatArray = da.Array(whole, name, (widths,), dtype=np.float64)
        return lazy

    def column(self, values: Any) -> Any:
        """A lazy vector stays one, with the chunks of X."""
        import dask
        import dask.array as da

        if not isinstance(values, da.Array):
            return super().column(values)
        widths = tuple(part.stop - part.start for part, _ in self._blocks)
        (cut,) = dask.optimize(values.rechunk((widths,)))
        return cut

    def _computed(self, graph: dict[Any, Any], keys: list[Any]) -> tuple[Any, ...]:
        return computed(graph, keys, self._client or active_client(), self._processes)

    def _visits(
        self, task: BlockTask, columns: tuple[Any, ...]
    ) -> tuple[dict[Any, Any], list[Any]]:
        """A graph with the task's visit to every block, and their keys."""
        from dask.task_spec import Task as Node
        from dask.task_spec import TaskRef

        graph = _nodes(self.array)
        parts = [self._parts(column, graph) for column in columns]
        # A name of its own for every pass: a cluster takes tasks of one name for the same.
        name = f"visit-{uuid.uuid4().hex}"
        for i, (part, chunk) in enumerate(self._blocks):
            visit = _sent(_Visit(task.on(part), self.n, part, i))
            graph[name, i] = Node((name, i), visit, TaskRef(chunk), *(cut[i] for cut in parts))
        return graph, [(name, i) for i in range(len(self._blocks))]

    def _parts(self, column: Any, graph: dict[Any, Any]) -> list[Any]:
        """The blocks' parts of a vector that `gather` returned; those of a lazy one in `graph`."""
        import dask.array as da
        from dask.task_spec import TaskRef

        if not isinstance(column, da.Array):
            return [column[part] for part, _ in self._blocks]
        graph.update(_nodes(column))
        return [TaskRef(key) for key in column.__dask_keys__()]


@dataclass(frozen=True)
class _Visit:
    """A task on its way to one block."""

    task: BlockTask
    n: int
    columns: slice
    number: int

    def __call__(self, chunk: Any, *parts: FloatArray) -> Any:
        try:
            # Trial points may overflow; the solver judges each by its sums.
            with np.errstate(all="ignore"):
                return self.task(_block(chunk, self.n, self.columns), *parts)
        except InputError as error:
            raise InputError(f"{error} (In column block {self.number}.)") from None


class _Fetch:
    """The task that brings the block itself."""

    def on(self, columns: slice) -> BlockTask:
        return self

    def __call__(self, block: EntriesBlock, *parts: FloatArray) -> EntriesBlock:
        return block


def _sent(function: Callable[..., Any]) -> SameSources:
    """To be computed by workers of the same flowbias, with what the blocks compute with."""
    return SameSources.of(function, "numpy", "scipy")


def _block(chunk: Any, n: int, columns: slice) -> EntriesBlock:
    """The block of a chunk, if the chunk is what Dask was told it would be."""
    declared = (n, columns.stop - columns.start)
    if chunk.shape != declared:
        raise InputError(
            f"X: its blocks must have the shapes that their chunks say, got {chunk.shape} for "
            f"{declared}. Check what makes them, for example the chunks= of map_blocks."
        )
    check_dtype(chunk.dtype)
    refuse_masked("X", chunk)
    if scipy.sparse.issparse(chunk):
        return SparseBlock(sound(chunk), columns)
    return DenseBlock(chunk, columns)


def _added(first: Totals, *others: Totals) -> Totals:
    for other in others:
        first = first + other
    return first


def _nodes(array: Any) -> dict[Any, Any]:
    """The graph of an array, without what a cluster holds as futures: it knows them by key."""
    from dask.task_spec import GraphNode

    return {key: node for key, node in dict(array.dask).items() if isinstance(node, GraphNode)}


def _check(X: Any) -> None:
    if X.ndim != 2:
        raise InputError(
            f"X: must have 2 dimension(s), got shape {X.shape}. Use X.reshape(1, -1) for one "
            "sample, X.reshape(-1, 1) for one feature."
        )
    if np.isnan(X.shape).any():
        raise InputError(
            f"X: must have chunks of known sizes, got shape {X.shape}. "
            "Call X.compute_chunk_sizes() first."
        )
    if 0 in X.shape:
        raise InputError(f"X: must not be empty, got shape {X.shape}. Pass some data.")
    check_dtype(X.dtype)
    if isinstance(X._meta, np.ma.MaskedArray):
        raise InputError(
            "X: must hold plain numbers, got masked arrays. "
            "Fill what is masked first, for example with dask.array.ma.filled(X, 0.0)."
        )


def _with_whole_columns(X: Any, client: Any) -> Any:
    """X with each column in one chunk, ready for many passes."""
    if len(X.chunks[0]) == 1:
        return settled(X, client)
    width = block_width(X.shape, X.dtype)
    warnings.warn(
        f"X is chunked over rows ({len(X.chunks[0])} chunks). Every step of the solver sums over "
        "features, column by column, so X is rechunked over features, which moves all of it. "
        f"Make it with chunks=({X.shape[0]}, {width}), or the like, to avoid that.",
        UserWarning,
        stacklevel=depth_inside(),
    )
    return settled(X.rechunk((X.shape[0], width)), client, travels=True)


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
            "it: in a .npy file, by flowbias.designs.dask_array.mapped_columns, or in zarr."
        )
    return X
