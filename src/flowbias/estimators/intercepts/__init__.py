"""What `fit_intercept` means: which problem is solved, and the way back to coefficients.

False        X w = y.
"centered"   (also True) X and y less their (weighted) means; the intercept is what makes the
             residuals average to zero. A convention of statistics, not a gradient flow: it is the
             limit with a bias that costs nothing.
"trained"    a bias parameter that starts at 0 and is trained with the rest: see `trained_bias.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from flowbias.estimators.intercepts.frames import Frame, centred_frame, plain
from flowbias.estimators.intercepts.samples import Samples
from flowbias.estimators.intercepts.trained_bias import trained

FRAMES: dict[Hashable, Callable[[Samples], Frame]] = {
    False: plain,
    True: centred_frame,
    "centered": centred_frame,
    "trained": trained,
}
