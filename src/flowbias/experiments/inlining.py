"""A drawing inside a page: its own ids, the page's colours, a title, and no size of its own.

Matplotlib gives the same ids to every figure (`axes_1`, `DejaVuSans-41`, clip paths): on one page
the second figure would be drawn with the glyphs and clip paths of the first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree

from flowbias.ground.look import BLUE, DEPTH_COLOURS, INK, RED

#: Colours of lines and of their names, which near-black paper needs lighter.
LINE_COLOURS = tuple(dict.fromkeys((*DEPTH_COLOURS.values(), BLUE, RED)))


def inlined(svg: str, prefix: str, title: str) -> str:
    """The SVG, parsed and written anew, for a page where `prefix` begins no other id."""
    root = ElementTree.fromstring(svg)
    _remove_what_concerns_the_page(root)
    for element in root.iter():
        element.tag = _local(element.tag)
        attributes = {_local(name): value for name, value in element.attrib.items()}
        element.attrib = {
            name: _own_references(name, value, prefix) for name, value in attributes.items()
        }
    _remove_size(root)
    _set_title(root, title, f"{prefix}title")
    return ElementTree.tostring(root, encoding="unicode")


def dark_colours() -> dict[str, str]:
    """The custom property of each line colour, and its value on dark paper."""
    return {_property(colour): _lighter(colour) for colour in LINE_COLOURS}


def _remove_what_concerns_the_page(root: ElementTree.Element) -> None:
    """A style sheet inside the drawing would style all of the page, which has the same rule."""
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in {"metadata", "style"}:
                parent.remove(child)


def _remove_size(root: ElementTree.Element) -> None:
    if "viewBox" not in root.attrib:
        raise ValueError("svg: must have a viewBox, or it cannot be scaled; got none. Add one.")
    for name in ("width", "height"):
        root.attrib.pop(name, None)


def _set_title(root: ElementTree.Element, title: str, key: str) -> None:
    heading = ElementTree.Element("title", id=key)
    heading.text = title
    root.insert(0, heading)
    root.attrib |= {"role": "img", "aria-labelledby": key}


def _local(name: str) -> str:
    """Without the namespace: an HTML parser knows that `svg` and `href` are SVG's."""
    return name.rpartition("}")[2]


def _own_references(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return prefix + value
    if name == "href":
        return f"#{prefix}{value[1:]}" if value.startswith("#") else value
    value = re.sub(r"url\(\s*([\"']?)#", rf"url(\1#{prefix}", value)
    return re.sub(r"#[0-9a-fA-F]{6}\b", lambda match: _page_colour(match.group()), value)


def _page_colour(colour: str) -> str:
    return PAGE_COLOURS.get(colour.lower(), colour)


def _property(colour: str) -> str:
    return f"--line-{colour[1:]}"


def _lighter(colour: str) -> str:
    # A fifth of the way to white: the names of lines then have the contrast of text, 4.5 and more.
    channels = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(c + 0.2 * (255 - c)):02x}" for c in channels)


PAGE_COLOURS: Mapping[str, str] = {
    INK: "currentColor",
    **{colour: f"var({_property(colour)}, {colour})" for colour in LINE_COLOURS},
}
