"""Pages to host: three views with positions of their sliders computed beforehand.

A page holds its answers and looks up what the server would have computed; all else is the page that
the server sends. It opens from a disk and from any web server, and asks nobody for anything.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any

from flowbias.apps.explorer import views
from flowbias.apps.explorer.drawing import Picture
from flowbias.apps.explorer.page import Wish, page_variables, presented, template
from flowbias.apps.explorer.server import PATHS, RESOURCES, require_extra
from flowbias.apps.explorer.view import MOMENTS, Slider, View, settings_of
from flowbias.apps.explorer.views.space import WIDE_SCALE
from flowbias.apps.explorer.views.sparse_regression import EXPONENTS
from flowbias.ground.arguments import InputError
from flowbias.ground.threads import one_thread

#: Which sliders each view keeps, at which values; the others stay as they are by default.
POSITIONS: dict[str, dict[str, tuple[float, ...]]] = {
    # Every third scale, the default among them.
    "geometry": {"log_scale": WIDE_SCALE.grid[::3], "depth": (2, 3, 4)},
    "sparse-regression": {"log_scale": EXPONENTS, "depth": (2, 3), "noise": (0.0, 0.1, 0.3)},
    "time": {
        "moment": tuple(range(0, MOMENTS + 1, 2)),
        "log_scale": (-8.0, -6.0, -4.0, -2.0, 0.0),
    },
}
# A folder opens with the first.
FILES = {name: f"{name}.html" for name in POSITIONS} | {next(iter(POSITIONS)): "index.html"}


class Pool:
    """What answers have in common, once each: columns of numbers, texts, lines of code."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, value: Any) -> int:
        """Where it is kept."""
        text = json.dumps(value, separators=(",", ":"))
        return self._places.setdefault(text, len(self._places))

    def values(self) -> list[Any]:
        """All that is kept, by its place."""
        return [json.loads(text) for text in self._places]


def write_site(folder: Path, say: Callable[[str], None]) -> None:
    """Write the pages, and the files that they share, into `folder`."""
    require_extra()
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--export: must be a folder, got the file {folder}. Name another.")
    import bokeh.server

    # As the server has them: the same page finds them by the same names.
    rooms = {"static": Path(bokeh.server.__file__).parent / "static", "explorer": RESOURCES}
    for path in (path for path in map(PurePosixPath, PATHS) if path.suffix):
        _, room, *rest = path.parts
        target = folder.joinpath(room, *rest)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(rooms[room].joinpath(*rest), target)
    for name, file in FILES.items():
        page, count = exported_page(views.view(name))
        (folder / file).write_text(page, encoding="utf-8")
        say(f"{folder / file}: {count} positions, {len(page.encode()) / 1e6:.1f} MB")


def exported_page(view: View[Any]) -> tuple[str, int]:
    """The page of a view, and how many positions it holds."""
    from bokeh.document import Document
    from bokeh.embed import file_html
    from bokeh.resources import Resources

    document, pictures = Document(), [Picture(chart) for chart in view.charts]
    for picture in pictures:
        document.add_root(picture.figure)
    sliders = [one for one in view.controls if isinstance(one, Slider)]
    positions = POSITIONS[view.name]
    kept = [replace(one, stops=positions[one.name]) for one in sliders if one.name in positions]
    others = (
        f"{one.label} {one.shown(one.default)}" for one in sliders if one.name not in positions
    )
    pool = Pool()
    with one_thread():
        answers = {key: _answer(view, kept, key, pool) for key in _keys(kept)}
    page = file_html(
        document,
        resources=Resources(mode="server"),
        title=f"{view.title} - flowbias",
        template=template(),
        template_variables={
            **page_variables(view, kept, settings_of(kept, {}), pictures, FILES),
            "answers": {"by_key": answers, "pool": pool.values()},
            "fixed": ", ".join(others),
        },
    )
    return page, len(answers)


def _keys(kept: Sequence[Slider]) -> list[str]:
    """Positions of all sliders, as the page writes them."""
    grids = ([f"{value:g}" for value in one.grid] for one in kept)
    return [",".join(texts) for texts in product(*grids)]


def _answer(view: View[Any], kept: Sequence[Slider], key: str, pool: Pool) -> dict[str, Any]:
    texts = dict(zip((one.name for one in kept), key.split(","), strict=True))
    settings = settings_of(view.controls, texts)
    found = presented(view, Wish(0, settings), view.scene(settings))
    return {
        "data": {
            name: [pool.place(_rounded(column)) for column in columns]
            for name, columns in found.data.items()
        },
        "text": pool.place(found.text),
        "code": [pool.place(line) for line in found.code.split("\n")],
    }


def _rounded(column: Any) -> Any:
    """Numbers to the four digits that a picture can show; no JSON has a NaN."""
    if isinstance(column, float):
        return None if math.isnan(column) else float(f"{column:.4g}")
    if isinstance(column, str | int):
        return column
    return [
        _rounded(one) for one in (column if isinstance(column, list | tuple) else column.tolist())
    ]
