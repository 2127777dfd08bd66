"""Tangent kernels against the torch.func recipe, in time and memory.

Each measurement runs in a process of its own, because native memory is only ever seen as the peak
of a process (by /proc, so on Linux). Recipe: `vmap` of `jacrev` for the Jacobians of all samples,
`einsum` for their products, as the documentation of torch.func has it; for the convolutional
network one output at a time, the largest pieces that stay within 4 GiB. Memory is in GiB.

    python benchmarks/tangent_kernel.py [--json] [--threads 2] [--inputs 64] [--many 1000]
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

GIB = 2.0**30


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


def recipe_by_output(module: Any, x: Any) -> Any:
    """The trace, from the Jacobians of one output after the other."""
    import torch
    from torch.func import functional_call, grad, vmap

    parameters = {name: value.detach() for name, value in module.named_parameters()}
    total: Any = 0.0
    for output in range(10):

        def one(point: Any, sample: Any, output: int = output) -> Any:
            return functional_call(module, point, (sample[None],))[0, output]

        for part in vmap(grad(one), (None, 0))(parameters, x).values():
            flat = part.flatten(1)
            total = total + torch.einsum("Nf,Mf->NM", flat, flat)
    return total


def ours(module: Any, x: Any) -> Any:
    from flowbias.kernels import tangent_kernel

    return tangent_kernel(module, x)


def ours_trace(module: Any, x: Any) -> Any:
    from flowbias.kernels import tangent_kernel

    return tangent_kernel(module, x, reduce="trace")


METHODS: dict[str, Callable[[Any, Any], Any]] = {
    "ours": ours,
    "recipe": recipe,
    "ours trace": ours_trace,
    "recipe trace": recipe_by_output,
}
NETWORKS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "mlp": (mlp, (784,)),
    "vgg11": (vgg11, (3, 32, 32)),
}


def measure(method: str, network: str, inputs: int, threads: int, repeats: int, out: str) -> None:
    """The child: prints seconds and bytes, saves the kernel."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    make, shape = NETWORKS[network]
    module = make().eval()
    x = torch.rand(inputs, *shape)
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


def side_by_side(
    report: Report, title: str, network: str, inputs: int, threads: int, methods: tuple[str, str]
) -> None:
    mine, kernel = in_a_child(methods[0], network, inputs, threads, repeats=3)
    theirs, reference = in_a_child(methods[1], network, inputs, threads)
    note = ""
    if reference is not None and kernel is not None:
        faster = theirs["seconds"] / mine["seconds"]
        cpu = theirs["cpu_seconds"] / mine["cpu_seconds"]
        # The result counts: both hold it.
        held = [row["beyond_result"] + row["result"] for row in (mine, theirs)]
        apart = np.abs(kernel - reference).max() / np.abs(reference).max()
        note = (
            f"{faster:.0f} times faster ({cpu:.0f} in processor time), "
            f"{held[1] / held[0]:.1f} times less memory; largest difference {apart:.1e} of the "
            "largest entry (single precision)"
        )
    report.table(f"{title}, {inputs} inputs, {threads} threads", [mine, theirs], note)


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
    options = arguments.parse_args()
    report = Report(options.json)
    side_by_side(
        report,
        "784-5000-10, all outputs",
        "mlp",
        options.inputs,
        options.threads,
        ("ours", "recipe"),
    )
    many, _ = in_a_child("ours", "mlp", options.many, options.threads)
    report.table(
        f"784-5000-10, all outputs, {options.many} inputs, {options.threads} threads",
        [many],
        f"result of shape ({options.many}, {options.many}, 10, 10); memory in GiB",
    )
    side_by_side(
        report,
        "VGG11-like, trace",
        "vgg11",
        options.inputs,
        options.threads,
        ("ours trace", "recipe trace"),
    )
    report.table("Linearized twin at t = infinity, against training it", [twin_row()])
    report.finish()


if __name__ == "__main__":
    main()
