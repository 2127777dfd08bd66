"""Where the thresholds of `flowbias.regime` come from, and how well they judge.

calibrate  on diagonal networks, whose regime is known exactly: the lines that tell the fewest wrong
judge      on factorizations, neurons and deep linear networks, which had no part in the lines
predict    MLPs: what `predict` says before training against what `diagnose` finds after it
monitor    what `Monitor` adds to training a network on images, at its default schedule

    python benchmarks/regime.py [calibrate] [judge] [predict] [monitor] [--cases N]
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.regime.known_regimes import JUDGES, cases, diagonal
from tests.regime.mlp_zoo import members, trained

from flowbias.regime import THRESHOLDS, Monitor, Verdict, diagnose, predict
from flowbias.regime.thresholds import true_verdict

# The judges' cases are drawn from a seed that nothing else uses.
CALIBRATION_SEED, JUDGE_SEED, ZOO_SEED = 1, 2024, 40


def best_line(values: np.ndarray, above: np.ndarray) -> tuple[float, float, int]:
    """Between which values a line tells the fewest wrong, and how many these are."""
    order = np.argsort(values)
    sorted_values, truth = values[order], above[order]
    # A line after i values calls those below and the others above.
    wrong = np.concatenate([[0], np.cumsum(truth)]) + (~truth).sum()
    wrong = wrong - np.concatenate([[0], np.cumsum(~truth)])
    best = int(np.argmin(wrong))
    low = sorted_values[max(best - 1, 0)]
    high = sorted_values[min(best, len(values) - 1)]
    return float(low), float(high), int(wrong[best])


def calibrate(count: int) -> None:
    """Lines on diagonal networks for the measured position."""
    rows = []
    for case in cases(diagonal, count, CALIBRATION_SEED):
        gaps = diagnose(case.before, case.after, case.x).gaps
        assert gaps is not None
        position = gaps.position if gaps.distinct else None
        rows.append((case.position, np.nan if position is None else position))
    exact, measured = np.array(rows).T
    truth, known = [true_verdict(p) for p in exact], np.isfinite(measured)
    print(f"{count} diagonal networks:", {v.name: truth.count(v) for v in Verdict})
    for verdict, above in ((Verdict.KERNEL, exact > 0.1), (Verdict.RICH, exact >= 0.9)):
        low, high, wrong = best_line(measured[known], above[known])
        print(f"  {verdict.name:<8}line between {low:.3g} and {high:.3g}, ", end="")
        print(f"{wrong} of {known.sum()} on the wrong side")
    print(f"  in use: {THRESHOLDS}")
    error = np.abs(measured - exact)
    print(f"  |measured - exact position|: median {np.nanmedian(error):.1e}, ", end="")
    print(f"90% below {np.nanquantile(error, 0.9):.1e}")


def judge(count: int) -> None:
    """Verdicts on families that had no part in the thresholds."""
    right = total = crossed = 0
    for make in JUDGES:
        started, seen = time.perf_counter(), Counter[tuple[str, str]]()
        for case in cases(make, count // len(JUDGES), JUDGE_SEED):
            known = true_verdict(case.position)
            found = diagnose(case.before, case.after, case.x, lean=True)
            assert found.gaps is not None
            # By the position, which of torch modules is told but does not decide.
            position = found.gaps.position if found.gaps.distinct else None
            verdict = THRESHOLDS.decide(replace(found.evidence, position=position))
            seen[known.name, verdict.name] += 1
            if known is not verdict:
                print(
                    f"  {case.family}, {case.label}: exact position {case.position:.3f}, ", end=""
                )
                print(f"measured {np.nan if position is None else position:.3f}")
        good = sum(n for (known_name, name), n in seen.items() if known_name == name)
        bad = seen["KERNEL", "RICH"] + seen["RICH", "KERNEL"]
        right, total, crossed = right + good, total + sum(seen.values()), crossed + bad
        classes = Counter(known_name for known_name, _ in seen.elements())
        print(f"  {make.__name__:<15}{good} of {sum(seen.values())} right, ", end="")
        print(f"{dict(classes)}, {time.perf_counter() - started:.0f} s")
    print(
        f"judge: {right} of {total} right ({right / total:.1%}), {crossed} kernel for rich or back"
    )


def zoo(count: int) -> None:
    """Rank correlations of what is known before training with what is found after it."""
    import torch

    # Small matrices: a second thread only costs.
    torch.set_num_threads(1)
    known = ("feature change", "expected lazy gap", "kappa", "parameter norm")
    before: dict[str, list[float]] = {name: [] for name in known}
    after: dict[str, list[float]] = {"kernel change": [], "lazy gap": [], "beyond": []}
    unfitted, verdicts = 0, Counter[tuple[str, str]]()
    for member in members(count, ZOO_SEED):
        expected = predict(member.module, member.x, member.y)
        module, left = trained(member)
        unfitted += left > 1e-2
        found = diagnose(member.module, module, member.x, member.y)
        assert expected.kappa is not None
        assert found.gaps is not None
        before["feature change"].append(expected.feature_change)
        before["expected lazy gap"].append(expected.lazy_gap)
        before["kappa"].append(expected.kappa)
        verdicts[expected.verdict.name, found.verdict.name] += 1
        before["parameter norm"].append(-member.norm)
        after["kernel change"].append(found.kernel_change)
        after["lazy gap"].append(found.gaps.lazy)
        assert found.beyond is not None
        after["beyond"].append(found.beyond.share)
    print(f"predict: {count} MLPs, {unfitted} not trained to 1% of their loss; rank correlations")
    for name, values in after.items():
        shown = {k: round(float(spearmanr(v, values)[0]), 3) for k, v in before.items()}
        print(f"  {name:<15}{shown}")
    agreed = sum(n for (told, seen), n in verdicts.items() if told == seen)
    print(f"  verdicts: {agreed} of {count} as expected; (expected, found): {dict(verdicts)}")


def monitor(epochs: int) -> None:
    """Training with and without it, on MNIST where it is at hand, else on inputs of its shape."""
    import torch

    from flowbias.nets import mlp

    x, y, name = images()
    torch.manual_seed(0)
    for most in (None, 0.1):
        net = mlp((784, 500, 10), rng=0)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        started = time.perf_counter()
        with Monitor(net, x, torch.nn.functional.one_hot(y, 10)) as watch:
            for _ in range(epochs):
                for rows in torch.randperm(len(x)).split(256):
                    loss = torch.nn.functional.cross_entropy(net(x[rows]), y[rows])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    if most is not None:
                        watch.step(loss.detach())
        seconds = time.perf_counter() - started
        print(f"monitor: 784-500-10 on {len(x)} inputs ({name}), {seconds:.1f} s, ", end="")
        print("without" if most is None else f"with {len(watch.history.records)} looks, ", end="")
        print("" if most is None else f"{watch.history.overhead:.1%} of the training time")


def images() -> tuple[Any, Any, str]:
    """Inputs (n, 784) and classes."""
    import torch

    try:
        from flowbias.datasets import mnist

        found = mnist(split="train")
        pixels = np.asarray(found.images, dtype=np.float32).reshape(len(found.images), -1) / 255.0
        return torch.as_tensor(pixels), torch.as_tensor(np.asarray(found.labels)).long(), "MNIST"
    except (ImportError, ValueError, OSError) as error:
        print(f"monitor: no MNIST ({type(error).__name__}), random inputs of its shape")
        rng = np.random.default_rng(0)
        labels = torch.as_tensor(rng.integers(10, size=20_000))
        return torch.as_tensor(rng.random((20_000, 784), dtype=np.float32)), labels, "random"


def main() -> None:
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    count = int(sys.argv[sys.argv.index("--cases") + 1]) if "--cases" in sys.argv else None
    words = [word for word in words if not word.isdigit()] or list(PARTS)
    for word in words:
        part, usual = PARTS[word]
        part(count or usual)


#: What can be asked for, and how many cases (or epochs) it takes.
PARTS = {
    "calibrate": (calibrate, 300),
    "judge": (judge, 60),
    "predict": (zoo, 40),
    "monitor": (monitor, 3),
}

if __name__ == "__main__":
    main()
