"""How far a factorization can move, sharply.

With e = ||y(0) - y*||, lambda the least eigenvalue of (<X_n, X_m>)_nm and

    S^2 = lmin(U U^T) + lmin(V V^T)   at the start:   if 2 e < sqrt(lambda) S^2,

gradient flow reaches zero error, its whole path is no longer than S - sqrt(S^2 - 2 e/sqrt(lambda)),
and the residual decays at least at the rate c lambda (S^2 - 2 e/sqrt(lambda)).

Equality holds where one entry is observed and U = V = s I has to shrink to fit it, up to the error
at which that row runs into a saddle: neither the bound nor its hypothesis can be improved. It does
what Theorem 9 of woodworth2020 does, without a Gram matrix near a multiple of the identity and
without a bound on the measurements from above. docs/theory/matrix_factorization.md, section 5, has
the proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias.ground.typing import FloatArray
from flowbias.models.lifted import LiftedModel
from flowbias.problems.matrix import MatrixProblem
from flowbias.theory.arguments import OutsideHypothesis, checked
from flowbias.theory.claim import Claim, Statement, beyond_the_papers
from flowbias.theory.factorization_kernel_regime import decay_claim
from flowbias.theory.measured_flow import FACTORS, RATE, MeasuredFactors, measured_or_followed

REFERENCE = beyond_the_papers("5 Length of the path", "matrix_factorization")


@dataclass(frozen=True)
class Reach:
    """S^2, lambda and e, and what follows from them.

    >>> model = fb.MatrixFactorization.gaussian((2, 2), width=50, scale=0.5, rng=0)
    >>> problem = fb.MatrixSensing([np.eye(2)], [1.0])
    >>> round(fb.theory.Reach.of(model, problem).smallest, 6)
    2.0
    """

    strength: float  # S^2
    smallest: float  # lambda
    error: float  # e

    @classmethod
    @checked
    def of(cls, model: LiftedModel, problem: MatrixProblem) -> Reach:
        """Measured at the start of the model."""
        seen = model.lifted_problem(problem)
        rows = seen.matrices.reshape(len(seen.target), -1)
        values = np.linalg.svd(rows, compute_uv=False)
        full = len(values) == len(rows)
        d1 = model.shape[0]
        return cls(
            strength=_least(model.root[:d1]) + _least(model.root[d1:]),
            smallest=float(values[-1] ** 2) if full else 0.0,
            error=float(np.linalg.norm(problem.measure(model.product) - problem.target)),
        )

    @property
    def remaining(self) -> float:
        """S^2 - 2 e/sqrt(lambda): below this lmin(U U^T) + lmin(V V^T) cannot fall."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.strength - float(2.0 * self.error / np.sqrt(self.smallest))

    @property
    def length(self) -> float:
        """Longest path: S - sqrt(S^2 - 2 e/sqrt(lambda)), without its cancellation."""
        used = self.strength - self.remaining
        return used / float(np.sqrt(self.strength) + np.sqrt(self.remaining))

    def required(self) -> Reach:
        """Itself, if 2 e < sqrt(lambda) S^2."""
        if not self.remaining > 0.0:
            raise OutsideHypothesis(
                f"model: must have 2 ||y(0) - y*|| < sqrt(lambda) S^2, got {2 * self.error:.3g} "
                f"and {np.sqrt(self.smallest) * self.strength:.3g}. Beyond it the flow may end at "
                "a saddle: enlarge the scale or the width of the start, or drop dependent "
                "measurements."
            )
        return self


def _least(rows: FloatArray) -> float:
    """Least eigenvalue of rows rows^T."""
    if rows.shape[1] < rows.shape[0]:
        return 0.0
    return float(np.linalg.svd(rows, compute_uv=False)[-1] ** 2)


@checked
def path_length(
    model: LiftedModel,
    problem: MatrixProblem,
    loss: Any = "sum",
    *,
    measured: MeasuredFactors | None = None,
) -> tuple[Claim, Claim]:
    """Path <= S - sqrt(S^2 - 2 e/sqrt(lambda)), and residual decay at c lambda (S^2 - 2 e/...).

    Ours (docs/theory/matrix_factorization.md, section 5); attained at any size of the error. The
    path is measured as a polygon through the steps of the integrator, or through those of a flow
    that was followed already.

    >>> model = fb.MatrixFactorization.gaussian((2, 2), width=50, scale=0.5, rng=0)
    >>> problem = fb.MatrixSensing([np.eye(2)], [1.0])
    >>> all(claim.holds for claim in fb.theory.path_length(model, problem))
    True
    """
    reach = Reach.of(model, problem).required()
    measured = measured_or_followed(measured, model, problem, loss)
    steps = np.linalg.norm(np.diff(measured.Z, axis=0), axis=(1, 2))
    rate = model.rate * measured.loss_constant * reach.smallest * reach.remaining
    longest = "the whole path of the factors is no longer than the first error allows"
    decays = "the residual decays at the rate that is left at the end of the longest path"
    path, decay = Statement(REFERENCE, longest, *FACTORS), Statement(REFERENCE, decays, *RATE)
    return (
        path.at_most("length of the path", steps.sum(), reach.length, rtol=FACTORS.size),
        decay_claim(decay, "residual decays", measured.t, measured.error, rate),
    )
