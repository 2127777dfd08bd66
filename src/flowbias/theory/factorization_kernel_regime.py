"""When a factorization stays in its kernel regime.  [woodworth2020, appendix H]

With Z = [U; V], lambda I <= (<X_n, X_m>)_nm <= Lambda I, and at the start
||Z Z^T - mu I||_op <= gamma, e = ||y(0) - y*||. The lifted measurements [[0, X_n], [X_n^T, 0]]/2
have half that Gram matrix, so that under the loss (c/2) ||r||^2 the residual obeys r' = -c K r with

    2 (mu lambda - Lambda slack(R)) <= K,   slack(R) = gamma + R^2 + 2 R sqrt(mu + gamma)

as long as ||Z(t) - Z(0)||_F <= R. For W W^T all this is said of Z = W and of symmetric X_n, with
lambda and Lambda those of 2 <X_n, X_m>. The paper's (75) has half of the first term and its bounds
are true as printed. The sharp form, without mu, gamma and Lambda, is `theory.path_length`.

Wide Gaussian starts: their Gram matrix, and the kernel regime they are in.

    Z = [U; V], p = d1 + d2 rows, entries N(0, alpha^2), width k:
    ||Z Z^T - alpha^2 k I||_op < 8 alpha^2 sqrt(k p)    with probability >= 1 - 2 exp(-p/2)

[woodworth2020, Lemma 13 and Corollary 10; square matrices have p = 2 d]. On that event Theorem 9
applies once k is large enough. Constants are corrected (docs/errata.md, W11):
||y(0)||^2 <= (Lambda/2) ||Z Z^T - alpha^2 k I||_F^2, because that is the norm of lifted
measurements; the paper has a product of inconsistent units in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flowbias.ground.drawing import COLOURS, INK, picture
from flowbias.ground.html import facts
from flowbias.ground.typing import Axes, Figure, FloatArray
from flowbias.models.lifted import LiftedModel
from flowbias.problems.matrix import MatrixProblem
from flowbias.theory.arguments import OutsideHypothesis, checked, positive
from flowbias.theory.claim import WOODWORTH, Claim, Reference, Statement
from flowbias.theory.measured_flow import (
    FACTORS,
    RATE,
    MeasuredFactors,
    measured_or_followed,
    measured_rate,
)
from flowbias.theory.tangent_factorization import LinearizedFactorization, no_refutation, own_gram


@dataclass(frozen=True)
class KernelRegime:
    """The constants of appendix H: of the measurements, of the start, and the first error.

    >>> model = fb.MatrixFactorization.identity((2, 2), scale=1.0)
    >>> problem = fb.MatrixSensing(np.eye(4).reshape(4, 2, 2), [1.0, 0.0, 0.0, 1.0])
    >>> round(fb.theory.KernelRegime.of(model, problem).largest, 6)
    1.0
    """

    smallest: float  # lambda
    largest: float  # Lambda
    mu: float
    gamma: float
    error: float  # ||y(0) - y*||

    @classmethod
    @checked
    def of(
        cls, model: LiftedModel, problem: MatrixProblem, mu: float | None = None
    ) -> KernelRegime:
        """Measured; mu is by default the one with the least gamma."""
        smallest, largest, error = measured_start(model, problem)
        levels = np.linalg.eigvalsh(own_gram(model))
        center = 0.5 * (levels[0] + levels[-1]) if mu is None else mu
        # Both blocks of a lifted measurement act on W W^T: twice the Gram matrix of one.
        return cls(
            smallest=model.rate * smallest,
            largest=model.rate * largest,
            mu=float(center),
            gamma=float(np.abs(levels - center).max()),
            error=error,
        )

    def slack(self, radius: float) -> float:
        """By how much Z Z^T may leave mu I while Z is within `radius` of its start."""
        return self.gamma + radius**2 + 2.0 * radius * float(np.sqrt(self.mu + self.gamma))

    def least_rate(self, radius: float) -> float:
        """Lower bound of K as long as Z is within `radius` of its start."""
        return 2.0 * (self.mu * self.smallest - self.largest * self.slack(radius))

    @property
    def largest_error(self) -> float:
        """What Theorem 9 allows ||y(0) - y*|| to be; below 0 where gamma is too large."""
        ratio = (1.0 + self.gamma / self.mu) / (1.0 + self.smallest / (4.0 * self.largest))
        return (
            self.mu * self.smallest / float(np.sqrt(self.largest)) * (1.0 - float(np.sqrt(ratio)))
        )

    @property
    def movement_bound(self) -> float:
        """sqrt(Lambda + lambda/4) e / (lambda sqrt(mu)).  [Lemma 12]"""
        root = np.sqrt(self.largest + self.smallest / 4.0)
        return float(root * self.error / (self.smallest * np.sqrt(self.mu)))

    @property
    def tangent_bound(self) -> float:
        """Of ||Z(t) - Z_TK(t)||_F.  [Theorem 9]"""
        lam, big, e = self.smallest, self.largest, self.error
        first = big * np.sqrt(1.0 + lam / (4.0 * big)) * e**2 / (lam**2 * self.mu**1.5)
        second = 2.0 * np.sqrt(big * (1.0 + self.gamma / self.mu)) * e / (lam * np.sqrt(self.mu))
        return float(first + second)

    @property
    def holds(self) -> bool:
        """Whether the hypotheses of Theorem 9 hold: of the start, and of the first error."""
        return self._is_even and bool(self.error <= self.largest_error)

    @property
    def _is_even(self) -> bool:
        return bool(self.mu * self.smallest > 4.0 * self.largest * self.gamma)

    def required(self) -> KernelRegime:
        """Itself, if the hypotheses of Theorem 9 hold."""
        if not self._is_even:
            raise OutsideHypothesis(
                f"model: must have mu > 4 Lambda gamma/lambda, got mu = {self.mu:.3g} and "
                f"{4.0 * self.largest * self.gamma / (self.smallest or np.nan):.3g}. Widen the "
                "model: a width below the number of rows of [U; V] is never enough."
            )
        if not self.error <= self.largest_error:
            raise OutsideHypothesis(
                f"model: must have ||y(0) - y*|| <= {self.largest_error:.3g}, got "
                f"{self.error:.3g}. Enlarge the scale of the start, or its width."
            )
        return self

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The guaranteed rate against the movement, and how much of it Lemma 12 allows."""

        def panel(axes: Axes) -> None:
            radius = np.linspace(0.0, self._shown_radius, 200)
            axes.plot(radius, [self.least_rate(r) for r in radius], color=COLOURS[0])
            axes.axhline(0.0, color=INK, linewidth=0.9)
            if self.holds:
                axes.axvline(self.movement_bound, color=COLOURS[1], linestyle="--")
                at = (self.movement_bound, 0.95)
                across = axes.get_xaxis_transform()
                axes.annotate("moves no further", at, (4, 0), across, "offset points")
            axes.set_xlabel("movement  ||Z - Z(0)||")
            axes.set_ylabel("guaranteed rate")
            axes.set_title(self._verdict)

        return picture(panel, path=path, ax=ax)

    @property
    def _shown_radius(self) -> float:
        """Somewhat beyond the zero of the rate and, where there is one, the movement's bound."""
        size = float(np.sqrt(self.mu + self.gamma))
        zero = float(np.sqrt(self.mu * (1.0 + self.smallest / self.largest))) - size
        bound = self.movement_bound if self.holds else 0.0
        return 1.2 * max(zero, bound) if zero > 0.0 else size

    @property
    def _verdict(self) -> str:
        return f"Theorem 9 {'applies' if self.holds else 'does NOT apply'}"

    def _repr_html_(self) -> str:
        holds = self.holds
        return facts(
            f"KernelRegime: {self._verdict}",
            {
                "mu": self.mu,
                "gamma": self.gamma,
                "least eigenvalue of the measurements": self.smallest,
                "largest eigenvalue of the measurements": self.largest,
                "error at the start": self.error,
                "it may be at most": self.largest_error if self._is_even else None,
                "weights move at most": self.movement_bound if holds else None,
                "and leave their tangent by": self.tangent_bound if holds else None,
            },
        )


