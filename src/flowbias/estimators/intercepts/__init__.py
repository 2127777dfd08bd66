"""What `fit_intercept` means: which problem is solved, and the way back to coefficients.

False        X w = y.
"centered"   (also True) X and y less their (weighted) means; the intercept is what makes the
             residuals average to zero. A convention of statistics, not a gradient flow: it is the
             limit with a bias that costs nothing.
"trained"    a bias parameter that starts at 0 and is trained with the rest: see `trained_bias.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from flowbias.estimators.intercepts.centring import centred_frame
from flowbias.estimators.intercepts.frames import Frame, Samples, plain
from flowbias.estimators.intercepts.trained_bias import trained
from flowbias.ground.arguments import InputError

FRAMES: dict[Hashable, Callable[[Samples], Frame]] = {
    False: plain,
    True: centred_frame,
    "centered": centred_frame,
    "trained": trained,
}


def frame_of(
    samples: Samples, fit_intercept: Any, offered: tuple[Any, ...] = tuple(FRAMES)
) -> Frame:
    """The frame that `fit_intercept` asks for, among those offered."""
    frames = {choice: FRAMES[choice] for choice in offered}
    try:
        frame = frames.get(fit_intercept)
    except TypeError:  # an array or a list, which is no key
        frame = None
    if frame is None:
        names = ", ".join(repr(choice) for choice in offered)
        raise InputError(
            f"fit_intercept: must be one of {names}, got {fit_intercept!r}. "
            'True is "centered"; docs/estimators.md says what each of them means.'
        )
    return frame(samples)
