"""Scales as text: any decimal number that is positive, however large or small."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowbias import InputError
from flowbias.apps.cli.scales import log_of, scale_text, start_of


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_the_logarithm_of_a_double_is_that_of_math(scale):
    # One rounding here, and math.log is exact to one unit in the last place. The decimals of a
    # double are not the double itself but within half a unit, by which its logarithm moves.
    half_unit = 0.5 * math.ulp(1.0)
    expected = pytest.approx(math.log(scale), rel=4e-16, abs=half_unit)
    assert log_of("--scale", repr(scale)) == expected


@given(exponent=st.integers(-(10**12), 10**12))
def test_powers_of_ten_beyond_double_range(exponent):
    assert log_of("--scale", f"1e{exponent}") == pytest.approx(exponent * math.log(10), rel=4e-16)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "-inf", "", "1e", "one", "0e5", "sNaN"])
def test_what_is_no_positive_number_is_refused(text):
    with pytest.raises(InputError, match="--scale: must be a positive number"):
        log_of("--scale", text)


def test_an_ordinary_scale_does_not_take_the_way_through_its_logarithm():
    assert start_of(2.0, None, scale="0.1", log_scale=None).scale == 0.1
    tiny = start_of(2.0, None, scale="1e-320", log_scale=None)  # a double, but a coarse one
    assert tiny.log_scale == pytest.approx(-320 * math.log(10), rel=1e-15)


@pytest.mark.parametrize(
    ("scale", "text"),
    [("1e3", "1000"), ("1", "1"), ("0.00025", "2.5e-4"), ("0.25", "0.25"), ("1e-400", "1e-400")],
)
def test_scales_for_the_eye(scale, text):
    assert scale_text(log_of("--scale", scale)) == text
