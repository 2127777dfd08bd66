"""Descents of products with steps h, at the times t = h k at which the flow is known, too.

Two starts: the network of [min2021, Figure 2] and a completion from a small start, of any width.
All steps are halves of one another, so that every time of the longest is a time of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.integrate import solve_ivp

from flowbias.datasets.planted import low_rank_completion
from flowbias.experiments._base import Settings, Task
from flowbias.experiments.curves import stacked
from flowbias.experiments.table import Columns
from flowbias.flows import flow, gradient_descent
from flowbias.flows.lifted.descent import LiftedDescent
from flowbias.ground.typing import FloatArray
from flowbias.models import LinearNet, MatrixFactorization
from flowbias.models.lifted import LiftedModel
from flowbias.problems.matrix import MatrixCompletion, MatrixProblem, MatrixRegression

NETWORK, COMPLETION = "network", "completion"
STARTS = (NETWORK, COMPLETION)
# Residuals between which rates are measured late: what is left of the curvature is of their size.
LATE = (1e-4, 1e-6)
# Steps on all weights, beside as many on the root.
WEIGHT_STEPS = 100


class Setup(NamedTuple):
    """A start, its problem, the flow's time to its end, and the longest step that is stable."""

    model: LiftedModel
    problem: MatrixProblem
    time: float
    stable: float


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """Curves for one problem of each kind, orders and late rates for all."""
    for start in STARTS:
        which: Settings = {"start": start, "halvings": settings["halvings"]}
        yield "curve", which
        for replicate in range(int(settings["replicates"])):
            yield "order", {**which, "replicate": replicate}
            yield "late", {**which, "replicate": replicate}
    yield "weights", {"start": NETWORK, "width": 1000}


def compute(task: Task) -> Columns:
    """What is compared between descent and flow."""
    if task.part == "weights":
        return _on_weights(task)
    setup = _setup(task)
    shares = 0.5 ** np.arange(1, task.integer("halvings") + 1)
    measured = {"curve": _curve, "order": _order, "late": _late}[task.part]
    return stacked({share: measured(setup, float(share)) for share in shares}, "share")


def _setup(task: Task) -> Setup:
    rng = task.rng()
    model, problem = _BY_START[task.text("start")](rng)
    # Relative residual of the flow at the last time that is compared.
    path = flow(model, problem, residual=1e-4)
    sharpness = max(_kernel_spectrum(problem, path.gram(i))[0][-1] for i in (0, -1))
    return Setup(model, problem, float(path.t[-1]), 2.0 / sharpness)


def _network(rng: np.random.Generator) -> tuple[LiftedModel, MatrixProblem]:
    """[min2021, appendix A.1], with m = 5 and width 100."""
    return _network_of(100, rng)


def _network_of(width: int, rng: np.random.Generator) -> tuple[LinearNet, MatrixProblem]:
    n, m = 20, 5
    net = LinearNet.gaussian(n, m, width=width, scale=1.0, rng=rng)
    Y = np.sqrt(0.1) * rng.standard_normal((n, m))
    return net, MatrixRegression(np.eye(n) / np.sqrt(m * width), Y)


def _completion(rng: np.random.Generator) -> tuple[LiftedModel, MatrixProblem]:
    size = (10, 10)
    data = low_rank_completion(size, 1, 60, rng=rng)
    problem = MatrixCompletion(data.rows, data.cols, data.values, size)
    # α²k = 0.1 is small, so that weights have to grow.
    width, level = 10**6, 0.1
    scale = float(np.sqrt(level / width))
    return MatrixFactorization.gaussian(size, width=width, scale=scale, rng=rng), problem


_BY_START = {NETWORK: _network, COMPLETION: _completion}


