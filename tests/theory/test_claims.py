"""Every claim, on many random instances: none fails, and each fails where something is broken."""

import functools
import inspect
from pathlib import Path

import numpy as np
import pytest

from flowbias import theory
from tests.theory.instances import CLAIMS
from tests.theory.mutations import MUTATIONS
from tests.theory.verdicts import as_tuple, failures, kind, why_nothing

ROOT = Path(__file__).resolve().parents[2]
PUBLIC_CLAIMS = sorted(
    name
    for name in theory.__all__
    if inspect.isfunction(getattr(theory, name))
    and "Claim" in str(inspect.signature(getattr(theory, name)).return_annotation)
)


def drawn(name, index):
    # Seeded by the name, so that adding a claim does not change the instances of another.
    seed = int.from_bytes(name.encode(), "little")
    return as_tuple(CLAIMS[name].draw(np.random.default_rng([seed, index])))


@functools.cache
def as_it_is(name, index):
    """One instance of a claim, which its tests share."""
    return drawn(name, index)


def test_every_public_claim_has_instances_and_mutations():
    assert sorted(CLAIMS) == PUBLIC_CLAIMS
    assert sorted(MUTATIONS) == PUBLIC_CLAIMS


@pytest.mark.parametrize("name", PUBLIC_CLAIMS)
def test_claim_holds(name):
    """On no instance does it fail, and each of its claims holds on some."""
    claims = [claim for index in range(CLAIMS[name].count) for claim in as_it_is(name, index)]
    assert failures(claims) == []
    measured = {kind(claim) for claim in claims if claim.verdict is not theory.Verdict.SILENT}
    assert measured == {kind(claim) for claim in claims if claim.holds}
    assert measured


@pytest.mark.parametrize("name", PUBLIC_CLAIMS)
def test_claim_can_fail(name, monkeypatch):
    """Each of its claims fails under a mutation, on one of the first instances."""
    some = range(min(CLAIMS[name].count, 40))
    able = {kind(claim) for index in some for claim in as_it_is(name, index) if claim.holds}
    failed = set()
    for mutation in MUTATIONS[name]:
        with monkeypatch.context() as patched:
            mutation.apply(patched)
            for index in some:
                failed |= {kind(claim) for claim in failures(drawn(name, index))}
                if failed >= able:
                    break
    assert able
    assert able - failed == set()


@pytest.mark.parametrize("name", PUBLIC_CLAIMS)
def test_claim_says_what_it_is(name):
    docstring = getattr(theory, name).__doc__
    assert docstring
    assert len(docstring) > 40
    for claim in as_it_is(name, 0):
        assert claim.statement
        assert claim.tolerance_origin
        assert claim.reason
        assert claim.reference.paper in {"woodworth2020", "min2021", "azulay2021", "flowbias"}
        assert claim.reference.place
        # Ours: the section with the proof must exist.
        if claim.reference.paper == "flowbias" and not np.isnan(claim.measured):
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
    beyond = threshold + np.copysign(1e-9 * abs(threshold), outside)
    assert why_nothing(claims, beyond).startswith("log_scale: must be")
