"""The types used in every signature: of arrays, and of what is drawn on."""

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Indices: TypeAlias = NDArray[np.intp]

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    # matplotlib is loaded by what draws, when it draws.
    Axes = Figure = Any

__all__ = ["ArrayLike", "Axes", "Figure", "FloatArray", "Indices", "Mask"]