def _kernel_spectrum(problem: MatrixProblem, gram: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and vectors of <X_i, U U^T X_j + X_j V V^T>: rates of the residual."""
    d, X = problem.shape[0], problem.matrices
    moved = gram[:d, :d] @ X + X @ gram[d:, d:]
    flat = moved.reshape(len(X), -1) @ X.reshape(len(X), -1).T
    values, vectors = np.linalg.eigh(0.5 * (flat + flat.T))
    return values, vectors


def _descent(setup: Setup, share: float, steps: int) -> LiftedDescent:
    return gradient_descent(
        setup.model,
        setup.problem,
        step_size=share * setup.stable,
        max_steps=steps,
        residual=1e-12,
    )


def _curve(setup: Setup, share: float) -> Columns:
    """Every step of the longest, at most forty of the others."""
    step = share * setup.stable
    run = _descent(setup, share, int(np.ceil(setup.time / step)))
    shown = np.unique(np.linspace(0, run.steps, min(run.steps, 40) + 1).astype(int))
    losses = flow(setup.model, setup.problem, t=shown * step).loss
    return {
        # In units of the flow's time to its end, so that both problems fit one axis.
        "t": shown * step / setup.time,
        "loss": losses / losses[0],
        "descent_loss": run.loss_at(shown) / losses[0],
    }


def _order(setup: Setup, share: float) -> Columns:
    """Largest distances over all times that every step meets, from the flow and the modified."""
    per_time, longest = round(0.5 / share), 0.5 * setup.stable
    count = int(np.ceil(setup.time / longest))
    run = _descent(setup, share, count * per_time)
    times: FloatArray = longest * np.arange(float(run.steps // per_time + 1))
    steps = per_time * np.arange(len(times))
    path = flow(setup.model, setup.problem, t=times)
    roots = run.root_at(steps)
    modified = ModifiedFlow(roots[0], setup.problem, run.step_size).roots_at(times)
    d = setup.problem.shape[0]
    M, D = _products(roots, d), _imbalances(roots, d)
    size = float(np.linalg.norm(path.M[-1]))
    weight = float(np.sum(roots[-1] ** 2))
    return {
        "distance": _largest(M - path.M) / size,
        "modified_distance": _largest(M - _products(modified, d)) / size,
        "drift": _largest(D - D[0]) / weight,
        "modified_drift": _largest(D - _imbalances(modified, d)) / weight,
        "flow_drift": path.imbalance_drift,
        "steps": run.steps,
    }


def _products(roots: FloatArray, d: int) -> FloatArray:
    return np.asarray(roots[:, :d] @ np.swapaxes(roots[:, d:], 1, 2))


def _imbalances(roots: FloatArray, d: int) -> FloatArray:
    upper, lower = roots[:, :d], roots[:, d:]
    return np.asarray(np.swapaxes(upper, 1, 2) @ upper - np.swapaxes(lower, 1, 2) @ lower)


def _largest(matrices: FloatArray) -> float:
    return float(np.max(np.linalg.norm(matrices, axis=(1, 2))))


def _late(setup: Setup, share: float) -> Columns:
    """How fast each mode of the residual falls late, in the flow's time, and what was expected."""
    step = share * setup.stable
    run = gradient_descent(
        setup.model, setup.problem, step_size=step, max_steps=10**6, residual=LATE[1]
    )
    begin = int(np.argmax(run.residual <= LATE[0]))
    problem = setup.problem
    rates, modes = _kernel_spectrum(problem, run.gram_at(run.steps))
    before, after = (modes.T @ problem.residual(run.product_at(k)) for k in (begin, run.steps))
    # Modes that have died out beside the largest are lost in what is left of it.
    seen = np.abs(after) >= 0.1 * np.max(np.abs(after))
    falls = np.log(np.abs(before[seen] / after[seen])) / ((run.steps - begin) * step)
    return {
        "flow_rate": rates[seen],
        "rate": falls,
        "step_rate": -np.log1p(-step * rates[seen]) / step,
    }


def _on_weights(task: Task) -> Columns:
    """The same descent on the root and on all weights: where it ends."""
    net, problem = _network_of(task.integer("width"), task.rng())
    step = 0.5 * gradient_descent(net, problem, step_size=1.0, max_steps=1).stable_step_size
    run = gradient_descent(net, problem, step_size=step, max_steps=WEIGHT_STEPS, residual=1e-15)
    U, V = (np.array(part) for part in net.factors or ())
    for _ in range(run.steps):
        R = problem.adjoint(problem.measure(U @ V.T) - problem.target)
        U, V = U - step * R @ V, V - step * R.T @ U
    apart = float(np.linalg.norm(run.M - U @ V.T) / np.linalg.norm(U @ V.T))
    return {"apart": apart, "steps": run.steps}


# --- the flow that descent follows up to the square of its step ---------------------------------


@dataclass(frozen=True, eq=False)
class ModifiedFlow:
    """Roots [U; V] of the Gram matrix over time, from `root` on.

        Z' = -grad (L + (h/4) ||grad L||^2) = f - (h/2) f'(Z) f,    f = -grad L

    One step Z + h f of descent agrees with a time h of this flow up to O(h^3), so that after a
    given time they are O(h^2) apart, where the flow of L itself is O(h) away. [Barrett and Dherin
    2021, Implicit Gradient Regularization; Hairer, Lubich and Wanner, Geometric Numerical
    Integration, IX]

    For L = (1/2) ||measure(U V^T) - target||^2 both terms act on Z = [U; V] from the left, by U V^T
    and its parts: a root of the Gram matrix serves at any width, as for descent itself. Unlike L,
    ||grad L||^2 changes when U grows and V shrinks by the same factor: the imbalance moves.
    """

    root: FloatArray
    problem: MatrixProblem
    step_size: float

    def roots_at(self, times: FloatArray) -> FloatArray:
        """One root per time, from 0 on, in the columns of the first."""
        root = self.root
        solution = solve_ivp(
            lambda _, flat: self._velocity(flat.reshape(root.shape)).reshape(-1),
            (0.0, float(times[-1])),
            root.reshape(-1),
            method="DOP853",
            t_eval=times,
            # Far below the squares of the steps that are compared with it.
            rtol=1e-11,
            atol=1e-13 * float(np.abs(root).max()),
        )
        if not solution.success:
            raise ArithmeticError(f"modified flow: {solution.message}")
        return np.asarray(solution.y.T.reshape(-1, *root.shape))

    def _velocity(self, root: FloatArray) -> FloatArray:
        d = self.problem.shape[0]
        U, V = root[:d], root[d:]
        pull = self.problem.adjoint(self.problem.target - self.problem.measure(U @ V.T))
        first = np.vstack([pull @ V, pull.T @ U])
        # f' f: the pull of the moved weights, and the moved pull of the weights.
        moved = -self.problem.adjoint(self.problem.measure(first[:d] @ V.T + U @ first[d:].T))
        second = np.vstack([pull @ first[d:] + moved @ V, pull.T @ first[:d] + moved.T @ U])
        return np.asarray(first - 0.5 * self.step_size * second)
