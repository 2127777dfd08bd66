"""`diagnose` finds the exact position between both extremes, without knowing them."""

import copy
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import flowbias as fb
from flowbias.ground.arguments import InputError
from flowbias.kernels import grad_distance, kernel_matrix, relative_kernel_change, tangent_kernel
from flowbias.nets import mlp, unbiased
from flowbias.regime import THRESHOLDS, Diagnosis, Gaps, Verdict, diagnose, fit
from flowbias.regime.data import fresh_inputs
from flowbias.regime.diagnose import kernel_machine
from flowbias.regime.thresholds import true_verdict
from tests.regime.known_regimes import cases, deep_linear, diagonal, factorization, neuron

DIAGONAL = fb.DiagonalNet(depth=2, scale=1.0)
PRODUCT = fb.MatrixFactorization.gaussian((3, 2), width=4, scale=1.0, rng=0, keep_weights=True)


@pytest.mark.parametrize(
    ("make", "count", "seed"),
    [(diagonal, 12, 5), (neuron, 6, 5), (factorization, 2, 5), (deep_linear, 1, 101)],
)
def test_the_position_is_the_exact_one(make, count, seed):
    errors, crossed = [], []
    for case in cases(make, count, seed):
        found = diagnose(case.before, case.after, case.x)
        known = true_verdict(case.position)
        if found.gaps.distinct:
            errors.append(abs(found.gaps.position - case.position))
        crossed.append({known, found.verdict} == {Verdict.KERNEL, Verdict.RICH})
    # Sampling of new inputs (deep_linear) and the last steps towards the leanest network.
    assert errors
    assert np.median(errors) <= 0.03
    assert not any(crossed)


@pytest.fixture(scope="module")
def trained():
    """A network whose parameters were moved a little, as training would."""
    net = mlp((3, 10, 2), rng=0, dtype=torch.float64)
    moved = copy.deepcopy(net)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in moved.parameters():
            p += 0.1 * torch.randn(p.shape, generator=generator, dtype=p.dtype)
    x = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    return net, moved, x


def test_measures_are_those_of_the_kernels(trained):
    net, moved, x = trained
    found = diagnose(net, moved, x, functions=False)
    kernels = [tangent_kernel(module, x, reduce="trace") for module in (net, moved)]
    assert found.kernel_change == pytest.approx(relative_kernel_change(*kernels), rel=1e-12)
    expected = grad_distance(net, moved, x)
    np.testing.assert_allclose(found.grad_distance.per_sample, expected.per_sample, rtol=1e-9)
    assert found.grad_distance.overall == pytest.approx(expected.overall, rel=1e-9)
    assert (found.samples, found.outputs) == (6, 2)


def test_a_state_dict_says_the_same_as_the_module(trained):
    net, moved, x = trained
    assert (
        diagnose(net, moved.state_dict(), x, functions=False).measures()
        == diagnose(net, moved, x, functions=False).measures()
    )


def test_float32_says_nearly_the_same(trained):
    net, moved, x = trained
    single = diagnose(
        copy.deepcopy(net).float(), copy.deepcopy(moved).float(), x.float(), functions=False
    )
    double = diagnose(net, moved, x, functions=False)
    # Differences of parameters that were rounded to 1e-7.
    assert single.grad_distance.overall == pytest.approx(double.grad_distance.overall, rel=1e-3)
    assert single.gaps is None


def test_a_linear_module_is_its_own_twin():
    net = torch.nn.Linear(4, 1, dtype=torch.float64)
    x = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    moved = copy.deepcopy(net)
    with torch.no_grad():
        # Along the features of the data, where training can go.
        moved.weight += (x.T @ torch.ones(3, 1, dtype=torch.float64)).T
        moved.bias += 3.0
    found = diagnose(net, moved, x)
    assert found.kernel_change == 0.0
    assert found.gaps.lazy <= 5e-3  # kernel_machine leaves 1e-3
    assert found.verdict is Verdict.KERNEL


