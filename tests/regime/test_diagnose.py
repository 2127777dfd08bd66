"""`diagnose` finds the exact position between both extremes, without knowing them."""

import copy
import itertools
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import flowbias as fb
from flowbias.ground.arguments import InputError
from flowbias.kernels import (
    GradDistance,
    grad_distance,
    kernel_matrix,
    relative_kernel_change,
    tangent_kernel,
)
from flowbias.nets import mlp, unbiased
from flowbias.regime import THRESHOLDS, Diagnosis, Gaps, Verdict, diagnose, fit, predict
from flowbias.regime.data import evenly_spread, fresh_tensors, read_targets
from flowbias.regime.measures import Beyond, beyond_kernel, squared_loss_dual
from tests.regime import knob_zoo
from tests.regime.known_regimes import (
    cases,
    deep_linear,
    diagonal,
    factorization,
    neuron,
    true_verdict,
)

DIAGONAL = fb.DiagonalNet(depth=2, scale=1.0)
PRODUCT = fb.MatrixFactorization.gaussian((3, 2), width=4, scale=1.0, rng=0, keep_weights=True)


@pytest.mark.parametrize(
    ("make", "count", "seed"),
    [(diagonal, 12, 5), (neuron, 6, 5), (factorization, 2, 5), (deep_linear, 1, 101)],
)
def test_the_position_is_the_exact_one(make, count, seed):
    errors, crossed = [], []
    for case in cases(make, count, seed):
        found = diagnose(case.before, case.after, case.x, lean=True)
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


def test_without_functions_what_was_learned_decides():
    X, y, _ = fb.datasets.sparse_regression(n=8, d=20, sparsity=2, noise_var=0.0, rng=0)
    for scale, verdict in ((1e-6, Verdict.RICH), (5.0, Verdict.KERNEL)):
        model = fb.DiagonalNet(depth=2, scale=scale)
        after = model.parameters(X.T @ fb.limit(model, X, y).dual)
        found = diagnose(model, after, X, y, functions=False)
        assert (found.verdict, found.gaps) == (verdict, None)
        assert diagnose(model, after, X, y).verdict is verdict


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


def _found(**measures):
    """A diagnosis with these numbers."""
    usual = {
        "samples": 5,
        "outputs": 1,
        "beyond": Beyond(0.5, 0.01),
        "kernel_change": 1.0,
        "grad_distance": GradDistance(np.full(5, 0.3), 0.3),
        "gaps": None,
        "given": 5,
        "samples_new": 5,
        "given_new": 5,
        "hurried": False,
        "thresholds": THRESHOLDS,
    }
    names = ("kernel_alignment", "parameter_movement", "label_alignment", "layers")
    return Diagnosis(**{**dict.fromkeys(names), **usual, **measures})


def _gaps(lazy, lean=None, *, at_rest=True, known=True):
    return Gaps(lazy, lean, at_rest=at_rest, norm=0.5, known=known, labels=None)


def test_kernel_needs_every_distance_to_be_small():
    gap, turn = THRESHOLDS.kernel_gap, THRESHOLDS.kernel_turn
    few = GradDistance(np.full(5, turn), turn)
    many = GradDistance(np.full(5, 1.01 * turn), 1.01 * turn)
    near, far = Beyond(gap, 0.0), Beyond(1.01 * gap, 0.0)
    assert _found(beyond=near, grad_distance=few).verdict is Verdict.KERNEL
    assert _found(beyond=near, grad_distance=few, gaps=_gaps(gap)).verdict is Verdict.KERNEL
    for beyond, turned, gaps in (
        (far, few, None),
        (near, many, None),
        (near, few, _gaps(1.01 * gap)),
    ):
        found = _found(beyond=beyond, grad_distance=turned, gaps=gaps)
        assert found.verdict is Verdict.IN_BETWEEN


def test_rich_is_what_was_learned_by_features_that_turned():
    line = THRESHOLDS.rich_features
    turned = GradDistance(np.full(5, 0.8), 0.8)
    for share, verdict in ((line / 0.8, Verdict.RICH), (0.99 * line / 0.8, Verdict.IN_BETWEEN)):
        assert _found(beyond=Beyond(share, 0.0), grad_distance=turned).verdict is verdict
    # More than all cannot make up for features that stayed.
    stayed = GradDistance(np.full(5, 0.4), 0.4)
    assert _found(beyond=Beyond(9.0, 0.0), grad_distance=stayed).verdict is Verdict.IN_BETWEEN
    # The position decides where it is known to mean something, and never for torch modules.
    rich = {"beyond": Beyond(1.0, 0.0), "grad_distance": turned}
    assert _found(**rich, gaps=_gaps(0.5, 0.5)).verdict is Verdict.IN_BETWEEN
    assert _found(**rich, gaps=_gaps(0.5, 0.5, known=False)).verdict is Verdict.RICH


