"""Tangent kernels against the torch.func recipe, in time and memory.

Each measurement runs in a process of its own, because native memory is only ever seen as the peak
of a process (by /proc, so on Linux). Recipe: `vmap` of `jacrev` for the Jacobians of all samples,
`einsum` for their products, as the documentation of torch.func has it. For the convolutional
network it goes output by output and eight samples at a time, which stays within 4 GiB and is the
fastest that was found; one output of the ten is measured and its time is multiplied by ten, since
all ten do the same work. That output is also what the two kernels are compared on. Memory is in
GiB.

    python benchmarks/tangent_kernel.py [--json] [--threads 2] [--inputs 64] [--many 1000]
                                        [--part mlp --part many --part vgg11 --part twin]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _common import Report, parser, progress

import flowbias as fb
from flowbias.datasets.image_files import AbsentFileError

GIB = 2.0**30
# Outputs of both networks, and samples whose gradients the recipe takes at once.
OUTPUTS, CHUNK = 10, 8


def mlp() -> Any:
    """784-5000-10, the network of [woodworth2020, appendix B.2] on MNIST."""
    from torch import nn

    return nn.Sequential(nn.Linear(784, 5000), nn.ReLU(), nn.Linear(5000, 10))


def vgg11() -> Any:
    """Eight convolutions and one linear layer, without biases, for images of 32 x 32."""
    from torch import nn

    layers: list[Any] = []
    channels = 3
    for width in (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool"):
        if width == "pool":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.ReLU(inplace=True)]
            channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10, bias=False))


def recipe(module: Any, x: Any) -> Any:
    """The Jacobian of every sample and output, and its products with itself."""
    import torch
    from torch.func import functional_call, jacrev, vmap

    parameters = {name: value.detach() for name, value in module.named_parameters()}

    def one(point: Any, sample: Any) -> Any:
        return functional_call(module, point, (sample[None],))[0]

    jacobians = vmap(jacrev(one), (None, 0))(parameters, x)
    total: Any = 0.0
    for part in jacobians.values():
        flat = part.flatten(2)
        total = total + torch.einsum("Naf,Mbf->NMab", flat, flat)
    return total


def recipe_of_one_output(module: Any, x: Any) -> Any:
    """The kernel of the first output, from the gradients of all samples, some at a time."""
    import torch
    from torch.func import functional_call, grad, vmap

    parameters = {name: value.detach() for name, value in module.named_parameters()}

    def one(point: Any, sample: Any) -> Any:
        return functional_call(module, point, (sample[None],))[0, 0]

    total: Any = 0.0
    for part in vmap(grad(one), (None, 0), chunk_size=CHUNK)(parameters, x).values():
        flat = part.flatten(1)
        total = total + torch.einsum("Nf,Mf->NM", flat, flat)
    return total


def ours(module: Any, x: Any) -> Any:
    from flowbias.kernels import tangent_kernel

    return tangent_kernel(module, x)


def ours_trace(module: Any, x: Any) -> Any:
    from flowbias.kernels import tangent_kernel

    return tangent_kernel(module, x, reduce="trace")


def ours_of_one_output(module: Any, x: Any) -> Any:
    """Our kernel of the first output: of the network whose last layer has that one only."""
    from torch import nn

    last = nn.Linear(module[-1].in_features, 1, bias=False)
    last.weight = nn.Parameter(module[-1].weight[:1].detach().clone())
    return ours_trace(nn.Sequential(*module[:-1], last), x)


METHODS: dict[str, Callable[[Any, Any], Any]] = {
    "ours": ours,
    "recipe": recipe,
    "ours trace": ours_trace,
    "ours, one output of ten": ours_of_one_output,
    "recipe, one output of ten": recipe_of_one_output,
}
NETWORKS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "mlp": (mlp, (784,)),
    "vgg11": (vgg11, (3, 32, 32)),
}
PICTURES: dict[str, Callable[[int], Any]] = {
    "mlp": lambda n: fb.datasets.mnist(fetch=False).first(n).flat(np.float32),
    "vgg11": lambda n: fb.datasets.cifar10(fetch=False).first(n).planes(),
}


def inputs_of(network: str, count: int) -> tuple[Any, str]:
    """MNIST or CIFAR-10 images where they are on disk, uniform noise elsewhere; and which."""
    import torch

    try:
        return torch.from_numpy(PICTURES[network](count)), "images"
    except AbsentFileError:
        return torch.rand(count, *NETWORKS[network][1]), "noise"


def measure(method: str, network: str, inputs: int, threads: int, repeats: int, out: str) -> None:
    """The child: prints seconds and bytes, saves the kernel."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    module = NETWORKS[network][0]().eval()
    x, kind = inputs_of(network, inputs)
    # What is loaded or allocated once, whatever the number of inputs.
    METHODS[method](module, x[:1])
    forget_peak()
    before, seconds, cpu = resident("VmRSS"), [], []
    for _ in range(repeats):
        started, spent = time.perf_counter(), time.process_time()
        kernel = METHODS[method](module, x)
        seconds.append(time.perf_counter() - started)
        cpu.append(time.process_time() - spent)
    highest = resident("VmHWM")
    np.save(out, kernel.numpy())
    print(
        json.dumps(
            {
                "inputs": kind,
                "seconds": min(seconds),
                "cpu_seconds": min(cpu),
                "beyond_result": (highest - before - kernel.nbytes) / GIB,
                "result": kernel.nbytes / GIB,
            }
        )
    )


