"""What finite steps, batches, momentum, noise and weight decay make of a start.

A descent of a diagonal network is a flow from another start (docs/theory/descent.md): exactly where
it ends, and to first order in the step before it has begun. Claims of first order are about what is
left as the step vanishes: they are measured with a step and its half, and what halving changes says
how far that is from the first order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LassoLars

from flowbias.flows import gradient_descent, predicted_start
from flowbias.flows.descent import Descent
from flowbias.flows.effective import log_sides
from flowbias.flows.request import loss_constant
from flowbias.flows.steps import DescentStatus
from flowbias.models._base import MirrorModel
from flowbias.models.lifted import LiftedModel
from flowbias.potentials import Provides
from flowbias.problems.regression import Regression
from flowbias.theory.arguments import OutsideHypothesis, checked, something_to_fit
from flowbias.theory.claim import Claim, Statement, Tolerance, beyond_the_papers, relative

# The longest that is waited for a descent to end.
LONGEST_WAIT = 50_000
IDENTITY = Tolerance(
    "a residual of 1e-12 and a limit certified to 1e-10, magnified by the condition of X", 1e-6
)
RESTING = Tolerance("a descent at rest to 1e-9, magnified by how slowly weights decay", 1e-5)
ORDER = Tolerance("exponents of what a step and its half differ by, to second order", 0.1)
SHRINKS = Tolerance("what halving the step changes, squared, and flows followed to 1e-8", 1e-5)


@checked
def descent_is_a_flow(
    model: MirrorModel,
    X: Any,
    y: Any,
    step_size: float,
    batch_size: int | None = None,
    momentum: float = 0.0,
    seed: int = 0,
) -> Claim:
    """A descent that fits ends exactly at the limit of the flow from its effective start.

    Whatever the steps, the batches and the momentum, at any depth. Even, Pesme, Gunasekar and
    Flammarion (2023) for depth 2; docs/theory/descent.md, section 1.

    >>> model, X, y = fb.DiagonalNet(depth=2, scale=0.5), [[1.0, 2.0]], [1.0]
    >>> fb.theory.descent_is_a_flow(model, X, y, 0.05).holds
    True
    """
    problem = Regression(X, y)
    run = _descent(
        model,
        problem,
        step_size=step_size,
        batch_size=batch_size,
        momentum=momentum,
        rng=seed,
        residual=1e-12,
    )
    words = "descent ends where gradient flow from its effective start does"
    stated = Statement(_section("1 A descent is a flow from another start"), words, *IDENTITY)
    distance, _, is_identity = run.explained
    crossed = "" if is_identity else "a weight has changed its sign at depth > 2"
    return stated.equal("descent is a flow", distance, among=problem.X, silence=crossed)


@checked
def steps_shrink_the_start(
    model: MirrorModel, X: Any, y: Any, step_size: float, momentum: float = 0.0
) -> tuple[Claim, Claim]:
    """The effective start is predicted from the flow alone, with an error that falls as the step.

    Relative to what the steps change, over step_size, its half and its quarter.

    >>> model, X, y = fb.DiagonalNet(depth=2, scale=0.5), [[1.0, 2.0]], [1.0]
    >>> all(claim.holds for claim in fb.theory.steps_shrink_the_start(model, X, y, 0.01))
    True
    """
    problem = Regression(X, y)
    something_to_fit(problem.y)
    errors = [_first_order_error(model, problem, step_size * by, momentum) for by in (1, 0.5, 0.25)]
    silence = ""
    if errors[0] > 0.25:
        silence = f"the step is too long for its first order: {errors[0]:.0%} off"
    if errors[-1] < 1e-6:
        silence = "what the prediction leaves is the rounding of the flow that it comes from"
    exponent = -float(np.polyfit([0.0, 1.0, 2.0], np.log2(errors), 1)[0])
    words = "the error of the predicted start falls in proportion to the step"
    stated = Statement(_section("2 Predicted to first order"), words, *ORDER)
    return stated.between("order of the prediction", exponent, (1.0, 1.0), silence=silence)


def _first_order_error(
    model: MirrorModel, problem: Regression, step_size: float, momentum: float
) -> float:
    run = _descent(model, problem, step_size=step_size, momentum=momentum)
    predicted = predicted_start(model, problem, step_size=step_size, momentum=momentum)
    nominal, measured, expected = (
        log_sides(net, problem.X.shape[1]) for net in (model, run.effective_start, predicted)
    )
    return relative(expected - measured, measured - nominal)


@checked
def batches_shrink_the_start(
    model: MirrorModel, X: Any, y: Any, step_size: float, batch_size: int, seeds: int = 40
) -> Claim:
    """Batches shrink the start by their variance on top: in the mean over seeds, to first order.

    The gain, summed over coordinates, over its prediction from the flow, as the step vanishes.

    >>> X, y = [[1.0, 2.0, 0.3], [0.2, -1.0, 1.0]], [1.0, 0.5]
    >>> model = fb.DiagonalNet(depth=2, scale=0.5)
    >>> fb.theory.batches_shrink_the_start(model, X, y, 0.01, 1).holds
    True
    """
    problem = Regression(X, y)
    something_to_fit(problem.y)
    ratios, errors = [], []
    for step in (step_size, 0.5 * step_size):
        runs = [
            _ended(run)
            for run in gradient_descent(
                model,
                problem,
                step_size=step,
                batch_size=batch_size,
                rng=range(seeds),
                max_steps=LONGEST_WAIT,
            )
        ]
        predicted = _predicted_gain(model, problem, step, batch_size=batch_size)
        gains = np.array([run.gain.sum() for run in runs]) / predicted
        ratios.append(float(gains.mean()))
        errors.append(float(gains.std(ddof=1)) / np.sqrt(seeds))
    chance = float(np.hypot(2.0 * errors[1], errors[0]))
    words = "batches shrink the start by the integral of their mean squared gradient"
    stated = Statement(_section("2 Predicted to first order"), words, *SHRINKS)
    return _as_the_step_vanishes(stated, "gain of batches over its prediction", ratios, chance)


@checked
def momentum_lengthens_the_step(
    model: MirrorModel, X: Any, y: Any, step_size: float, momentum: float
) -> Claim:
    """Momentum shrinks the start as a step (1 + momentum)/(1 - momentum)^2 times as long would.

    To first order; 2/(1 - momentum)^2 as momentum tends to 1, which is the flow with momentum of
    Papazov, Pesme and Flammarion (2024). docs/theory/descent.md, section 3.

    >>> model, X, y = fb.DiagonalNet(depth=2, scale=0.5), [[1.0, 2.0]], [1.0]
    >>> fb.theory.momentum_lengthens_the_step(model, X, y, 1e-3, 0.5).holds
    True
    """
    problem = Regression(X, y)
    something_to_fit(problem.y)
    longer = (1.0 + momentum) / (1.0 - momentum) ** 2
    ratios = []
    for step in (step_size, 0.5 * step_size):
        carried = _descent(model, problem, step_size=step, momentum=momentum)
        plain = _descent(model, problem, step_size=step * longer)
        ratios.append(float(carried.gain.sum() / plain.gain.sum()))
    words = "momentum acts on the start as a longer step would"
    stated = Statement(_section("3 Momentum"), words, *SHRINKS)
    return _as_the_step_vanishes(stated, "gain with momentum over that of a longer step", ratios)


def _as_the_step_vanishes(
    stated: Statement, name: str, ratios: list[float], chance: float = 0.0
) -> Claim:
    """ratio -> 1, from a step and its half: extrapolated, with the second order as tolerance."""
    change = ratios[1] - ratios[0]
    long = f"the step is too long for its first order: {abs(change):.0%} from its half"
    return stated.equal(
        name,
        ratios[1] + change,
        1.0,
        atol=SHRINKS.size + 4.0 * change**2 + 5.0 * chance,
        silence=long if abs(change) > 0.2 else "",
    )


@checked
def weight_decay_is_a_lasso(
    model: MirrorModel, X: Any, y: Any, step_size: float, weight_decay: float
) -> tuple[Claim, Claim]:
    """Weight decay ends at the lasso with penalty weight_decay / (rate c), whatever the step.

    rate 2 for tied weights, 1 for untied ones. Measured against least angle regression, and by the
    duality gap at the end. docs/theory/descent.md, section 4.

    >>> model, X, y = fb.DiagonalNet(depth=2, scale=0.5), [[1.0, 2.0]], [1.0]
    >>> all(c.holds for c in fb.theory.weight_decay_is_a_lasso(model, X, y, 0.05, 0.2))
    True
    """
    problem = Regression(X, y)
    if Provides.SQUARES not in model.provides:
        raise OutsideHypothesis(
            "model: must have depth 2, got another. Deeper networks end at other penalties."
        )
    run = gradient_descent(
        model,
        problem,
        step_size=step_size,
        weight_decay=weight_decay,
        residual=1e-9,
        max_steps=LONGEST_WAIT,
    )
    if run.status is not DescentStatus.RESTED:
        raise OutsideHypothesis(f"step_size: must let the descent come to rest: {run.message}")
    alpha = run.lasso.penalty / len(problem.y)
    exact = LassoLars(alpha=alpha, fit_intercept=False).fit(problem.X, problem.y).coef_
    stated = Statement(
        _section("4 Weight decay"), "weight decay ends at the lasso of its penalty", *RESTING
    )
    return (
        stated.same("distance from the lasso", run.w, exact),
        stated.at_most("duality gap of the lasso", run.lasso.gap, 0.0),
    )


@checked
def label_noise_shrinks_the_start(
    model: MirrorModel,
    X: Any,
    y: Any,
    step_size: float,
    label_noise: float,
    steps: int = 4000,
    seed: int = 0,
) -> Claim:
    """Noise on the labels goes on shrinking the start: to the rich end, in the long run.

    In the mean the gain of a step is at least rate^2 step^2 c^2 label_noise^2 ||X||_F^2, at depth 2
    and in all coordinates. Measured over the second half of the steps. Pillaud-Vivien, Reygner and
    Flammarion (2022); docs/theory/descent.md, section 5.

    >>> model, X, y = fb.DiagonalNet(depth=2, scale=0.5), [[1.0, 2.0]], [1.0]
    >>> fb.theory.label_noise_shrinks_the_start(model, X, y, 0.01, 0.5).holds
    True
    """
    problem = Regression(X, y)
    if Provides.SQUARES not in model.provides:
        raise OutsideHypothesis("model: must have depth 2, got another. The gain is that of p m.")
    halves = [
        gradient_descent(
            model,
            problem,
            step_size=step_size,
            label_noise=label_noise,
            max_steps=count,
            residual=1e-15,
            rng=seed,
        )
        for count in (steps // 2, steps)
    ]
    stays = bool(np.isfinite(halves[-1].gain).all())
    if halves[-1].status is not DescentStatus.NOISY or not stays:
        raise OutsideHypothesis(f"step_size: must be stable: {halves[-1].message}")
    gained = float((halves[1].gain - halves[0].gain).sum())
    each = (model.step_rate * step_size * label_noise) ** 2  # type: ignore[attr-defined]
    c = loss_constant("half", len(problem.y))
    count, K = steps - steps // 2, problem.X @ problem.X.T
    predicted = count * c**2 * each * float(np.trace(K))
    # Sums of squares of Gaussians, and as much again from what earlier noise has left in w.
    spread = 2.0 * np.sqrt(2.0 * count) * c**2 * each * float(np.linalg.norm(K))
    words = "noise on the labels shrinks the start in every step"
    chance = Tolerance("six standard deviations of the squared noise")
    stated = Statement(_section("5 Label noise"), words, *chance)
    return stated.at_least("gain from label noise", gained, predicted, atol=6.0 * spread)


@checked
def rest_is_flat(
    model: MirrorModel, X: Any, y: Any, step_size: float, momentum: float = 0.0
) -> Claim:
    """A descent comes to rest only where the sharpness is at most 2 (1 + momentum)/step.

    The edge of stability: steps that are unstable at the limit of the flow end elsewhere, where the
    loss is flatter (Even et al. 2023, section 4). docs/theory/descent.md, section 6.

    >>> model, X, y = fb.DiagonalNet(depth=2, scale=0.5), [[1.0, 2.0]], [1.0]
    >>> fb.theory.rest_is_flat(model, X, y, 0.25).holds
    True
    """
    problem = Regression(X, y)
    run = _descent(model, problem, step_size=step_size, momentum=momentum, residual=1e-10)
    metric = np.broadcast_to(model.metric(run.parameters), problem.X.shape[1:])
    sharpness = float(np.linalg.norm(problem.X * np.sqrt(metric), 2) ** 2)
    words = "where a descent rests, step times sharpness is at most 2 (1 + momentum)"
    stated = Statement(_section("6 The edge of stability"), words, *IDENTITY)
    return stated.at_most("step times sharpness", step_size * sharpness, 2.0 * (1.0 + momentum))


@checked
def imbalance_drifts(net: LiftedModel, X: Any, Y: Any, step_size: float) -> tuple[Claim, Claim]:
    """Descent of a product changes its imbalance in proportion to the step.

    What the flow conserves, D = U^T U - V^T V, is what a product has in place of an effective start
    [docs/theory/descent.md, section 7]. Over step_size, its half and its quarter.

    >>> net = fb.LinearNet([[0.5, 0.1], [0.2, 0.4]], [[0.3, 0.6]])
    >>> all(c.holds for c in fb.theory.imbalance_drifts(net, [[1.0, 2.0]], [[1.0]], 0.01))
    True
    """
    drifts = []
    for by in (1.0, 0.5, 0.25):
        run = gradient_descent(net, X, Y, step_size=step_size * by, residual=1e-10)
        if run.status is not DescentStatus.CONVERGED:
            raise OutsideHypothesis(f"step_size: must let the descent converge: {run.message}")
        drifts.append(float(run.imbalance_drift_at(run.steps)))
    if not min(drifts) > 1e-12:
        raise OutsideHypothesis("Y: must not be fitted from the start, got no drift at all.")
    exponents = -np.diff(np.log2(drifts))
    change = float(exponents[1] - exponents[0])
    long = f"the step is too long for its first order: exponents {exponents[0]:.2f}, "
    words = "descent of a product changes its imbalance in proportion to the step"
    stated = Statement(_section("7 Products"), words, *ORDER)
    return stated.between(
        "order of the drift",
        float(exponents[1]),
        (1.0, 1.0),
        silence=f"{long}{exponents[1]:.2f}" if abs(change) > ORDER.size else "",
    )


def _section(title: str) -> Any:
    return beyond_the_papers(title, "descent")


def _predicted_gain(model: MirrorModel, problem: Regression, step_size: float, **how: Any) -> float:
    predicted = predicted_start(model, problem, step_size=step_size, **how)
    d = problem.X.shape[1]
    return float(np.sum(log_sides(model, d) - log_sides(predicted, d)))


def _descent(model: MirrorModel, problem: Regression, **how: Any) -> Descent:
    """To a fit; outside the hypotheses where it is none."""
    return _ended(gradient_descent(model, problem, max_steps=LONGEST_WAIT, **how))


def _ended(run: Descent) -> Descent:
    if run.status is not DescentStatus.CONVERGED:
        raise OutsideHypothesis(f"step_size: must let the descent converge: {run.message}")
    return run
