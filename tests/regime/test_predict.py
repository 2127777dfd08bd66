"""`predict` against dense derivatives, the law of scaling, and what training does."""

import copy
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

import flowbias as fb
from flowbias.ground.arguments import InputError
from flowbias.nets import mlp, scaled, unbiased
from flowbias.regime import THRESHOLDS, Verdict, diagnose, predict
from flowbias.regime.curvature import ModuleDerivatives
from flowbias.regime.data import fresh_tensors
from flowbias.regime.predict import read_derivatives
from tests.regime.mlp_zoo import members, trained


class Smooth(torch.nn.Module):
    """Small and smooth, with all derivatives."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        draw = lambda *size: torch.randn(*size, generator=generator, dtype=torch.float64)  # noqa: E731
        self.inner, self.outer = torch.nn.Parameter(draw(4, 2)), torch.nn.Parameter(draw(2, 4))

    def forward(self, x):
        return torch.tanh(x @ self.inner.T) @ self.outer.T


@pytest.fixture(scope="module")
def dense():
    """A module with its J (n c, p) and D^2 f (n c, p, p), by torch.func on one vector."""
    net = Smooth()
    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def outputs(theta):
        parts = {"inner": theta[:8].reshape(4, 2), "outer": theta[8:].reshape(2, 4)}
        return torch.func.functional_call(net, parts, (x,)).reshape(-1)

    theta = torch.cat([net.inner.detach().reshape(-1), net.outer.detach().reshape(-1)])
    jacobian = torch.func.jacrev(outputs)(theta).numpy()
    second = torch.func.jacfwd(torch.func.jacrev(outputs))(theta).numpy()
    return net, x, jacobian, second


def test_operator_norms_are_those_of_the_dense_derivatives(dense):
    net, x, jacobian, second = dense
    curvature = read_derivatives(net, x)
    assert curvature.first_norm() == pytest.approx(np.linalg.norm(jacobian, 2), rel=1e-2)
    # The largest ||D^2 f[u, u]|| over many unit u, each improved by a few ascents of its own.
    rng, best = np.random.default_rng(0), 0.0
    for _ in range(200):
        u = rng.standard_normal(16)
        for _ in range(30):
            u /= np.linalg.norm(u)
            bent = np.einsum("kij,i,j->k", second, u, u)
            u = np.einsum("k,kij,j->i", bent, second, u) + 0.5 * (bent @ bent) * u
        best = max(best, float(np.linalg.norm(bent)))
    # A few starts may rest at a smaller critical value, never at a larger one.
    assert 0.8 * best <= curvature.second_norm() <= best * (1.0 + 1e-2)


def test_feature_change_is_that_of_the_dense_derivatives(dense):
    net, x, jacobian, second = dense
    with torch.no_grad():
        start = net(x).numpy()
    y = start + np.linspace(-1.0, 1.0, 6).reshape(3, 2)
    delta = np.linalg.pinv(jacobian) @ (y - start).reshape(-1)
    wanted = np.linalg.norm(second @ delta) / np.linalg.norm(jacobian)
    # 16 random combinations of outputs, shared by both norms: a few percent each.
    assert predict(net, x, y).feature_change == pytest.approx(wanted, rel=0.25)


def test_lazy_gap_is_that_of_the_module_itself(dense):
    net, x, jacobian, _ = dense
    with torch.no_grad():
        start = net(x).numpy()
    y = start + np.linspace(-0.2, 0.2, 6).reshape(3, 2)
    delta = torch.as_tensor(np.linalg.pinv(jacobian) @ (y - start).reshape(-1))
    (new,) = fresh_tensors((x,))

    def outputs(theta):
        parts = {"inner": theta[:8].reshape(4, 2), "outer": theta[8:].reshape(2, 4)}
        return torch.func.functional_call(net, parts, (new,))

    theta = torch.cat([net.inner.detach().reshape(-1), net.outer.detach().reshape(-1)])
    here, along = torch.func.jvp(outputs, (theta,), (delta,))
    away = (outputs(theta + delta) - here - along).norm()
    wanted = float(away / min(along.norm(), (here + along).norm()))
    # Conjugate gradients leave 1% of the way, and the gap is of second order in it.
    assert predict(net, x, y).lazy_gap == pytest.approx(wanted, rel=0.05)


def test_kernel_needs_both_numbers():
    few, close = 0.99 * THRESHOLDS.kernel_outlook, THRESHOLDS.kernel_gap
    rich = 1.01 * THRESHOLDS.rich_outlook
    for change, gap, verdict in (
        (few, close, Verdict.KERNEL),
        (few, 1.01 * close, Verdict.IN_BETWEEN),
        (1.02 * few, close, Verdict.IN_BETWEEN),
        (rich, 9.0, Verdict.RICH),
        (0.98 * rich, 9.0, Verdict.IN_BETWEEN),
    ):
        assert THRESHOLDS.decide(THRESHOLDS.expected(change, gap)) is verdict


def test_units_that_switch_are_seen():
    # Second derivatives do not know of kinks; the labels pull one unit across all of them.
    net = mlp((1, 2, 1), rng=0, dtype=torch.float64)
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(1.0)
    x = torch.tensor([[1.0]], dtype=torch.float64)
    found = predict(net, x, net(x).detach() - 20.0, kappa=False)
    assert found.lazy_gap > THRESHOLDS.kernel_gap
    assert found.verdict is not Verdict.KERNEL


def test_regimes_are_asked_for_by_name():
    found = predict(mlp((2, 4, 1), rng=0), torch.eye(2), torch.ones(2, 1), kappa=False)
    with pytest.raises(InputError, match=r"wanted: must be one of Verdict.KERNEL"):
        found.rescale("kernel")
    linear = predict(torch.nn.Linear(2, 1, bias=False), torch.eye(2), torch.ones(2, 1))
    with pytest.raises(InputError, match="linear in its parameters"):
        linear.rescale(Verdict.RICH)


def test_the_callers_mode_does_not_matter():
    net, x, y = mlp((2, 4, 1), rng=0), torch.eye(2), torch.ones(2, 1)
    with torch.inference_mode():
        found = predict(net, x, y)
    assert found.document() == predict(net, x, y).document()


def test_what_is_no_module_is_named():
    with pytest.raises(InputError, match=r"module: must be a torch.nn.Module, got DiagonalNet"):
        predict(fb.DiagonalNet(depth=2, scale=1.0), np.eye(2), np.ones(2))
    with pytest.raises(InputError, match="x: must have the dtype that the module wants"):
        predict(mlp((2, 4, 1), rng=0), torch.ones(2, 2, dtype=torch.long), torch.ones(2, 1))


@settings(max_examples=2)
@given(alpha=st.floats(0.2, 5.0), depth=st.integers(2, 3))
def test_unbiased_homogeneous_networks_follow_the_law_of_scaling(alpha, depth):
    x, y = torch.eye(3, dtype=torch.float64), torch.tensor([[1.0], [-2.0], [0.5]])
    net = unbiased(mlp((3, *[6] * (depth - 1), 1), rng=depth, dtype=torch.float64))
    one, other = (predict(scaled(net, factor), x, y) for factor in (1.0, alpha))
    assert one.degree == pytest.approx(depth, abs=1e-6)
    # Conjugate gradients take the same steps at every scale; rounding is all that differs.
    assert other.feature_change == pytest.approx(one.feature_change * alpha**-depth, rel=1e-6)
    assert other.kappa == pytest.approx(one.kappa * alpha**-depth, rel=0.05)


def test_rescaling_reaches_the_wanted_regime():
    x, y = torch.eye(3), torch.tensor([[1.0], [-2.0], [0.5]])
    net = unbiased(mlp((3, 8, 1), rng=0))
    prediction = predict(net, x, y, kappa=False)
    for wanted in Verdict:
        found = prediction.rescale(wanted)
        again = predict(scaled(net, found.factor), x, y, kappa=False)
        assert again.verdict is wanted
        assert again.feature_change == pytest.approx(found.feature_change, rel=1e-3)
    assert prediction.rescale(Verdict.KERNEL).factor > prediction.rescale(Verdict.RICH).factor


def test_rescaling_follows_the_function_where_its_features_have_settled():
    """Units that switch move it although few features change: a larger factor than these want."""
    torch.manual_seed(0)
    x, y = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 1, dtype=torch.float64)
    net = unbiased(mlp((3, 8, 1), rng=0, dtype=torch.float64))
    found = predict(net, x, y, kappa=False).rescale(Verdict.KERNEL)
    again = predict(scaled(net, found.factor), x, y, kappa=False)
    assert again.verdict is Verdict.KERNEL
    assert again.feature_change < 0.2 * THRESHOLDS.kernel_outlook
    assert again.lazy_gap > 0.3 * THRESHOLDS.kernel_gap


class Product(torch.nn.Module):
    """a b x: its Hessian has the eigenvalues x and -x, between which a power iteration swings."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (torch.nn.Parameter(torch.tensor(v).double()) for v in (1.0, 0.5))

    def forward(self, x):
        return self.a * self.b * x


