"""Conserved polynomials: exactly the known ones, and nothing else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowbias.derive import Polynomial, conservation_laws, orbit_dimension
from flowbias.derive.conservation import Monomials, count_monomials, echelon_form, rounded
from flowbias.ground.arguments import InputError
from tests.derive.zoo import ALL, KNOWN, disguised, example, neuron


def coefficient_rows(laws, monomials):
    """Each law as a row of coefficients over all monomials."""
    place = {monomials[m]: m for m in range(len(monomials))}
    rows = np.zeros((len(laws), len(monomials)))
    for row, law in zip(rows, laws, strict=True):
        for c, monomial in zip(law.coefficients, law.monomials, strict=True):
            row[place[monomial]] = c
    return rows


@pytest.mark.parametrize("e", ALL, ids=lambda e: e.key)
def test_known_count(e):
    known, found = KNOWN[e.key], conservation_laws(e.parametrization(), flows=1)
    assert found.holds
    assert len(found) == known.quadratic
    assert all(found.exact)
    # Polynomial laws of degree 2 are all there are, or there are none of them.
    assert found.independent in {known.laws, 0}


def test_two_layer_linear_net_has_the_balance_matrix():
    """U^T U - V^T V of a 2-3-2 net: six entries, and their span, coefficient by coefficient."""
    e = example("linear-net")
    found = conservation_laws(e.parametrization())
    monomials = Monomials.up_to(2, 12)
    u = np.arange(6).reshape(2, 3)
    v = u + 6
    place = {monomials[m]: m for m in range(len(monomials))}
    known = np.zeros((6, len(monomials)))
    pairs = [(i, j) for i in range(3) for j in range(i, 3)]
    for row, (i, j) in zip(known, pairs, strict=True):
        for k in range(2):
            row[place[tuple(sorted((int(u[k, i]), int(u[k, j]))))]] += 1.0
            row[place[tuple(sorted((int(v[k, i]), int(v[k, j]))))]] -= 1.0
    mine = coefficient_rows(found.laws, monomials)
    assert len(mine) == 6
    assert np.linalg.matrix_rank(np.vstack([mine, known])) == 6


def test_readable():
    product = conservation_laws(example("product").parametrization())
    assert [str(law) for law in product.laws] == [
        "u1*u1 - v1*v1",
        "u2*u2 - v2*v2",
        "u3*u3 - v3*v3",
    ]
    assert repr(product).splitlines()[1] == "  u1*u1 - v1*v1"
    (balance,) = conservation_laws(neuron(2, 0.5)).laws
    assert str(balance) == "th1*th1 - th2*th2 - th3*th3"
    named = conservation_laws(neuron(2, 0.5), names=["a", "p", "q"])
    assert str(named.laws[0]) == "a*a - p*p - q*q"
    crossed = conservation_laws(
        lambda th: th[:1] * th[1:2] - th[2:3] * th[3:], [0.5, 0.3, 0.4, 0.7], names="uvxy"
    )
    assert {str(law) for law in crossed.laws} == {
        "u*u - v*v",
        "u*x + v*y",
        "u*y + v*x",
        "x*x - y*y",
    }
    assert crossed.independent == 3


def test_small_fractions_become_integers():
    """w = a^2 b^3: a' = 2 a b^3, b' = 3 a^2 b^2, so 3 a^2 - 2 b^2 stays."""
    (law,) = conservation_laws(lambda th: th[:1] ** 2 * th[1:] ** 3, [0.8, 0.7], names="ab").laws
    assert str(law) == "3*a*a - 2*b*b"


def test_a_law_of_mixed_degrees():
    """w = y e^x: grad w = e^x (y, 1) is orthogonal to the gradient of 2 x - y^2."""
    found = conservation_laws(lambda th: th[1:] * th[:1].exp(), [0.03, 0.02], names="xy")
    assert [str(law) for law in found.laws] == ["2*x - y*y"]


def test_coefficients_that_are_no_fractions_stay_numbers():
    """w = a^sqrt(2) b keeps a^2 - sqrt(2) b^2."""
    found = conservation_laws(lambda th: th[:1].abs() ** np.sqrt(2.0) * th[1:], [0.8, 0.7])
    assert found.holds
    assert found.exact == (False,)
    np.testing.assert_allclose(found.laws[0].coefficients, [1.0, -np.sqrt(2.0)], rtol=1e-9)


def test_law_of_degree_three():
    """w = Re (x + i y)^3 keeps the imaginary part: conjugate gradients are orthogonal."""

    def real_part(th):
        return th[:1] ** 3 - 3 * th[:1] * th[1:] ** 2

    assert len(conservation_laws(real_part, [0.9, 0.7], names="xy")) == 0
    (law,) = conservation_laws(real_part, [0.9, 0.7], 3, names="xy").laws
    assert str(law) == "3*x*x*y - y*y*y"


def test_laws_that_are_no_polynomials_are_not_found():
    """w = x + y^3 keeps 3 x + 1/y, w = x + y^2/2 keeps x - log y: one law each, by the orbit."""
    for power in (2, 3):
        start = [0.9, 0.7]
        assert len(conservation_laws(lambda th, k=power: th[:1] + th[1:] ** k / k, start, 3)) == 0
        orbit = orbit_dimension(lambda th, k=power: th[:1] + th[1:] ** k / k, start, points=0)
        assert orbit.conservation_laws == 1


def test_products_of_laws_are_laws_but_not_new_ones():
    found = conservation_laws(lambda th: th[:1] * th[1:], [0.9, 0.7], 4, names="uv")
    assert [str(law) for law in found.laws] == ["u*u - v*v", "u*u*u*u - 2*u*u*v*v + v*v*v*v"]
    assert found.independent == 1


def test_parameter_that_does_nothing():
    found = conservation_laws(lambda th: th[:2] ** 2, [0.5, 0.4, 0.3])
    assert [str(law) for law in found.laws] == ["th3", "th3*th3"]
    assert found.independent == 1


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e4])
def test_scale_of_the_start_changes_no_law(scale):
    e = example("two-neurons")
    found = conservation_laws(e.F, scale * np.array(e.theta0), names=e.names)
    assert repr(found.laws) == repr(conservation_laws(e.parametrization()).laws)
    assert found.holds


@settings(max_examples=4)
@given(seed=st.integers(0, 10**6))
def test_other_coordinates_change_no_count(seed):
    keys = ("product", "two-neurons", "chain", "circular-convolution")
    key = keys[seed % len(keys)]
    found = conservation_laws(disguised(example(key), seed))
    assert found.holds
    assert len(found) == KNOWN[key].quadratic


@pytest.mark.parametrize("key", ["two-neurons", "weight-normalization", "difference-of-products"])
def test_never_more_than_the_orbit_allows(key):
    model = example(key).parametrization()
    assert (
        conservation_laws(model, flows=1).independent
        <= orbit_dimension(model, points=0).conservation_laws
    )


@given(seed=st.integers(0, 10**6), degree=st.integers(1, 4))
def test_derivatives_of_polynomials(seed, degree):
    rng = np.random.default_rng(seed)
    monomials = Monomials.up_to(degree, 3)
    assert len(monomials) == count_monomials(3, degree)
    polynomial = Polynomial(
        tuple(rng.standard_normal(len(monomials))),
        tuple(monomials[m] for m in range(len(monomials))),
        ("x", "y", "z"),
    )
    theta = rng.standard_normal(3)
    h = 1e-5
    quotient = [
        (polynomial(theta + h * e) - polynomial(theta - h * e)) / (2 * h) for e in np.eye(3)
    ]
    # Central differences: h^2 times a third derivative, of which theta^1 times up to 100 terms.
    np.testing.assert_allclose(polynomial.gradient(theta), quotient, atol=1e-6)
    assert polynomial.size(theta) >= abs(polynomial(theta))


@given(seed=st.integers(0, 10**6))
def test_echelon_form_spans_the_same_space(seed):
    rng = np.random.default_rng(seed)
    whole = rng.integers(-2, 3, (3, 7)).astype(float)
    rank = np.linalg.matrix_rank(whole)
    basis = np.linalg.svd(whole)[2][:rank]
    reduced = echelon_form(basis)
    assert np.linalg.matrix_rank(np.vstack([reduced, whole]), tol=1e-8) == rank
    leading = [int(np.flatnonzero(row)[0]) for row in reduced]
    assert leading == sorted(set(leading))
    np.testing.assert_allclose(reduced[:, leading], np.eye(rank), atol=1e-12)


def test_rounding_refuses_what_is_no_small_fraction():
    np.testing.assert_array_equal(rounded(np.array([0.0, 1.5, -1.0])), [0.0, 3.0, -2.0])
    assert rounded(np.array([1.0, np.pi])) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: conservation_laws(neuron(3, 0.4), degree=0), "degree: must be .* >= 1, got 0"),
        (lambda: conservation_laws(neuron(3, 0.4), degree=2.5), "whole number >= 1, got 2.5"),
        (
            lambda: conservation_laws(lambda th: th[:1] * th[1:2], np.ones(200)),
            r"got 200: 20300 coefficients take about .* operations .* GB",
        ),
        (
            lambda: conservation_laws(neuron(2, 0.4), names=["a"]),
            "names: must be 3 different names",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()
