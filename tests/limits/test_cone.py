"""What one-sided coordinates can fit, in rational numbers, against brute force over supports."""

from itertools import chain, combinations

import numpy as np
import pytest
from flint import fmpq

from flowbias.certificates.exact_problem import CONE_ENTRIES, not_driven, reach
from flowbias.certificates.exact_simplex import OutOfPivotsError


def closest_by_force(X, y, signs):
    """The smallest residual of least squares over all supports whose signs are right."""
    d, best = X.shape[1], (np.inf, None)
    free = [i for i in range(d) if signs[i] == 0]
    sided = [i for i in range(d) if signs[i] != 0]
    subsets = chain.from_iterable(combinations(sided, k) for k in range(len(sided) + 1))
    for chosen in subsets:
        columns = [*free, *chosen]
        w = np.zeros(d)
        if columns:
            w[columns] = np.linalg.lstsq(X[:, columns], y, rcond=None)[0]
        if all(signs[i] * w[i] >= -1e-9 for i in chosen):
            off = float(np.linalg.norm(X @ w - y))
            best = min(best, (off, tuple(X @ w)))
    return np.array(best[1])


@pytest.mark.parametrize("seed", range(40))
def test_the_point_of_the_cone_closest_to_y(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 5)), int(rng.integers(1, 6))
    X = rng.integers(-2, 3, (n, d)).astype(float)
    y, signs = rng.integers(-3, 4, n).astype(float), rng.choice([-1, 0, 1], d)
    found = reach(X, y, signs >= 0, signs <= 0, list(range(n)))
    # The oldest FLINT makes no float of a fraction.
    fit = np.array([int(part.p) / int(part.q) for part in found.fit])
    np.testing.assert_allclose(fit, closest_by_force(X, y, signs), atol=1e-8)
    # What is left of y pulls nothing that is in use, and what is not in use only outwards.
    pull = [
        sum(fmpq(int(X[i, j])) * (fmpq(int(y[i])) - found.fit[i]) for i in range(n))
        for j in range(d)
    ]
    assert all(pull[j] == 0 for j in range(d) if found.used[j])
    assert all(signs[j] * pull[j] <= 0 for j in range(d) if not found.used[j])
    left = not_driven(X, y, signs >= 0, signs <= 0, pivots=100)
    assert left == [j for j in range(d) if pull[j] == 0]


@pytest.mark.parametrize(
    ("X", "y", "used"),
    [
        # Opposite columns undo each other: both can be as large as they like.
        ([[1.0, -1.0]], [0.0], [True, True]),
        ([[1.0, 1.0]], [0.0], [False, False]),
        # Three columns that add up to zero, and one that nothing undoes.
        (
            [[1.0, 0.0, -1.0, 1.0], [0.0, 1.0, -1.0, 0.0], [0.0, 0.0, 0.0, 1.0]],
            [0.0, 0.0, 0.0],
            [True, True, True, False],
        ),
        # The first column vanishes, which says nothing of the others.
        ([[0.0, 1.0, -1.0], [1.0, 0.0, 0.0]], [0.0, 0.0], [False, True, True]),
        # What X does not see is not driven anywhere.
        ([[1.0, 0.0]], [-1.0], [False, True]),
    ],
)
def test_which_coordinates_vanish(X, y, used):
    X = np.array(X)
    up = np.ones(X.shape[1], dtype=bool)
    found = reach(X, np.array(y), up, ~up, list(range(len(X))))
    assert found.used.tolist() == used


def test_large_data_are_not_decided():
    X = np.ones((1, CONE_ENTRIES + 1))
    up = np.ones(CONE_ENTRIES + 1, dtype=bool)
    assert reach(X, np.ones(1), up, ~up, [0]) is None


def test_a_projection_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr("flowbias.certificates.exact_problem._in_use", lambda *data: [])  # no guess
    up, data = np.ones(2, dtype=bool), (np.eye(2), np.ones(2))
    assert not_driven(*data, up, ~up, pivots=2) == [0, 1]
    with pytest.raises(OutOfPivotsError):
        not_driven(*data, up, ~up, pivots=1)
