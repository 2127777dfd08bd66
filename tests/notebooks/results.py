"""One of each result that shows and draws itself, small and quick to make."""

from functools import cache

import numpy as np

import flowbias as fb
from flowbias.experiments._base import Check
from flowbias.experiments.record import Counts, Failure, Record
from flowbias.experiments.table import Table
from flowbias.theory import Claim, Kind, Reference
from tests.experiments.toy import toy

HOSTILE = "<script>alert('x')</script> & \"<b>\" \N{GREEK SMALL LETTER ALPHA}"


@cache
def data():
    return fb.datasets.sparse_regression(n=8, d=20, sparsity=2, noise_var=0.01, rng=0)


@cache
def all_results():
    """Results by name."""
    return {**of_predictors(), **of_matrices(), **of_theory(), **of_networks(), **of_figures()}


@cache
def of_predictors():
    X, y, _ = data()
    net = fb.DiagonalNet(depth=2, scale=1e-3)
    solution, stages = fb.limit(net, X, y), fb.stages(net, X, y)
    rng = np.random.default_rng(4)  # some samples switch, and one slides
    neuron = fb.Neuron(a=1.0, w=rng.standard_normal(5), slope=0.3)
    leaky = fb.flow(neuron, rng.standard_normal((4, 5)), rng.standard_normal(4))
    sloppy = fb.gradient_descent(fb.DiagonalNet(depth=2, scale=0.3), X, y, step_size=5e-3)
    return {
        "solution": solution,
        "projected": fb.limit(net, np.vstack([X, X[:1]]), np.append(y, y[0] + 1.0)),
        "certificate": solution.certificate,
        "refused certificate": fb.certify(X, y, 1.01 * solution.w, solution.dual, net.potential),
        "path": fb.limit_path(net, X, y, log_scales=np.linspace(2.0, -30.0, 25)),
        "stages": stages,
        "stage certificate": stages.certificate,
        "trajectory": fb.flow(net, X, y),
        "leaky trajectory": leaky,
        "leaky limit": fb.limit(neuron, np.eye(5)[[0, 0]], [1.0, 2.0]),
        "descent": sloppy,
        "uncertainty": fb.estimators.uncertainty(net, X, y),
        "refits": fb.estimators.leave_one_out_refits(net, X, y),
        "jackknife": fb.estimators.jackknife(net, X, y),
        "coefficients": fb.estimators.MinNormRegressor().fit(X, y).coefficient_table(),
    }


@cache
def of_matrices():
    X, y, _ = data()
    rows, cols, values, _ = fb.datasets.low_rank_completion((5, 4), rank=1, observed=14, rng=0)
    problem = fb.MatrixCompletion(rows, cols, values, (5, 4))
    net = fb.MatrixFactorization.gaussian((5, 4), width=12, scale=1e-2, rng=0)
    single = fb.LinearNet.gaussian(20, 1, width=8, scale=0.1, rng=0)
    weights = 0.3 * np.random.default_rng(0).standard_normal((2, 20))
    sum_of_two = fb.NeuronSum(a=np.array([1.0, -0.5]), W=weights)
    least, lifted = fb.frobenius_norm(problem), fb.limit(net, problem)
    wide = fb.MatrixFactorization.gaussian((5, 4), width=10**6, scale=0.1, rng=0)
    return {
        "lifted solution": lifted,
        "fit certificate": lifted.certificate,
        "neuron sum": fb.limit(sum_of_two, X, y),
        "matrix solution": least,
        "spectral certificate": least.certificate,
        "lifted trajectory": fb.flow(net, problem),
        "one column": fb.flow(single, X, y[:, None]),
        "lifted descent": fb.gradient_descent(net, problem, step_size=0.02, max_steps=400),
        "imbalance": fb.LinearNet.gaussian(6, 2, width=12, scale=0.5, rng=0).imbalance(),
        "kernel regime": fb.theory.KernelRegime.of(wide, problem),
        "no kernel regime": fb.theory.KernelRegime.of(net, problem),
        "wide regime": fb.theory.WideRegime(0.1, 10**7, 9, smallest=1.0, largest=1.0, target=1.0),
    }


def no_potential(theta):
    import torch

    return torch.stack([theta[0] * theta[1], theta[1] * theta[2] + theta[0]])


@cache
def of_theory():
    at = Reference("min2021", "Theorem 1")
    return {
        "upper claim": Claim("a bound", 1.0, 2.5, Kind.UPPER, at, HOSTILE, "rounding", rtol=1e-9),
        "equal claim": Claim("the same", 1.0, 1.0 + 1e-13, Kind.EQUAL, at, "s", "r", rtol=1e-10),
        "failed claim": Claim("wrong", 1.0, 2.0, Kind.LOWER, at, "s", "rounding"),
        "report": fb.derive.implicit_bias(no_potential, [0.5, 0.4, 0.3]),
    }


@cache
def of_networks():
    import torch

    x = torch.linspace(-1.0, 1.0, 6, dtype=torch.float64)[:, None]
    y = torch.sin(3.0 * x)
    before = fb.nets.unbiased(fb.nets.mlp((1, 10, 1), scale=1.0, rng=0).double())
    module = fb.nets.unbiased(fb.nets.mlp((1, 10, 1), scale=1.0, rng=0).double())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02)
    with fb.regime.Monitor(module, x, budget=None) as monitor:
        for _ in range(40):
            optimizer.zero_grad()
            loss = ((module(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            monitor.step(loss.detach())
    X, targets, _ = data()
    net = fb.DiagonalNet(depth=2, scale=1e-6)
    after = net.parameters(X.T @ fb.limit(net, X, targets).dual)
    copies = [fb.nets.mlp((1, 8, 1), scale=s, rng=0) for s in (0.5, 1.0)]
    return {
        "diagnosis": fb.regime.diagnose(net, after, X, targets),
        "diagnosis of a module": fb.regime.diagnose(before, module, x, functions=False),
        "prediction": fb.regime.predict(before, x, y),
        "sweep": fb.regime.sweep(
            lambda scale: fb.DiagonalNet(depth=2, scale=scale),
            (X, targets),
            [1e-4, 1e-2, 1.0, 10.0],
        ),
        "linearized flow": fb.kernels.linearized_flow(before, x, y),
        "grad distance": fb.kernels.grad_distance(before, module, x),
        "monitor": monitor,
        "history": monitor.history,
        "training": fb.nets.train(before, x, y, step_size=0.02, max_epochs=50),
        "copies": fb.nets.train_copies(copies, x, y, step_size=0.02, max_epochs=50, record_every=5),
    }


@cache
def of_figures():
    experiment = toy()
    table = Table.of({"part": ["sums"] * 2, "i": [0.0, 1.0], "value": [1.0, 2.0]})
    check = Check("rises", HOSTILE, "from 1 to 2", True)
    wrong = Check("falls", "it falls", "it does not", False)
    failure = Failure("toy/sums i=0", "ValueError: no", "Traceback")
    return {
        "record": fb.experiments.Record(
            experiment, fb.experiments.Preset.SMOKE, table, (check, wrong), (), Counts(2), (0.1,)
        ),
        "incomplete record": Record(
            experiment, fb.experiments.Preset.SMOKE, None, (), (failure,), Counts(failed=1), ()
        ),
    }