def resident(name: str) -> float:
    """Bytes of this process by /proc: "VmRSS" now, "VmHWM" at most since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024.0 * float(line.split()[1]) for line in lines if line.startswith(name))


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def in_a_child(method: str, network: str, inputs: int, threads: int, repeats: int = 1) -> Any:
    """The measurement, and the kernel."""
    progress(f"{network}, {inputs} inputs: {method}")
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "kernel.npy")
        task = [method, network, str(inputs), str(threads), str(repeats), out]
        run = subprocess.run(
            [sys.executable, __file__, "--child", *task], capture_output=True, text=True
        )
        if run.returncode:
            reason = run.stderr.strip().splitlines()[-1:] or [f"signal {-run.returncode}"]
            return {"method": method, "note": f"failed: {reason[0][:60]}"}, None
        return {"method": method, **json.loads(run.stdout)}, np.load(out)


def mlp_side_by_side(report: Report, inputs: int, threads: int) -> None:
    mine, kernel = in_a_child("ours", "mlp", inputs, threads, repeats=3)
    theirs, reference = in_a_child("recipe", "mlp", inputs, threads)
    note = "" if "note" in mine or "note" in theirs else gain(mine, theirs, 1)
    title = f"784-5000-10, all outputs, {inputs} inputs, {threads} threads"
    report.table(title, [mine, theirs], note + apart(kernel, reference))


def many_inputs(report: Report, inputs: int, threads: int) -> None:
    many, _ = in_a_child("ours", "mlp", inputs, threads)
    title = f"784-5000-10, all outputs, {inputs} inputs, {threads} threads"
    report.table(title, [many], f"result of shape ({inputs}, {inputs}, 10, 10); memory in GiB")


def vgg11_side_by_side(report: Report, inputs: int, threads: int) -> None:
    mine, _ = in_a_child("ours trace", "vgg11", inputs, threads)
    ours_once, kernel = in_a_child("ours, one output of ten", "vgg11", inputs, threads)
    theirs, reference = in_a_child("recipe, one output of ten", "vgg11", inputs, threads)
    note = "" if "note" in mine or "note" in theirs else gain(mine, theirs, OUTPUTS)
    title = f"VGG11-like, trace, {inputs} inputs, {threads} threads"
    report.table(title, [mine, ours_once, theirs], note + apart(kernel, reference))


def gain(mine: dict[str, Any], theirs: dict[str, Any], times: int) -> str:
    """How much faster and smaller; the other's time counts `times` times."""
    faster = times * theirs["seconds"] / mine["seconds"]
    cpu = times * theirs["cpu_seconds"] / mine["cpu_seconds"]
    # The result counts: both hold it.
    held = [row["beyond_result"] + row["result"] for row in (mine, theirs)]
    counted = f", its time counted {times} times" if times > 1 else ""
    return (
        f"{faster:.1f} times faster than the recipe{counted} ({cpu:.1f} in processor time), "
        f"{held[1] / held[0]:.1f} times less memory; "
    )


def apart(kernel: Any, reference: Any) -> str:
    if kernel is None or reference is None:
        return "not compared: one of the two failed"
    change = np.abs(kernel - reference).max() / np.abs(reference).max()
    return f"largest difference {change:.1e} of the largest entry (single precision)"


def twin_row(samples: int = 10, width: int = 200) -> dict[str, Any]:
    """The exact end of training against training the linearized module to a loss of 1e-10."""
    import torch

    from flowbias.kernels import linearize, linearized_flow

    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, width), torch.nn.ReLU(), torch.nn.Linear(width, 2)]
    module = torch.nn.Sequential(*layers).double()
    x = torch.randn(samples + 50, 8, dtype=torch.float64)
    y = torch.randn(samples, 2, dtype=torch.float64)
    started = time.perf_counter()
    flow = linearized_flow(module, x[:samples], y)
    exact = flow.predict(x)
    solved = time.perf_counter() - started
    twin, steps = linearize(module), 0
    # Momentum keeps to the span of the gradients, so that it ends where the flow does.
    top, bottom = flow.eigenvalues[-1] ** 0.5, flow.eigenvalues[0] ** 0.5
    momentum = ((top - bottom) / (top + bottom)) ** 2
    optimizer = torch.optim.SGD(
        twin.parameters(), lr=4.0 / (top + bottom) ** 2, momentum=float(momentum)
    )
    while True:
        loss = 0.5 * ((twin(x[:samples]) - y) ** 2).sum()
        if float(loss.detach()) < 1e-10 or steps == 20_000:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    trained = twin(x).detach().numpy()
    return {
        "inputs": samples,
        "parameters": sum(p.numel() for p in module.parameters()),
        "exact_seconds": solved,
        "training_seconds": time.perf_counter() - started - solved,
        "steps": steps,
        "loss": float(loss.detach()),
        "relative distance": float(np.linalg.norm(exact - trained) / np.linalg.norm(trained)),
    }


def main() -> None:
    if "--child" in sys.argv:
        method, network, inputs, threads, repeats, out = sys.argv[sys.argv.index("--child") + 1 :]
        measure(method, network, int(inputs), int(threads), int(repeats), out)
        return
    arguments = parser(__doc__)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--inputs", type=int, default=64, help="for the comparisons")
    arguments.add_argument("--many", type=int, default=1000, help="for the large kernel")
    arguments.add_argument("--part", action="append", choices=("mlp", "many", "vgg11", "twin"))
    options = arguments.parse_args()
    report = Report(options.json)
    parts: dict[str, Callable[[], None]] = {
        "mlp": lambda: mlp_side_by_side(report, options.inputs, options.threads),
        "many": lambda: many_inputs(report, options.many, options.threads),
        "vgg11": lambda: vgg11_side_by_side(report, options.inputs, options.threads),
        "twin": lambda: report.table(
            "Linearized twin at t = infinity, against training it", [twin_row()]
        ),
    }
    for part in options.part or parts:
        parts[part]()
    report.finish()


if __name__ == "__main__":
    main()