def measured_start(model: LiftedModel, problem: MatrixProblem) -> tuple[float, float, float]:
    """Least and largest eigenvalue of (<X_n, X_m>)_nm as the flow sees it, and ||y(0) - y*||."""
    seen = model.lifted_problem(problem)
    rows = seen.matrices.reshape(len(seen.target), -1)
    values = np.linalg.svd(rows, compute_uv=False)
    error = float(np.linalg.norm(problem.measure(model.product) - problem.target))
    smallest = float(values[-1] ** 2) if len(values) == len(rows) else 0.0
    return smallest, float(values[0] ** 2), error


@checked
def residual_decay(
    model: LiftedModel,
    problem: MatrixProblem,
    mu: float | None = None,
    loss: Any = "sum",
    *,
    measured: MeasuredFactors | None = None,
) -> tuple[Claim, Claim]:
    """||r(t)|| <= e exp(-2 c (mu lambda - Lambda slack(R)) t), R the movement; 0 for the tangent.

    As rates: the least mean one of the residual's logarithm, against what the exponent promises.

    [woodworth2020, Lemma 11], which prints exp(-2 mu lambda t + 4 Lambda slack(R) t) for the sum
    loss c = 2: true, but the first term can be twice that. The tangent model attains the bound
    where Z Z^T = mu I and lambda = Lambda.

    >>> model = fb.MatrixFactorization.gaussian((2, 2), width=1000, scale=0.1, rng=0)
    >>> problem = fb.MatrixSensing([np.eye(2)], [1.0])
    >>> all(claim.holds for claim in fb.theory.residual_decay(model, problem))
    True
    """
    regime = KernelRegime.of(model, problem, mu)
    measured = measured_or_followed(measured, model, problem, loss)
    tangent = LinearizedFactorization(model, problem, loss)
    errors = np.array([np.linalg.norm(tangent.residual(float(t))) for t in measured.t])
    # Weights that are lifted to [W; W] move sqrt(2) times as far as W.
    c, radius = measured.loss_constant, float(measured.movement.max()) / np.sqrt(model.rate)
    words = "near a multiple of the identity the residual decays at the kernel's rate"
    stated = Statement(WOODWORTH("Lemma 11"), words, *RATE)
    rates = c * regime.least_rate(radius), c * regime.least_rate(0.0)
    return (
        decay_claim(stated, "residual decays", measured.t, measured.error, rates[0]),
        decay_claim(stated, "tangent residual decays", measured.t, errors, rates[1]),
    )


