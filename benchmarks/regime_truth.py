"""Verdicts against regimes that a known knob sets, on small networks of fourteen architectures.

Half of the architectures set the lines of `flowbias.regime.THRESHOLDS`, the other half judge them.
The knob is the output scale, through which width, NTK, mean-field and muP parametrization act;
depth, step, normalization layers and the loss vary (`tests/regime/knob_zoo.py`). Each run is
trained and then told by `diagnose` with and without functions, by a `Monitor`, and ahead of it by
`predict`.

    python benchmarks/regime_truth.py run --half held --runs 120 --file held.jsonl --seconds 200
    python benchmarks/regime_truth.py tell --file held.jsonl

`run` takes up where the file ends; `tell` prints the tables.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# A training that got nowhere has no regime: the next draw takes its place.
UNTRAINED = 0.6
WAYS = ("diagnose", "without functions", "monitor", "predict")


def told(index: int, *, held_out: bool) -> dict[str, Any]:
    """One run: its truth, what each way says of it, and the measures."""
    import torch
    from tests.regime.knob_zoo import drawn, trained

    from flowbias.regime import Monitor, diagnose, predict

    torch.set_num_threads(1)
    run = drawn(index, held_out=held_out)
    row: dict[str, Any] = {"index": index, "label": run.label, "truth": run.truth.name}
    expected = predict(run.module, run.x, run.y, kappa=False)
    after, row["left"] = trained(run)
    if row["left"] > UNTRAINED:
        return {**row, "untrained": True}
    found = diagnose(run.module, after, run.x, run.y)
    short = diagnose(run.module, after, run.x, run.y, functions=False)
    monitor = Monitor(run.module, run.x, budget=None)
    run.module.load_state_dict(after.state_dict())
    monitor.step()
    verdicts = found.verdict, short.verdict, monitor.history.verdict, expected.verdict
    row |= {way: word.name for way, word in zip(WAYS, verdicts, strict=True) if word is not None}
    return row | {
        **found.measures(),
        "feature_change": expected.feature_change,
        "expected_lazy_gap": expected.lazy_gap,
    }


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def run(file: Path, held_out: bool, count: int, seconds: float) -> None:
    """Runs until so many are trained, or so much processor time is spent."""
    warnings.simplefilter("ignore")
    rows, began = read(file), time.process_time()
    index = 1 + max((row["index"] for row in rows), default=-1)
    trained = sum("untrained" not in row for row in rows)
    while trained < count and time.process_time() - began < seconds:
        row = told(index, held_out=held_out)
        with file.open("a") as lines:
            lines.write(json.dumps(row) + "\n")
        index, trained = index + 1, trained + ("untrained" not in row)
    print(f"{trained} of {count} runs in {file}")


def tell(file: Path) -> None:
    """How often each way was right, crossed or undecided, and where measures lie."""
    rows = read(file)
    kept = [row for row in rows if "untrained" not in row]
    print(f"{len(kept)} runs ({len(rows) - len(kept)} more did not train)")
    for way in WAYS:
        seen = Counter((row["truth"], row[way]) for row in kept)
        right = sum(n for (truth, word), n in seen.items() if truth == word)
        crossed = seen["KERNEL", "RICH"] + seen["RICH", "KERNEL"]
        ends = sum(n for (truth, _), n in seen.items() if truth != "IN_BETWEEN")
        undecided = seen["KERNEL", "IN_BETWEEN"] + seen["RICH", "IN_BETWEEN"]
        print(
            f"  {way:<18} right {right} of {len(kept)} ({right / len(kept):.1%}), crossed "
            f"{crossed}, undecided {undecided} of {ends} ({undecided / ends:.1%})"
        )
    agree = sum(row["diagnose"] == row["without functions"] == row["monitor"] for row in kept)
    print(f"  diagnose in both modes and a Monitor agree on {agree} of {len(kept)}")
    for name in ("beyond_kernel", "grad_distance", "lazy_gap", "feature_change"):
        print(f"  {name:<18}" + ", ".join(_range(kept, name)))
    for row in kept:
        if row["truth"] != row["diagnose"]:
            print(
                f"  {row['truth']} told {row['diagnose']}: {row['label']}, beyond "
                f"{row['beyond_kernel']:.2f}, turned {row['grad_distance']:.2f}"
            )


def _range(rows: list[dict[str, Any]], name: str) -> Iterator[str]:
    for truth in ("KERNEL", "IN_BETWEEN", "RICH"):
        values = np.array([row[name] for row in rows if row["truth"] == truth])
        if values.size:
            low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
            yield f"{truth} {low:.2g} / {middle:.2g} / {high:.2g}"


def main() -> None:
    words = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words.add_argument("what", choices=["run", "tell"])
    words.add_argument("--half", choices=["calibration", "held"], default="held")
    words.add_argument("--runs", type=int, default=120)
    words.add_argument("--file", type=Path, required=True)
    words.add_argument("--seconds", type=float, default=float("inf"))
    given = words.parse_args()
    if given.what == "run":
        run(given.file, given.half == "held", given.runs, given.seconds)
    tell(given.file)


if __name__ == "__main__":
    main()
