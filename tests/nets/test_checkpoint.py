"""A run that was killed continues to the same last bit, and only from its own checkpoint."""

import pickle

import numpy as np
import pytest
import torch

from flowbias.ground.arguments import InputError
from flowbias.nets import TrainingStatus, mlp, train, unbiased
from flowbias.nets.checkpoint import fingerprint

RNG = np.random.default_rng(1)
X = RNG.standard_normal((20, 3))
LABELS = RNG.integers(0, 3, 20)


def network(seed=0):
    return unbiased(mlp((3, 8, 3), rng=seed))


def settings(**changes):
    return {
        "loss": "cross_entropy",
        "step_size": 0.1,
        "momentum": 0.9,
        "batch_size": 6,
        "rng": 4,
        "max_epochs": 12,
        "checkpoint_every": 0.0,
    } | changes


class KilledError(Exception):
    pass


def killed_at(epoch):
    def callback(moment):
        if moment.epoch == epoch:
            raise KilledError
        return -float(moment.epoch)

    return callback


@pytest.mark.parametrize("batch_size", [None, 6])
@pytest.mark.parametrize("epoch", [1, 7])
def test_resuming_gives_the_same_bits(tmp_path, batch_size, epoch):
    options = settings(batch_size=batch_size)
    whole = network()
    expected = train(whole, X, LABELS, **options)
    file = tmp_path / "runs" / "run.pt"
    with pytest.raises(KilledError):
        train(network(), X, LABELS, **options, checkpoint=file, callback=killed_at(epoch))
    fresh, calls = network(), []

    def callback(moment):
        calls.append(moment.epoch)
        return float(moment.epoch)

    result = train(
        fresh, X, LABELS, **options, checkpoint=file, resume=True, callback=callback
    )  # fmt: skip
    # What was noted before the stop is kept with what is noted after it.
    assert result.notes.tolist() == [-e if e < epoch else e for e in range(13)]
    # It went on from the checkpoint, it did not start anew.
    assert calls == list(range(epoch, 13))
    assert np.array_equal(result.losses, expected.losses)
    assert np.array_equal(result.accuracies, expected.accuracies)
    assert result.recorded.tolist() == list(range(13))
    assert all(map(torch.equal, fresh.parameters(), whole.parameters()))


def test_more_epochs_later_are_the_same_as_at_once(tmp_path):
    whole = network()
    expected = train(whole, X, LABELS, **settings(max_epochs=9))
    net, file = network(), tmp_path / "run.pt"
    train(net, X, LABELS, **settings(max_epochs=4), checkpoint=file)
    # Once with the module as it is now, once made anew: both are this run.
    for module in (net, network()):
        result = train(module, X, LABELS, **settings(max_epochs=9), checkpoint=file, resume=True)
        assert np.array_equal(result.losses, expected.losses)
        assert all(map(torch.equal, module.parameters(), whole.parameters()))


def test_resuming_without_a_file_starts_and_without_resume_starts_anew(tmp_path):
    file = tmp_path / "run.pt"
    first = train(network(), X, LABELS, **settings(), checkpoint=file, resume=True)
    second = train(network(seed=5), X, LABELS, **settings(max_epochs=2), checkpoint=file)
    assert first.epochs == 12
    assert second.epochs == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"step_size": 0.2}, "step_size"),
        ({"momentum": 0.0}, "momentum"),
        ({"batch_size": 7}, "batch_size"),
        ({"rng": 5}, "rng"),
        ({"loss": lambda f, y: torch.nn.functional.cross_entropy(f, y)}, "loss"),
    ],
)
def test_a_checkpoint_of_other_settings_is_refused(tmp_path, change, reason):
    file = tmp_path / "run.pt"
    train(network(), X, LABELS, **settings(max_epochs=1), checkpoint=file)
    with pytest.raises(InputError, match=rf"^checkpoint: must belong .* another {reason} .*resume"):
        train(network(), X, LABELS, **settings(**change), checkpoint=file, resume=True)


def test_a_checkpoint_of_other_data_start_or_network_is_refused(tmp_path):
    file = tmp_path / "run.pt"
    train(network(), X, LABELS, **settings(max_epochs=1), checkpoint=file)
    for module, x, reason in (
        (network(), X + 1e-6, "another data"),
        (network(seed=1), X, "other parameters"),
        (mlp((3, 8, 3)), X, "another module"),
    ):
        with pytest.raises(InputError, match=rf"^checkpoint: must belong .*{reason}"):
            train(module, x, LABELS, **settings(), checkpoint=file, resume=True)


def test_a_refused_checkpoint_leaves_the_module_and_the_file_alone(tmp_path):
    file, net = tmp_path / "run.pt", network(seed=1)
    train(network(), X, LABELS, **settings(max_epochs=1), checkpoint=file)
    content, before = file.read_bytes(), [p.clone() for p in net.parameters()]
    with pytest.raises(InputError):
        train(net, X, LABELS, **settings(), checkpoint=file, resume=True)
    assert file.read_bytes() == content
    assert all(map(torch.equal, net.parameters(), before))


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('code from a file was run')",))


@pytest.mark.parametrize(
    "write",
    [
        lambda file: file.write_bytes(b"not a checkpoint"),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes()[:-200]),
        lambda file: torch.save({"weights": torch.ones(2)}, file),
        lambda file: torch.save({"format": "flowbias training, version 2"}, file),
        lambda file: torch.save(torch.load(file, weights_only=True) | {"run": 1}, file),
        lambda file: torch.save(Bomb(), file),
        lambda file: file.write_bytes(pickle.dumps(Bomb())),
    ],
    ids=["text", "empty", "cut", "foreign", "incomplete", "garbled", "bomb", "pickle"],
)
def test_a_damaged_or_hostile_file_is_refused(tmp_path, write):
    file = tmp_path / "run.pt"
    train(network(), X, LABELS, **settings(max_epochs=1), checkpoint=file)
    write(file)
    with pytest.raises(InputError, match=r"^checkpoint: must .* got .*resume=False") as caught:
        train(network(), X, LABELS, **settings(), checkpoint=file, resume=True)
    # torch's advice for such files: not ours.
    assert "weights_only" not in str(caught.value)


def test_a_folder_is_refused_before_any_training(tmp_path):
    net = network()
    before = [p.clone() for p in net.parameters()]
    with pytest.raises(InputError, match=r"^checkpoint: must be a file, got the folder"):
        train(net, X, LABELS, **settings(), checkpoint=tmp_path)
    assert all(map(torch.equal, net.parameters(), before))


def test_a_diverged_run_stays_diverged(tmp_path):
    file = tmp_path / "run.pt"
    options = settings(step_size=1e6, loss="half", batch_size=None, momentum=0.0)
    y = np.eye(3)[LABELS]
    first = train(network(), X, y, **options, checkpoint=file)
    again = train(network(), X, y, **options, checkpoint=file, resume=True)
    assert first.status is again.status is TrainingStatus.DIVERGED
    assert np.array_equal(first.losses, again.losses, equal_nan=True)


def test_a_fingerprint_is_of_names_shapes_dtypes_and_bytes():
    zeros = torch.zeros(2, 3)
    others = (
        {"b": zeros},
        {"a": zeros.T.contiguous()},
        {"a": zeros.to(torch.int32)},
        {"a": zeros + 1.0},
        {},
    )
    assert fingerprint({"a": zeros}) == fingerprint({"a": torch.zeros(3, 2).T})
    assert len({fingerprint(tensors) for tensors in ({"a": zeros}, *others)}) == 6