def test_what_was_not_reached_is_not_relied_on():
    assert _gaps(0.01, 0.5, at_rest=True).distinct
    assert not _gaps(0.01, 0.5, at_rest=False).distinct
    assert _gaps(0.5, 0.01, at_rest=False).distinct
    assert not _gaps(0.5).distinct
    for at_rest, verdict in ((True, Verdict.RICH), (False, Verdict.IN_BETWEEN)):
        assert _found(gaps=_gaps(0.5, 0.01, at_rest=at_rest)).verdict is verdict


def test_the_share_comes_first_in_words():
    found = _found(beyond=Beyond(0.12, 0.01), label_alignment=(0.23, 0.68))
    first = "12% (± 1%) of what was learned is beyond the kernel of the start"
    assert found.explanation.startswith(first)
    assert first in repr(found)
    assert "with the labels went from 0.23 to 0.68" in found.explanation
    assert Beyond(1.9, 0.2).in_words.startswith("all of what")
    assert Beyond(0.0012, 0.0001).in_words.startswith("0.12% (± 0.01%)")


def test_gaps_are_relative_to_the_smaller_of_function_and_movement(trained):
    net, moved, x = trained
    new = torch.flip(x, dims=[1])
    with torch.no_grad():
        outputs = [[f(z).numpy().reshape(-1) for f in (net, moved)] for z in (x, new)]
    (start, end), (start_new, end_new) = outputs
    matrices = [kernel_matrix(tangent_kernel(net, z, x)) for z in (x, new)]
    twin = start_new + matrices[1] @ squared_loss_dual(matrices[0], end - start)
    away = np.linalg.norm(end_new - twin)
    sizes = np.linalg.norm(end_new - start_new), np.linalg.norm(end_new)
    assert sizes[0] < 0.9 * sizes[1]
    found = diagnose(net, moved, x, x_new=new)
    assert found.gaps.lazy == pytest.approx(away / sizes[0], rel=1e-6)


def test_kernels_too_large_to_decompose_are_left_alone(trained, monkeypatch):
    net, moved, x = trained
    wanted = sys.modules["flowbias.regime.diagnose"].Wanted
    monkeypatch.setattr(wanted, "largest", 11)
    assert diagnose(net, moved, x).gaps is None
    monkeypatch.setattr(wanted, "largest", 12)
    assert diagnose(net, moved, x).gaps is not None


@pytest.mark.parametrize(("data", "start", "scale"), [(0, 1, 1e-3), (1, 0, 0.01)])
def test_small_relu_networks_are_rich(data, start, scale):
    """Starts 10 and 100 times smaller end within 1% of the same function."""
    generator = torch.Generator().manual_seed(data)
    x = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    y = torch.relu(x[:, :1]) - 0.5 * x[:, 1:2]
    net = unbiased(mlp((2, 30, 1), scale=scale, rng=start, dtype=torch.float64))
    assert diagnose(net, fit(net, x, y).after, x).verdict is Verdict.RICH


def test_the_twin_fits_what_it_can():
    rng = np.random.default_rng(0)
    features = rng.standard_normal((5, 3))
    kernel, targets = features @ features.T, features @ rng.standard_normal(3)
    np.testing.assert_allclose(
        kernel @ squared_loss_dual(kernel, targets), targets, atol=2e-3 * np.linalg.norm(targets)
    )
    # A target outside the range stays at its start, whatever the size of rounding.
    outside = np.linalg.svd(features)[0][:, -1]
    assert np.linalg.norm(kernel @ squared_loss_dual(kernel, outside)) <= 1e-6