def decay_claim(
    stated: Statement, name: str, t: FloatArray, error: FloatArray, rate: float
) -> Claim:
    """The least mean rate of a residual is at least `rate`."""
    if not error[0] > 0.0:
        raise OutsideHypothesis("model: must start off the targets, got zero error. Move them.")
    measured = measured_rate(t, error, float(error[0]))
    silence = measured.silence(rate)
    return stated.at_least(name, measured.value, rate, atol=measured.atol, silence=silence)


@checked
def kernel_regime(
    model: LiftedModel,
    problem: MatrixProblem,
    mu: float | None = None,
    loss: Any = "sum",
    *,
    measured: MeasuredFactors | None = None,
) -> tuple[Claim, Claim]:
    """Factors move by at most O(e/sqrt(mu)) in all, and stay that close to the tangent model's.

    [woodworth2020, Lemma 12 and Theorem 9]; its hypotheses are checked. They need a width of at
    least the number of rows of [U; V] (2 d), since Z Z^T is singular below; the paper says d.

    >>> model = fb.MatrixFactorization.gaussian((2, 2), width=10**5, scale=0.1, rng=0)
    >>> problem = fb.MatrixSensing([np.eye(2)], [1.0])
    >>> all(claim.holds for claim in fb.theory.kernel_regime(model, problem))
    True
    """
    regime = KernelRegime.of(model, problem, mu).required()
    places = WOODWORTH("Lemma 12"), WOODWORTH("Theorem 9")
    tangent = LinearizedFactorization(model, problem, loss)
    return _stays_close(regime, tangent, measured, places)


