"""The look of the library's figures for the pictures of the examples."""

from __future__ import annotations

from typing import Any


def use(gallery_conf: dict[str, Any], script: str) -> None:
    """Called by sphinx-gallery before each example."""
    import matplotlib as mpl

    from flowbias.ground.drawing import COLOURS, STYLE

    mpl.rcParams.update(
        {
            **STYLE,
            "axes.prop_cycle": mpl.cycler(color=COLOURS),
            "figure.constrained_layout.use": True,
            "savefig.dpi": 110,
        }
    )
