"""The claim itself: that it can fail, and says so."""

import re

import numpy as np
import pytest

import flowbias as fb
from flowbias import theory
from flowbias.theory import Claim, Kind, Reference, Verdict
from flowbias.theory.claim import Statement, Tolerance
from tests.theory.verdicts import why_nothing


def claim(measured, predicted, kind, **tolerance):
    reference = Reference("paper", "Theorem 1", "(2)")
    return Claim("name", measured, predicted, kind, reference, "words", "origin", **tolerance)


@pytest.mark.parametrize(
    ("measured", "predicted", "kind", "holds"),
    [
        (1.0, 1.0, Kind.EQUAL, True),
        (1.0, 1.1, Kind.EQUAL, False),
        (1.1, 1.0, Kind.EQUAL, False),
        (1.0, 1.1, Kind.UPPER, True),
        (1.0, 1.0, Kind.UPPER, True),
        (1.1, 1.0, Kind.UPPER, False),
        (1.1, 1.0, Kind.LOWER, True),
        (1.0, 1.1, Kind.LOWER, False),
        (-np.inf, 0.0, Kind.UPPER, True),
        (np.inf, 0.0, Kind.LOWER, True),
    ],
)
def test_kinds(measured, predicted, kind, holds):
    assert claim(measured, predicted, kind).holds is holds


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize(("measured", "predicted"), [(np.nan, 1.0), (1.0, np.nan)])
def test_what_cannot_be_measured_supports_nothing(measured, predicted, kind):
    assert not claim(measured, predicted, kind, rtol=1.0, atol=1.0).holds


@pytest.mark.parametrize("kind", Kind)
def test_tolerance_is_counted_from_the_prediction(kind):
    off = {Kind.EQUAL: 1.0, Kind.UPPER: 1.0, Kind.LOWER: -1.0}[kind]
    inside = claim(10.0 + 0.999 * off, 10.0, kind, rtol=0.05, atol=0.5)
    outside = claim(10.0 + 1.001 * off, 10.0, kind, rtol=0.05, atol=0.5)
    assert inside.tolerance == 1.0
    assert inside.holds
    assert not outside.holds


def test_slack_is_the_distance_to_failure():
    assert claim(1.0, 3.0, Kind.UPPER, atol=0.5).slack == 2.5
    assert claim(3.0, 1.0, Kind.LOWER, atol=0.5).slack == 2.5
    assert claim(1.25, 1.0, Kind.EQUAL, atol=0.5).slack == 0.25
    assert claim(4.0, 3.0, Kind.UPPER).slack == -1.0


@pytest.mark.parametrize(
    ("measured", "predicted", "kind", "words"),
    [
        (1.0, np.inf, Kind.UPPER, "infinite"),
        (np.inf, np.inf, Kind.UPPER, "infinite"),
        (1.0, -np.inf, Kind.LOWER, "infinite"),
        (np.inf, np.inf, Kind.EQUAL, "infinite"),
        (np.nan, 1.0, Kind.EQUAL, "could not be measured"),
        (1.0, np.nan, Kind.UPPER, "no number"),
    ],
)
def test_a_vacuous_claim_says_nothing(measured, predicted, kind, words):
    for tolerance in ({}, {"rtol": 0.1, "atol": 1.0}):
        vacuous = claim(measured, predicted, kind, **tolerance)
        assert vacuous.verdict is Verdict.SILENT
        assert words in vacuous.reason
        assert not vacuous.holds
        assert not vacuous


def test_a_bound_on_the_wrong_side_of_infinity_fails():
    assert claim(1.0, -np.inf, Kind.UPPER).verdict is Verdict.FAILS
    assert claim(1.0, np.inf, Kind.LOWER).verdict is Verdict.FAILS


def test_a_reason_given_silences_numbers_that_agree():
    silent = claim(1.0, 1.0, Kind.EQUAL, silence="only one fit")
    assert (silent.verdict, silent.reason, bool(silent)) == (Verdict.SILENT, "only one fit", False)
    assert "name: says nothing here: only one fit [paper" in repr(silent)
    assert "says nothing here" in silent._repr_html_()
    assert "only one fit" in silent._repr_html_()


def test_the_reason_says_how_far_off_the_numbers_are():
    assert claim(1.0, 3.0, Kind.UPPER).reason == "1 <= 3 with 2 to spare"
    off = claim(1.25, 1.0, Kind.EQUAL, atol=0.5).reason
    assert off == "off by 0.25, within the tolerance of 0.5"
    assert claim(2.0, 1.0, Kind.EQUAL).reason == "off by 1, beyond the tolerance of 0"


def test_repr_says_what_happened():
    assert "holds" in repr(claim(1.0, 2.0, Kind.UPPER))
    failed = repr(claim(2.0, 1.0, Kind.UPPER))
    for part in ("name", "2 <= 1", "FAILS", "paper, Theorem 1, (2)", "words"):
        assert part in failed


