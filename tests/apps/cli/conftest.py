"""Data files that the tests of the command line share."""

from pathlib import Path

import numpy as np
import pytest

from flowbias.datasets import SparseRegression, sparse_regression
from flowbias.experiments import Experiment
from tests.apps.cli import tiny


@pytest.fixture(scope="session")
def data() -> SparseRegression:
    """Small, with more features than samples."""
    return sparse_regression(n=8, d=20, sparsity=2, noise_var=0.01, rng=3)


@pytest.fixture
def npz(tmp_path: Path, data: SparseRegression) -> Path:
    file = tmp_path / "data.npz"
    np.savez(file, X=data.X, y=data.y)
    return file


@pytest.fixture
def csv(tmp_path: Path, data: SparseRegression) -> Path:
    """The same numbers to the last digit, with named columns and y in the middle."""
    file = tmp_path / "data.csv"
    names = [f"gene {i}" for i in range(20)]
    lines = [",".join([*names[:5], "y", *names[5:]])]
    for row, target in zip(data.X.tolist(), data.y.tolist(), strict=True):
        lines.append(",".join(map(repr, [*row[:5], target, *row[5:]])))
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> tuple[Experiment, ...]:
    """Tiny experiments in place of those of the papers."""
    monkeypatch.setattr("flowbias.experiments.catalogue.LOADERS", tiny.loaders(*tiny.ALL))
    return tiny.ALL
