"""The circle's task: where its points lie, who labels them, and that sweeps are nested."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowbias.datasets.planted import circle_teacher


@given(n=st.integers(1, 30), d=st.integers(2, 5), units=st.integers(1, 6), seed=st.integers(0, 99))
def test_points_on_the_sphere_with_the_teachers_labels(n, d, units, seed):
    task = circle_teacher(n, d, units, n_test=50, rng=seed)
    assert task.X.shape == (n, d)
    assert task.X_test.shape == (50, d)
    assert task.inner.shape == (units, d)
    for X, y in ((task.X, task.y), (task.X_test, task.y_test)):
        np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1.0, rtol=1e-12)
        by_hand = [
            sum(v * max(float(u @ x), 0.0) for u, v in zip(task.inner, task.outer, strict=True))
            for x in X
        ]
        np.testing.assert_allclose(y, by_hand, atol=1e-12)
    assert np.abs(task.inner).max() <= np.sqrt(6 / d)
    assert np.abs(task.outer).max() <= np.sqrt(6 / units)


def test_the_papers_task_is_the_default():
    task = circle_teacher()
    assert task.X.shape == (10, 2)
    assert task.inner.shape == (3, 2)


def test_angles_are_uniform():
    X = circle_teacher(n_test=20_000).X_test
    angles = np.arctan2(X[:, 1], X[:, 0])
    for k in (1, 2, 3, 4):
        # Real and imaginary parts have variance 1 / 40000: five deviations.
        assert abs(np.mean(np.exp(1j * k * angles))) < 5 / np.sqrt(20_000)


def test_sweeps_are_nested():
    small, large = circle_teacher(n=5, n_test=7, rng=3), circle_teacher(n=9, n_test=11, rng=3)
    np.testing.assert_array_equal(large.X[:5], small.X)
    # BLAS may add up a product of another shape in another order.
    np.testing.assert_allclose(large.y_test[:7], small.y_test, rtol=1e-12)
    np.testing.assert_array_equal(large.inner, small.inner)
    twice = circle_teacher(n=5, n_test=7, scale=2.0, rng=3)
    np.testing.assert_allclose(twice.y, 4 * small.y, rtol=1e-12)
    assert not np.array_equal(circle_teacher(rng=4).X, circle_teacher(rng=3).X)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"n": 0}, "n"),
        ({"n": 2.5}, "n"),
        ({"d": 1}, "d"),
        ({"units": 0}, "units"),
        ({"n_test": 0}, "n_test"),
        ({"scale": 0.0}, "scale"),
        ({"scale": float("nan")}, "scale"),
        ({"scale": "big"}, "scale"),
        ({"rng": -1}, "rng"),
    ],
)
def test_bad_input_is_refused_by_name(change, argument):
    with pytest.raises(ValueError, match=rf"^{argument}: must .* got "):
        circle_teacher(**change)
