"""Kernels beyond memory: written block by block into a file, or an array that is given."""

import subprocess
import sys

import numpy as np
import pytest

from flowbias import DiagonalNet
from flowbias.ground.arguments import InputError
from flowbias.kernels import TangentMap, tangent_kernel
from flowbias.kernels.memory import row_bytes
from tests.kernels.architectures import build, explicit_kernel, torch
from tests.kernels.test_tangent import REDUCED, assert_kernel


def least_memory(module, x):
    tangent = TangentMap(module, x).ready()
    return row_bytes(tangent.plan.footprint)


@pytest.mark.parametrize("reduce", REDUCED)
@pytest.mark.parametrize("tiny", [False, True])
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_is_the_kernel_in_a_file(tmp_path, reduce, tiny):
    module, x = build("two inputs", 6)
    expected = REDUCED[reduce](explicit_kernel(module, x))
    budget = least_memory(module, x) if tiny else "1GiB"
    path = tmp_path / "kernel.npy"
    found = tangent_kernel(module, x, reduce=reduce, out=path, max_memory=budget)
    assert isinstance(found, np.memmap)
    assert_kernel(torch.from_numpy(found.copy()), expected)
    del found
    assert_kernel(torch.from_numpy(np.load(path)), expected)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_between_two_sets_and_in_an_array_that_held_something():
    module, x = build("two inputs", 5)
    first = tuple(part[:2] for part in x)
    expected = explicit_kernel(module, x)[:2]
    held = np.full(expected.shape, np.nan)
    found = tangent_kernel(module, first, x, out=held)
    assert found is held
    assert_kernel(torch.from_numpy(held), expected)


def test_planned_anew_it_starts_over():
    """Samples that are sorted leave the structure after some blocks were written."""
    module, x = build("a batch that is sorted", 7)
    held = np.ones((7, 7))
    found = tangent_kernel(module, x, reduce="trace", out=held)
    assert_kernel(torch.from_numpy(found), REDUCED["trace"](explicit_kernel(module, x)))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and limits memory as Linux does")
def test_holds_no_second_kernel(tmp_path):
    """A file of 128 MB, in a process that may have no more than 40 MB of new memory."""
    program = """
import resource, sys, torch
from pathlib import Path
from flowbias.kernels import TangentMap

torch.set_num_threads(1)
torch.manual_seed(0)
net, x = torch.nn.Linear(2, 1).double(), torch.randn(4000, 2).double()
TangentMap(net, x[:9], max_memory="4MB").kernel(out=sys.argv[1])  # everything that is loaded once
tangent = TangentMap(net, x, max_memory="4MB").ready()
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
limit = 1024 * int(status["VmData"].split()[0]) + 40 * 10**6
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
kernel = tangent.kernel(out=sys.argv[1])
error = abs(torch.from_numpy(kernel[:3, 3000:, 0, 0]) - (x[:3] @ x[3000:].T + 1.0)).max()
print(kernel.nbytes, float(error))
try:
    tangent.kernel()
except RuntimeError as error:
    print("memory" in str(error))
"""
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "kernel.npy")],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    size, error, refused = run.stdout.split()
    assert int(size) == 128_000_000
    assert float(error) <= 1e-12  # double precision, sums of three products
    assert refused == "True"  # or the limit would show nothing


NET = torch.nn.Linear(2, 1)
X = torch.ones(3, 2)
READ_ONLY = np.zeros((3, 3, 1, 1), dtype=np.float32)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda: tangent_kernel(NET, X, out=3), r"out: must be the path.*got int"),
        (
            lambda: tangent_kernel(NET, X, out=np.zeros((3, 3, 1, 1))),
            r"out: must be a writable array of shape \(3, 3, 1, 1\) and dtype float32.*float64",
        ),
        (lambda: tangent_kernel(NET, X, out=READ_ONLY), r"out: must be a writable.*read only"),
        (
            lambda: tangent_kernel(NET, X, out="k.npy", by_layer=True),
            r"out: must be None with by_layer",
        ),
        (
            lambda: tangent_kernel(DiagonalNet(depth=2, scale=0.1), X.numpy(), out="k.npy"),
            r"out: must be None for a model of this library",
        ),
    ],
)
def test_what_cannot_be_written_to_is_refused(use, says):
    with pytest.raises(InputError, match=says):
        use()
