"""Bad input: each message names the argument, the constraint, the value got and the fix."""

import numpy as np
import pytest

from flowbias.potentials import (
    L1,
    L2,
    BiasedDepthPotential,
    DepthPotential,
    DistancePotential,
    Hypentropy,
    HyperbolicPotential,
    UntiedPotential,
)

SCALED = [
    pytest.param(Hypentropy, id="Hypentropy"),
    pytest.param(UntiedPotential, id="UntiedPotential"),
    pytest.param(DistancePotential, id="DistancePotential"),
    pytest.param(lambda **kwargs: DepthPotential(3, **kwargs), id="DepthPotential"),
]


@pytest.mark.parametrize("make", SCALED)
class TestScale:
    @pytest.mark.parametrize("bad", [0, -0.1, np.nan, np.inf])
    def test_must_be_positive(self, make, bad):
        message = rf"^scale: must be > 0 and finite, got {bad:.6g}\. For scales .*log_scale="
        with pytest.raises(ValueError, match=message):
            make(scale=bad)
        with pytest.raises(ValueError, match=message):
            make(scale=[1.0, bad])

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_log_must_be_finite(self, make, bad):
        with pytest.raises(
            ValueError, match=r"^log_scale: must be finite, got .*\. Pass the natur"
        ):
            make(log_scale=[0.0, bad])

    def test_exactly_one(self, make):
        with pytest.raises(
            ValueError, match=r"^scale, log_scale: exactly one .*got both\. Pass sc"
        ):
            make(scale=1.0, log_scale=0.0)
        with pytest.raises(
            ValueError, match=r"^scale, log_scale: exactly one .*got neither\. Pass"
        ):
            make()

    def test_must_be_a_number(self, make):
        with pytest.raises(ValueError, match=r"^scale: must be a real number.*got 'small'\. Pass"):
            make(scale="small")

    @pytest.mark.parametrize("good", [2, np.float32(2), [2, 2], np.array([2, 2]), (2.0, 2.0)])
    def test_any_real_type_serves(self, make, good):
        expected = make(scale=2.0)
        w = np.array([0.5, -3.0])
        np.testing.assert_array_equal(make(scale=good).grad(w), expected.grad(w))
        by_log = make(log_scale=np.log(np.asarray(good, dtype=np.float64)))
        np.testing.assert_allclose(by_log.grad(w), expected.grad(w), rtol=1e-14)

    def test_is_copied(self, make):
        scale = np.array([1.0, 2.0])
        potential = make(scale=scale)
        before = potential.grad(np.ones(2))
        scale[:] = 7.0
        np.testing.assert_array_equal(potential.grad(np.ones(2)), before)
        np.testing.assert_array_equal(potential.scale, [1.0, 2.0])
        with pytest.raises(ValueError, match="read-only"):
            potential.scale[0] = 1.0


@pytest.mark.parametrize("bad", [1.0, -1.0, 2.0, np.nan])
def test_shape(bad):
    message = rf"^shape: must lie in \(-1, 1\), got {bad:.6g}\. .*from_sqrt_k"
    with pytest.raises(ValueError, match=message):
        UntiedPotential(scale=1.0, shape=[0.0, bad])


@pytest.mark.parametrize("bad", [0.0, -1.0, np.inf, np.nan])
def test_sqrt_k(bad):
    with pytest.raises(ValueError, match=r"^sqrt_k: must be > 0 and finite, got .*Hyperbolic"):
        UntiedPotential.from_sqrt_k([1.0, bad])


@pytest.mark.parametrize("bad", [2, 1, 0, -3, np.nan, np.inf])
@pytest.mark.parametrize(
    "make", [lambda d: DepthPotential(d, scale=1.0), lambda d: BiasedDepthPotential(d, 0.0, 0.0)]
)
def test_depth(make, bad):
    message = rf"^depth: must be > 2 and finite, got {bad:.6g}\. .*Hypentropy"
    with pytest.raises(ValueError, match=message):
        make(bad)


def test_depth_is_one_number():
    with pytest.raises(ValueError, match=r"^depth: must be a single number, got \[3, 4\]\. Pass"):
        DepthPotential([3, 4], scale=1.0)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize(
    "make", [HyperbolicPotential, lambda *logs: BiasedDepthPotential(3, *logs)]
)
def test_logarithms(make, bad):
    with pytest.raises(ValueError, match=rf"^log_plus: must be a number .*got {bad}\. .*-inf"):
        make(bad, 0.0)
    with pytest.raises(ValueError, match=rf"^log_minus: must be a number .*got {bad}\. .*-inf"):
        make(0.0, [0.0, bad])


@pytest.mark.parametrize("logs", [(300.0, 0.0), (0.0, [0.0, 300.0])])
def test_biased_start_must_be_a_double(logs):
    message = r"^log_(plus|minus): must be < 709/depth = 236\.333, got 300\. Use DepthPotential"
    with pytest.raises(ValueError, match=message):
        BiasedDepthPotential(3, *logs)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan])
def test_rate(bad):
    with pytest.raises(ValueError, match=r"^rate: must be > 0 and finite, got .*\. Pass 1\.0"):
        HyperbolicPotential(0.0, 0.0, rate=bad)


def test_lengths_must_agree():
    with pytest.raises(ValueError, match=r"^log_minus: must broadcast .*got shape \(3,\).*\. Pass"):
        HyperbolicPotential([0.0, 0.0], [0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match=r"^log_minus: must broadcast .*got shape \(3,\).*\. Pass"):
        BiasedDepthPotential(3, [0.0, 0.0], [0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match=r"^shape: must broadcast .*got shape \(3,\).*\. Pass"):
        UntiedPotential(scale=[1.0, 1.0], shape=[0.0, 0.0, 0.0])


@pytest.mark.parametrize("norm", [L1, L2])
@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_weights(norm, bad):
    with pytest.raises(ValueError, match=r"^weights: must be > 0 and finite, got .*\. Remove"):
        norm(weights=[1.0, bad])


def test_reprs_are_short_and_say_how_it_was_made():
    assert repr(Hypentropy(scale=0.1)) == "Hypentropy(scale=0.1)"
    assert repr(Hypentropy(log_scale=-1e4)) == "Hypentropy(log_scale=-10000)"
    assert repr(DepthPotential(5, scale=0.2)) == "DepthPotential(depth=5, scale=0.2)"
    assert repr(Hypentropy([1, 2])) == "Hypentropy(scale=<2 values in [1, 2]>)"
    assert repr(L2()) == "L2(weights=1)"
