"""A file of the reader's own: the limit on it, its certificate, and where it lies."""

from __future__ import annotations

from typing import Any

from flowbias.data_files.contents import json_text
from flowbias.data_files.limit_files import limit_csv, limit_document, limit_npz
from flowbias.data_files.measures import count_above_negligible
from flowbias.explorer.controls import Upload
from flowbias.explorer.drawing import FLOW, KERNEL, RICH, legend_above, new_figure
from flowbias.explorer.uploads import LARGEST_FILE, LARGEST_TABLE, MOST_SAMPLES, read_upload
from flowbias.explorer.view import Download, Drawn, Pictures, Settings, View
from flowbias.explorer.views.geometry_scene import DEPTH, scale_slider
from flowbias.explorer.views.own_data_scene import (
    EXAMPLE,
    MOST_SHOWN,
    OwnDataScene,
    own_data_scene,
)
from flowbias.explorer.views.proof_words import distance_words
from flowbias.solution import Status

ARCHIVE = "flowbias-limit.npz"

_MEANS = {
    Status.CERTIFIED: "It fits the data, and this is proved.",
    Status.PROJECTED: (
        "No predictor fits these outputs exactly (more samples than features, or rows that "
        "contradict each other): this is the least-squares fit that the flow goes to, proved."
    ),
}
_MARKS = {
    "limit": ("circle", FLOW, 9),
    "rich": ("diamond", RICH, 15),
    "kernel": ("square", KERNEL, 8),
}
_WORDS = {"limit": "limit", "rich": "least l1 norm", "kernel": "least l2 norm"}


class OwnDataPictures(Pictures[OwnDataScene]):
    """Coefficients, and the plane of the two norms."""

    def __init__(self) -> None:
        from bokeh.models import ColumnDataSource

        self._coefficients = {name: ColumnDataSource({"x": [], "y": []}) for name in _MARKS}
        self._norms = {name: ColumnDataSource({"x": [], "y": []}) for name in _MARKS}
        bars = new_figure("feature i, counted from 0", "wᵢ (coefficient)")
        plane = new_figure("‖w‖₁ / least ‖w‖₁ (l1 norm)", "‖w‖₂ / least ‖w‖₂ (l2 norm)", height=320)
        self._stems = bars.segment(
            "x", 0, "x", "y", source=self._coefficients["limit"], color=FLOW, line_width=1.5
        )
        # The limit last: it lies on top of an extreme that it has reached.
        for name in ("kernel", "rich", "limit"):
            self._mark(bars, self._coefficients[name], name)
            self._mark(plane, self._norms[name], name)
        for made in (bars, plane):
            legend_above(made)
        self.figures = (
            Drawn(
                "Coefficients of the limit",
                "For each feature a filled circle for the limit of gradient flow, an open diamond "
                "for least l1 norm and an open square for least l2 norm; the largest "
                f"{MOST_SHOWN} at most.",
                bars,
            ),
            Drawn(
                "Between the two least norms",
                "The l1 norm of the limit to the right and its l2 norm upwards, each over the "
                "least possible. The diamond at 1 on the horizontal axis is the rich extreme, the "
                "square at 1 on the vertical axis the kernel extreme.",
                plane,
            ),
        )

    def _mark(self, made: Any, source: Any, name: str) -> None:
        marker, colour, size = _MARKS[name]
        made.scatter(
            *("x", "y"),
            source=source,
            marker=marker,
            size=size,
            line_color=colour,
            line_width=2,
            fill_color=colour,
            fill_alpha=1.0 if name == "limit" else 0.0,
            legend_label=_WORDS[name],
        )

    def show(self, scene: OwnDataScene) -> None:
        shown, extremes = scene.shown, scene.extremes
        predictors = {
            "limit": scene.solution.w,
            "rich": extremes.rich.w,
            "kernel": extremes.kernel.w,
        }
        for name, w in predictors.items():
            self._coefficients[name].data = {"x": shown, "y": w[shown]}
            l1, l2 = extremes.ratios(w)
            self._norms[name].data = {"x": [l1], "y": [l2]}


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
        scale_slider(-3.0),
        DEPTH,
    )

    def scene(self, settings: Settings) -> OwnDataScene:
        return own_data_scene(settings["file"], settings["log_scale"], int(settings["depth"]))

    def pictures(self) -> OwnDataPictures:
        return OwnDataPictures()

    def text(self, scene: OwnDataScene) -> str:
        solution, data = scene.solution, scene.data
        samples, features = data.problem.X.shape
        source = "A built-in example" if scene.is_example else "Your file"
        certificate = solution.certificate
        return " ".join(
            [
                f"{source}: samples {samples}, features {features}.",
                f"Coefficients of the limit above 1e-6 of the largest: "
                f"{count_above_negligible(solution.w)}. {solution.status.name}: feasibility "
                f"{certificate.feasibility:.0e}, gap {certificate.gap:.0e}, "
                f"{distance_words(solution)}. {_MEANS[solution.status]}",
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
        return CODE.format(data=data, depth=int(settings["depth"]), log_scale=settings["log_scale"])

    def downloads(self, scene: OwnDataScene) -> tuple[Download, ...]:
        data, solution, net = scene.data, scene.solution, scene.net
        source = "example" if scene.is_example else "upload"
        document = limit_document(source, data, net, solution)
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
import matplotlib.pyplot as plt
import numpy as np

import flowbias as fb

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
plt.show()
"""
