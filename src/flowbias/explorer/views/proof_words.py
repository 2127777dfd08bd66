"""What a certificate proves of a limit, in words that stay true where it proves little."""

from __future__ import annotations

import math

from flowbias.solution import Solution


def distance_words(solution: Solution) -> str:
    """How far the exact limit can be: where coefficients are tiny, a gap need not bound it."""
    bound = solution.certificate.error_bound
    known = f"within {bound:.0e} of the exact limit"
    return known if math.isfinite(bound) else "with no bound on its distance to the exact limit"
