"""Limits on X that is too big for the dense solver: what they cost, how that grows, and a model.

    python benchmarks/big_problems.py [--largest 1e7] [--mapped 1e5]

Every line is measured in a process of its own. `beyond X` is the largest resident size during
fb.limit, certificate included, minus what the process held when X was ready. `seconds` are those
of the clock for all of it, `cpu` those of the processor on one thread, which a busy machine does
not disturb: growth and model are fitted to the latter. `--mapped 5e5` is the 1 GB file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.fft
import scipy.optimize
import scipy.sparse
from scipy.sparse.linalg import LinearOperator

import flowbias as fb
from flowbias.designs import Design
from flowbias.designs.dense import DenseDesign, MemoryMappedDesign
from flowbias.designs.sparse import SparseDesign

TOL = 1e-8
SCALE = 1e-3
# What a network moves per second; assumed, not measured.
BANDWIDTH = 1e9
NNZ_PER_COLUMN = 1


def sparse_problem(n: int, d: int, rng: np.random.Generator) -> tuple[Design, Any]:
    count = NNZ_PER_COLUMN * d
    entries = (rng.standard_normal(count), (rng.integers(0, n, count), rng.integers(0, d, count)))
    X = SparseDesign(scipy.sparse.csc_array(entries, shape=(n, d)))
    return X, X.values


def dense_problem(n: int, d: int, rng: np.random.Generator) -> tuple[Design, Any]:
    X = rng.standard_normal((n, d), dtype=np.float32)
    return DenseDesign(X), X


def mapped_problem(n: int, d: int, rng: np.random.Generator) -> tuple[Design, Any]:
    path = Path(os.environ["BIG_PROBLEMS_FILE"])
    with path.open("wb") as file:
        for _ in range(n):
            rng.standard_normal(d, dtype=np.float32).tofile(file)
    X = np.memmap(path, dtype=np.float32, mode="r", shape=(n, d))
    return MemoryMappedDesign(X), np.array(X[:, :50], dtype=float)


def cosine_problem(n: int, d: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Some coefficients of a cosine transform: d log d per product, and no entries."""
    kept = np.sort(rng.choice(d, n, replace=False))

    def adjoint(u: np.ndarray) -> np.ndarray:
        full = np.zeros(d)
        full[kept] = u.ravel()
        return scipy.fft.idct(full, norm="ortho")

    X = LinearOperator(
        (n, d),
        matvec=lambda v: scipy.fft.dct(v.ravel(), norm="ortho")[kept],
        rmatvec=adjoint,
        dtype=float,
    )
    return X, X


PROBLEMS = {
    "sparse": sparse_problem,
    "dense float32": dense_problem,
    "mapped float32": mapped_problem,
    "cosine operator": cosine_problem,
}


