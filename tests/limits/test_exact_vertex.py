"""Vertices of the l1 norm in rational numbers: what doubles cannot tell, or once got wrong."""

from fractions import Fraction

import numpy as np
import pytest

import flowbias as fb
from flowbias.certificates.exact_vertex import exact_vertex
from tests.fuzz.runner import examined
from tests.fuzz.verdict import GOOD, REFUSED

ORDINARY = np.random.default_rng(5).standard_normal((4, 7))
OUTPUTS = np.random.default_rng(6).standard_normal(4)


def vertex_of(X, y, potential=None, w=None):
    """From a point that suggests nothing, unless one is given."""
    X, y = np.array(X, dtype=float), np.array(y, dtype=float)
    w = np.zeros(X.shape[1]) if w is None else w
    return exact_vertex(X, y, fb.L1() if potential is None else potential, w, np.zeros(len(X)))


# Each was answered wrongly, or refused, or broke: kept as it was drawn.
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(700560, id="columns in units 1e12 apart"),
        pytest.param(701603, id="a dual right to two digits"),
        pytest.param(701240, id="outputs on the edge of a cone"),
        pytest.param(702204, id="a linear program that HiGHS gives up"),
        pytest.param(1004881, id="other minimizers within the rounding of y"),
        pytest.param(1003914, id="a tie that centring breaks"),
        pytest.param(4011048, id="which rows to leave out is known up to rounding"),
    ],
)
def test_what_was_refused_or_wrong_is_right(seed):
    assert examined(seed).kind == GOOD


@pytest.mark.parametrize("seed", [3006177, 1016378])
def test_what_the_rounding_of_centred_data_decides_is_refused(seed):
    record = examined(seed)
    assert record.kind == REFUSED
    assert "digits than tol asks for" in record.reason


def test_agrees_with_the_linear_program():
    solution = fb.basis_pursuit(ORDINARY, OUTPUTS)
    vertex = vertex_of(ORDINARY, OUTPUTS)  # from no hint: it has to pivot
    assert vertex.is_only
    assert np.array_equal(vertex.signs, np.sign(solution.w))
    assert np.allclose(vertex.w, solution.w, rtol=1e-12)
    assert vertex.radius <= np.finfo(float).eps * np.abs(vertex.w).sum()
    assert vertex.margin == pytest.approx(solution.details["dual_margin"], rel=1e-9)


def test_is_the_rational_number():
    vertex = vertex_of([[3.0, 1.0, 0.0], [0.0, 1.0, 7.0]], [1.0, 1.0])
    assert vertex.w.tolist() == [float(Fraction(1, 3)), 0.0, float(Fraction(1, 7))]


def test_columns_and_weights_scaled_together_are_the_same_problem():
    units = 2.0 ** np.array([40, -40, 0, 38, -37, 3, -1])
    plain = vertex_of(ORDINARY, OUTPUTS)
    scaled = vertex_of(ORDINARY * units, OUTPUTS, fb.L1(units))
    assert np.array_equal(scaled.w * units, plain.w)  # powers of two round nothing
    assert fb.basis_pursuit(ORDINARY * units, OUTPUTS, weights=units).status.name == "CERTIFIED"


def test_ties_are_told_from_columns_that_differ_in_the_last_digit():
    tied, cheaper = vertex_of([[1.0, 1.0]], [1.0]), vertex_of([[1.0, np.nextafter(1.0, 2.0)]], [1])
    assert not tied.is_only
    assert tied.signs.tolist() == [1.0, 1.0]
    assert tied.error_of(tied.w) == np.inf
    assert cheaper.is_only
    assert cheaper.signs.tolist() == [0.0, 1.0]


def test_a_side_that_costs_no_more_but_cannot_be_used_is_no_other_minimizer():
    vertex = vertex_of([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]], [1.0, 0.0])
    assert vertex.margin == 0.0  # every dual at a vertex touches another side
    assert vertex.is_only
    assert vertex.w.tolist() == [1.0, 0.0, 0.0]


def test_closed_sides_are_not_used():
    one_sided = fb.L1([1.0, 1.0, 1.0], [np.inf, np.inf, 1.0])
    X = [[-2.0, 1.0, 0.5]]
    assert vertex_of(X, [1.0], one_sided).w.tolist() == [0.0, 1.0, 0.0]


def test_outside_of_the_cone_the_nearest_point_is_fitted():
    positive = fb.L1([1.0, 1.0], [np.inf, np.inf])
    vertex = vertex_of([[1.0, 1.0], [0.0, 1.0]], [2.0, -1.0], positive)
    assert vertex.w.tolist() == [2.0, 0.0]
    assert vertex.distance == pytest.approx(1.0 / np.sqrt(5.0))
    nothing = vertex_of([[2.0, 1.0]], [-1.0], positive)
    assert nothing.w.tolist() == [0.0, 0.0]
    assert nothing.distance == 1.0


@pytest.mark.parametrize(
    ("depth", "small", "selected"),
    [
        # Costs are w0^(2 - depth): 1, 1 and 2, so that (1, 1, 0) and (0, 0, 1) tie.
        (3, 0.5, [8 / 9, 8 / 9, 1 / 9]),
        # The double next to the root of 1/2 is above it: no tie, by the last digit.
        (4, np.sqrt(0.5), [0.0, 0.0, 1.0]),
    ],
)
def test_costs_of_a_start_are_known_beyond_doubles(depth, small, selected):
    model = fb.DiagonalNet(depth, scale=1.0, w0=[1.0, 1.0, small])
    solution = fb.rich_limit(model, [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]], [1.0, 1.0])
    assert solution.status is fb.Status.CERTIFIED
    assert np.allclose(solution.w, selected, rtol=1e-12, atol=1e-12)


def test_anyone_can_recompute_the_certificate():
    X = ORDINARY * 10.0 ** np.array([12, -12, 3, 0, -6, 6, 9])
    solution = fb.basis_pursuit(X, OUTPUTS)
    again = fb.certify(X, OUTPUTS, solution.w, solution.dual, fb.L1())
    assert again.ok
    wrong = np.roll(solution.w, 1)
    assert not fb.certify(X, OUTPUTS, wrong, solution.dual, fb.L1()).ok


def test_ordinary_problems_take_no_rational_numbers():
    # One gap is shared by nine hundred coordinates: bounded one by one, six digits were not proved.
    rng = np.random.default_rng(1)
    for _ in range(2):
        X, _, y = rng.standard_normal((100, 1000)), rng.standard_normal(5), rng.standard_normal(100)
        solution = fb.basis_pursuit(X, y)
        assert solution.status is fb.Status.CERTIFIED
        assert solution.certificate.vertex is None


def test_a_refusal_says_why():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((100, 1000)), rng.standard_normal(100)
    with pytest.raises(fb.SolveError, match="takes too long in rational numbers"):
        fb.basis_pursuit(X, y, tol=1e-30)
