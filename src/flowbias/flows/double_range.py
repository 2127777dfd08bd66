"""Sizes of data and weights whose products stay in the double range along a flow."""

from __future__ import annotations

from collections.abc import Mapping

from flowbias.ground.arguments import InputError

# Products of four sizes must stay in the double range.
SMALLEST = 1e-70


def check_sizes(sizes: Mapping[str, float]) -> None:
    """Refuse a largest entry, by the name of its argument, that leaves the range; 0 is fine."""
    for name, size in sizes.items():
        if size != 0.0 and not SMALLEST <= size <= 1.0 / SMALLEST:
            raise InputError(
                f"{name}: must have a largest entry between {SMALLEST:g} and {1.0 / SMALLEST:g}, "
                f"got {size:.1e}. Rescale it: the flow multiplies it by itself and by the others."
            )
