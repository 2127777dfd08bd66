"""The state of a view, in the address of its page: /?view=geometry&log_scale=-3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

from flowbias.explorer.controls import Choice, Control, Slider, Text, Upload


@singledispatch
def legal(control: Control, text: str | None) -> Any:
    """What a control is set to by the `text` of an address; its default where there is none."""
    raise TypeError(f"no address for {control!r}")


@legal.register(Slider)
@legal.register(Choice)
@legal.register(Text)
def _(control: Slider | Choice | Text, text: str | None) -> Any:
    return control.default if text is None else control.parse(text)


@legal.register
def _(control: Upload, text: str | None) -> bytes:
    # A file is never part of an address.
    return b""


def settings_of(controls: Sequence[Control], texts: Mapping[str, str]) -> dict[str, Any]:
    """Legal settings for whatever an address or a page says."""
    return {control.name: legal(control, texts.get(control.name)) for control in controls}


def last_texts(arguments: Mapping[str, Sequence[bytes]]) -> dict[str, str]:
    """The arguments of a request; the last one counts where one is given twice."""
    return {name: values[-1].decode("utf-8", "replace") for name, values in arguments.items()}
