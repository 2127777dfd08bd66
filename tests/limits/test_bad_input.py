"""Every refusal names the argument, the constraint, the value and the fix."""

import numpy as np
import pytest

import flowbias as fb

X, Y = np.arange(6.0).reshape(2, 3) + 1.0, np.array([1.0, 2.0])
MODEL = fb.DiagonalNet(depth=2, scale=0.1)

BAD_DATA = {
    "empty X": (np.zeros((0, 3)), Y, r"X: must not be empty, got shape \(0, 3\)"),
    "no features": (np.zeros((2, 0)), Y, r"X: must not be empty, got shape \(2, 0\)"),
    "empty y": (X, np.zeros(0), r"y: must not be empty"),
    "NaN": (
        np.array([[1.0, np.nan, 0.0], [1.0, 2.0, 3.0]]),
        Y,
        r"X: must be finite, got nan at index \(0, 1\)",
    ),
    "infinity": (X, np.array([np.inf, 0.0]), r"y: must be finite, got inf at index \(0,\)"),
    "shapes": (X, np.ones(3), r"y: must have one entry per row of X \(2\), got 3"),
    "1-D X": (np.ones(3), Y, r"X: must have 2 dimension\(s\), got shape \(3,\).*reshape\(1, -1\)"),
    "two columns": (
        X,
        np.ones((2, 2)),
        r"y: must have 1 dimension\(s\), got shape \(2, 2\).*y\[:, 0\]",
    ),
    "objects": (X.astype(object), Y, r"X: must hold real numbers, got dtype object"),
    "complex": (X.astype(complex), Y, r"X: must hold real numbers, got dtype complex128"),
    "text": (X, np.array(["a", "b"]), r"y: must hold real numbers, got dtype <U1"),
    "zeros": (
        np.zeros((2, 3)),
        Y,
        r"X: must have a nonzero entry, got all zeros of shape \(2, 3\)",
    ),
    "ragged": ([[1.0, 2.0, 3.0], [1.0]], Y, r"X: must be a rectangular array, got rows of diff"),
    "no y": (X, None, r"y: must be given with X, got None"),
}


@pytest.mark.parametrize(("X", "y", "message"), BAD_DATA.values(), ids=BAD_DATA.keys())
@pytest.mark.parametrize("solve", [fb.limit, fb.rich_limit], ids=["limit", "rich_limit"])
def test_data(solve, X, y, message):
    with pytest.raises(fb.InputError, match=message):
        solve(MODEL, X, y)


@pytest.mark.parametrize(("X", "y", "message"), BAD_DATA.values(), ids=BAD_DATA.keys())
@pytest.mark.parametrize(
    "solve", [fb.min_norm, fb.basis_pursuit], ids=["min_norm", "basis_pursuit"]
)
def test_data_without_a_model(solve, X, y, message):
    with pytest.raises(fb.InputError, match=message):
        solve(X, y)


def test_model_of_another_size():
    model = fb.DiagonalNet(depth=2, scale=1.0, w0=np.ones(5))
    with pytest.raises(
        fb.InputError, match=r"X: must have one column per coordinate .*\(5\), got 3"
    ):
        fb.limit(model, X, Y)


@pytest.mark.parametrize("tol", [0.0, -1.0, np.nan, np.inf, "small", None])
def test_tol(tol):
    with pytest.raises(fb.InputError, match=r"tol: must be a positive number, got "):
        fb.limit(MODEL, X, Y, tol=tol)


def test_something_that_is_no_model():
    with pytest.raises(fb.InputError, match=r"model: must declare what it `provides`, got int"):
        fb.limit(3, X, Y)
    with pytest.raises(fb.InputError, match=r"model: must offer at_log_scale.*, got a Hypentropy"):
        fb.limit_path(fb.Hypentropy(scale=1.0), X, Y, log_scales=[0.0])


def test_weights_of_another_size():
    with pytest.raises(fb.InputError, match=r"weights: must be one number or one per column of X"):
        fb.basis_pursuit(X, Y, weights=np.ones(5))
    model = fb.DiagonalNet(depth=3, scale=1.0, w0=np.ones(5))
    with pytest.raises(fb.InputError, match=r"X: must have one column per coordinate .*\(5\)"):
        fb.rich_limit(model, X, Y)


def test_potentials_and_models_raise_the_same_kind_of_error():
    with pytest.raises(fb.InputError, match=r"scale: must be > 0"):
        fb.DiagonalNet(depth=2, scale=-0.1)
    with pytest.raises(fb.InputError, match=r"depth"):
        fb.DepthPotential(depth=1.5, scale=0.1)


