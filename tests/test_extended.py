"""Products with X in extended precision: blocks, and columns that are not used."""

import numpy as np
import pytest

from flowbias.ground import extended


@pytest.mark.parametrize("used", [0.0, 0.01, 0.5, 1.0])
def test_columns_without_weight_add_nothing(used, monkeypatch):
    monkeypatch.setattr(extended, "PART_NUMBERS", 60)  # several blocks of ten columns
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((6, 45)), rng.standard_normal(45)
    w[rng.random(45) >= used] = 0.0
    # Integers times powers of two: products and sums of which no bit is rounded, in any order.
    X, w = np.round(64.0 * X), np.round(64.0 * w)
    assert (extended.apply(X, w) == X @ w).all()
    assert (extended.absolute_apply(X, w) == np.abs(X) @ np.abs(w)).all()


def test_a_row_of_nan_has_no_length():
    """A descent that has lost its way has no residual: 0 would be a fit."""
    lengths = extended.row_lengths(np.array([[np.nan, 1.0], [3.0, 4.0], [0.0, 0.0]]))
    np.testing.assert_array_equal(lengths, [np.nan, 5.0, 0.0])
