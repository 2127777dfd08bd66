"""Controls as the page's template and script know them: native elements, named and spoken.

Panel's own slider has no accessible name and takes no part in the page's style sheet; a native
<input type=range> has both, answers to all keys, and says its value in words.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from flowbias.explorer.controls import Choice, Control, Slider, Text, Upload


@singledispatch
def widget(control: Control, value: Any) -> dict[str, Any]:
    """What the template and the script need to draw `control`, set to `value`."""
    raise TypeError(f"no widget for {control!r}")


@widget.register
def _(control: Slider, value: float) -> dict[str, Any]:
    return {
        "kind": "slider",
        "name": control.name,
        "label": control.label,
        "plays": control.plays,
        "values": [f"{number:g}" for number in control.grid],
        "words": [control.shown(number) for number in control.grid],
        "index": control.grid.index(value),
    }


@widget.register
def _(control: Choice, value: str) -> dict[str, Any]:
    return {
        "kind": "choice",
        "name": control.name,
        "label": control.label,
        "options": [{"value": option, "word": word} for option, word in control.options],
        "value": value,
    }


@widget.register
def _(control: Text, value: str) -> dict[str, Any]:
    return {
        "kind": "text",
        "name": control.name,
        "label": control.label,
        "longest": control.longest,
        "value": value,
    }


@widget.register
def _(control: Upload, value: bytes) -> dict[str, Any]:
    return {
        "kind": "upload",
        "name": control.name,
        "label": control.label,
        "endings": list(control.endings),
        "largest": control.largest,
    }