def test_model_that_provides_too_little():
    with pytest.raises(fb.InputError, match=r"model: must provide POTENTIAL, got a L1"):
        fb.limit(fb.L1(), X, Y)
    with pytest.raises(fb.InputError, match=r"must provide EXPONENTIAL_DUAL or POWER_DUAL"):
        fb.rich_limit(fb.L2(), X, Y)


@pytest.mark.parametrize("log_scales", [[], [[1.0]], [np.nan]], ids=["none", "2-D", "NaN"])
def test_log_scales(log_scales):
    with pytest.raises(fb.InputError, match=r"log_scales: must be a non-empty list of finite"):
        fb.limit_path(MODEL, X, Y, log_scales=log_scales)


def test_a_norm_is_sent_to_the_call_that_needs_no_model():
    with pytest.raises(fb.InputError, match=r"must provide POTENTIAL.* fb\.basis_pursuit\(X, y\)"):
        fb.limit(fb.L1(), X, Y)


def test_calls_that_fit_a_model_are_named_once():
    with pytest.raises(fb.InputError, match="with this model") as caught:
        fb.limit_path(fb.Neuron(a=2.0, w=np.ones(3)), X, Y, log_scales=[0.0])
    assert str(caught.value).count("fb.flow(model, X, y)") == 1


def test_data_in_place_of_a_matrix_problem():
    for solve in (fb.nuclear_norm, fb.frobenius_norm):
        with pytest.raises(fb.InputError, match="Y: must be given with X"):
            solve(X)


def test_a_solve_that_cannot_be_certified_raises_or_says_so():
    rng = np.random.default_rng(0)
    A, y = rng.standard_normal((5, 20)), rng.standard_normal(5)
    with pytest.raises(fb.SolveError, match=r"not certified: .* try a larger tol") as caught:
        fb.limit(MODEL, A, y, tol=1e-30)
    assert caught.value.solution.status is fb.Status.STALLED
    silent = fb.limit(MODEL, A, y, tol=1e-30, throw=False)
    assert silent.status is fb.Status.STALLED
    assert not silent.certificate.ok
    assert "not certified" in repr(silent)


def test_only_where_there_is_a_scale_a_stall_speaks_of_it():
    near = X + 1e-11 * np.eye(2, 3)
    near[1] = near[0] + 1e-11
    for model, speaks in ((fb.L2(), False), (fb.Hypentropy(scale=0.1), True)):
        found = fb.limit(model, near, Y, tol=1e-30, throw=False)
        assert found.status is fb.Status.STALLED
        assert ("declares SCALE" in found.message) == speaks


def test_outputs_whose_predictor_leaves_the_double_range():
    for solve in (fb.min_norm, fb.basis_pursuit):
        with pytest.raises(fb.InputError, match=r"^y: must be at most 1e\+153 times .* got 1e200"):
            solve([[1.0, 0.0]], [1e200])
    assert fb.min_norm([[1.0, 0.0]], [1e150]).w[0] == 1e150


def test_outputs_whose_dual_leaves_the_double_range():
    model = fb.DiagonalNet(depth=2, scale=1.0)
    with pytest.raises(fb.InputError, match=r"^y: must be at least 1e-305 times .* got 1e-310"):
        fb.limit(model, [[1e155, 0.0]], [1.0])
    # A zero row has no length, and zero outputs no size.
    assert not fb.limit(model, [[1e155, 0.0], [0.0, 0.0]], [0.0, 0.0]).w.any()


def test_rows_that_cannot_be_brought_to_length_one():
    for solve in (fb.min_norm, fb.basis_pursuit, lambda *data: fb.limit(MODEL, *data)):
        with pytest.raises(fb.InputError, match=r"^X: must have rows of zeros or of length 1e-305"):
            solve([[1.0, 2.0], [3e-310, 0.0]], [1.0, 0.0])


@pytest.mark.parametrize(
    ("x", "y", "match"),
    [
        (1e-160, 1e-160, r"^X: must wake its features at times.* got 1e3\d\d. Divide"),
        (1e200, 1e200, r"^X: must wake its features at times.* got 1e-40\d. Divide"),
        (1e-300, 1e30, r"^y: must leave w, .*, a double, got entries of X of .*e-300 and of y of"),
    ],
)
def test_stages_whose_times_or_weights_leave_the_double_range(x, y, match):
    with pytest.raises(fb.InputError, match=match):
        fb.stages(fb.DiagonalNet(depth=2, scale=1.0), [[x, 2.0 * x]], [y])