def _stays_close(
    regime: KernelRegime,
    tangent: LinearizedFactorization,
    measured: MeasuredFactors | None,
    places: tuple[Reference, ...],
) -> tuple[Claim, Claim]:
    """max_t ||Z(t) - Z(0)||_F and max_t ||Z(t) - Z_TK(t)||_F, t = infinity included, as bounded."""
    measured = measured_or_followed(measured, tangent.model, tangent.problem, tangent.loss)
    # Weights that are lifted to [W; W] move sqrt(2) times as far as W.
    unit = float(np.sqrt(tangent.model.rate))
    moved = float(measured.movement.max()) / unit
    apart = [
        float(np.linalg.norm(Z - tangent.factors(float(t))))
        for t, Z in zip([*measured.t, np.inf], [*measured.Z, measured.Z[-1]], strict=True)
    ]
    still, near = "factors stay close to their start", "factors stay close to the tangent model's"
    rests = Statement(places[0], "a start near a multiple of the identity hardly moves", *FACTORS)
    follows = Statement(places[1], "gradient flow follows that of the tangent model", *FACTORS)
    return (
        rests.at_most(still, moved, regime.movement_bound, rtol=FACTORS.size),
        follows.at_most(near, max(apart) / unit, regime.tangent_bound, rtol=FACTORS.size),
    )


_SCALE_FIX = "Pass the standard deviation of the weights at the start."


@checked
def wide_gram(model: LiftedModel, scale: float) -> Claim:
    """||Z Z^T - scale^2 k I||_op < 8 scale^2 sqrt(k p), but for a probability 2 exp(-p/2).

    [woodworth2020, Lemma 13], for Z with p <= k rows of independent N(0, scale^2) entries.

    >>> model = fb.MatrixFactorization.gaussian((30, 30), width=10**6, scale=0.1, rng=0)
    >>> fb.theory.wide_gram(model, scale=0.1).holds
    True
    """
    alpha = positive("scale", scale, _SCALE_FIX)
    gram = own_gram(model)
    rows = len(gram)
    if model.width < rows:
        raise OutsideHypothesis(
            f"model: must have width >= {rows}, the rows of [U; V], got {model.width}. "
            "Below it the Gram matrix is singular and far from any multiple of the identity."
        )
    away = np.abs(np.linalg.eigvalsh(gram) - alpha**2 * model.width).max()
    allowed = 8.0 * alpha**2 * float(np.sqrt(float(model.width) * rows))
    words = f"holds with probability at least 1 - 2 exp(-p/2) = {1 - failure(rows):.4g}"
    stated = Statement(WOODWORTH("Lemma 13"), words, "none: an event, not an identity")
    outside = no_refutation(gram, model.width, alpha, failure(rows))
    silence = outside if away > allowed else ""
    return stated.at_most("Gram matrix of a wide start", away, allowed, silence=silence)


def failure(rows: int) -> float:
    """2 exp(-p/2): with what probability the bounds on a wide start may fail."""
    return 2.0 * float(np.exp(-0.5 * rows))