@pytest.mark.parametrize("tolerance", [{"rtol": -1e-3}, {"atol": np.nan}])
def test_tolerances_are_checked(tolerance):
    with pytest.raises(fb.InputError, match="must be >= 0"):
        claim(1.0, 1.0, Kind.EQUAL, **tolerance)


def test_between_is_two_claims():
    stated = Statement(Reference("p", "q"), "s", "o")
    assert [c.holds for c in stated.between("n", 2.0, (1.0, 3.0))] == [True, True]
    assert [c.holds for c in stated.between("n", 0.0, (1.0, 3.0))] == [False, True]
    assert [c.holds for c in stated.between("n", 4.0, (1.0, 3.0))] == [True, False]


def test_a_statement_lends_its_tolerance():
    """To numbers of size 1, or of the size given, and to none that have one of their own."""
    stated = Statement(Reference("p", "q"), "words", *Tolerance("origin", 0.5))
    made = (
        stated.equal("a", 1.0),
        stated.equal("b", 1.0, size=4.0),
        stated.equal("c", 1.0, atol=0.25),
        stated.at_most("d", 1.0, 2.0, rtol=0.125),
        stated.equal("e", 1.0, atol=0.0),
    )
    assert [claim.tolerance for claim in made] == [0.5, 2.0, 0.25, 0.25, 0.0]
    assert {claim.tolerance_origin for claim in made} == {"origin"}


def test_claims_of_one_statement_share_its_words():
    stated = Statement(Reference("p", "q"), "words", "origin")
    equal, most, least = (
        stated.equal("a", 0.25, atol=0.5),
        stated.at_most("b", 3.0, 2.0, rtol=0.25),
        stated.at_least("c", 1, 2),
    )
    assert [(c.kind, c.holds, c.tolerance) for c in (equal, most, least)] == [
        (Kind.EQUAL, True, 0.5),
        (Kind.UPPER, False, 0.5),
        (Kind.LOWER, False, 0.0),
    ]
    for made in (equal, most, least):
        assert (made.reference, made.statement) == (stated.reference, "words")
        assert made.tolerance_origin == "origin"


X, Y = np.array([[1.0, 2.0, 0.5]]), np.array([1.0])


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: theory.rich_scale(0.0, 1.0, 3), "eps"),
        (lambda: theory.rich_scale(0.1, 0.0, 3), "l1_norm"),
        (lambda: theory.kernel_scale(0.1, np.inf), "l2_norm"),
        (lambda: theory.sharp_rich_log_scale(10.0, 1.0, 3), "eps"),
        (lambda: theory.rich_guarantee(X, Y, 0.1, log_scale=0.0), "log_scale"),
        (lambda: theory.kernel_guarantee(X, Y, 0.1, log_scale=-5.0), "log_scale"),
        (lambda: theory.not_l1(1.0, 100.0), "d"),
        (lambda: theory.hypentropy_large(0.0), "z"),
        (lambda: theory.equal_magnitudes([1.0, 2.0, 1.0], [1.0, 1.0, 1.0], X, Y, 1.0), "v"),
        (lambda: theory.dual_stays_inside(fb.DiagonalNet(2, 1.0), X, Y, 1.0), "model"),
        (lambda: theory.kernel_distance(fb.DiagonalNet(2, 0.1), X, Y), "model"),
        (lambda: theory.rich_excess(fb.DiagonalNet(2, 2.0), X, Y), "model"),
        (
            lambda: theory.rich_excess(fb.DiagonalNet.from_weights([1, 2, 1], [1, 1, 1]), X, Y),
            "model",
        ),
        (lambda: theory.untied_near_l1([1.0], 0.0), "sqrt_k"),
        (lambda: theory.hypentropy_needs_exponential_scale(5.0, 9.0), "eps"),
    ],
)
def test_hypotheses_are_checked(call, argument):
    reason = why_nothing(call)
    assert re.match(rf"{argument}: must .*, got .*\. \S", reason)
    assert reason.endswith(".")


def test_outside_its_hypothesis_a_claim_says_what_it_would_state():
    claims = theory.not_l1(1.0, 100.0), *theory.rich_excess(fb.DiagonalNet(2, 2.0), X, Y)
    assert [claim.verdict for claim in claims] == [Verdict.SILENT] * 3
    assert str(claims[0].reference) == "woodworth2020, Lemma 6"
    assert "Q(e_1)/||e_1||_1 >= (1+eps)" in claims[0].statement
    # What is no claim is refused: there is nothing that could be silent.
    with pytest.raises(fb.InputError, match="d: must be >="):
        theory.mismatch_log_scale(1.0, 100.0)
