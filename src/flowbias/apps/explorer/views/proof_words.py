"""What is proved of a limit, and where it lies between the two least norms, in words.

The names of the regimes are used in the sense of [woodworth2020, Theorem 2]: a norm within a factor
of the least possible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flowbias.apps.data_files.limit_files import norms
from flowbias.ground.threads import one_thread
from flowbias.ground.typing import FloatArray
from flowbias.limits.basis_pursuit import basis_pursuit
from flowbias.limits.min_norm import min_norm
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution, Status


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
    """The two predictors that do not depend on the start, certified."""

    rich: Solution
    kernel: Solution

    @classmethod
    def of(cls, problem: Regression) -> Extremes:
        with one_thread():
            return cls(basis_pursuit(problem), min_norm(problem))

    def ratios(self, w: FloatArray) -> tuple[float, float]:
        """l1 norm over the least (1 in the rich limit), and l2 norm over the least (kernel)."""
        least = norms(self.rich.w)[0], norms(self.kernel.w)[1]
        l1, l2 = norms(w)
        return _ratio(l1, least[0]), _ratio(l2, least[1])

    def words(self, w: FloatArray, near: float = 0.01) -> str:
        """Two or three sentences on where w lies: `near` a least norm it has the regime's name."""
        (l1, l2), kernel_l1, rich_l2 = (
            self.ratios(w),
            self.ratios(self.kernel.w)[0],
            self.ratios(self.rich.w)[1],
        )
        numbers = (
            f"Its l1 norm is {l1:.3g} times the least possible (the kernel extreme: "
            f"{kernel_l1:.3g}), its l2 norm {l2:.3g} times (the rich extreme: {rich_l2:.3g})."
        )
        if self.rich.status is Status.NOT_UNIQUE:
            numbers += " Several predictors have the least l1 norm; one of them is drawn."
        if max(kernel_l1, rich_l2) <= 1.0 + near:
            return f"{numbers} The two extremes agree within {near:.0%}."
        if max(l1, l2) <= 1.0 + near:
            return f"{numbers} Within {near:.0%} of both least norms."
        if l1 <= 1.0 + near:
            return f"{numbers} Within {near:.0%} of the least l1 norm: the **rich** regime."
        if l2 <= 1.0 + near:
            return f"{numbers} Within {near:.0%} of the least l2 norm: the **kernel** regime."
        return f"{numbers} It lies between the two regimes."


def _ratio(norm: float, least: float) -> float:
    # Least l1 norms are certified to 1e-10, so that a ratio may round to just below 1. Where the
    # least norm is zero, so is y, and every start that is not biased stays at zero.
    return max(norm / least, 1.0) if least > 0.0 else 1.0
