"""Claims on the leaky ReLU neuron; what the paper prints instead; what the claims refuse."""

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias.limits.neurons.leaky import leaky_limit
from flowbias.models.neuron import Neuron
from flowbias.theory.neurons import (
    leaky_neuron_converges,
    leaky_neuron_kkt,
    leaky_neuron_limit,
)
from tests.theory.leaky_neuron_instances import LEAKY_NEURON_CLAIMS, leaky
from tests.theory.verdicts import why_nothing

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", sorted(LEAKY_NEURON_CLAIMS))
def test_claims_hold(name):
    instances = LEAKY_NEURON_CLAIMS[name]
    for index in range(instances.count):
        for claim in instances.draw(np.random.default_rng([8, index])):
            assert claim.holds, claim
            assert claim.statement
            assert claim.tolerance_origin
            if claim.reference.paper == "flowbias":
                page = (ROOT / claim.reference.place).read_text(encoding="utf-8")
                assert f"\n## {claim.reference.equation}\n" in page


def test_a10_printed_constraint_is_another_one():
    """Appendix G ends with X v = y. For a > 0 > y it is v = y / slope."""
    model, X, y = Neuron(1.0, [0.3, 0.2], 0.25), [[1.0, 0.0]], [-1.0]
    assert leaky_neuron_limit(model, X, y).holds
    w = leaky_limit(model, X, y, 1e-10).w
    assert_allclose(w[0], y[0] / 0.25, rtol=1e-12)  # not y[0]


def test_a11_printed_activation_is_another_one_for_slopes_above_one():
    """Section 8 has max(s, slope s): for slope 2 it doubles what is positive, not what is negative.

    Its limit is that of the mirrored data: max(s, 2 s) = -sigma(-s), sigma as in appendix G.
    """
    rng = np.random.default_rng(9)
    model, X, y = leaky(rng, slope=2.0)
    s = np.linspace(-1.0, 1.0, 5)
    sigma = np.where(s >= 0.0, s, 2.0 * s)
    mirrored = -np.where(-s >= 0.0, -s, -2.0 * s)
    assert_allclose(np.maximum(s, 2.0 * s), mirrored)
    assert not np.allclose(np.maximum(s, 2.0 * s), sigma)
    ours = leaky_limit(model, X, y, 1e-10).w
    theirs = leaky_limit(Neuron(-model.a, -model.w, 2.0), X, y, 1e-10).w
    assert np.linalg.norm(ours - theirs) > 1e-2 * np.linalg.norm(ours)


def test_claims_refuse_flows_that_end_with_a_loss():
    contradiction = [[1.0, 0.0], [1.0, 0.0]], [1.0, 2.0]
    model = Neuron(1.0, [0.4, 0.3], 0.5)
    assert re.search("reaches zero loss", why_nothing(leaky_neuron_limit, model, *contradiction))
    assert re.search("reaches zero loss", why_nothing(leaky_neuron_kkt, model, *contradiction))
    assert re.search("independent rows", why_nothing(leaky_neuron_converges, model, *contradiction))


def test_convergence_claim_needs_an_outer_weight_that_stays():
    assert re.search(
        r"\|a\(0\)\| > ",
        why_nothing(
            lambda: leaky_neuron_converges(Neuron(0.1, [1.0, 0.0], 0.5), [[1.0, 0.0]], [1.0])
        ),
    )
