"""Whatever the data, block by block: the limit with its certificate, or an error of the library."""

import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator

import flowbias as fb
from flowbias.designs.linear_operator import OperatorDesign
from flowbias.designs.sparse import SparseDesign
from tests.hardening.awkward import Data, regression_data
from tests.hardening.test_limits import dense, proved_or_refused

MODELS = (
    fb.DiagonalNet(depth=2, scale=1.0),
    fb.DiagonalNet(depth=2, scale=1e-3),
    fb.DiagonalNet(depth=3, scale=0.3),
    fb.UntiedDiagonalNet(scale=0.3, shape=0.7),
    fb.L2(),
)
# Sums over blocks round otherwise than dense ones: where rows are nearly dependent, and duals huge,
# that alone is about the default tolerance of a certificate.
RECOMPUTED = 1e-9
DESIGNS = {
    "sparse": lambda X: SparseDesign(scipy.sparse.csc_array(X)),
    "operator": lambda X: OperatorDesign(aslinearoperator(X)),
}


@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)
@given(regression_data(), st.sampled_from(MODELS))
def test_limit(design, data, model):
    entries = Data(dense(data.X), data.y)
    proved_or_refused(lambda X, y: fb.limit(model, design(X), y), entries, RECOMPUTED)
