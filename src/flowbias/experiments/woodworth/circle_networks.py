"""ReLU networks that learn a small teacher on the circle.  [woodworth2020, B.2, Figure 6 (a, b)]

Ten points of the unit circle, labelled by a teacher of three hidden units; depth D, 30 units a
layer, squared loss sum r^2. As printed they are single networks. Doubled, f(x; th1) - f(x; th2),
they are zero at the start at every scale: otherwise the output at the start, of the size of
alpha^D, stays in the predictor where no point is near.

Labels are divided by the root mean square s of the teacher's on the test points: predicting zero
has a test RMSE of 1 on every data set. That is a unit: the network is homogeneous, so that learning
y/s from alpha^D is learning y from s alpha^D.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from flowbias.datasets.planted import circle_teacher
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.kernels import grad_distance
from flowbias.nets import TrainedCopies, flow_copies, mlp, stable_step_size, train_copies, unbiased


class Circle(NamedTuple):
    """One data set, and the seed of the network's start."""

    X: FloatArray
    y: FloatArray
    X_test: FloatArray
    y_test: FloatArray
    seed: int


class Trained(NamedTuple):
    """What became of each network."""

    rmse: FloatArray
    grad_distance: FloatArray
    train_rmse: FloatArray
    steps: FloatArray


def by_depth(values: dict[int, float], form: str) -> str:
    """Numbers in words, each with its depth."""
    return ", ".join(f"{value:{form}} (D = {depth})" for depth, value in values.items())


def draw_circles(rng: np.random.Generator, count: int) -> list[Circle]:
    """Data sets with labels of root mean square 1 on their test points."""
    drawn = []
    for stream in rng.spawn(count):
        data_stream, seed_stream = stream.spawn(2)
        data = circle_teacher(n_test=400, rng=data_stream)
        size = float(np.sqrt(np.mean(data.y_test**2)))
        seed = int(seed_stream.integers(2**31))
        drawn.append(Circle(data.X, data.y / size, data.X_test, data.y_test / size, seed))
    return drawn


def single_network(depth: int, log10_level: float, seed: int, device: Any) -> Any:
    """The paper's network, whose scale alpha has alpha^depth = 10^log10_level."""
    units = 30
    widths = (2, *(units,) * (depth - 1), 1)
    scale = 10.0 ** (log10_level / depth)
    double = require_torch().float64
    return mlp(widths, scale=scale, rng=seed, dtype=double).to(device)


def network(depth: int, log10_level: float, seed: int, device: Any) -> Any:
    """The same, doubled."""
    return unbiased(single_network(depth, log10_level, seed, device))


def by_flow_and_descent(
    starts: Sequence[Any],
    circles: Sequence[Circle],
    *,
    rounds: int,
    flow_steps: int,
    step_size: float,
    descent_steps: int,
) -> Trained:
    """Gradient flow, and descent where it slides along switching units, in turn.

    With no flow steps: descent from the start, at `step_size` or, where that is unstable, at half
    of the largest stable step.
    """
    # Share of the largest stable step at the kernel of the moment.
    stable = 0.5
    state = _State.of(starts, circles)
    for _ in range(rounds):
        if flow_steps:
            state.flow(state.unfinished(), flow_steps)
        todo = state.unfinished()
        if descent_steps and todo:
            networks, data = state.chosen(todo)
            rates = [
                min(step_size, stable * largest_stable_step(net, state.circles[place]))
                for net, place in zip(networks, todo, strict=True)
            ]
            state.take(
                todo, train_copies(networks, **data, step_size=rates, max_epochs=descent_steps)
            )
    return state.judged(starts)


def by_descent(
    starts: Sequence[Any], circles: Sequence[Circle], step_sizes: Sequence[float], steps: int
) -> Trained:
    """Descent at the given step sizes, come what may; gradient flow finishes what has settled.

    Directions with small eigenvalues are learned last, at any step size: where descent stops they
    would be most of the difference between test errors.
    """
    state = _State.of(starts, circles)
    todo = list(range(len(starts)))
    networks, data = state.chosen(todo)
    state.take(todo, train_copies(networks, **data, step_size=step_sizes, max_epochs=steps))
    # Such a network has found its place: a tenth of the labels' size.
    settled = [i for i in state.unfinished() if state.losses[i] <= 0.1]
    if settled:
        state.flow(settled, 60)
    return state.judged(starts)


def largest_stable_step(net: Any, circle: Circle) -> float:
    """Of descent on sum r^2, as long as the kernel is what it is now."""
    return stable_step_size(net, circle.X, loss="sum", fraction=1.0)


@dataclass
class _State:
    """The networks as they are now, with their data."""

    networks: list[Any]
    circles: Sequence[Circle]
    losses: FloatArray
    steps: FloatArray
    predictions: FloatArray
    #: of the sum of squared residuals; the paper's
    target: float = 1e-9

    @classmethod
    def of(cls, starts: Sequence[Any], circles: Sequence[Circle]) -> _State:
        count = len(starts)
        unknown = np.full((count, len(circles[0].y_test)), np.nan)
        return cls(list(starts), circles, np.full(count, np.inf), np.zeros(count), unknown)

    def unfinished(self) -> list[int]:
        return [int(i) for i in np.flatnonzero(~(self.losses <= self.target))]

    def chosen(self, places: Sequence[int]) -> tuple[list[Any], dict[str, Any]]:
        """Some of the networks, and what the two trainers want to know about them."""
        chosen = [self.circles[i] for i in places]
        data = {
            "x": np.array([circle.X for circle in chosen]),
            "y": np.array([circle.y[:, None] for circle in chosen]),
            "x_test": np.array([circle.X_test for circle in chosen]),
            "loss": "sum",
            "stop_at_loss": self.target,
            "progress": False,
        }
        return [self.networks[i] for i in places], data

    def flow(self, places: Sequence[int], steps: int) -> None:
        """Let some of them flow on."""
        networks, data = self.chosen(places)
        # The kernel may change by this much over one step.
        self.take(places, flow_copies(networks, **data, tol=0.2, max_steps=steps))

    def take(self, places: Sequence[int], done: TrainedCopies) -> None:
        for place, module, training in zip(places, done.modules, done.trainings, strict=True):
            self.networks[place] = module
            self.losses[place] = training.loss
            self.steps[place] += training.epochs
        if done.predictions is not None:
            self.predictions[list(places)] = done.predictions[:, :, 0]

    def judged(self, starts: Sequence[Any]) -> Trained:
        wanted = np.array([circle.y_test for circle in self.circles])
        turned = [
            _turned(start, net, circle.X)
            for start, net, circle in zip(starts, self.networks, self.circles, strict=True)
        ]
        samples = len(self.circles[0].y)
        # Overflow is what a diverged network has to show.
        with np.errstate(over="ignore", invalid="ignore"):
            error = np.sqrt(np.mean((self.predictions - wanted) ** 2, axis=1))
        return Trained(error, np.array(turned), np.sqrt(self.losses / samples), self.steps)


def _turned(start: Any, end: Any, X: FloatArray) -> float:
    """Grad distance over the training points; NaN where training diverged."""
    torch = require_torch()
    first = next(start.parameters())
    if not all(bool(torch.isfinite(p).all()) for p in end.parameters()):
        return float("nan")
    return grad_distance(start, end, torch.as_tensor(X, device=first.device)).overall
