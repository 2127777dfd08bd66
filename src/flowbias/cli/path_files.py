"""A sweep over scales as a file: picture or numbers, by its suffix."""

from __future__ import annotations

from collections.abc import Callable

from flowbias.cli.path_drawing import draw_path, picture_bytes
from flowbias.cli.scale_sweep import Sweep
from flowbias.data_files.contents import csv_bytes, npz_bytes


def _csv(swept: Sweep) -> bytes:
    names = [swept.data.name(i) for i in range(swept.w.shape[1])]
    header = ["log_scale", "status", "error_bound", *names]
    rows: list[list[str | float]] = [
        [float(log), point.status.name, point.certificate.error_bound, *map(float, point.w)]
        for log, point in zip(swept.path.log_scales, swept.path, strict=True)
    ]
    return csv_bytes(header, rows)


def _npz(swept: Sweep) -> bytes:
    return npz_bytes(
        {
            "log_scale": swept.path.log_scales,
            "w": swept.w,
            "dual": swept.path.dual,
            "status": [point.status.name for point in swept.path],
            "error_bound": [point.certificate.error_bound for point in swept.path],
            "least_l2": swept.kernel.w,
            "least_l1": swept.rich.w,
            "depth": swept.network.depth,
        }
    )


WRITERS: dict[str, Callable[[Sweep], bytes]] = {
    ".png": lambda swept: picture_bytes(draw_path(swept), "png"),
    ".svg": lambda swept: picture_bytes(draw_path(swept), "svg"),
    ".csv": _csv,
    ".npz": _npz,
}
