"""`flowbias path`: the limit along the scales of the start, from the kernel to the rich end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowbias.apps.cli.console import columns, results, show, show_data
from flowbias.apps.cli.program import (
    DataOptions,
    Depth,
    ExitCode,
    Json,
    Shape,
    Tolerance,
    with_options,
)

if TYPE_CHECKING:
    from flowbias.apps.cli.scales import ScaleSweep

_DEFAULT_OUT = Path("out/path.png")


@with_options
def path(
    data: DataOptions,
    depth: Depth = 2.0,
    largest: Annotated[
        str, typer.Option("--from", help="Scale at one end; 1e400 is fine too.", metavar="SCALE")
    ] = "1e3",
    smallest: Annotated[
        str, typer.Option("--to", help="Scale at the other end; 1e-400 too.", metavar="SCALE")
    ] = "1e-6",
    count: Annotated[int, typer.Option(help="How many scales, evenly in the logarithm.")] = 100,
    shape: Shape = None,
    tol: Tolerance = 1e-10,
    json: Json = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Picture (.png, .svg) or numbers (.csv, .npz).",
            metavar="FILE",
            show_default=f"{_DEFAULT_OUT}; nothing with --json",
        ),
    ] = None,
) -> ExitCode:
    """Draw how the limit changes with the scale of the start.

    Large scales end near the fit of least l2 norm ("kernel"),
    small ones near that of least l1 norm ("rich").
    The picture marks both ends. Exit code 1 says that a limit is not proved.
    """
    from flowbias.apps.cli.files import check_output, deliver
    from flowbias.apps.cli.scales import WRITERS, log_scales_between, start_of, sweep

    scales = log_scales_between(largest, smallest, count)
    network = start_of(depth, shape, scale=None, log_scale=float(scales[0]))
    file = _DEFAULT_OUT if out is None and not json else out
    check_output(file, tuple(WRITERS), data.data)
    swept = sweep(network, shape, data.read(), scales, tol)
    document = (lambda: _document(swept)) if json else None
    deliver(file, lambda ending: WRITERS[ending](swept), document, lambda: _show(swept))
    return ExitCode.ALL_WELL if swept.certified else ExitCode.DOUBTFUL


def _show(swept: ScaleSweep, rows: int = 9) -> None:
    from flowbias.apps.cli.scales import scale_text

    console = results()
    show_data(swept.data)
    names = ("scale", "l1 norm", "l2 norm", "nonzero", "error bound", "status")
    table = columns(*names, right=names[:-1])
    last = len(swept.path) - 1
    shown = sorted({round(i * last / (rows - 1)) for i in range(rows)})
    points = [(scale_text(swept.path.log_scales[i]), swept.path[i]) for i in shown]
    for label, solution in [("infinity", swept.kernel), *points, ("zero", swept.rich)]:
        table.add_row(label, *_cells(solution))
    show(table)
    stats = swept.path.stats
    done = sum(solution.status.ok for solution in swept.path)
    console.print(
        f"{done} of {len(swept.path)} scales certified in {stats.seconds:.2g} s, "
        f"{stats.factorizations} factorizations"
    )


def _cells(solution: Any) -> tuple[str, ...]:
    from flowbias.apps.data_files.limit_files import count_above_negligible, norms

    l1, l2 = norms(solution.w)
    bound = f"{solution.certificate.error_bound:.1e}"
    nonzero = str(count_above_negligible(solution.w))
    return f"{l1:.6g}", f"{l2:.6g}", nonzero, bound, solution.status.name


def _document(swept: ScaleSweep) -> dict[str, Any]:
    return swept.data.document(
        depth=swept.network.depth,
        shape=swept.shape,
        certified=swept.certified,
        factorizations=swept.path.stats.factorizations,
        seconds=swept.path.stats.seconds,
        log_scale=swept.path.log_scales.tolist(),
        status=[solution.status.name for solution in swept.path],
        error_bound=[solution.certificate.error_bound for solution in swept.path],
        least_l2=swept.kernel.w.tolist(),
        least_l1=swept.rich.w.tolist(),
        w=swept.path.w.tolist(),
    )
