"""`flowbias regime` on somebody's factory and data."""

import numpy as np
import pytest

from flowbias.apps.cli import ExitCode
from tests.apps.cli.program import document, invoke, only_line
from tests.conftest import NO_TORCH, WITHOUT_TORCH

FACTORIES = """
import torch
from flowbias.nets import mlp, unbiased

def make():
    return unbiased(mlp((3, 6, 1), scale=5.0, rng=0))

def broken():
    raise RuntimeError("no weights today")

def three():
    return unbiased(mlp((3, 8, 3), scale=5.0, rng=0))

def number():
    return 3

def leaves():
    raise SystemExit(0)

constant = 3
"""
trains = pytest.mark.skipif(WITHOUT_TORCH, reason=NO_TORCH)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with factories and data, as the current one."""
    (tmp_path / "somebodys_networks.py").write_text(FACTORIES)
    np.savez(tmp_path / "data.npz", X=np.eye(3), y=np.array([1.0, -2.0, 0.5]))
    np.savez(tmp_path / "classes.npz", X=np.eye(3), y=np.array([2, 0, 1]))
    np.savez(tmp_path / "hot.npz", X=np.eye(3), y=np.eye(3)[[2, 0, 1]])
    np.savez(tmp_path / "short.npz", X=np.eye(3), y=np.array([1.0]))
    np.savez(tmp_path / "nameless.npz", np.eye(3))
    np.savez(tmp_path / "flat.npz", X=np.array(3.0), y=np.array([1.0]))
    np.savez(tmp_path / "words.npz", X=np.array([["a", "b", "c"]]), y=np.array([1.0]))
    (tmp_path / "text.npz").write_text("1,2,3")
    np.savez_compressed(tmp_path / "damaged.npz", X=np.eye(3), y=np.ones(3))
    content = bytearray((tmp_path / "damaged.npz").read_bytes())
    content[60:70] = bytes(10)
    (tmp_path / "damaged.npz").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@trains
def test_predicts(place):
    run = invoke("regime", "somebodys_networks:make", "--data", "data.npz", "--json")
    told = document(run.stdout)
    assert run.exit_code == ExitCode.ALL_WELL
    assert told["prediction"]["verdict"] == "KERNEL"
    assert (told["diagnosis"], told["sweep"], told["fitted"]) == (None, None, None)
    assert told["prediction"]["degree"] == pytest.approx(2.0, abs=1e-3)
    # Programs read these.
    assert set(told) == {"prediction", "diagnosis", "sweep", "fitted"}
    assert set(told["prediction"]) == {
        "verdict",
        "explanation",
        "feature_change",
        "lazy_gap",
        "kappa",
        "parameter_movement",
        "degree",
        "output_share",
    }


@trains
def test_classes_are_one_hot_numbers(place):
    told = [
        invoke("regime", "somebodys_networks:three", "--data", data, "--json")
        for data in ("classes.npz", "hot.npz")
    ]
    assert told[0].exit_code == ExitCode.ALL_WELL
    assert document(told[0].stdout) == document(told[1].stdout)


@trains
def test_trains_and_diagnoses(place):
    run = invoke("regime", "somebodys_networks:make", "--data", "data.npz", "--train")
    assert run.exit_code == ExitCode.ALL_WELL
    assert "Prediction: KERNEL" in run.stdout
    assert "is beyond the kernel of the start: KERNEL" in run.stdout


@trains
def test_sweeps(place):
    words = ("regime", "somebodys_networks:make", "--data", "data.npz", "--scales", "0.1,2")
    told = document(invoke(*words, "--json").stdout)
    assert [point["scale"] for point in told["sweep"]["points"]] == [0.1, 2.0]
    assert told["fitted"] is True


@trains
def test_a_training_that_does_not_fit_ends_with_1(place):
    words = ("somebodys_networks:make", "--data", "data.npz", "--train", "--max-epochs", 1)
    run = invoke("regime", *words)
    assert run.exit_code == ExitCode.DOUBTFUL
    assert "did not fit" in run.stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("somebodys_networks", "--data", "data.npz"), "must name a module and a function"),
        (("no_such_module:make", "--data", "data.npz"), "ModuleNotFoundError"),
        (("somebodys_networks:absent", "--data", "data.npz"), "it does not have"),
        (("somebodys_networks:constant", "--data", "data.npz"), "cannot be called"),
        (("somebodys_networks:broken", "--data", "data.npz"), "no weights today"),
        (("somebodys_networks:number", "--data", "data.npz"), "must be a torch.nn.Module"),
        (("somebodys_networks:make", "--data", "absent.npz"), "does not exist"),
        (("somebodys_networks:make", "--data", "nameless.npz"), "must hold arrays X and y"),
        (("somebodys_networks:make", "--data", "short.npz"), "y: must have one finite number"),
        (("somebodys_networks:make", "--data", "flat.npz"), "X: must have one sample or more"),
        (("somebodys_networks:make", "--data", "words.npz"), "X: must be numbers"),
        (("somebodys_networks:make", "--data", "text.npz"), "text.npz: cannot be read as"),
        (("somebodys_networks:make", "--data", "damaged.npz"), "damaged.npz: cannot be read as"),
        (("somebodys_networks:leaves", "--data", "data.npz"), "SystemExit"),
        (("somebodys_networks:make", "--data", "data.npz", "--scales", "1,x"), "--scales: must be"),
        (("somebodys_networks:make", "--data", "data.npz", "--max-epochs", "0"), "--max-epochs"),
    ],
)
def test_bad_words_are_named(place, words, complaint):
    run = invoke("regime", *words)
    assert run.exit_code == ExitCode.BAD_INPUT
    assert complaint in only_line(run.stderr)