def test_kappa_of_a_product():
    x, y = torch.full((1, 1), 3.0, dtype=torch.float64), torch.full((1, 1), 6.0)
    # |f - y| = 4.5, ||D^2 f|| = 3, ||D f||^2 = 9 (1 + 1/4).
    assert predict(Product(), x, y).kappa == pytest.approx(4.5 * 3.0 / 11.25, rel=1e-2)


def test_a_start_with_outputs_may_never_be_lazy():
    # A narrow network whose own outputs have to be unlearned, at any scale.
    x, y = torch.eye(3, dtype=torch.float64), torch.tensor([[1.0], [-2.0], [0.5]])
    net = mlp((3, 4, 1), rng=3, dtype=torch.float64)
    with pytest.raises(InputError, match="unbiased"):
        predict(net, x, y, kappa=False).rescale(Verdict.KERNEL)


def test_a_linear_module_never_changes_its_features():
    x, y = torch.eye(3), torch.tensor([[1.0], [-2.0], [0.5]])
    found = predict(torch.nn.Linear(3, 1, bias=False), x, y)
    assert (found.feature_change, found.kappa) == (0.0, 0.0)
    assert found.verdict is Verdict.KERNEL


def test_biases_are_no_homogeneous_parameters():
    net = torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1))
    found = predict(net, torch.eye(2), torch.ones(2, 1), kappa=False)
    assert found.degree is None
    assert "not homogeneous" in found.explanation


