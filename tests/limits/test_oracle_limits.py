"""Every diagonal-network limit of the reference file: tied, untied, biased, explicit distance."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import flowbias as fb
from tests.oracles import ORACLES

# The figure the project promises; the references themselves carry 15 digits.
LIMIT_ATOL = 1e-10


def tied(params):
    return fb.DiagonalNet(depth=params["D"], scale=params["alpha"], w0=params["w0"])


def untied(params):
    return fb.UntiedDiagonalNet(scale=np.sqrt(params["alpha"]), shape=params["s"])


def biased(params):
    names = ("u_plus", "u_minus", "v_plus", "v_minus")
    return fb.UntiedDiagonalNet.from_weights(*(params[name] for name in names))


def explicit_distance(params):
    return fb.DistancePotential(scale=params["alpha"])


MODELS = {
    "diag_D": tied,
    "diag_D2_nonuniform": tied,
    "untied_shape": untied,
    "biased_diag": biased,
    "explicit_R": explicit_distance,
}

CASES = [
    pytest.param(problem, case, id=f"{problem['id']}-{case['model']}-{i}")
    for problem in ORACLES["problems"]
    for i, case in enumerate(problem["limits"])
    if case["model"] in MODELS
]


@pytest.mark.parametrize(("problem", "case"), CASES)
def test_limit(problem, case):
    solution = fb.limit(MODELS[case["model"]](case["params"]), problem["X"], problem["y"])
    error = np.abs(solution.w - case["beta"]).max()
    assert error <= LIMIT_ATOL
    assert solution.status is fb.Status.CERTIFIED
    # The bound covers the 15-digit rounding of the reference as well.
    assert solution.certificate.error_bound >= error - 1e-15


@pytest.mark.parametrize(("problem", "case"), [case for case in CASES if "nu" in case.values[1]])
def test_dual_and_value(problem, case):
    solution = fb.limit(MODELS[case["model"]](case["params"]), problem["X"], problem["y"])
    # The reference keeps woodworth2020's units at depth D >= 3: alpha^(D-2) times ours.
    depth = case["params"].get("D", 2)
    unit = case["params"].get("alpha", 1.0) ** (depth - 2)
    # 1e-9: the dual is less well determined than w, by the condition of X W X^T.
    assert_allclose(unit * solution.dual, case["nu"], rtol=1e-9, atol=1e-9)
    if "Q" in case:
        assert_allclose(unit * solution.potential.value(solution.w), case["Q"], rtol=1e-10)


@pytest.mark.parametrize("problem", ORACLES["problems"], ids=lambda p: p["id"])
def test_extremes(problem):
    X, y = problem["X"], problem["y"]
    assert_allclose(fb.min_norm(X, y).w, problem["min_l2"]["beta"], atol=1e-13)
    pursuit = fb.basis_pursuit(X, y)
    assert_allclose(pursuit.w, problem["min_l1"]["beta"], atol=1e-12)
    assert pursuit.status is fb.Status.CERTIFIED
    margin = 1.0 - problem["min_l1"]["max_offsupport_dual"]
    assert_allclose(pursuit.details["dual_margin"], margin, rtol=1e-10)
    for depth in (2, 3, 5):
        model = fb.DiagonalNet(depth=depth, scale=1.0)
        assert_allclose(fb.rich_limit(model, X, y).w, problem["min_l1"]["beta"], atol=1e-12)
