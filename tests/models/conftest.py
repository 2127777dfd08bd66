"""Data that the tests of linear networks share."""

import numpy as np
import pytest

from tests.models.linear_networks import D, M, N


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, D)), rng.standard_normal((N, M))
