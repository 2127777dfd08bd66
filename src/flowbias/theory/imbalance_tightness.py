"""Weights that attain the rate bound: no better one exists from imbalance and product alone.

The theorem of [min2021, appendix C] rederived (proof: docs/theory/linear_networks.md). Take weights
that split into independent pairs, one row u of U and one row v of V each. A pair on two hidden
units with imbalance diag(p, -q) and product <u, v> = s is

    u = (sqrt(p) cosh t, sqrt(q) sinh t),   v = (sqrt(p) sinh t, sqrt(q) cosh t),
    sinh 2t = 2 s/(p + q),     |v|^2 = 1/2 (-p + q + sqrt((p + q)^2 + 4 s^2)),

Lemma 8 with equality. It remains to deal out the eigenvalues of D so that the slowest direction
meets the worst pair: possible for all D and W where r != m, and for r = m unless the least singular
value of W is simple, not 0, and some spread is not 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.models.imbalance import Imbalance
from flowbias.problems.matrix import checked_tensor
from flowbias.theory.arguments import OutsideHypothesis, checked
from flowbias.theory.claim import Claim, Statement, beyond_the_papers
from flowbias.theory.imbalance_bounds import ROUNDING
from flowbias.theory.reduced_net import ReducedNet, at

TIGHTNESS = beyond_the_papers("5 When the bound is attained", "linear_networks")


class AttainingWeights(NamedTuple):
    """U^T U - V^T V = D, U V^T = W; `slowest` (r, m) is the error that decays at the bound."""

    U: FloatArray
    V: FloatArray
    slowest: FloatArray


@checked
def attaining_weights(D: Any, W: Any) -> AttainingWeights:
    """Weights with imbalance D (h, h) and product W (r, m) for which Proposition 1 is an equality.

    Needs D symmetric with at most r positive and m negative eigenvalues and h >= min(r, m), as any
    weights have; and for r = m that sm(W) is 0 or repeated, or that both spreads are 0.

    >>> U, V, slowest = fb.theory.attaining_weights(np.diag([2.0, 1.0, -1.0]), [[1.0], [0.5]])
    >>> bool(np.allclose(U @ V.T, [[1.0], [0.5]]))
    True
    """
    product = checked_tensor("W", W, ("r", "m"))
    imbalance = checked_tensor("D", D, ("h", "h"))
    if len(imbalance) != imbalance.shape[1] or not np.allclose(imbalance, imbalance.T):
        raise InputError(
            f"D: must be symmetric, got shape {imbalance.shape} and asymmetry "
            f"{_asymmetry(imbalance):.3g}. Pass U^T U - V^T V."
        )
    if product.shape[0] >= product.shape[1]:
        return _assemble(imbalance, product)
    mirrored = _assemble(-imbalance, product.T)
    return AttainingWeights(mirrored.V, mirrored.U, mirrored.slowest.T)


@checked
def attained_rate(D: Any, W: Any) -> tuple[Claim, Claim, Claim]:
    """For these D and W some weights and some targets have exactly the rate of Proposition 1.

    S = I. The first two claims say that the weights have the imbalance and product asked for.

    >>> claims = fb.theory.attained_rate(np.diag([2.0, 1.0, -1.0]), [[1.0], [0.5]])
    >>> all(claim.holds for claim in claims)
    True
    """
    found = attaining_weights(D, W)
    product, imbalance = np.asarray(W, dtype=np.float64), np.asarray(D, dtype=np.float64)
    r, m = product.shape
    seen = ReducedNet(found.U, found.V, np.ones(r), product + found.slowest)
    values = scipy.linalg.svdvals(product)
    eigenvalues = np.asarray(scipy.linalg.eigvalsh(imbalance)[::-1], dtype=np.float64)
    spectrum = Imbalance(eigenvalues, r, m)
    size = seen.size + float(np.abs(imbalance).max())
    words = "weights with the given imbalance and product attain the bound on the rate"
    stated = Statement(TIGHTNESS, words, *ROUNDING)
    D_found = found.U.T @ found.U - found.V.T @ found.V
    off = float(np.linalg.norm(D_found - imbalance))
    rate = spectrum.rate_factor(at(values, m), at(values, r))
    return (
        stated.equal("imbalance of the weights", off, size=size),
        stated.equal("product of the weights", np.linalg.norm(seen.product - product), size=size),
        stated.equal("rate attained", seen.rate, rate, size=size),
    )


@dataclass(frozen=True)
class _Deal:
    """Which eigenvalue goes to which pair (indices into a and b), which to rows of U alone."""

    to_pairs_a: list[int]
    to_pairs_b: list[int]
    to_rows: list[int]
    slow_row: int  # row of U (in W's singular basis) along which U U^T is least
    slow_column: int  # row of V


def _assemble(D: FloatArray, W: FloatArray) -> AttainingWeights:
    """The construction for r >= m."""
    r, m = W.shape
    h = len(D)
    values, vectors = scipy.linalg.eigh(D)
    values, vectors = values[::-1], vectors[:, ::-1]
    left, sigma, right = scipy.linalg.svd(W)
    # Below the rounding of a decomposition, which moves no rate by more than rounding.
    zero = 8.0 * np.finfo(float).eps * max(h, r) * max(float(np.abs(values).max()), float(sigma[0]))
    sigma = np.where(sigma > zero, sigma, 0.0)
    plus = [i for i in range(h) if values[i] > zero]
    minus = [i for i in range(h)[::-1] if values[i] < -zero]
    rest = [i for i in range(h) if abs(values[i]) <= zero]
    if len(plus) > r or len(minus) > m or h < m:
        raise InputError(
            f"D: must have at most {r} positive and {m} negative eigenvalues and size >= {m}, got "
            f"{len(plus)}, {len(minus)} and {h}. No weights have this imbalance and product."
        )
    a = np.array([values[i] for i in plus] + [0.0] * (r - len(plus)))
    b = np.array([-values[i] for i in minus] + [0.0] * (m - len(minus)))
    deal = _deal(a, b, sigma)
    U, V = np.zeros((r, h)), np.zeros((m, h))
    for pair in range(m):
        i, j = deal.to_pairs_a[pair], deal.to_pairs_b[pair]
        _place(U[pair], V[pair], (a[i], b[j], sigma[pair]), (_unit(plus, i), _unit(minus, j)), rest)
    for row, i in enumerate(deal.to_rows, start=m):
        if i < len(plus):
            U[row, plus[i]] = np.sqrt(a[i])
    slowest = np.outer(left[:, deal.slow_row], right[deal.slow_column])
    return AttainingWeights(left @ U @ vectors.T, right.T @ V @ vectors.T, slowest)


def _unit(units: list[int], index: int) -> int | None:
    """The hidden unit of an eigenvalue; none for a padded zero."""
    return units[index] if index < len(units) else None


def _place(
    u: FloatArray,
    v: FloatArray,
    pair: tuple[float, float, float],
    units: tuple[int | None, int | None],
    rest: list[int],
) -> None:
    """One pair with imbalance diag(p, -q) and product s, on its hidden units."""
    (p, q, s), (up, down) = pair, units
    if up is None and down is None:
        if s > 0.0:  # balanced: one unit on which D vanishes
            spare = rest.pop()
            u[spare] = v[spare] = np.sqrt(s)
        return
    t = 0.5 * np.arcsinh(2.0 * s / (p + q))
    if up is not None:
        u[up], v[up] = np.sqrt(p) * np.cosh(t), np.sqrt(p) * np.sinh(t)
    if down is not None:
        u[down], v[down] = np.sqrt(q) * np.sinh(t), np.sqrt(q) * np.cosh(t)


def _deal(a: FloatArray, b: FloatArray, sigma: FloatArray, same: float = 1e-12) -> _Deal:
    """Eigenvalues to pairs; the worst pair for V gets (a_1, b_m), the worst for U (a_r, b_1).

    The others: large a's to the first free pairs and large b's to the last, so that no pair is
    left without a hidden unit while another has two (which would ask for more width than D has).
    Values are equal where they differ by the fraction `same` of the largest.
    """
    r, m = len(a), len(b)
    last, size = m - 1, float(sigma[0])
    fixed: dict[int, tuple[int, int]]
    if r > m:
        fixed, alone, slow_row = {last: (0, last)}, [r - 1], r - 1
    elif sigma[last] == 0.0:
        fixed, alone, slow_row = {last: (r - 1, last)}, [], last
    elif max(a[0] - a[-1], b[0] - b[-1]) <= same * max(a[0], b[0]):
        fixed, alone, slow_row = {last: (0, last)}, [], last
    elif m > 1 and sigma[last - 1] - sigma[last] <= same * size:
        fixed, alone, slow_row = {last: (0, last), last - 1: (r - 1, 0)}, [], last - 1
    else:
        raise OutsideHypothesis(
            f"W: must have a least singular value that is 0 or repeated, got {sigma[-2:]}, since "
            "r = m and D has spread. The bound is then not attained by any weights; repeat the "
            "least singular value, or use r != m."
        )
    free = [pair for pair in range(m) if pair not in fixed]
    a_left = [i for i in range(r) if i not in alone and i not in {i for i, _ in fixed.values()}]
    b_left = [j for j in range(m) if j not in {j for _, j in fixed.values()}]
    pairs = dict(fixed)
    for pair, i, j in zip(free, a_left, b_left[::-1], strict=False):
        pairs[pair] = (i, j)
    return _Deal(
        [pairs[pair][0] for pair in range(m)],
        [pairs[pair][1] for pair in range(m)],
        a_left[len(free) :] + alone,
        slow_row,
        last,
    )


def _asymmetry(D: FloatArray) -> float:
    return float(np.abs(D - D.T).max()) if D.shape[0] == D.shape[1] else np.inf
