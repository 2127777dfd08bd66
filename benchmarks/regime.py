"""Where the thresholds of `flowbias.regime` come from, and how well they judge.

calibrate  on diagonal networks, whose regime is known exactly: the lines that tell the fewest wrong
judge      on factorizations, neurons and deep linear networks, which had no part in the lines
predict    MLPs: what `predict` says before training against what `diagnose` finds after it
monitor    what `Monitor` adds to five kinds of training, one a character GPT
diagnose   the time of a diagnosis of a small ViT, in kernels
ahead      the time of a prediction for it

    python benchmarks/regime.py [calibrate|judge|predict|monitor|diagnose|ahead ...] [--cases N]
"""

from __future__ import annotations

import copy
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.regime.known_regimes import JUDGES, cases, diagonal, true_verdict
from tests.regime.mlp_zoo import members, trained

from flowbias.regime import THRESHOLDS, Monitor, Verdict, diagnose, predict

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


def monitor(steps: int) -> None:
    """What a Monitor adds to five kinds of training at its default budget, by processor time.

    Each with the batches that people take, and with ones so small that a step is one of a few ms.
    """
    import torch

    torch.set_num_threads(1)
    print(f"monitor: {steps} steps each; ms of a step, records, share of the training")
    for name, (_, _, _, batches, _) in trainings().items():
        for batch in batches:
            history = monitored(*trainings()[name], batch, steps)
            print(
                f"  {name:<12}{batch:>4}{1e3 * history.elapsed / steps:7.1f} ms  "
                f"{len(history.records)} records "
                f"(from step {history.records[0].step if history.records else None} on, "
                f"{history.inputs} inputs), {len(history.losses)} losses, {history.overhead:.1%}, "
                f"{history.verdict.name if history.verdict else None}"
            )


def monitored(net: Any, x: Any, y: Any, _: Any, optimizer: Any, batch: int, steps: int) -> Any:
    """The history of a training in batches of that size."""
    import torch

    generator = torch.Generator().manual_seed(0)
    with Monitor(net, x, clock=time.process_time) as watch:
        for _ in range(steps):
            rows = torch.randint(len(x), (batch,), generator=generator)
            outputs = net(x[rows])
            loss = torch.nn.functional.cross_entropy(outputs.flatten(0, -2), y[rows].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
    return watch.history


def trainings() -> dict[str, tuple[Any, Any, Any, tuple[int, int], Any]]:
    """Modules with inputs, classes, batches, optimizer: random data of the shapes people have."""
    import torch
    from tests.regime.transformers_zoo import CharacterGPT, LastOfLSTM, VisionTransformer

    torch.manual_seed(0)
    nn, classes = torch.nn, torch.randint(10, (512,))
    perceptron = nn.Sequential(nn.Linear(784, 500), nn.ReLU(), nn.Linear(500, 10))
    convolution = nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()),
        *(nn.Dropout(0.1), nn.Linear(1024, 10)),
    )
    text = torch.randint(41, (512, 33))
    images = torch.randn(512, 3, 32, 32)
    made = {
        "perceptron": (perceptron, torch.randn(512, 784), classes, (256, 64), torch.optim.SGD, 0.1),
        "convolution": (convolution, images, classes, (64, 8), torch.optim.Adam, 1e-3),
        "LSTM": (
            LastOfLSTM(),
            torch.randn(512, 30, 16),
            classes,
            (256, 64),
            torch.optim.RMSprop,
            1e-3,
        ),
        "ViT": (VisionTransformer(32), images, classes, (64, 4), torch.optim.AdamW, 1e-3),
        "GPT": (CharacterGPT(), text[:, :-1], text[:, 1:], (64, 8), torch.optim.AdamW, 1e-3),
    }
    return {
        name: (net, x, y, batches, kind(net.parameters(), lr=lr))
        for name, (net, x, y, batches, kind, lr) in made.items()
    }


def diagnosis(images: int) -> None:
    """The time of a diagnosis of a small ViT in kernels of it on the same images, by processor."""
    import torch
    from tests.regime.transformers_zoo import VisionTransformer

    from flowbias.kernels import tangent_kernel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    net, x, y = VisionTransformer(), torch.randn(images, 3, 16, 16), torch.randint(10, (images,))
    start, optimizer = copy.deepcopy(net), torch.optim.AdamW(net.parameters(), lr=1e-3)
    for _ in range(30):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    seconds = []
    for act in (lambda: tangent_kernel(start, x), lambda: diagnose(start, net, x, y)):
        act()  # loads what is loaded once
        began = time.process_time()
        found = act()
        seconds.append(time.process_time() - began)
    print(f"diagnose: {images} images, kernel {seconds[0]:.2f} s, diagnosis {seconds[1]:.2f} s: ")
    print(f"  {seconds[1] / seconds[0]:.1f} kernels\n{found}")


def ahead(images: int) -> None:
    """The time of a prediction for a small ViT in kernels of it, and of kappa, by processor."""
    import torch
    from tests.regime.transformers_zoo import VisionTransformer

    from flowbias.kernels import tangent_kernel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    net, x, y = VisionTransformer(), torch.randn(images, 3, 16, 16), torch.randint(10, (images,))
    tangent_kernel(net, x)  # loads what is loaded once
    clock = [time.process_time()]
    tangent_kernel(net, x)
    clock.append(time.process_time())
    expected = predict(net, x, y)
    clock.append(time.process_time())
    expected.kappa  # noqa: B018
    clock.append(time.process_time())
    kernel, prediction, kappa = np.diff(clock)
    print(f"ahead: {images} images, kernel {kernel:.2f} s, prediction {prediction:.2f} s: ", end="")
    print(f"{prediction / kernel:.1f} kernels; kappa {kappa / kernel:.1f} more")


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
    "monitor": (monitor, 100),
    "diagnose": (diagnosis, 100),
    "ahead": (ahead, 40),
}

if __name__ == "__main__":
    main()