def test_fresh_inputs_keep_to_the_values_of_each_feature():
    rng = np.random.default_rng(0)
    x, words = rng.standard_normal((7, 2)), np.array([[3], [5], [9]])
    given = (torch.as_tensor(x),)
    drawn = fresh_tensors(given)[0].numpy()
    assert (drawn >= x.min(0)).all()
    assert (drawn <= x.max(0)).all()
    assert not np.isin(drawn[:, 0], x[:, 0]).all()
    assert set(fresh_tensors((torch.as_tensor(words),))[0].flatten().tolist()) == {3, 5, 9}
    np.testing.assert_array_equal(fresh_tensors(given)[0], drawn)


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
    for after in (settled, settled.state_dict()):
        with pytest.warns(UserWarning, match="those of after are used for both"):
            found = diagnose(start, after, x, by_layer=True)
        # The kernel at the start is that of all pairs of outputs here, added up.
        assert found.kernel_change < 1e-14
        assert (found.parameter_movement, found.beyond.learned) == (0.0, False)
        assert found.verdict is Verdict.KERNEL
        assert "Nothing was learned" in found.explanation
        assert "No parameter moved." in found.explanation
    with pytest.raises(InputError, match="must differ from before in its outputs"):
        diagnose(settled, settled, x)
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


def test_the_share_beyond_the_kernel_is_that_of_dense_derivatives(trained):
    net, moved, x = trained
    shift = {name: p - net.get_parameter(name) for name, p in moved.named_parameters()}

    def outputs(parameters):
        return torch.func.functional_call(net, parameters, (x,))

    start, linear = torch.func.jvp(outputs, (dict(net.named_parameters()),), (shift,))
    learned = (moved(x) - start).detach()
    wanted = float((learned - linear.detach()).norm() / learned.norm())
    found = diagnose(net, moved, x, x_new=x, functions=False)
    assert found.beyond.share == pytest.approx(wanted, rel=1e-9)
    # Where new inputs tell of more, they are heard.
    far = diagnose(net, moved, x, x_new=-10.0 * x, functions=False).beyond.share
    assert far > found.beyond.share or far == pytest.approx(wanted, rel=1e-9)


def test_the_error_of_the_share_is_that_over_inputs():
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(300):
        learned = rng.standard_normal((40, 2))
        rest = 0.3 * rng.standard_normal((40, 2))
        found = beyond_kernel(np.zeros((40, 2)), learned, learned - rest)
        shares.append((found.share, found.error))
    spread, told = np.std([s for s, _ in shares]), np.mean([e for _, e in shares])
    # A standard deviation of 300 draws is known to 4%, and the error to first order only.
    assert told == pytest.approx(spread, rel=0.2)
    assert beyond_kernel(np.zeros((3, 1)), np.zeros((3, 1)), np.zeros((3, 1))).share == 0.0


@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_a_share_that_rounding_makes_counts_as_none(size):
    """Outputs may cancel to much less than what they are of: that is what rounding goes by."""
    eps = np.finfo(np.float64).eps
    rng = np.random.default_rng(0)
    noise, way = rng.normal(size=(2, 50, 1))
    start = size * np.ones((50, 1))
    rounded = beyond_kernel(start, start + eps * noise, 0.0 * way, sensitivity=3.0)
    assert (rounded.share, rounded.learned) == (0.0, False)
    # A move that is seen, of which what is no rounding is not.
    hardly = beyond_kernel(start, start + eps * (100.0 * way + noise), 100.0 * eps * way, 3.0)
    assert (hardly.share, hardly.learned) == (0.0, True)
    assert hardly.error > 0.02
    seen = beyond_kernel(start, start + 100.0 * eps * way, 50.0 * eps * way, 3.0)
    assert abs(seen.share - 0.5) < 2.0 * seen.error


@pytest.mark.parametrize("index", [3, 8, 12])
def test_knobs_that_set_a_regime_are_told(index):
    """`benchmarks/regime_truth.py` has 120 of them."""
    run = knob_zoo.drawn(index, held_out=True)
    after, _ = knob_zoo.trained(run)
    assert run.truth in (Verdict.KERNEL, Verdict.RICH)
    for functions in (True, False):
        found = diagnose(run.module, after, run.x, run.y, functions=functions)
        assert found.verdict is run.truth
    assert predict(run.module, run.x, run.y, kappa=False).verdict is run.truth


