"""`sweep` draws the whole transition."""

import itertools
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import flowbias as fb
from flowbias.ground.arguments import InputError
from flowbias.nets import mlp, unbiased
from flowbias.regime import THRESHOLDS, Fit, Verdict, fit, sweep

SCALES = (1e-6, 1e-3, 0.1, 1.0, 10.0)


@pytest.fixture(scope="module")
def course():
    X, y, _ = fb.datasets.sparse_regression(n=8, d=20, sparsity=2, noise_var=0.0, rng=0)
    # In any order: what comes back is sorted.
    return sweep(lambda scale: fb.DiagonalNet(depth=2, scale=scale), (X, y), SCALES[::-1])


def exact_positions():
    X, y, _ = fb.datasets.sparse_regression(n=8, d=20, sparsity=2, noise_var=0.0, rng=0)
    kernel = fb.min_norm(X, y).w
    for scale in SCALES:
        model = fb.DiagonalNet(depth=2, scale=scale)
        w, rich = fb.limit(model, X, y).w, fb.rich_limit(model, X, y).w
        lazy, lean = np.linalg.norm(w - kernel), np.linalg.norm(w - rich)
        yield lazy / (lazy + lean)


def test_the_transition_is_monotone_and_located(course):
    np.testing.assert_array_equal(course.scales, SCALES)
    position = course.curve("position")
    assert (np.diff(position) <= 0.0).all()
    # `fit` ends at a residual of 1%, not at the limit.
    np.testing.assert_allclose(position, list(exact_positions()), atol=0.05)
    exact = dict(zip(SCALES, exact_positions(), strict=True))
    assert course.largest_rich == max(s for s, p in exact.items() if p >= THRESHOLDS.rich_position)
    assert course.smallest_kernel == min(s for s, p in exact.items() if p <= 0.1)
    assert course.verdicts[2] is Verdict.IN_BETWEEN
    assert (np.diff(course.curve("kernel_change")) < 0.0).all()


def test_as_text_json_and_picture(course, tmp_path):
    told = json.loads(course.to_json())
    assert told["largest_rich"] == course.largest_rich
    assert [point["verdict"] for point in told["points"]] == [v.name for v in course.verdicts]
    assert f"rich up to {course.largest_rich:.4g}," in repr(course)
    course.plot(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5000
    with pytest.raises(InputError, match="measure: must be one of"):
        course.curve("nothing")


def test_modules_are_trained_until_they_fit():
    x = torch.eye(3, dtype=torch.float64)
    y = torch.tensor([[1.0], [-2.0], [0.5]], dtype=torch.float64)
    make = lambda scale: unbiased(mlp((3, 6, 1), scale=scale, rng=0, dtype=torch.float64))  # noqa: E731
    found = sweep(make, (x, y), [0.3, 20.0])
    assert all(point.fitted for point in found)
    assert found.verdicts[-1] is Verdict.KERNEL
    assert found.curve("kernel_change")[0] > 100.0 * found.curve("kernel_change")[-1]


def test_scales_that_were_not_fitted_do_not_count_as_rich():
    X, y, _ = fb.datasets.sparse_regression(n=8, d=20, sparsity=2, noise_var=0.0, rng=0)

    def gives_up(model, x, y):
        end = fit(model, x, y)
        return Fit(end.after, fitted=False, left=0.5, epochs=0)

    found = sweep(
        lambda scale: fb.DiagonalNet(depth=2, scale=scale), (X, y), [1e-6], train=gives_up
    )
    assert found.verdicts == (Verdict.RICH,)
    assert found.largest_rich is None
    assert "not fitted" in repr(found)
    assert "nowhere rich, nowhere kernel" in repr(found)


def test_fit_says_when_it_does_not():
    x, y = torch.eye(3), torch.ones(3, 1)
    found = fit(mlp((3, 4, 1), rng=0), x, y, max_epochs=2)
    assert not found.fitted
    assert found.epochs <= 2
    with pytest.raises(InputError, match="loss_left: must be between 0 and 1"):
        fit(mlp((3, 4, 1), rng=0), x, y, loss_left=0.0)


def test_a_step_may_be_halved_again_and_again(monkeypatch):
    """Training is given up where halving does not help, not after so many halvings in all."""
    calls, sizes = itertools.count(), []

    def steep(module, x, y, **options):
        sizes.append(options["step_size"])
        loss = 0.99 ** next(calls)
        if next(calls) % 4 == 1:
            return SimpleNamespace(losses=[loss, 2 * loss], loss=2 * loss, epochs=1, status=None)
        return SimpleNamespace(losses=[loss, 0.9 * loss], loss=0.9 * loss, epochs=1, status=None)

    monkeypatch.setattr(sys.modules["flowbias.regime.sweep"], "descend", steep)
    found = fit(mlp((3, 4, 1), rng=0), torch.eye(3), torch.ones(3, 1), loss_left=0.05)
    assert found.fitted
    assert next(calls) / 4 > 30
    # Half after a rise of the loss, longer again after a fall.
    assert sizes[1] == pytest.approx(0.5 * sizes[0])
    assert sizes[2] == pytest.approx(0.75 * sizes[0])

    def short(module, x, y, **options):
        return SimpleNamespace(losses=[1.0, 1.5e-3], loss=1.5e-3, epochs=5, status=None)

    monkeypatch.setattr(sys.modules["flowbias.regime.sweep"], "descend", short)
    few = {"loss_left": 1e-3, "max_epochs": 5}
    assert not fit(mlp((3, 4, 1), rng=0), torch.eye(3), torch.ones(3, 1), **few).fitted

    def cliff(module, x, y, **options):
        return SimpleNamespace(losses=[1.0, 2.0], loss=2.0, epochs=1, status=None)

    monkeypatch.setattr(sys.modules["flowbias.regime.sweep"], "descend", cliff)
    assert not fit(mlp((3, 4, 1), rng=0), torch.eye(3), torch.ones(3, 1)).fitted


def test_a_trainer_says_where_it_ended():
    make = lambda scale: mlp((3, 4, 1), scale=scale, rng=0)  # noqa: E731
    with pytest.raises(InputError, match=r"train: must return a flowbias.regime.Fit, got Seq"):
        sweep(make, (torch.eye(3), torch.ones(3, 1)), [1.0], train=lambda model, x, y: model)
    with pytest.raises(InputError, match="x: must be a tensor"):
        sweep(make, (np.eye(3), np.ones((3, 1))), [1.0])


@pytest.mark.parametrize(
    "scales", [[], [0.0, 1.0], [1.0, float("inf")], [1.0, float("nan")], "all", None]
)
def test_bad_scales_are_named(scales):
    with pytest.raises(InputError, match="scales: must be one or more finite numbers > 0"):
        sweep(lambda scale: None, (0, 0), scales)


def test_data_is_a_pair():
    with pytest.raises(InputError, match=r"data: must be a pair"):
        sweep(lambda scale: None, 3, [1.0])
