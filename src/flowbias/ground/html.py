"""Results as small HTML tables, for notebooks.

Colours are those of the notebook, light or dark: nothing here sets one. No scripts, no styles but
those of alignment, nothing to fetch. Every text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from flowbias.ground import extended

# Rows of a long table that are shown.
MOST_ROWS = 12
_CAPTION = "caption-side: top; text-align: left; font-weight: bold; color: inherit"
_LEFT, _RIGHT = "text-align: left", "text-align: right"


def table(
    caption: str,
    rows: Iterable[Sequence[str]],
    *,
    head: Sequence[str] = (),
    note: str = "",
) -> str:
    """A table whose first column names its rows; `note` is a paragraph above it."""
    return _framed(caption, "".join(_row(cells, _align) for cells in rows), head, note)


def facts(caption: str, values: Mapping[str, str | float | None], *, note: str = "") -> str:
    """A table of two columns, name and value; those that are None are left out."""
    known = {name: value for name, value in values.items() if value is not None}
    # Of different kinds: nothing is gained by lining their digits up.
    rows = (_row((name, shown(value)), lambda _: _LEFT) for name, value in known.items())
    return _framed(caption, "".join(rows), (), note)


def _framed(caption: str, body: str, head: Sequence[str], note: str) -> str:
    columns = "".join(f'<th scope="col" style="{_LEFT}">{escape(name)}</th>' for name in head)
    return (
        "<div>"
        + (f"<p>{escape(note)}</p>" if note else "")
        + f'<table><caption style="{_CAPTION}">{escape(caption)}</caption>'
        + (f"<thead><tr>{columns}</tr></thead>" if columns else "")
        + f"<tbody>{body}</tbody></table></div>"
    )


def shown(value: str | float) -> str:
    """Words as they are, numbers to six digits."""
    return value if isinstance(value, str) else f"{value:.6g}"


def power_of_ten(exponent: float) -> str:
    """How a scale is written that may be no double: 1e-3 for -3, 3.2e-3 for -2.5."""
    whole = math.floor(exponent)
    digits = f"{10.0 ** (exponent - whole):.2g}"
    # Just below a power of ten two digits are that power.
    return f"1e{whole + 1}" if digits == "10" else f"{digits}e{whole}"


def some(count: int, most: int = MOST_ROWS) -> list[int]:
    """Positions evenly spread over a list of `count`, both ends included."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, most))}) if count else []


def coefficients(w: Any) -> dict[str, str | float]:
    """What a predictor looks like: its size, its norms, and how many entries count.

    Nothing is computed of one that is still on a cluster.
    """
    if not isinstance(w, np.ndarray):
        return {"coefficients": "not computed yet"}
    largest = float(np.abs(w).max(initial=0.0))
    return {
        "coefficients": f"{w.size}",
        "above 1e-6 of the largest": f"{int(np.count_nonzero(np.abs(w) > 1e-6 * largest))}",
        "l1 norm": float(np.abs(w).sum()),
        "l2 norm": extended.length(w),
    }


def _row(cells: Sequence[str], align: Callable[[str], str]) -> str:
    name, *values = cells
    data = "".join(f'<td style="{align(value)}">{escape(value)}</td>' for value in values)
    return f'<tr><th scope="row" style="{_LEFT}">{escape(name)}</th>{data}</tr>'


def _align(value: str) -> str:
    """Numbers end in one line, words begin in one."""
    try:
        float(value)
    except ValueError:
        return _LEFT
    return _RIGHT
