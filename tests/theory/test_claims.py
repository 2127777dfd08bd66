"""Every claim, on many random instances; the kinds are respected by `Claim.holds`."""

import inspect
from pathlib import Path

import numpy as np
import pytest

from flowbias import theory
from flowbias.problem import InputError
from tests.theory.instances import CLAIMS, as_tuple

ROOT = Path(__file__).resolve().parents[2]
PUBLIC_CLAIMS = sorted(
    name
    for name in theory.__all__
    if inspect.isfunction(getattr(theory, name))
    and "Claim" in str(inspect.signature(getattr(theory, name)).return_annotation)
)


def test_every_public_claim_has_instances():
    assert sorted(CLAIMS) == PUBLIC_CLAIMS


@pytest.mark.parametrize("name", PUBLIC_CLAIMS)
def test_claim_holds(name):
    instances = CLAIMS[name]
    # Seeded by the name, so that adding a claim does not change the instances of another.
    seed = int.from_bytes(name.encode(), "little")
    failures = []
    for index in range(instances.count):
        claims = as_tuple(instances.draw(np.random.default_rng([seed, index])))
        failures += [(index, claim) for claim in claims if not claim.holds]
    assert failures == []


@pytest.mark.parametrize("name", PUBLIC_CLAIMS)
def test_claim_says_what_it_is(name):
    docstring = getattr(theory, name).__doc__
    assert docstring
    assert len(docstring) > 40
    for claim in as_tuple(CLAIMS[name].draw(np.random.default_rng(0))):
        assert claim.statement
        assert claim.tolerance_origin
        assert claim.reference.paper in {"woodworth2020", "min2021", "azulay2021", "flowbias"}
        assert claim.reference.place
        if claim.reference.paper == "flowbias":  # ours: the section with the proof must exist
            page = (ROOT / claim.reference.place).read_text(encoding="utf-8")
            assert f"\n## {claim.reference.equation}\n" in page


W, EPS = [0.5, -2.0, 1.0], 0.1
L1, L2 = np.linalg.norm(W, 1), np.linalg.norm(W)


@pytest.mark.parametrize(
    ("claims", "threshold", "outside"),
    [
        (lambda log: theory.nearly_l1(W, EPS, log), theory.l1_log_scale(EPS, L1, 3), np.inf),
        (lambda log: theory.nearly_l2(W, EPS, log), theory.l2_log_scale(EPS, L2), -np.inf),
        (lambda log: theory.not_l1(EPS, 1000, log), theory.mismatch_log_scale(EPS, 1000), -np.inf),
    ],
    ids=["nearly_l1", "nearly_l2", "not_l1"],
)
def test_the_scale_of_a_hypothesis_is_within_it_however_it_was_rounded(claims, threshold, outside):
    """The norm it was computed from may have been summed in another order than the claim's own."""
    for log_scale in (threshold, np.nextafter(threshold, outside)):
        assert all(claim.holds for claim in as_tuple(claims(log_scale)))
    with pytest.raises(InputError, match="log_scale: must be"):
        claims(threshold + np.copysign(1e-9 * abs(threshold), outside))
