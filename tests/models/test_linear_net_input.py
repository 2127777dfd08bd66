"""Linear networks refuse in words, and say which results no longer apply."""

from fractions import Fraction

import numpy as np
import pytest

import flowbias as fb
from flowbias.flows.request import loss_constant
from flowbias.ground.arguments import InputError
from flowbias.models import LinearNet, NarrowWarning
from flowbias.problems.matrix import MatrixRegression
from tests.models.linear_networks import D, M, N, follow

X_WIDE = np.random.default_rng(0).standard_normal((N, D))
GAUSS = {"width": 5, "scale": 0.1, "rng": 0}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LinearNet(np.ones(3), np.ones((2, 3))), r"U: must have 2 dim.*\(d, width\)"),
        (lambda: LinearNet(np.ones((4, 3)), np.ones((3, 2))), r"V: must have .* \(3, .*Pass V\.T"),
        (lambda: LinearNet(np.ones((4, 3)), np.ones((2, 5))), r"V: must have as .* \(3, .*hidden"),
        (lambda: LinearNet([[np.inf]], [[1.0]]), "U: must be finite, got inf"),
        (
            lambda: LinearNet(np.zeros((4, 3)), np.zeros((2, 3))),
            "must not both be zero.*saddle.*scal",
        ),
        (
            lambda: LinearNet([[1e-200]], [[1e-200]]),
            r"largest entry between 1e-150 .* got 1e-200.*Re",
        ),
        (lambda: LinearNet([[1e200]], [[1.0]]), "largest entry between .* got 1e.200"),
        (lambda: LinearNet.gaussian(D, M, **{**GAUSS, "scale": 0.0}), "both be zero.*saddle"),
        (lambda: LinearNet.gaussian(D, M, **{**GAUSS, "scale": -1}), "scale: must be .* got -1"),
        (
            lambda: LinearNet.gaussian(D, M, **GAUSS, scale_v=np.nan),
            "scale_v: must be a finite.* nan",
        ),
        (lambda: LinearNet.gaussian(D, M, width=5, rng=0), "scale: must be given unless scale_u"),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "width": 0}),
            r"width: must be .* got 0\. It",
        ),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "width": 2.5}),
            "width: must be an integer .*2.5",
        ),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "width": "9"}),
            "width: must be an integer .*'9'",
        ),
        (
            # An integer that is no float, and one that Python refuses to print.
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "width": 10**400}),
            "width: must be an integer from 1 to 1e300, got an integer of 1329 bits",
        ),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "width": 10**301}),
            "width: must be an integer from 1 to 1e300",
        ),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "width": 10**5000}),
            "width: must be .* got an integer of 16610 bits",
        ),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "width": np.inf}),
            "width: must be .* got inf",
        ),
        (lambda: LinearNet.gaussian(10**400, M, **GAUSS), "d: must be <= .* integer of 1329 bits"),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "scale": 10**400}),
            "scale: must be a finite .* integer of 1329 bits",
        ),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "width": True}),
            "width: must be .* got True",
        ),
        (
            lambda: LinearNet.gaussian(0, M, **GAUSS),
            "d: must be an integer >= 1, got 0. Pass the num",
        ),
        (lambda: LinearNet.gaussian(D, 1.5, **GAUSS), "m: must be an integer >= 1, got 1.5"),
        (
            lambda: LinearNet.gaussian(D, M, **{**GAUSS, "rng": "a"}),
            "rng: must be an integer >= 0 or",
        ),
        (
            lambda: LinearNet.balanced(np.ones((D, M)), np.ones((3, 4))),
            "product: must have one row per",
        ),
        (
            lambda: LinearNet.balanced(np.eye(4), width=3),
            r"width: must be at least the rank .*\(4\)",
        ),
        (lambda: LinearNet.balanced(np.zeros((3, 2))), "product: must have .* got rank 0"),
        (
            # Four outputs, but X has rank 2: two directions of the product are V's to carry.
            lambda: LinearNet.balanced(np.eye(4), np.eye(2, 4), width=9),
            "product: must have outputs of its own only where X sees them, got rank 2 .*project",
        ),
        (lambda: LinearNet.invariant(X_WIDE[0], M, **GAUSS), "X: must have 2 dimension"),
        (
            lambda: LinearNet.gaussian(D, M, **GAUSS).imbalance(0.0 * X_WIDE),
            r"X: must have a nonzero entry.*leave X out",
        ),
        (
            lambda: LinearNet.gaussian(D, M, **GAUSS).invariance_defect(0.0 * X_WIDE),
            "X: must have a nonzero entry",
        ),
        (
            lambda: LinearNet.invariant(0.0 * X_WIDE, M, **GAUSS),
            "X: must have a nonzero entry",
        ),
        (
            lambda: LinearNet.balanced(np.ones((D, M)), 0.0 * X_WIDE),
            "X: must have a nonzero entry",
        ),
        (
            lambda: LinearNet.gaussian(3, M, **GAUSS).imbalance(X_WIDE),
            r"X: must have .* \(3\), got 9",
        ),
        (
            lambda: LinearNet.gaussian(3, M, **GAUSS).lifted_problem(
                MatrixRegression(X_WIDE, X_WIDE)
            ),
            r"problem: must measure matrices of the model's shape \(3, 2\), got \(9, 9\)",
        ),
    ],
)
def test_bad_input(build, message):
    with pytest.raises(InputError, match=message):
        build()