def test_the_module_is_left_alone():
    net = mlp((2, 4, 1), rng=0)
    before = copy.deepcopy(net.state_dict())
    predict(net, torch.eye(2), torch.ones(2, 1)).rescale(Verdict.RICH)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


def test_what_is_predicted_is_what_happens():
    """A few small networks; `benchmarks/regime.py predict` has 40 larger ones."""
    expected, found = [], []
    for member in members(6, seed=11, samples=4):
        module, _ = trained(member)
        expected.append(predict(member.module, member.x, member.y, kappa=False).feature_change)
        found.append(diagnose(member.module, module, member.x, functions=False).kernel_change)
    assert spearmanr(expected, found)[0] >= 0.8


def test_report_as_text_and_json():
    found = predict(mlp((2, 4, 1), rng=0), torch.eye(2), torch.ones(2, 1))
    told = json.loads(found.to_json())
    assert told["verdict"] == found.verdict.name
    assert told["kappa"] == found.kappa
    assert found.verdict.name in repr(found)
    assert f"{THRESHOLDS.rich_outlook:g}" in found.explanation


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (torch.ones(3, 1), "y: must have one finite number per sample and output"),
        (torch.full((2, 1), float("nan")), "y: must have one finite number"),
        (None, "y: must differ"),
        (["a", "b"], "y: must be numbers"),
    ],
)
def test_bad_labels_are_named(y, words):
    net = mlp((2, 4, 1), rng=0, dtype=torch.float64)
    x = torch.eye(2, dtype=torch.float64)
    labels = net(x).detach() if y is None else y
    with pytest.raises(InputError, match=words):
        predict(net, x, labels)


def test_a_dead_module_is_refused():
    net = mlp((2, 4, 4, 1), rng=0)
    for p in net.parameters():
        p.data.zero_()
    with pytest.raises(InputError, match="react to its parameters"):
        predict(net, torch.eye(2), torch.ones(2, 1))


def test_kappa_is_computed_when_it_is_asked_for(monkeypatch):
    """It takes several times as long as all that decides."""
    net, x, y = mlp((2, 8, 1), rng=0), torch.eye(2), torch.ones(2, 1)
    known = predict(net, x, y).kappa
    asked = []
    plain = ModuleDerivatives.second_norm
    monkeypatch.setattr(
        ModuleDerivatives, "second_norm", lambda self: asked.append(1) or plain(self)
    )
    found = predict(net, x, y)
    with torch.no_grad():
        net[0].weight.zero_()  # the module may be trained meanwhile
    assert "kappa" not in repr(found)
    assert not asked
    with torch.inference_mode():
        assert [found.kappa, found.kappa] == [known, known]
    assert len(asked) == 1
    assert "kappa" in repr(found)
    assert predict(mlp((2, 8, 1), rng=0), x, y, kappa=False).kappa is None


def test_random_combinations_share_one_call():
    class Counting(torch.nn.Module):
        calls = 0

        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x):
            Counting.calls += 1
            return torch.tanh(self.linear(x))

    curvature = read_derivatives(Counting(), torch.randn(4, 3))
    direction = curvature.random_direction(0)
    for ask in (curvature.size, lambda: curvature.change_along(direction)):
        Counting.calls = 0
        assert ask() > 0.0
        assert Counting.calls == 1
