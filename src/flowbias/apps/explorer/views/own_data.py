"""A file of the reader's own: the limit on it, its certificate, and where it lies.

What is sent to the page is bounded before anything is read. An archive is judged by the headers of
its arrays, so that a few kilobytes that unpack to gigabytes cost nothing; text by its separators.
What is within bounds goes to the readers of `data_files`.
"""

from __future__ import annotations

import io
import math
import re
import zipfile
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from flowbias.apps.data_files import json_text
from flowbias.apps.data_files.limit_files import (
    count_above_negligible,
    largest,
    limit_csv,
    limit_document,
    limit_npz,
)
from flowbias.apps.data_files.regression_data import (
    RegressionData,
    Units,
    from_csv,
    from_npz,
    reading_an_archive,
)
from flowbias.apps.explorer.drawing import Chart, Data, Hue, Mark, points, stems
from flowbias.apps.explorer.view import Download, Settings, Upload, View
from flowbias.apps.explorer.views.planted_data import EXAMPLE
from flowbias.apps.explorer.views.proof_words import Extremes, distance_words
from flowbias.apps.explorer.views.space import DEPTH, WIDE_SCALE
from flowbias.ground.arguments import InputError
from flowbias.ground.threads import one_thread
from flowbias.limits.solve import limit
from flowbias.models.diagonal import DiagonalNet
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution, Status

# The largest file, in bytes.
LARGEST_FILE = 5_000_000
# Entries of X and y together, and samples: three solves on them take a second or two.
LARGEST_TABLE = 60_000
MOST_SAMPLES = 200

# NumPy takes a member with or without the ending, and the one without if there are both.
_MEMBERS = ("X", "X.npy", "y", "y.npy")
# How np.savez packs. Others may ask for gigabytes of dictionary before the first byte.
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ZIP, _PICKLE, _NPY = b"PK\x03\x04", b"\x80", b"\x93NUMPY"
_EMPTY_ZIP = b"PK\x05\x06"
_SEPARATORS = (b",", b";", b"\t", b"\n", b"\r")
_OPTIONS = "Options are those of the command: flowbias limit DATA --scale 1e-3."
_COMMAND = "For larger data use the command: flowbias limit DATA --scale 1e-3."

ARCHIVE = "flowbias-limit.npz"
# Coefficients that a picture has room for.
MOST_COEFFICIENTS = 60
_MEANS = {
    Status.CERTIFIED: "It fits the data, and this is proved.",
    Status.PROJECTED: (
        "No predictor fits these outputs exactly (more samples than features, or rows that "
        "contradict each other): this is the least-squares fit that the flow goes to, proved."
    ),
}


def read_upload(content: bytes) -> RegressionData:
    """The data of a file, by what is in it; InputError says what is wrong with it."""
    if len(content) > LARGEST_FILE:
        raise InputError(
            f"file: must have at most {LARGEST_FILE / 1e6:g} MB, got {len(content) / 1e6:.3g} MB. "
            f"{_COMMAND}"
        )
    if content.startswith(_PICKLE):
        raise InputError(
            "file: must be a csv or npz file, got a pickle, which is a program and is never run. "
            "Write it with np.savez(file, X=X, y=y)."
        )
    if content.startswith(_NPY):
        raise InputError(
            "file: must be a csv or npz file, got a single NumPy array. "
            "Put both arrays into one file: np.savez(file, X=X, y=y)."
        )
    try:
        read = _read_npz if content.startswith((_ZIP, _EMPTY_ZIP)) else _read_csv
        data = read(content)
    except InputError as error:
        raise InputError(_with_command(f"file: {error}")) from error
    _require_small(*data.problem.X.shape)
    return data


def _with_command(said: str) -> str:
    """The page has no options: where one is named, what takes it."""
    return f"{said} {_OPTIONS}" if re.search(r"(?<!\S)\(?--[a-z]", said) else said


def _read_csv(content: bytes) -> RegressionData:
    fields = sum(content.count(mark) for mark in _SEPARATORS)
    # A header and line ends of two bytes are counted as well, hence twice.
    if fields > 2 * LARGEST_TABLE:
        raise InputError(_too_large(f"about {fields:.2g}"))
    return from_csv(io.BytesIO(content))