def test_without_functions_the_kernel_decides():
    X, y, _ = fb.datasets.sparse_regression(n=8, d=20, sparsity=2, noise_var=0.0, rng=0)
    for scale, verdict in ((1e-6, Verdict.RICH), (5.0, Verdict.KERNEL)):
        model = fb.DiagonalNet(depth=2, scale=scale)
        after = model.parameters(X.T @ fb.limit(model, X, y).dual)
        found = diagnose(model, after, X, y, functions=False)
        assert (found.verdict, found.gaps) == (verdict, None)
        assert "not compared" in found.explanation


def test_report_in_words_json_and_picture(tmp_path):
    X, y, _ = fb.datasets.sparse_regression(n=8, d=20, sparsity=2, noise_var=0.0, rng=0)
    model = fb.DiagonalNet(depth=2, scale=1e-6)
    after = model.parameters(X.T @ fb.limit(model, X, y).dual)
    found = diagnose(model, after, X, y)
    told = json.loads(found.to_json())
    assert told["verdict"] == "RICH" == found.verdict.name
    assert told["position"] == found.gaps.position
    assert told["thresholds"] == vars(THRESHOLDS)
    assert len(told["grad_distance_per_sample"]) == 8
    assert "RICH" in repr(found)
    assert f"{found.gaps.position:.3f}" in found.explanation
    # Aligned with the labels by training: that is what learning features means.
    assert told["label_alignment_after"] > told["label_alignment_before"]
    for picture in (found, diagnose(model, after, X, functions=False)):
        file = tmp_path / "a.png"
        picture.plot(file)
        assert file.stat().st_size > 5000


def test_wide_starts_that_keep_no_weights_are_diagnosed():
    rng = np.random.default_rng(0)
    problem = fb.MatrixSensing(rng.standard_normal((8, 4, 4)), rng.standard_normal(8))
    narrow = fb.MatrixFactorization.gaussian((4, 4), width=30, scale=2.0, rng=0, keep_weights=True)
    end = fb.MatrixFactorization(*fb.flow(narrow, problem).factors(-1))
    whole = diagnose(narrow, end, problem)
    bare = fb.MatrixFactorization._from_root(narrow.root, (4, 4), 30)
    found = diagnose(bare, end, problem)
    assert (found.grad_distance, found.parameter_movement) == (None, None)
    assert found.gaps.position == pytest.approx(whole.gaps.position, rel=1e-6)
    assert found.kernel_change == pytest.approx(whole.kernel_change, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda net, x: (net, net, x), "after: must differ from before"),
        (lambda net, x: (net, mlp((3, 11, 2), dtype=torch.float64), x), "after: must have"),
        (lambda net, x: (net, {"0.weight": torch.zeros(1)}, x), "after: must be a state dict"),
        (lambda net, x: (net, mlp((3, 10, 2), dtype=torch.float64), x.numpy()), "x: must be a"),
        (lambda net, x: (3, net, x), "before: must be a torch.nn.Module"),
        (lambda net, x: (net, None, x), "after: must be the module after training"),
        (lambda net, x: (net, mlp((3, 10, 2), dtype=torch.float64), x.long()), "x: must have the"),
        (lambda net, x: (DIAGONAL, net, x.numpy()), "after: must be another DiagonalNet"),
        (lambda net, x: (PRODUCT, net, x.numpy()), "after: must be another MatrixFactorization"),
        (
            lambda net, x: (torch.nn.Sequential(net, torch.nn.Dropout()), net, x),
            "module: must not be in training mode",
        ),
    ],
)
def test_bad_input_is_named(trained, change, words):
    net, _, x = trained
    with pytest.raises(InputError, match=words):
        diagnose(*change(net, x))


def test_labels_of_another_shape_are_refused(trained):
    net, moved, x = trained
    with pytest.raises(InputError, match=r"y: must have one finite number"):
        diagnose(net, moved, x, torch.zeros(6))
    with pytest.raises(InputError, match=r"y: must be numbers"):
        diagnose(net, moved, x, ["a"] * 12)
    with pytest.raises(InputError, match=r"NaN or infinity"):
        diagnose(net, moved, x, torch.full((6, 2), float("nan")))