@dataclass(frozen=True)
class WideRegime:
    """What Corollary 10 promises for weights of standard deviation `scale` and width `width`.

    >>> sizes = {"scale": 0.1, "width": 1000, "rows": 4}
    >>> regime = fb.theory.WideRegime(**sizes, smallest=1.0, largest=1.0, target=1.0)
    >>> round(regime.mu, 6)
    10.0
    """

    scale: float
    width: int
    rows: int  # p = d1 + d2
    smallest: float  # lambda
    largest: float  # Lambda
    target: float  # ||y*||

    @property
    def mu(self) -> float:
        return self.scale**2 * self.width

    @property
    def gamma(self) -> float:
        return 8.0 * self.scale**2 * float(np.sqrt(float(self.width) * self.rows))

    @property
    def error(self) -> float:
        """Bound of ||y(0) - y*||: square 2 Y^2 + 64 p^2 k Lambda alpha^4, from (89) corrected."""
        start = 64.0 * self.rows**2 * self.width * self.largest * self.scale**4
        return float(np.sqrt(2.0 * self.target**2 + start))

    @property
    def regime(self) -> KernelRegime:
        """The constants that go into Theorem 9."""
        return KernelRegime(self.smallest, self.largest, self.mu, self.gamma, self.error)

    @property
    def least_width(self) -> float:
        """Widths from which on the hypotheses of Theorem 9 follow: (94) with its constants right.

        The larger of 128 p^2 K^2 (4 + 16 K)^2 with K = Lambda/lambda, and
        8 Y sqrt(Lambda) (lambda + 4 Lambda)/(alpha lambda)^2. The paper's first term, 4096 p K^2,
        is below the second for every K >= 1.
        """
        lam, big = self.smallest, self.largest
        ratio = big / lam
        third = 8.0 * self.target * np.sqrt(big) * (lam + 4.0 * big) / (self.scale * lam) ** 2
        second = 128.0 * self.rows**2 * ratio**2 * (4.0 + 16.0 * ratio) ** 2
        return float(max(second, third))

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """As `KernelRegime.plot`, with the constants that the width promises."""
        return self.regime.plot(path, ax=ax)

    def _repr_html_(self) -> str:
        return facts(
            f"WideRegime: width {'suffices' if self.width >= self.least_width else 'too small'}",
            {
                "width": f"{self.width}",
                "it must be at least": self.least_width,
                "standard deviation of the weights": self.scale,
                "mu": self.mu,
                "gamma at most": self.gamma,
                "error at the start at most": self.error,
                "probability at least": 1.0 - failure(self.rows),
            },
        )


def wide_regime(model: LiftedModel, problem: MatrixProblem, scale: float) -> WideRegime:
    """The constants of Corollary 10, measured on the problem; refused where it says nothing."""
    alpha = positive("scale", scale, _SCALE_FIX)
    measured = KernelRegime.of(model, problem)
    regime = WideRegime(
        scale=alpha,
        width=model.width,
        rows=len(own_gram(model)),
        smallest=positive(
            "problem", measured.smallest, "lambda is 0: drop measurements that depend on others."
        ),
        largest=measured.largest,
        target=float(np.linalg.norm(problem.target)),
    )
    if not model.width >= regime.least_width:
        raise OutsideHypothesis(
            f"model: must have width >= {regime.least_width:.4g} for Corollary 10, got "
            f"{model.width}. Widen it (the cost stays the same), or use kernel_regime, which "
            "measures the start instead of bounding it."
        )
    return regime


@checked
def wide_kernel_regime(
    model: LiftedModel,
    problem: MatrixProblem,
    scale: float,
    loss: Any = "sum",
    *,
    measured: MeasuredFactors | None = None,
) -> tuple[Claim, Claim]:
    """Wide Gaussian starts move by O(1/(alpha sqrt k) + alpha), but for a probability 2 exp(-p/2).

    [woodworth2020, Corollary 10, (98)-(99)], with the constants of Theorem 9 at the corrected
    bound of the first error, and its condition on the width corrected as well.

    >>> model = fb.MatrixFactorization.gaussian((2, 2), width=10**8, scale=1e-3, rng=0)
    >>> problem = fb.MatrixSensing([np.eye(2)], [1.0])
    >>> all(claim.holds for claim in fb.theory.wide_kernel_regime(model, problem, scale=1e-3))
    True
    """
    regime = wide_regime(model, problem, scale).regime
    tangent = LinearizedFactorization(model, problem, loss)
    return _stays_close(regime, tangent, measured, (WOODWORTH("Corollary 10"),) * 2)