def memory(field: str) -> float:
    """A field of /proc/self/status, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise LookupError(field)


def measure(kind: str, n: int, d: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X, products = PROBLEMS[kind](n, d, rng)
    w = np.zeros(products.shape[1])
    w[rng.choice(len(w), min(20, len(w)), replace=False)] = 1.0
    y = products @ w + 0.01 * rng.standard_normal(n)
    # Loads what is loaded once.
    fb.limit(fb.DiagonalNet(2, 1.0), DenseDesign(rng.standard_normal((5, 20))), np.ones(5))
    Path("/proc/self/clear_refs").write_text("5")
    before, clock, cpu = memory("VmRSS"), time.perf_counter(), time.process_time()
    solution = fb.limit(fb.DiagonalNet(2, SCALE), X, y, tol=TOL)
    return {
        "kind": kind,
        "n": n,
        "d": d,
        "seconds": time.perf_counter() - clock,
        "cpu": time.process_time() - cpu,
        "solve": solution.stats.seconds,
        "factorizations": solution.stats.factorizations,
        "steps": solution.stats.steps,
        "MB": memory("VmHWM") - before,
        "gap": solution.certificate.gap,
        "bound": solution.certificate.error_bound,
    }


def in_own_process(kind: str, n: int, d: int) -> dict[str, Any]:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        environment["BIG_PROBLEMS_FILE"] = str(Path(folder) / "X")
        command = [sys.executable, __file__, "--one", kind, str(n), str(d)]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(run.stderr)
    row: dict[str, Any] = json.loads(run.stdout)
    print(
        f"{row['kind']:16} {row['n']:5} {row['d']:9} {row['seconds']:8.2f} {row['cpu']:8.2f} "
        f"{row['factorizations']:5} {row['MB']:9.0f} {row['gap']:8.0e} {row['bound']:8.0e}",
        flush=True,
    )
    return row


def steps() -> None:
    """Factorizations over blocks and in the dense solver, on the problem of docs/solver.md."""
    X, y, _ = fb.datasets.sparse_regression(n=100, d=1000, sparsity=5, noise_var=0.01, rng=0)
    print("\nFactorizations, n = 100, d = 1000\ndepth    scale   blocks    dense")
    for depth, scale in ((2, 1.0), (2, 0.1), (2, 1e-3), (2, 1e-5), (2, 1e-10), (3, 1e-3), (5, 0.1)):
        model = fb.DiagonalNet(depth=depth, scale=scale)
        blocks, dense = fb.limit(model, DenseDesign(X), y), fb.limit(model, X, y)
        counts = blocks.stats.factorizations, dense.stats.factorizations
        print(f"{depth:5} {scale:8.0e} {counts[0]:8} {counts[1]:8}")


def smallest_scales() -> None:
    """How far down each depth is certified: the last scale that is and the first that is not."""
    print("\nOf 3 problems, n = 100, d = 1000: how many are certified\ndepth    scale  certified")
    for depth, scales in ((3, (1e-10, 1e-12)), (4, (1e-5, 1e-6)), (5, (3e-4, 1e-4))):
        for scale in scales:
            model, certified = fb.DiagonalNet(depth=depth, scale=scale), 0
            for seed in range(3):
                X, y, _ = fb.datasets.sparse_regression(
                    n=100, d=1000, sparsity=5, noise_var=0.01, rng=seed
                )
                certified += fb.limit(model, DenseDesign(X), y, throw=False).certificate.ok
            print(f"{depth:5} {scale:8.0e} {certified:10}")


def header(title: str) -> None:
    print(f"\n{title}")
    print("kind                 n         d  seconds      cpu  fact.  beyond X     gap    bound")


def growth(rows: list[dict[str, Any]], low: float, high: float) -> float:
    """Exponent p of cpu ~ d^p over low <= d <= high."""
    chosen = [row for row in rows if low <= row["d"] <= high]
    logs = np.log([[row["d"], row["cpu"]] for row in chosen])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def cost_terms(n: np.ndarray, d: np.ndarray) -> np.ndarray:
    """A pass's own cost, columns, leverages (n per nonzero), sums of n x n, Cholesky's method."""
    return np.column_stack([np.ones_like(d), d, n * d, n**2, n**3])


def model(rows: list[dict[str, Any]]) -> None:
    """cpu per factorization, fitted in relative terms; then extrapolated."""
    n, d, cpu = (np.array([float(row[name]) for row in rows]) for name in ("n", "d", "cpu"))
    per_step = cpu / np.array([row["factorizations"] for row in rows])
    terms = cost_terms(n, d)
    factors, _ = scipy.optimize.nnls(terms / per_step[:, None], np.ones(len(rows)))
    error = np.abs(terms @ factors / per_step - 1.0).max()
    print(
        "\nModel of the cpu time of one factorization, one nonzero per column, certificate shared"
    )
    names = ("", " d", " n d", " n^2", " n^3")
    print("  seconds = " + " + ".join(f"{f:.1e}{x}" for f, x in zip(factors, names, strict=True)))
    print(f"  largest relative error on the {len(rows)} lines it is fitted to: {error:.0%}")
    steps = int(np.median([row["factorizations"] for row in rows]))
    print(
        f"\nExtrapolated: {steps} factorizations, {BANDWIDTH / 1e9:g} GB/s assumed, sums in a tree"
    )
    print("    n          d  workers  compute s  network s  total s  MB per factorization")
    for size in (100, 1000):
        for features, workers in ((1e7, 1), (1e8, 100), (1e9, 1000), (1e9, 10_000)):
            own = cost_terms(np.array([float(size)]), np.array([features / workers]))
            compute = float((own @ factors)[0])
            # n x n and n back from every worker, n duals and a dozen trial points there.
            numbers = size**2 + 3 * size
            levels = np.ceil(np.log2(workers)) if workers > 1 else 0.0
            network = 8.0 * numbers * levels / BANDWIDTH
            moved = 8.0 * numbers * workers / 1e6 if workers > 1 else 0.0
            print(
                f"{size:5} {features:10.0e} {workers:8} {steps * compute:10.1f} "
                f"{steps * network:10.2f} {steps * (compute + network):8.1f} {moved:10.0f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", nargs=3, metavar=("KIND", "N", "D"))
    parser.add_argument("--largest", type=float, default=1e6, help="largest d of the growth table")
    parser.add_argument("--mapped", type=float, default=2e4, help="d of the mapped file, n = 500")
    options = parser.parse_args()
    if options.one:
        kind, n, d = options.one
        print(json.dumps(measure(kind, int(n), int(d))))
        return
    steps()
    smallest_scales()
    header(f"Kinds of X, scale {SCALE:g}, certified to {TOL:g}")
    in_own_process("dense float32", 200, 50_000)
    in_own_process("mapped float32", 500, int(options.mapped))
    in_own_process("cosine operator", 200, 2**17)
    headline = in_own_process("sparse", 1000, 1_000_000)
    header("Growth in d at n = 100, one nonzero per column")
    sizes = [10**k for k in range(3, 8) if 10**k <= options.largest]
    rows = [in_own_process("sparse", 100, d) for d in sizes]
    print(f"exponent of d from 1e4 to 1e6: {growth(rows, 1e4, 1e6):.2f}")
    header("Growth in n")
    rows += [in_own_process("sparse", n, 100_000) for n in (300, 1000, 2000)]
    model([*rows, headline])


if __name__ == "__main__":
    main()
