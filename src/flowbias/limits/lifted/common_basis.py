"""One orthogonal pair that makes all measurements diagonal, where there is one.

    X_n = P diag(x_n) Q^T for all n    if and only if    X_n X_m^T and X_n^T X_m are symmetric

for all n and m. In the lifted space that is one word: the matrices [[0, X_n], [X_n^T, 0]] commute.
[woodworth2020, Theorem 4] asks that the X_n themselves commute, which is not enough: X_1 = I and
X_2 = E_12 do, and have no such pair (docs/theory/matrix_factorization.md, section 2).

The pair comes from the singular vectors of one generic combination C = sum a_n X_n. Where two
singular values of C agree for generic a, the two columns of (x_n) agree up to sign for every n, so
that any basis which C pairs is as good. The verdict is the defect of the pair that was found.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.problems.matrix import MatrixProblem
from flowbias.problems.regression import Regression

# Share of a measurement that may be left off the diagonal: the rounding of a product of some
# hundred rows is 1e-14, and of singular vectors whose values almost meet 1e-12.
DIAGONAL = 1e-10
# Combinations that are tried: one is enough but for an unlucky near-crossing of singular values.
_DRAWS = 4


@dataclass(frozen=True, eq=False)
class CommonBasis:
    """X_n = left[:, :p] diag(values[n]) right[:, :p]^T with p the smaller side; both orthogonal."""

    left: FloatArray
    right: FloatArray
    values: FloatArray
    defect: float  # largest share of a measurement that is left off the diagonal

    @property
    def pairs(self) -> int:
        """How many rows of U and V are coupled: the smaller side of the matrix."""
        return int(self.values.shape[1])

    def assemble(self, diagonal: FloatArray) -> FloatArray:
        """P diag(diagonal) Q^T."""
        p = self.pairs
        return np.asarray((self.left[:, :p] * diagonal) @ self.right[:, :p].T)

    def regression(self, target: FloatArray) -> Regression:
        """The measurements as a regression on the diagonal of P^T M Q."""
        return Regression(self.values, target)

    @cached_property
    def rotation(self) -> FloatArray:
        """blockdiag(P, Q): takes [U; V] in the common basis to [U; V] itself."""
        return np.asarray(scipy.linalg.block_diag(self.left, self.right))


def common_basis(problem: MatrixProblem, *, tol: float = DIAGONAL) -> CommonBasis | None:
    """The orthogonal pair that diagonalizes all measurements; None where none does it to `tol`."""
    matrices = problem.matrices
    if _is_diagonal(matrices):
        # Diagonal as given: no rotation, no rounding.
        left, right = np.eye(problem.shape[0]), np.eye(problem.shape[1])
        return CommonBasis(left, right, _diagonals(matrices), 0.0)
    unit = _normalized(matrices)
    rng = np.random.default_rng(0)  # any draw will do, and the same data gets the same pair
    bases = (_basis_of(np.tensordot(draw, unit, 1), matrices) for draw in _draws(rng, len(unit)))
    best = min(bases, key=lambda basis: basis.defect)
    return best if best.defect <= tol else None


def require_common_basis(problem: MatrixProblem, *, tol: float = DIAGONAL) -> CommonBasis:
    """`common_basis`, or InputError that says how far the measurements are from having one."""
    basis = common_basis(problem, tol=tol)
    if basis is not None:
        return basis
    matrices = problem.matrices
    commute = plain_commutator(matrices) <= tol
    hint = "They commute, but that is not enough. " if commute else ""
    raise InputError(
        "problem: must have measurements that one orthogonal pair makes diagonal (all X_n X_m^T "
        f"and X_n^T X_m symmetric), got an asymmetry of {lifted_commutator(matrices):.1e} relative "
        f"to their norms. {hint}Follow the flow instead: fb.flow(model, problem)."
    )


def lifted_commutator(matrices: FloatArray) -> float:
    """Largest asymmetry of X_n C^T and X_n^T C relative to the norms, C a generic combination.

    Zero if and only if all [[0, X_n], [X_n^T, 0]] commute, up to the luck of one random draw.
    """
    unit = _normalized(matrices)
    combined = np.tensordot(np.random.default_rng(1).standard_normal(len(unit)), unit, 1)
    size = float(np.linalg.norm(combined)) or 1.0
    left = unit @ combined.T
    right = np.swapaxes(unit, 1, 2) @ combined
    return max(_largest(stack - np.swapaxes(stack, 1, 2)) for stack in (left, right)) / size


def plain_commutator(matrices: FloatArray) -> float:
    """Largest X_n C - C X_n relative to the norms; inf where the matrices are not square."""
    if matrices.shape[1] != matrices.shape[2]:
        return np.inf
    unit = _normalized(matrices)
    combined = np.tensordot(np.random.default_rng(1).standard_normal(len(unit)), unit, 1)
    size = float(np.linalg.norm(combined)) or 1.0
    return _largest(unit @ combined - combined @ unit) / size


def _draws(rng: np.random.Generator, count: int) -> list[FloatArray]:
    return [rng.standard_normal(count) for _ in range(_DRAWS)]


def _basis_of(combined: FloatArray, matrices: FloatArray) -> CommonBasis:
    left, _, right = scipy.linalg.svd(combined)
    rotated = left.T @ matrices @ right.T
    values = _diagonals(rotated)
    off = rotated - _embedded(values, rotated.shape)
    sizes = np.linalg.norm(matrices, axis=(1, 2))
    shares = np.linalg.norm(off, axis=(1, 2)) / np.where(sizes > 0, sizes, 1.0)
    return CommonBasis(left, np.ascontiguousarray(right.T), values, float(shares.max()))


def _normalized(matrices: FloatArray) -> FloatArray:
    sizes = np.linalg.norm(matrices, axis=(1, 2), keepdims=True)
    return np.asarray(matrices / np.where(sizes > 0, sizes, 1.0))


def _diagonals(matrices: FloatArray) -> FloatArray:
    return np.ascontiguousarray(np.diagonal(matrices, axis1=1, axis2=2))


def _embedded(values: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    matrices = np.zeros(shape)
    places = np.arange(values.shape[1])
    matrices[:, places, places] = values
    return matrices


def _is_diagonal(matrices: FloatArray) -> bool:
    return bool((matrices == _embedded(_diagonals(matrices), matrices.shape)).all())


def _largest(stack: FloatArray) -> float:
    return float(np.linalg.norm(stack, axis=(1, 2)).max())