@pytest.mark.parametrize("loss", [True, False, 10**400, np.nan, -1.0, "squares"])
def test_a_loss_is_a_name_or_a_positive_number(loss):
    with pytest.raises(InputError, match=r"loss: must be one of 'half', .* got"):
        loss_constant(loss, 5)


@pytest.mark.parametrize(
    "loss", [2, np.float64(2.0), np.float32(2.0), np.int64(2), Fraction(2), "sum"]
)
def test_numbers_of_any_kind_are_losses(loss):
    assert loss_constant(loss, 5) == 2.0


@pytest.mark.parametrize(
    "call",
    [
        lambda net: fb.rich_limit(net, X_WIDE, X_WIDE[:, 0]),
        lambda net: fb.rich_limit(net, MatrixRegression(X_WIDE, X_WIDE[:, :2])),
        lambda net: fb.limit_path(net, X_WIDE, X_WIDE[:, 0], log_scales=[0.0]),
        lambda net: fb.limit_path(net, MatrixRegression(X_WIDE, X_WIDE), log_scales=[0.0]),
    ],
)
def test_calls_that_do_not_fit_a_network_name_those_that_do(call):
    wide = LinearNet.gaussian(D, M, width=10**7, scale=1e-3, rng=0)
    with pytest.raises(InputError, match=r"LinearNet, which provides GRAM\..*fb\.limit, fb\.flow"):
        call(wide)


def test_weights_that_were_not_kept_are_to_be_asked_for(data):
    wide = LinearNet.gaussian(D, M, width=10**6, scale=1e-3, rng=0)
    with pytest.raises(InputError, match=r"must provide FACTORS.*keep_weights=True.*leave out"):
        fb.flow(wide, *data, route="parameter")
    kept = LinearNet.gaussian(D, M, width=100, scale=0.1, rng=0, keep_weights=True)
    assert fb.flow(kept, *data, route="parameter").route == "parameter"


def test_a_whole_number_is_a_width_however_written():
    for width in (10**6, 1e6, np.int64(10**6), np.float64(1e6), np.float32(1e6)):
        assert LinearNet.gaussian(D, M, width=width, scale=0.1, rng=0).width == 10**6


def test_a_narrow_network_says_which_results_no_longer_apply(data):
    with pytest.warns(
        NarrowWarning, match=r"width: 1 is below min\(9, 2\) = 2.*Proposition 1"
    ) as w:
        net = LinearNet.gaussian(D, M, width=1, scale=0.3, rng=0)
    assert w[0].filename == __file__
    assert len(net.notes) == 1
    # As the note says: nothing is left of the bound on the rate.
    imbalance = net.imbalance(data[0])
    assert imbalance.level == 0.0
    assert follow(net, MatrixRegression(*data), t=1.0).shape == (D + M, 1)


def test_a_wide_enough_network_has_no_notes(recwarn):
    assert LinearNet.gaussian(D, M, width=2, scale=0.3, rng=0).notes == ()
    assert not recwarn.list