def test_new_inputs_are_named(trained):
    net, moved, x = trained
    with pytest.raises(InputError, match=r"x_new: the module's outputs must be finite"):
        diagnose(net, moved, x, x_new=torch.full((2, 3), float("nan")))


def test_the_callers_mode_does_not_matter(trained):
    net, moved, x = trained
    plain = diagnose(net, moved, x)
    with torch.inference_mode():
        assert diagnose(net, moved, x).measures() == plain.measures()


def _found(change, norm, *, known=False, at_rest=True):
    """A diagnosis half of the way, with these numbers."""
    gaps = Gaps(lazy=0.3, lean=0.3, at_rest=at_rest, norm=norm, known=known, labels=None)
    return Diagnosis(5, 1, change, None, None, None, None, gaps, THRESHOLDS)


def test_where_many_functions_are_lean_the_norm_and_the_kernel_decide():
    rich, lean = THRESHOLDS.rich_change, 1.0 - Gaps.lean_share
    assert _found(rich, lean).verdict is Verdict.RICH
    assert "norm within" in _found(rich, lean).explanation
    for doubtful in (
        _found(0.9 * rich, lean),
        _found(rich, 0.99 * lean),
        _found(rich, lean, at_rest=False),
        _found(rich, lean, known=True),
    ):
        assert doubtful.verdict is Verdict.IN_BETWEEN
    assert "norm within" not in _found(rich, lean, known=True).explanation


def test_what_was_not_reached_is_not_relied_on():
    def gaps(lazy, lean, at_rest):
        return Gaps(lazy, lean, at_rest=at_rest, norm=0.5, known=True, labels=None)

    assert gaps(0.01, 0.5, at_rest=True).distinct
    assert not gaps(0.01, 0.5, at_rest=False).distinct
    assert gaps(0.5, 0.01, at_rest=False).distinct
    for at_rest, verdict in ((True, Verdict.RICH), (False, Verdict.IN_BETWEEN)):
        near = gaps(0.5, 0.01, at_rest=at_rest)
        found = Diagnosis(5, 1, 1.0, None, None, None, None, near, THRESHOLDS)
        assert found.verdict is verdict


def test_gaps_are_relative_to_the_smaller_of_function_and_movement(trained):
    net, moved, x = trained
    new = torch.flip(x, dims=[1])
    with torch.no_grad():
        outputs = [[f(z).numpy().reshape(-1) for f in (net, moved)] for z in (x, new)]
    (start, end), (start_new, end_new) = outputs
    matrices = [kernel_matrix(tangent_kernel(net, z, x)) for z in (x, new)]
    away = np.linalg.norm(end_new - start_new - kernel_machine(*matrices, end - start))
    sizes = np.linalg.norm(end_new - start_new), np.linalg.norm(end_new)
    assert sizes[0] < 0.9 * sizes[1]
    found = diagnose(net, moved, x, x_new=new)
    assert found.gaps.lazy == pytest.approx(away / sizes[0], rel=1e-6)


def test_kernels_too_large_to_decompose_are_left_alone(trained, monkeypatch):
    net, moved, x = trained
    module = sys.modules["flowbias.regime.diagnose"]
    monkeypatch.setattr(module, "LARGEST", 11)
    assert diagnose(net, moved, x).gaps is None
    monkeypatch.setattr(module, "LARGEST", 12)
    assert diagnose(net, moved, x).gaps is not None


