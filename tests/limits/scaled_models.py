"""Models of one's own, and what they say of their scale."""

from dataclasses import dataclass

import flowbias as fb
from flowbias.potentials import Provides


@dataclass(frozen=True)
class Declares:
    """A model of one's own that says it knows its scale."""

    potential: fb.potentials.Potential
    log_scale: object
    shift: float = 0.0

    @property
    def provides(self):
        return self.potential.provides | {Provides.SCALE}

    def at_log_scale(self, log_scale):
        return Declares(fb.Hypentropy(log_scale=log_scale), log_scale)


@dataclass(frozen=True)
class Fixed(Declares):
    """Says that it knows its scale, and stays where it is."""

    def at_log_scale(self, log_scale):
        return self


@dataclass(frozen=True)
class Undeclared(Fixed):
    """Has at_log_scale and does not say so."""

    @property
    def provides(self):
        return self.potential.provides
