"""Starts whose hidden units or rows lie decades apart, against the equation of the weights."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias.flows import FlowStatus, flow
from flowbias.flows.lifted.compression import compress
from flowbias.flows.lifted.coordinates import LiftedCoordinates
from flowbias.flows.lifted.flow import reduced_problem
from flowbias.ground.arguments import InputError
from flowbias.models.factorization import MatrixFactorization
from flowbias.models.linear_net import LinearNet
from flowbias.problems.matrix import MatrixCompletion, MatrixRegression, MatrixSensing
from tests.limits.factor_flow import followed, pull_of

pytestmark = pytest.mark.filterwarnings("ignore::flowbias.models.lifted.NarrowWarning")
TIMES = np.array([0.5, 2.0, 5.0, 9.0, 14.0])


def reference(U, V, problem):
    """The products by SciPy alone, errors relative to each of the weights."""
    options, d = {"rtol": 3e-14, "atol": 1e-40, "t_eval": TIMES}, len(U)
    path = followed(U, V, pull_of(problem), TIMES[-1], **options)
    return [Z[:d] @ Z[d:].T for Z in path]


def cases():
    rng = np.random.default_rng(5)
    diagonal = MatrixRegression(np.eye(3), np.diag([3.0, 2.0, 1.0]))
    general = MatrixRegression(rng.standard_normal((4, 3)), rng.standard_normal((4, 3)))
    places = rng.permutation(9)[:7]
    completion = MatrixCompletion(places // 3, places % 3, 2 * rng.standard_normal(7), (3, 3))
    for sizes in ([1e-12, 1e-9, 1e-6], [1e-2, 1e-5, 1e-11]):
        yield "units apart", np.diag(sizes), np.diag(sizes) * 0.7, diagonal, LinearNet
        for problem, cls in ((general, LinearNet), (completion, MatrixFactorization)):
            U, V = (rng.standard_normal((3, 3)) * sizes for _ in range(2))
            yield "units", U, V, problem, cls
            U, V = (np.array(sizes)[:, None] * rng.standard_normal((3, 8)) for _ in range(2))
            yield "rows", U, V, problem, cls
    # Wider than the rows are many: the small units must survive the way to a narrow root.
    sizes = np.geomspace(1.0, 1e-13, 12)
    low_rank = np.outer(rng.standard_normal(6), np.ones(12)) * np.where(sizes > 1e-6, 1.0, 0.0)
    Z = low_rank + rng.standard_normal((6, 12)) * np.where(sizes > 1e-6, 0.0, sizes)
    yield "many units", Z[:3], Z[3:], general, LinearNet


@pytest.mark.parametrize(("name", "U", "V", "problem", "cls"), list(cases()))
def test_graded_starts(name, U, V, problem, cls):
    expected = reference(U, V, problem)
    for route in ("gram", "parameter"):
        trajectory = flow(cls(U, V), problem, t=TIMES, route=route)
        for M, known in zip(trajectory.M, expected, strict=True):
            # Local errors of 1e-11 relative to each part, of which some hundred add up.
            assert np.linalg.norm(M - known) <= 1e-9 * np.linalg.norm(known)


def test_what_errors_count_against():
    # Proportional to rows and to columns: a unit or a row made smaller takes its errors along.
    rng = np.random.default_rng(0)
    rows, columns = 10.0 ** -rng.uniform(0, 9, 5), 10.0 ** -rng.uniform(0, 9, 5)
    Z = rng.uniform(1.0, 2.0, (5, 5)) * np.outer(rows, columns)
    model = MatrixFactorization(Z[:3], Z[3:])
    problem = MatrixCompletion([0, 1], [0, 1], [1.0, 2.0], (3, 2))
    setting = reduced_problem(model, problem)
    weights = setting.compression.weights
    sizes = LiftedCoordinates(setting, 1.0).entry_sizes
    sizes = sizes.reshape(weights.shape)
    assert_allclose(np.linalg.matrix_rank(sizes / sizes.max(axis=1)[:, None]), 1)
    # No entry is held to less than a few of its own sizes.
    assert np.all(np.abs(weights) <= 5.0 * np.sqrt(25.0) * sizes)


def test_a_narrower_root_keeps_each_unit():
    rng = np.random.default_rng(1)
    sizes = np.geomspace(1.0, 1e-30, 9)
    Z = rng.standard_normal((5, 9)) * sizes
    compression = compress(MatrixFactorization(Z[:3], Z[3:]), None)
    root = compression.weights
    assert root.shape == (5, 5)
    assert_allclose(root @ root.T, Z @ Z.T, rtol=1e-13)
    # Beyond its largest unit, too: the determinant of the root knows the first five.
    exact = np.linalg.slogdet(Z[:, :5]).logabsdet
    assert_allclose(np.linalg.slogdet(root).logabsdet, exact, rtol=0, atol=1e-3)
    assert_allclose(np.vstack(compression.factors(root)), Z, rtol=0, atol=1e-15)


def exact_determinant(Z):
    """Of Z Z^T, in rational numbers."""
    rows = [[Fraction(float(x)) for x in row] for row in Z]
    gram = [[sum(a * b for a, b in zip(x, y, strict=True)) for y in rows] for x in rows]
    determinant = Fraction(1)
    for i, pivot in enumerate(gram):
        determinant *= pivot[i]
        for row in gram[i + 1 :]:
            share = row[i] / pivot[i]
            row[:] = [a - share * b for a, b in zip(row, pivot, strict=True)]
    return determinant


@pytest.mark.parametrize("seed", range(3))
def test_a_narrower_root_is_exact_in_whatever_order_units_come(seed):
    # Two large units among small ones: all digits of the small ones, whose share in the
    # determinant is the other three rows.
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((5, 9)) * rng.permutation([1.0] * 2 + [1e-10] * 7)
    root = compress(MatrixFactorization(Z[:3], Z[3:]), None).weights
    assert root.shape == (5, 5)
    ratio = exact_determinant(root) / exact_determinant(Z)
    assert abs(float(ratio - 1)) < 1e-13


def test_rows_that_are_equal_stay_equal():
    # U = V is one-sided: what the flow reaches has one sign, and rounding must not give it another.
    U = 0.3 * np.random.default_rng(0).standard_normal((4, 6))
    stack = np.stack([np.diag([0.7, 0.6, 0.9, 0.8]), np.diag([0.5, 1.0, 0.6, 0.7])])
    problem = MatrixSensing(stack, [-1.0, -0.5])
    model = MatrixFactorization(U, U)
    weights = reduced_problem(model, problem).compression.weights
    assert np.array_equal(weights[:4], weights[4:])
    stopped = flow(model, problem, throw=False)
    assert stopped.status is FlowStatus.STOPPED
    assert "start wider" not in stopped.message
    assert "what can be reached from this start" in stopped.message


def test_a_narrow_net_converges_by_its_weights_too():
    rng = np.random.default_rng(2)
    X, Y = rng.standard_normal((6, 4)), rng.standard_normal((6, 3))
    net = LinearNet(0.5 * rng.standard_normal((4, 2)), 0.5 * rng.standard_normal((3, 2)))
    ends = [flow(net, X, Y, route=route) for route in ("gram", "parameter")]
    assert [end.status for end in ends] == [FlowStatus.CONVERGED] * 2
    assert_allclose(ends[0].M[-1], ends[1].M[-1], rtol=0, atol=1e-6)


def test_why_a_narrow_flow_stops():
    rng = np.random.default_rng(3)
    problem = MatrixCompletion(*np.divmod(np.arange(9), 3), rng.standard_normal(9), (3, 3))
    model = MatrixFactorization(rng.standard_normal((3, 1)), rng.standard_normal((3, 1)))
    stopped = flow(model, problem, throw=False)
    assert "the loss is stationary there" in stopped.message
    assert "start wider" in stopped.message


@pytest.mark.parametrize("times", [[], [[0.1, 0.2]], np.zeros((0, 2))])
def test_times_are_a_list(times):
    net = LinearNet([[0.5]], [[0.4]])
    trajectory = flow(net, [[1.0]], [1.0])
    with pytest.raises(InputError, match="t: must be a time or a list of times"):
        trajectory.at(times)