# By norm and kernel (the leanest network is 4% away), and as no other is leaner.
@pytest.mark.parametrize(("data", "start", "scale"), [(0, 1, 1e-3), (1, 0, 0.01)])
def test_small_relu_networks_are_rich(data, start, scale):
    """Starts 10 and 100 times smaller end within 1% of the same function."""
    generator = torch.Generator().manual_seed(data)
    x = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    y = torch.relu(x[:, :1]) - 0.5 * x[:, 1:2]
    net = unbiased(mlp((2, 30, 1), scale=scale, rng=start, dtype=torch.float64))
    assert diagnose(net, fit(net, x, y).after, x).verdict is Verdict.RICH


def test_kernel_machine_fits_what_it_can():
    rng = np.random.default_rng(0)
    features = rng.standard_normal((5, 3))
    kernel, targets = features @ features.T, features @ rng.standard_normal(3)
    np.testing.assert_allclose(
        kernel_machine(kernel, kernel, targets), targets, atol=2e-3 * np.linalg.norm(targets)
    )
    # A target outside the range stays at its start, whatever the size of rounding.
    outside = np.linalg.svd(features)[0][:, -1]
    assert np.linalg.norm(kernel_machine(kernel, kernel, outside)) <= 1e-6


def test_fresh_inputs_keep_to_the_values_of_each_feature():
    rng = np.random.default_rng(0)
    x, words = rng.standard_normal((7, 2)), np.array([[3], [5], [9]])
    (drawn,) = fresh_inputs([x])
    assert (drawn >= x.min(0)).all()
    assert (drawn <= x.max(0)).all()
    assert not np.isin(drawn[:, 0], x[:, 0]).all()
    assert set(fresh_inputs([words])[0].ravel()) == {3, 5, 9}
    np.testing.assert_array_equal(fresh_inputs([x])[0], drawn)


def test_importing_does_not_load_torch():
    program = "import flowbias.regime, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_one_step_of_doubling_is_diagnosed():
    net = unbiased(mlp((2, 8, 1), rng=0, dtype=torch.float64))
    x = torch.eye(2, dtype=torch.float64)
    moved = copy.deepcopy(net)
    torch.autograd.backward(moved(x).sum())
    with torch.no_grad():
        for p in moved.parameters():
            p += 1e-4 * p.grad
    assert diagnose(net, moved, x).verdict is Verdict.KERNEL


def test_one_name_is_one_kernel_in_every_mode(trained):
    """Kernel change and alignments do not depend on whether functions are compared."""
    net, moved, x = trained
    y = torch.sin(torch.arange(12.0, dtype=torch.float64)).reshape(6, 2)
    both = [diagnose(net, moved, x, y, functions=compared) for compared in (True, False)]
    for name in ("kernel_change", "kernel_alignment", "label_alignment"):
        first, second = (getattr(found, name) for found in both)
        assert first == pytest.approx(second, rel=1e-12)


class Normalized(torch.nn.Module):
    """A layer, its batch norm, a second layer."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.first, self.norm = torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8)
        self.last = torch.nn.Linear(8, 1)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=generator))
        self.double().eval()

    def forward(self, x):
        return self.last(torch.tanh(self.norm(self.first(x))))

    def settle(self, x):
        """Running statistics of a network that learns nothing."""
        self.train()
        with torch.no_grad():
            for _ in range(50):
                self(x)
        return self.eval()


def test_statistics_that_settle_are_nothing_learned(trained):
    *_, x = trained
    start = Normalized()
    settled = copy.deepcopy(start).settle(x)
    with (
        pytest.warns(UserWarning, match="those of after are used for both"),
        pytest.raises(InputError, match="must differ from before in its outputs"),
    ):
        diagnose(start, settled, x)
    with torch.no_grad():
        settled.last.weight += 0.01
    with pytest.warns(UserWarning, match="running statistics"):
        found = diagnose(start, settled, x, functions=False)
    # As from a start that has these statistics already, from which nothing but the weight moves.
    fresh = copy.deepcopy(start)
    fresh.norm.load_state_dict(settled.norm.state_dict())
    assert found.measures() == diagnose(fresh, settled, x, functions=False).measures()
    assert 0.0 < found.kernel_change < 0.1
    assert start.norm.running_mean.abs().max() == 0.0