def test_layers_that_moved_are_named(trained):
    net, _, x = trained
    moved = copy.deepcopy(net)
    with torch.no_grad():
        moved[2].weight *= 1.5
    found = diagnose(net, moved, x, functions=False, by_layer=True)
    assert list(found.layers) == ["0", "2"]
    assert vars(found.layers["0"]) == {"moved": 0.0, "carries": 0.0}
    assert vars(found.layers["2"]) == pytest.approx({"moved": 0.5, "carries": 1.0})
    assert json.loads(found.to_json())["layers"]["2"]["moved"] == pytest.approx(0.5)
    assert "carries" in repr(found)
    with pytest.raises(InputError, match="by_layer: must be False"):
        diagnose(DIAGONAL, DIAGONAL, np.eye(2), by_layer=True)


def test_a_budget_takes_fewer_inputs_and_says_so(trained, monkeypatch):
    net, moved, x = trained
    x = torch.cat([x, x + 1.0, x - 1.0, 0.5 * x])  # 24
    ticks = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: float(next(ticks)))
    monkeypatch.setattr(sys.modules["flowbias.regime.diagnose"], "time", clock)
    # A diagnosis takes a tick: one on two inputs, after which four are expected to take four of
    # the two that are left. With six left there are four, then eight, and no more.
    for budget, samples in ((4.0, 2), (8.0, 8)):
        found = diagnose(net, moved, x, budget=budget)
        assert (found.samples, found.given, found.gaps) == (samples, 24, None)
        assert f"Measured on {samples} of the 24 inputs and " in found.explanation
    measured = diagnose(net, moved, x, budget=20.0)
    assert (measured.samples, measured.gaps) == (24, None)
    assert "Functions were not compared, to keep the budget" in measured.explanation
    whole = diagnose(net, moved, x, budget=1e6)
    assert (whole.samples, whole.hurried) == (24, False)
    assert whole.measures() == diagnose(net, moved, x).measures()
    with pytest.raises(InputError, match="budget: must be > 0"):
        diagnose(net, moved, x, budget=0.0)


def test_a_budget_takes_fewer_new_inputs_in_the_same_share(trained, monkeypatch):
    net, moved, x = trained
    x = torch.cat([x, x + 1.0, x - 1.0, 0.5 * x])  # 24
    new = 3.0 + torch.cat([x, 2.0 * x])  # 48
    ticks = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: float(next(ticks)))
    monkeypatch.setattr(sys.modules["flowbias.regime.diagnose"], "time", clock)
    called = []
    hook = torch.nn.modules.module.register_module_forward_pre_hook(
        lambda module, given: called.append(len(given[0]))
    )
    with hook:
        found = diagnose(net, moved, x, x_new=new, budget=8.0)
    assert (found.samples, found.samples_new, found.given_new) == (8, 16, 48)
    assert "8 of the 24 inputs and 16 of the 48 new ones, to keep" in found.explanation
    assert max(called) == 16  # the rest was never looked at
    # And they are heard: more is beyond the kernel on them than on x.
    rows = evenly_spread(24, 8), evenly_spread(48, 16)
    known = diagnose(net, moved, x[rows[0]], x_new=new[rows[1]], functions=False)
    assert found.beyond == known.beyond
    own = diagnose(net, moved, x[rows[0]], x_new=x[rows[0]], functions=False)
    assert found.beyond.share > own.beyond.share


def test_classes_have_a_twin_of_their_own(trained):
    """Trained on cross-entropy by its own steps, a linear module is its twin at that loss."""
    x = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    classes = torch.tensor([0, 1, 2, 0, 1, 2])
    net = torch.nn.Linear(4, 3, dtype=torch.float64)
    after = copy.deepcopy(net)
    for _ in range(2000):
        loss = torch.nn.functional.cross_entropy(after(x), classes, reduction="sum")
        after.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in after.parameters():
                p -= 0.01 * p.grad
    found = diagnose(net, after, x, classes)
    # Steps of 0.01 against a flow, and 1e-4 of its integration.
    assert found.gaps.labels <= 0.02
    one_hot = diagnose(net, after, x, torch.nn.functional.one_hot(classes, 3))
    assert one_hot.gaps.labels > 0.1
    assert one_hot.label_alignment == found.label_alignment
    with pytest.raises(InputError, match="y: must be classes below the 3"):
        diagnose(net, after, x, classes + 1)


def test_classes_of_positions_may_be_left_out():
    read = read_targets(np.array([[0, -100], [1, 2]]), (2, 6))
    np.testing.assert_array_equal(read.one_hot, [[1, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]])
    assert read.of([1]).one_hot.shape == (2, 3)
    assert read_targets(np.ones((2, 6)), (2, 6)).one_hot is None
