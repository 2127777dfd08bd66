"""Gradient descent of products, in the compressed root, against descent on the weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from flowbias.flows import flow, gradient_descent
from flowbias.flows.lifted import descent as lifted_descent
from flowbias.flows.steps import DescentStatus
from flowbias.ground.arguments import InputError
from flowbias.models import DiagonalNet, LinearNet, MatrixFactorization
from flowbias.models.factorization import SymmetricFactorization
from flowbias.problems.matrix import MatrixCompletion, MatrixRegression, MatrixSensing

# Rounding of a few hundred steps, each of which is a product of a few numbers.
ROUNDING = 1e-11


def on_the_weights(U, V, problem, step, steps, c=1.0):
    """Gradient descent as it is written: on all weights, by the gradient of the loss."""
    for _ in range(steps):
        R = problem.adjoint(problem.measure(U @ V.T) - problem.target)
        U, V = U - step * c * R @ V, V - step * c * R.T @ U
    return U, V


def regression(rng, n=4, d=7, m=2):
    return MatrixRegression(rng.standard_normal((n, d)), rng.standard_normal((n, m)))


def completion(rng, shape=(5, 4), entries=12):
    flat = rng.choice(shape[0] * shape[1], entries, replace=False)
    return MatrixCompletion(flat // shape[1], flat % shape[1], rng.standard_normal(entries), shape)


def sensing(rng, shape=(4, 3), count=5):
    return MatrixSensing(rng.standard_normal((count, *shape)), rng.standard_normal(count))


@pytest.mark.parametrize("make", [regression, completion, sensing], ids=lambda f: f.__name__)
@pytest.mark.parametrize("width", [1, 3, 40], ids=lambda w: f"width {w}")
@pytest.mark.filterwarnings("ignore::flowbias.models.lifted.NarrowWarning")
@given(seed=st.integers(0, 2**32 - 1), step=st.floats(1e-3, 1e-2), steps=st.integers(0, 200))
def test_it_is_descent_on_the_weights(make, width, seed, step, steps):
    """At every width, also where rows rest (d > n) and where the product has low rank."""
    rng = np.random.default_rng(seed)
    problem = make(rng)
    (d, m), scale = problem.shape, 0.7 * width**-0.5
    U, V = scale * rng.standard_normal((d, width)), scale * rng.standard_normal((m, width))
    net = (LinearNet if make is regression else MatrixFactorization)(U, V)
    run = gradient_descent(net, problem, step_size=step, max_steps=max(steps, 1), residual=1e-14)
    steps = min(steps, run.steps)
    U, V = on_the_weights(U, V, problem, step, steps)
    size = np.linalg.norm(U) * np.linalg.norm(V)
    assert_allclose(run.product_at(steps), U @ V.T, rtol=0, atol=ROUNDING * size)
    if steps == run.steps:
        assert_allclose(run.M, run.product_at(steps), rtol=0, atol=0)
        assert_allclose(run.factors.U, U, rtol=0, atol=ROUNDING * np.linalg.norm(U))
        assert_allclose(run.factors.V, V, rtol=0, atol=ROUNDING * np.linalg.norm(V))
    Z = np.vstack([U, V])
    assert_allclose(run.gram_at(steps), Z @ Z.T, rtol=0, atol=ROUNDING * np.sum(Z * Z))
    root = run.root_at([steps])[0]
    assert_allclose(root @ root.T, Z @ Z.T, rtol=0, atol=ROUNDING * np.sum(Z * Z))
    r = problem.measure(U @ V.T) - problem.target
    tolerance = ROUNDING * (problem.target @ problem.target + 1.0)
    assert_allclose(run.loss_at(steps), 0.5 * r @ r, rtol=1e-8, atol=tolerance)


def test_one_factor_used_twice():
    """W <- W - h c (R + R^T) W."""
    rng = np.random.default_rng(3)
    problem, W = completion(rng, (4, 4), 9), 0.4 * rng.standard_normal((4, 30))
    run = gradient_descent(SymmetricFactorization(W), problem, step_size=0.02, max_steps=50)
    for _ in range(run.steps):
        R = problem.adjoint(problem.measure(W @ W.T) - problem.target)
        W = W - 0.02 * (R + R.T) @ W
    assert_allclose(run.M, W @ W.T, rtol=0, atol=ROUNDING * np.sum(W * W))


def test_of_a_start_known_by_its_gram_matrix_alone():
    rng = np.random.default_rng(5)
    problem = regression(rng)
    wide = LinearNet.gaussian(7, 2, width=10**8, scale=1e-4, rng=rng)
    run = gradient_descent(wide, problem, step_size=0.05)
    assert run.status is DescentStatus.CONVERGED
    root = wide.root
    U, _ = factors = on_the_weights(root[:7], root[7:], problem, 0.05, run.steps)
    assert_allclose(run.M, U @ factors[1].T, rtol=0, atol=ROUNDING * np.sum(root * root))
    with pytest.raises(InputError, match="model: must provide FACTORS"):
        _ = run.factors


@given(seed=st.integers(0, 2**32 - 1))
def test_turning_the_hidden_units_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    problem, U, V = completion(rng), rng.standard_normal((5, 6)), rng.standard_normal((4, 6))
    Q = np.linalg.qr(rng.standard_normal((15, 6))).Q.T
    runs = [
        gradient_descent(MatrixFactorization(*parts), problem, step_size=0.01, max_steps=60)
        for parts in ((U, V), (U @ Q, V @ Q))
    ]
    assert_allclose(runs[0].M, runs[1].M, rtol=0, atol=ROUNDING * 100)
    assert_allclose(
        runs[0].imbalance_drift_at([5, 60]), runs[1].imbalance_drift_at([5, 60]), rtol=1e-8
    )


@pytest.mark.parametrize(("loss", "c"), [("half", 1.0), ("sum", 2.0), ("mean", 0.5), (0.3, 0.3)])
def test_the_loss_sets_the_clock(loss, c):
    rng = np.random.default_rng(8)
    problem = regression(rng)
    net = LinearNet.gaussian(7, 2, width=9, scale=0.5, rng=rng)
    run = gradient_descent(net, problem, step_size=0.01, max_steps=20, loss=loss)
    U, V = on_the_weights(*net.factors, problem, 0.01, 20, c)
    assert_allclose(run.M, U @ V.T, rtol=0, atol=ROUNDING * 100)
    assert run.loss_constant == c
    assert_allclose(run.time, 0.2, rtol=1e-15)


# --- beside the flow ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_steps():
    """A network and two descents, the steps of one four times as long."""
    rng = np.random.default_rng(11)
    problem = regression(rng)
    net = LinearNet.gaussian(7, 2, width=50, scale=0.1, rng=rng)
    return (
        net,
        problem,
        [gradient_descent(net, problem, step_size=step, residual=1e-11) for step in (4e-3, 1e-3)],
    )


def test_errors_are_of_first_order(small_steps):
    net, problem, (coarse, fine) = small_steps
    assert coarse.status is fine.status is DescentStatus.CONVERGED
    assert fine.residual[-1] <= 1e-11 < fine.residual[-2]
    # Euler's method: a step four times as long is four times as far off, up to its second order.
    assert_allclose(coarse.distance_to_limit / fine.distance_to_limit, 4.0, rtol=0.1)
    drift = coarse.imbalance_drift_at(coarse.steps) / fine.imbalance_drift_at(fine.steps)
    assert_allclose(drift, 4.0, rtol=0.1)
    there = flow(net, problem, t=[0.4]).M[0]
    apart = [
        np.linalg.norm(run.product_at(round(0.4 / run.step_size)) - there) for run in (coarse, fine)
    ]
    assert_allclose(apart[0] / apart[1], 4.0, rtol=0.1)


def test_drift_after_one_step_is_the_formula():
    """h^2 c^2 (V^T R^T R V - U^T R R^T U), exactly."""
    rng = np.random.default_rng(12)
    problem, U, V = completion(rng), rng.standard_normal((5, 8)), rng.standard_normal((4, 8))
    run = gradient_descent(MatrixFactorization(U, V), problem, step_size=0.1, max_steps=1)
    R = problem.adjoint(problem.measure(U @ V.T) - problem.target)
    change = 0.1**2 * (V.T @ R.T @ R @ V - U.T @ R @ R.T @ U)
    Z = np.vstack([U, V])
    size = max(np.sum(Z * Z), np.trace(run.gram_at(1)))
    assert_allclose(run.imbalance_drift_at(1), np.linalg.norm(change) / size, rtol=1e-10)
    assert run.imbalance_drift_at(0) == 0.0
    D0, D1 = (L[:5].T @ L[:5] - L[5:].T @ L[5:] for L in run.root_at([0, 1]))
    assert_allclose(np.linalg.norm(D1 - D0), np.linalg.norm(change), rtol=1e-10)


def test_stable_below_and_unstable_above():
    """The stable step is 2 over the largest eigenvalue of the tangent kernel."""
    rng = np.random.default_rng(13)
    problem, U, V = sensing(rng), rng.standard_normal((4, 6)), rng.standard_normal((3, 6))
    X = problem.matrices
    kernel = np.einsum("iab,jcb,ac->ij", X, X, U @ U.T) + np.einsum("iab,jac,bc->ij", X, X, V @ V.T)
    model = MatrixFactorization(U, V)
    run = gradient_descent(model, problem, step_size=1e-3, max_steps=1, loss="sum")
    assert_allclose(run.stable_step_size, 1.0 / np.linalg.eigvalsh(kernel)[-1], rtol=1e-10)
    lost = gradient_descent(model, problem, step_size=100.0)
    assert lost.status is DescentStatus.DIVERGED
    assert "lower step_size = 100" in repr(lost)
    assert np.isfinite(lost.M).all()


def test_states_that_were_not_kept_are_stepped_to_again(small_steps, monkeypatch):
    net, problem, (run, _) = small_steps
    monkeypatch.setattr(lifted_descent, "_KEPT_NUMBERS", 10 * run._compression.weights.size)
    thin = gradient_descent(net, problem, step_size=4e-3, residual=1e-11)
    assert len(thin._process.checkpoints.kept) <= 10 < len(run._process.checkpoints.kept)
    at = [0, 1, 2, 17, run.steps // 2 + 1, run.steps - 1, run.steps]
    assert np.array_equal(thin.product_at(at), run.product_at(at))
    assert np.array_equal(thin.residual, run.residual)


@pytest.mark.parametrize("steps", [-1, 10**9, 0.5, [[1]]])
def test_steps_that_were_not_taken_are_refused(small_steps, steps):
    _, _, (run, _) = small_steps
    with pytest.raises(InputError, match=f"steps: must be integers from 0 to {run.steps}"):
        run.product_at(steps)


def test_models_are_told_apart_by_what_they_provide():
    rng = np.random.default_rng(1)
    with pytest.raises(InputError, match="must measure matrices of the model's shape"):
        gradient_descent(
            LinearNet.gaussian(3, 1, width=2, scale=1, rng=0),
            rng.standard_normal((2, 4)),
            rng.standard_normal(2),
            step_size=0.1,
        )
    with pytest.raises(InputError, match="model: must provide PARAMETERS"):
        gradient_descent(DiagonalNet(2, 0.3).potential, np.ones((1, 2)), np.ones(1), step_size=0.1)


# --- batches, momentum, decay and noise --------------------------------------------------------


@pytest.mark.parametrize("make", [regression, completion, sensing], ids=lambda f: f.__name__)
@given(seed=st.integers(0, 2**32 - 1), batch_size=st.integers(1, 4), noise=st.booleans())
def test_batches_and_noise_are_those_on_the_weights(make, seed, batch_size, noise):
    """Samples of the draws, their gradient n/b times, momentum and decay as torch takes them."""
    rng = np.random.default_rng(seed)
    problem = make(rng)
    (d, m), width = problem.shape, 6
    U, V = 0.3 * rng.standard_normal((d, width)), 0.3 * rng.standard_normal((m, width))
    net = (LinearNet if make is regression else MatrixFactorization)(U, V)
    how = {"momentum": 0.7, "weight_decay": 0.05, "label_noise": 0.2 if noise else 0.0}
    run = gradient_descent(
        net, problem, step_size=5e-3, batch_size=batch_size, rng=seed, max_steps=30, **how
    )
    draws = run._process.draws
    n, outputs = draws.n, draws.outputs
    assert n * outputs == problem.target.size
    samples, added = draws.block(seed, 0)
    velocity = [np.zeros_like(U), np.zeros_like(V)]
    for k in range(30):
        left = (problem.measure(U @ V.T) - problem.target).reshape(n, outputs)
        seen = np.zeros_like(left)
        shift = added[k].reshape(-1, outputs) if noise else 0.0
        seen[samples[k]] = (left[samples[k]] - shift) * n / batch_size
        R = problem.adjoint(seen.reshape(problem.target.shape))
        velocity = [
            0.7 * old + slope + 0.05 * weights
            for old, slope, weights in zip(velocity, (R @ V, R.T @ U), (U, V), strict=True)
        ]
        U, V = U - 5e-3 * velocity[0], V - 5e-3 * velocity[1]
    size = np.linalg.norm(U) * np.linalg.norm(V)
    assert_allclose(run.M, U @ V.T, rtol=0, atol=ROUNDING * size)
    assert_allclose(run.product_at(30), run.M, rtol=0, atol=0)


def test_steps_on_batches_are_taken_again_to_the_bit(monkeypatch):
    rng = np.random.default_rng(21)
    problem = completion(rng)
    net = MatrixFactorization(0.3 * rng.standard_normal((5, 6)), 0.3 * rng.standard_normal((4, 6)))
    how = {"step_size": 0.02, "batch_size": 3, "rng": 5, "max_steps": 300, "momentum": 0.3}
    run = gradient_descent(net, problem, **how)
    monkeypatch.setattr(lifted_descent, "_KEPT_NUMBERS", 10)
    thin = gradient_descent(net, problem, **how)
    assert len(thin._process.checkpoints.kept) < 4 < len(run._process.checkpoints.kept)
    at = [0, 1, 7, 150, run.steps - 1]
    assert np.array_equal(thin.product_at(at), run.product_at(at))


def test_batches_move_the_imbalance_by_their_variance():
    """In first order of the step as well, and by more than all samples do."""
    rng = np.random.default_rng(22)
    problem = regression(rng, n=4, d=8)
    net = LinearNet.gaussian(8, 2, width=20, scale=0.2, rng=rng)
    drifts = {}
    for batch_size in (None, 1):
        for step in (4e-3, 1e-3):
            runs = gradient_descent(
                net, problem, step_size=step, batch_size=batch_size, rng=range(6), residual=1e-8
            )
            assert all(run.status is DescentStatus.CONVERGED for run in runs)
            drifts[batch_size, step] = np.mean([run.imbalance_drift_at(run.steps) for run in runs])
    for batch_size in (None, 1):
        # Six seeds leave a tenth of chance.
        assert_allclose(drifts[batch_size, 4e-3] / drifts[batch_size, 1e-3], 4.0, rtol=0.3)
    assert drifts[1, 1e-3] > 1.5 * drifts[None, 1e-3]


def test_a_batch_larger_than_the_samples_is_refused():
    rng = np.random.default_rng(1)
    net = LinearNet.gaussian(7, 2, width=5, scale=0.5, rng=rng)
    with pytest.raises(InputError, match="batch_size: must be at most the number of samples, 4"):
        gradient_descent(net, regression(rng), step_size=0.1, batch_size=5)
