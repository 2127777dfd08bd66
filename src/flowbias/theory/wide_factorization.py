"""Wide Gaussian starts: their Gram matrix, and the kernel regime they are in.

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
from typing import TYPE_CHECKING, Any

import numpy as np

from flowbias.ground.html import facts
from flowbias.models.lifted import LiftedModel
from flowbias.problems.matrix._base import MatrixProblem
from flowbias.theory.arguments import checked
from flowbias.theory.claim import Claim, Kind, Reference
from flowbias.theory.conditions import OutsideHypothesis, positive
from flowbias.theory.factorization_kernel_regime import (
    WOODWORTH,
    KernelRegime,
    movement_claim,
    own_gram,
    tangent_claim,
)
from flowbias.theory.linearized_factorization import LinearizedFactorization
from flowbias.theory.measured_factors import MeasuredFactors, measured_or_followed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    _require_width(model, rows)
    away = np.linalg.eigvalsh(gram) - alpha**2 * model.width
    return Claim(
        "Gram matrix of a wide start",
        measured=float(np.abs(away).max()),
        predicted=8.0 * alpha**2 * float(np.sqrt(float(model.width) * rows)),
        kind=Kind.UPPER,
        reference=Reference(WOODWORTH, "Lemma 13"),
        statement=f"holds with probability at least 1 - 2 exp(-p/2) = {1 - failure(rows):.4g}",
        tolerance_origin="none: an event, not an identity",
    )


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
    measured = measured_or_followed(measured, model, problem, loss)
    tangent = LinearizedFactorization(model, problem, loss)
    place = Reference(WOODWORTH, "Corollary 10")
    return (
        movement_claim(measured, tangent, regime.movement_bound, place),
        tangent_claim(measured, tangent, regime.tangent_bound, place),
    )


def _require_width(model: LiftedModel, rows: int) -> None:
    if model.width < rows:
        raise OutsideHypothesis(
            f"model: must have width >= {rows}, the rows of [U; V], got {model.width}. "
            "Below it the Gram matrix is singular and far from any multiple of the identity."
        )