def _read_npz(content: bytes) -> RegressionData:
    with reading_an_archive(), zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in sorted(set(_MEMBERS) & set(archive.namelist())):
            _require_small_array(name.removesuffix(".npy"), _opening(archive, name))
    return from_npz(io.BytesIO(content))


def _opening(archive: zipfile.ZipFile, name: str) -> io.BytesIO:
    """The first bytes of a member: as much as is ever unpacked of one that is too large."""
    if archive.getinfo(name).compress_type not in _PACKED:
        raise InputError(f"{name}: must be stored or deflated, is not. Write it with np.savez.")
    with archive.open(name) as member:
        # A header is a hundred bytes or two, but may claim gigabytes.
        return io.BytesIO(member.read(2**14))


def _require_small_array(name: str, member: io.BytesIO) -> None:
    """From the header alone: what an array claims to hold is what reading it would allocate."""
    version = np.lib.format.read_magic(member)
    header = {(1, 0): np.lib.format.read_array_header_1_0}.get(
        version, np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = header(member)
    if dtype.kind not in "buif":
        what = "Python objects (a pickle), which are never read" if dtype.hasobject else str(dtype)
        raise InputError(f"{name}: must be an array of real numbers, got {what}.")
    if math.prod(shape) > LARGEST_TABLE:
        raise InputError(f"{name}: {_too_large(f'shape {shape}')}")


def _require_small(samples: int, features: int) -> None:
    if samples * (features + 1) > LARGEST_TABLE:
        raise InputError(f"file: {_too_large(f'{samples} samples of {features} features')}")
    if samples > MOST_SAMPLES:
        raise InputError(
            f"file: must have at most {MOST_SAMPLES} samples to be answered at once, got "
            f"{samples}. {_COMMAND}"
        )


def _too_large(got: str) -> str:
    return (
        f"must have at most {LARGEST_TABLE} numbers to be answered at once, got {got}. {_COMMAND}"
    )


@dataclass(frozen=True)
class OwnDataScene:
    """The limit beside the extremes."""

    data: RegressionData
    extremes: Extremes
    is_example: bool
    net: DiagonalNet
    solution: Solution

    @cached_property
    def shown(self) -> list[int]:
        """The coefficients that are largest in any of the three predictors, in their order."""
        each = (self.solution.w, self.extremes.rich, self.extremes.kernel)
        size = np.max(np.abs(each), axis=0)
        return sorted(largest(size, MOST_COEFFICIENTS)) or [0]


# Files with what does not depend on the start; each is at most 5 MB.
@lru_cache(maxsize=4)
def _given(content: bytes) -> tuple[RegressionData, Extremes]:
    if content:
        data = read_upload(content)._replace(source="upload")
    else:
        drawn = EXAMPLE.draw()
        data = RegressionData(Units(Regression(drawn.X, drawn.y)), None, "example")
    return data, Extremes.of(data.problem)


def _marks(of: str) -> tuple[Mark, ...]:
    """The limit last: it lies on top of an extreme that it has reached."""
    return (
        points(f"kernel {of}", "square", Hue.KERNEL, 8, "least l2 norm"),
        points(f"rich {of}", "diamond", Hue.RICH, 15, "least l1 norm"),
        points(f"limit {of}", "circle", Hue.FLOW, 9, "limit", 1.0),
    )


class OwnDataView(View[OwnDataScene]):
    """The limit of gradient flow on an uploaded file."""

    name = "your-data"
    title = "Your data"
    question = "What does gradient flow find on your own data, and how much does its start matter?"
    controls = (
        Upload(
            "file",
            f"X and y as csv or npz, up to {LARGEST_FILE / 1e6:g} MB, {MOST_SAMPLES} samples and "
            f"{LARGEST_TABLE} numbers; it stays on this computer",
            (".csv", ".npz"),
            LARGEST_FILE,
            read_upload,
        ),
        replace(WIDE_SCALE, default=-3.0),
        DEPTH,
    )

    charts = (
        Chart(
            "Coefficients of the limit",
            "For each feature a filled circle for the limit of gradient flow, an open diamond "
            "for least l1 norm and an open square for least l2 norm; the largest "
            f"{MOST_COEFFICIENTS} at most.",
            "feature i, counted from 0",
            "wᵢ (coefficient)",
            (stems("limit w"), *_marks("w")),
        ),
        Chart(
            "Between the two least norms",
            "The l1 norm of the limit to the right and its l2 norm upwards, each over the "
            "least possible. The diamond at 1 on the horizontal axis is the rich extreme, the "
            "square at 1 on the vertical axis the kernel extreme.",
            "‖w‖₁ / least ‖w‖₁ (l1 norm)",
            "‖w‖₂ / least ‖w‖₂ (l2 norm)",
            _marks("norms"),
        ),
    )

    def scene(self, settings: Settings) -> OwnDataScene:
        """The certified limit on the file, or on the example where there is none."""
        content, log_scale = settings["file"], settings["log_scale"] * np.log(10.0)
        net = DiagonalNet(depth=settings["depth"], log_scale=log_scale)
        data, extremes = _given(content)
        with one_thread():
            solution = limit(net, data.problem)
        return OwnDataScene(data, extremes, not content, net, solution)

    def data(self, scene: OwnDataScene) -> Data:
        shown, extremes = scene.shown, scene.extremes
        made: dict[str, tuple[Any, ...]] = {}
        each = {"limit": scene.solution.w, "rich": extremes.rich, "kernel": extremes.kernel}
        for name, w in each.items():
            l1, l2 = extremes.ratios(w)
            made[f"{name} w"] = (shown, w[shown])
            made[f"{name} norms"] = ([l1], [l2])
        return made

    def text(self, scene: OwnDataScene) -> str:
        solution, data = scene.solution, scene.data
        samples, features = data.problem.X.shape
        said_of_file = (*data.remarks, *data.units.remarks)
        source = "A built-in example" if scene.is_example else "Your file"
        certificate = solution.certificate
        return " ".join(
            [
                f"{source}: samples {samples}, features {features}.",
                _with_command(" ".join(f"{said}." for said in said_of_file)),
                f"Coefficients of the limit above 1e-6 of the largest: "
                f"{count_above_negligible(solution.w)}. {solution.status.name}: feasibility "
                f"{certificate.feasibility:.0e}, gap {certificate.gap:.0e}, "
                f"{distance_words(solution)}. {_MEANS.get(solution.status, solution.message)}",
                scene.extremes.words(solution.w),
                _hidden(scene),
            ]
        )

    def code(self, settings: Settings) -> str:
        if settings["file"]:
            note = f"# {ARCHIVE} is one of the downloads: save it beside this script.\n"
            data = f'{note}data = np.load("{ARCHIVE}")\nX, y = data["X"], data["y"]'
        else:
            data = EXAMPLE.code()
        return self.script(CODE.format(data=data, **settings))

    def downloads(self, scene: OwnDataScene) -> tuple[Download, ...]:
        data, solution, net = scene.data, scene.solution, scene.net
        document = limit_document(data, net, solution)
        problem = data.problem
        return (
            Download("flowbias-w.csv", "w as csv", limit_csv(data, solution)),
            Download("flowbias-report.json", "report as json", json_text(document).encode()),
            Download(
                ARCHIVE, "everything as npz", limit_npz(net, solution, X=problem.X, y=problem.y)
            ),
        )


def _hidden(scene: OwnDataScene) -> str:
    hidden = len(scene.solution.w) - len(scene.shown)
    return f"Small coefficients that are not drawn: {hidden}." if hidden else ""


CODE = """\
{data}
net = fb.DiagonalNet(depth={depth}, log_scale={log_scale!r} * np.log(10))
sol = fb.limit(net, X, y)
rich, kernel = fb.basis_pursuit(X, y), fb.min_norm(X, y)
print(sol)
print("l1 norm over the least:", np.abs(sol.w).sum() / np.abs(rich.w).sum())
print("l2 norm over the least:", np.linalg.norm(sol.w) / np.linalg.norm(kernel.w))

fig, ax = plt.subplots(figsize=(8, 4))
ax.plot(kernel.w, "s", color="tab:blue", mfc="none", label="least l2 norm")
ax.plot(rich.w, "D", color="tab:green", mfc="none", label="least l1 norm")
ax.plot(sol.w, "o", color="tab:orange", label="limit")
ax.set(xlabel="feature", ylabel="coefficient")
ax.legend()
"""
