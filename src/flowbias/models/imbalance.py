"""How unevenly two layers share a product: what gradient flow conserves.  [min2021, section 3.2]

    D = U1^T U1 - V^T V,    U1 = P1^T U  (the part of U that the data moves; U itself without data)

D is width x width, but with Z = [U1; V] and J = diag(I_r, -I_m) it is Z^T J Z, whose non-zero
eigenvalues are those of the small L^T J L for any root L of the Gram matrix, L L^T = Z Z^T. At most
r eigenvalues are positive and at most m negative (Sylvester's law of inertia). With eigenvalues
decreasing and 0 beyond the range,

    spread_plus = [l_1(D)]+ - [l_r(D)]+,   spread_minus = [l_1(-D)]+ - [l_m(-D)]+
    level       = [l_r(D)]+ + [l_m(-D)]+
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flowbias.ground.drawing import picture, stems
from flowbias.ground.html import facts
from flowbias.ground.typing import Axes, Figure, FloatArray


@dataclass(frozen=True, eq=False)
class Imbalance:
    """The spectrum of D and the three numbers that bound the rate of convergence."""

    #: the eigenvalues of D that can differ from 0, decreasing; the other width - len are 0
    eigenvalues: FloatArray
    #: r: how many can be positive (the rank of X; the rows of U without data)
    rank: int
    #: m: how many can be negative
    outputs: int

    @classmethod
    def of_root(cls, root: FloatArray, rank: int) -> Imbalance:
        """From any L with L L^T = [U1; V][U1; V]^T, r rows of U1 first: the weights, or fewer."""
        if root.shape[1] > len(root):
            root = np.linalg.qr(root.T).R.T  # the same Gram matrix in fewer columns
        upper, lower = root[:rank], root[rank:]
        difference = upper.T @ upper - lower.T @ lower
        eigenvalues = np.linalg.eigvalsh(difference)[::-1].astype(np.float64)
        eigenvalues.setflags(write=False)
        return cls(eigenvalues, rank, len(lower))

    @property
    def positive(self) -> FloatArray:
        """[l_1(D)]+, ..., [l_r(D)]+."""
        return _leading(self.eigenvalues, self.rank)

    @property
    def negative(self) -> FloatArray:
        """[l_1(-D)]+, ..., [l_m(-D)]+."""
        return _leading(-self.eigenvalues[::-1], self.outputs)

    @property
    def spread_plus(self) -> float:
        """[l_1(D)]+ - [l_r(D)]+."""
        return float(self.positive[0] - self.positive[-1])

    @property
    def spread_minus(self) -> float:
        """[l_1(-D)]+ - [l_m(-D)]+."""
        return float(self.negative[0] - self.negative[-1])

    @property
    def level(self) -> float:
        """[l_r(D)]+ + [l_m(-D)]+: alone it guarantees the rate 2 l_r(S) level."""
        return float(self.positive[-1] + self.negative[-1])

    def rate_factor(self, sigma_m: float, sigma_r: float) -> float:
        """{...} of (17): -D+ + sqrt((D+ + Dl)^2 + 4 sm^2) - D- + sqrt((D- + Dl)^2 + 4 sr^2).

        Written as 2 Dl plus two gains, since the printed differences cancel for large spreads.
        """
        plus, minus = self.spread_plus + self.level, self.spread_minus + self.level
        return 2.0 * self.level + gain(plus, sigma_m) + gain(minus, sigma_r)

    def guaranteed_factor(self, target: FloatArray, largest: float, error: float) -> float:
        """c of Theorem 3: the loss falls at least like e^{-lr(S) c t} from now on.  [min2021 (21)]

        (17) with sigma_i = [sigma_i(W^T Y) - ||E||_F]+ / sqrt(l1(S)), `target` W^T Y, `largest`
        sqrt(l1(S)) and `error` ||E||_F now.
        """
        values = np.append(np.linalg.svd(target, compute_uv=False), np.zeros(max(target.shape)))
        r, m = target.shape
        s_m, s_r = (max(float(values[i - 1]) - error, 0.0) / largest for i in (m, r))
        return self.rate_factor(s_m, s_r)

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The eigenvalues of D that can differ from 0."""

        def panel(axes: Axes) -> None:
            stems(axes, self.eigenvalues, label="eigenvalue of  D")
            axes.set_xlabel("number")
            axes.set_title(f"imbalance, level {self.level:.4g}")

        return picture(panel, path=path, ax=ax)

    def _repr_html_(self) -> str:
        return facts(
            "Imbalance",
            {
                "level": self.level,
                "spread of the positive part": self.spread_plus,
                "spread of the negative part": self.spread_minus,
                "largest eigenvalue": float(self.eigenvalues[0]),
                "smallest eigenvalue": float(self.eigenvalues[-1]),
                "positive at most": f"{self.rank}",
                "negative at most": f"{self.outputs}",
            },
        )


def gain(a: float, sigma: float) -> float:
    """sqrt(a^2 + 4 sigma^2) - a for a >= 0, without cancellation."""
    top = 4.0 * sigma * sigma
    return top / (a + float(np.hypot(a, 2.0 * sigma))) if top > 0.0 else 0.0


def _leading(values: FloatArray, count: int) -> FloatArray:
    """The first `count` of decreasing values, cut off at 0, zeros where there are fewer."""
    padded = np.zeros(count)
    first = values[:count]
    padded[: len(first)] = np.maximum(first, 0.0)
    return padded
