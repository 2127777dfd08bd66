"""What is proved of a limit, and where it lies between the two least norms, in words.

The names of the regimes are used in the sense of [woodworth2020, Theorem 2]: a norm within a factor
of the least possible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flowbias.ground.threads import one_thread
from flowbias.ground.typing import FloatArray
from flowbias.limits.basis_pursuit import basis_pursuit
from flowbias.limits.solve import min_norm
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution, Status


def status_word(solution: Solution) -> str:
    """How the solve ended: certified, few digits, ..."""
    return solution.status.name.lower().replace("_", " ")


def distance_words(solution: Solution) -> str:
    """How far the exact limit can be: where coefficients are tiny, a gap need not bound it."""
    bound = solution.certificate.error_bound
    known = f"within {bound:.0e} of the exact limit"
    return known if math.isfinite(bound) else "with no bound on its distance to the exact limit"


def proof_of(solution: Solution) -> str:
    """How the solve ended, and what is proved of its result."""
    return f"{solution.message}; {distance_words(solution)}"


@dataclass(frozen=True)
class Extremes:
    """The two predictors that do not depend on the start: least l1 norm, and least l2 norm."""

    rich: FloatArray
    kernel: FloatArray
    # Whether others have the least l1 norm too.
    several: bool = False

    @classmethod
    def of(cls, problem: Regression) -> Extremes:
        """Both of them certified."""
        with one_thread():
            rich = basis_pursuit(problem)
            return cls(rich.w, min_norm(problem).w, rich.status is Status.NOT_UNIQUE)

    def ratios(self, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """l1 norm over the least (1 in the rich limit), l2 norm over the least (1 in the kernel).

        Of one predictor, or of each row.
        """
        # Squares of what is large or tiny are no doubles.
        unit = float(np.abs(self.kernel).max()) or 1.0
        sizes = (
            (np.linalg.norm(v / unit, p, axis=-1) for v in (w, least))
            for p, least in ((1, self.rich), (2, self.kernel))
        )
        l1, l2 = (_ratio(*pair) for pair in sizes)
        return l1, l2

    def words(self, w: FloatArray, near: float = 0.01) -> str:
        """Two or three sentences on where w lies: `near` a least norm it has the regime's name."""
        (l1, l2), (kernel_l1, _), (_, rich_l2) = map(self.ratios, (w, self.kernel, self.rich))
        numbers = (
            f"Its l1 norm is {l1:.3g} times the least possible (the kernel extreme: "
            f"{kernel_l1:.3g}), its l2 norm {l2:.3g} times (the rich extreme: {rich_l2:.3g})."
        )
        if self.several:
            numbers += " Several predictors have the least l1 norm; one of them is drawn."
        close = 1.0 + near
        if max(kernel_l1, rich_l2) <= close:
            return f"{numbers} The two extremes agree within {near:.0%}."
        if max(l1, l2) <= close:
            return f"{numbers} Within {near:.0%} of both least norms."
        if l1 <= close:
            return f"{numbers} Within {near:.0%} of the least l1 norm: the **rich** regime."
        if l2 <= close:
            return f"{numbers} Within {near:.0%} of the least l2 norm: the **kernel** regime."
        if l1 > close * kernel_l1 or l2 > close * rich_l2:
            return f"{numbers} It is in neither regime, nor between them."
        return f"{numbers} It lies between the two regimes."


def _ratio(norm: FloatArray, least: FloatArray) -> FloatArray:
    # Least l1 norms are certified to 1e-10, so that a ratio may round to just below 1. Where the
    # least norm is zero, so is y, and every start that is not biased stays at zero.
    return np.maximum(norm / least, 1.0) if least > 0.0 else np.ones_like(norm)
