"""What the tests of big X share: kinds of designs, and data that all of them hold exactly."""

from functools import cache

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose
from scipy.sparse.linalg import aslinearoperator

import flowbias as fb
from flowbias.designs import dense, sparse
from flowbias.designs.dense import DenseDesign
from flowbias.designs.linear_operator import OperatorDesign
from flowbias.designs.sparse import SparseDesign

# Two certified limits differ by at most their error bounds; both are far below this.
AGREE = 1e-10

KINDS = {
    "dense": DenseDesign,
    "float32": lambda X: DenseDesign(X.astype(np.float32)),
    "sparse": lambda X: SparseDesign(scipy.sparse.csr_array(X)),
    "operator": lambda X: OperatorDesign(aslinearoperator(X)),
}
WITH_ENTRIES = ["dense", "float32", "sparse"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks even for small X."""
    monkeypatch.setattr(dense, "BLOCK_NUMBERS", 400)
    monkeypatch.setattr(sparse, "BLOCK_COLUMNS", 30)
    monkeypatch.setattr(dense, "PIECE_NUMBERS", 100)


def data(seed, n=20, d=100, density=1.0):
    """Entries that float32 holds, so that all kinds see the same X."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    X = X.astype(np.float32).astype(float)
    y = X[:, :4] @ np.ones(4) + 0.1 * rng.standard_normal(n)
    return X, y


@cache
def dense_limit(model, seed):
    """The limit of the dense solver on data(seed), solved once for all kinds."""
    return fb.limit(model, *data(seed))


def assert_same(found, wanted):
    assert found.status is wanted.status
    assert found.certificate.ok
    assert_allclose(found.w, wanted.w, atol=AGREE * np.abs(wanted.w).max())
    assert found.distance == pytest.approx(wanted.distance, abs=1e-10)
