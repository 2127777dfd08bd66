"""Dual maps by their definition, in balls: a proof shares no formula with the solvers.

    exponential   w = exp(log_plus + rate z) - exp(log_minus - rate z)
    power         w = (c_plus - z)^-k - (c_minus + z)^-k,   c = start^(2-D),   k = D / (D-2)
    linear        w = z / weight

In doubles each of these loses all digits somewhere, which is why the potentials are written in
other ways; with enough bits none does. Duals are in plain units, not in those of the potential.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeAlias

from flint import arb

from flowbias.ground.balls import largest

#: one ball per coordinate
Balls: TypeAlias = Sequence[arb]
#: the same, None where a coordinate has no such side
Side: TypeAlias = Sequence[arb | None]


class DualMap(ABC):
    """w(z) in balls, with what Newton's method and its proof need to know of it."""

    @abstractmethod
    def predictor(self, z: Balls) -> tuple[list[arb], list[arb]]:
        """w(z) and w'(z) per coordinate, z inside the domain."""

    @abstractmethod
    def restricted(self, kept: Sequence[int]) -> DualMap:
        """Of these coordinates alone."""

    @abstractmethod
    def units(self, z: Balls) -> list[arb]:
        """How far each z can move before w'(z) changes by much."""

    def costs(self) -> tuple[Side, Side]:
        """What a unit of w costs near the rich limit, on either side."""
        raise NotImplementedError(f"{type(self).__name__} has no rich limit.")

    def ends(self, z: Balls, sign: int) -> list[arb]:
        """Distances to the end of the domain in this direction; infinite where there is none."""
        return [arb.pos_inf() for _ in z]

    @abstractmethod
    def damping(self, z: Balls, step: Balls) -> arb:
        """The fraction of a Newton step along which the dual function is sure to rise.

        Where the Hessian grows at most by g(s) after a fraction s, it rises as long as the integral
        of g stays below 1.
        """

    def contains(self, z: Balls) -> bool:
        """Whether z is certainly inside the domain."""
        return True

    def bits_lost(self, w: Balls) -> float:
        """How many bits cancel on the way from the start to w(z) = w."""
        return 0.0


def _bits(log: arb) -> float:
    """The natural logarithm of a ratio in powers of two; 0 where it is below one."""
    return max(0.0, float((log / arb.const_log2()).mid()))


def _logs(sides: Iterable[tuple[arb, arb | None, arb | None]]) -> Iterator[tuple[arb, arb, arb]]:
    """log |w| and those of both sides, where all of them exist."""
    for w, up, down in sides:
        if up is not None and down is not None and not w.contains(0):
            yield abs(w).log(), up, down


class ExponentialMap(DualMap):
    """w = exp(log_plus + rate z) - exp(log_minus - rate z)."""

    def __init__(self, log_plus: Side, log_minus: Side, rate: float) -> None:
        self.log_plus, self.log_minus, self.rate = log_plus, log_minus, rate

    def predictor(self, z: Balls) -> tuple[list[arb], list[arb]]:
        w, slope = [], []
        for at, log_plus, log_minus in zip(z, self.log_plus, self.log_minus, strict=True):
            up = arb(0) if log_plus is None else (log_plus + self.rate * at).exp()
            down = arb(0) if log_minus is None else (log_minus - self.rate * at).exp()
            w.append(up - down)
            slope.append(self.rate * (up + down))
        return w, slope

    def restricted(self, kept: Sequence[int]) -> ExponentialMap:
        sides = [self.log_plus[i] for i in kept], [self.log_minus[i] for i in kept]
        return ExponentialMap(*sides, self.rate)

    def units(self, z: Balls) -> list[arb]:
        return [arb(1) / self.rate for _ in z]

    def bits_lost(self, w: Balls) -> float:
        """Of two large exponentials whose difference is w: log2(exp(log_plus) / |w|)."""
        sides = zip(w, self.log_plus, self.log_minus, strict=True)
        return max((_bits(min(up, down) - at) for at, up, down in _logs(sides)), default=0.0)

    def damping(self, z: Balls, step: Balls) -> arb:
        """log(1 + r) / r with r = rate max |dz|, from g = e^(s r)."""
        r = self.rate * largest(abs(s) for s in step)
        return r.log1p() / r if r > 0 else arb(1)


class PowerMap(DualMap):
    """w = (c_plus - z)^-k - (c_minus + z)^-k with c = start^(2-D), given the starts' logarithms."""

    def __init__(self, log_plus: Side, log_minus: Side, depth: float) -> None:
        self.depth, self.log_starts = depth, (log_plus, log_minus)
        self.exponent = arb(depth) / (arb(depth) - 2)

    @cached_property
    def _ends(self) -> tuple[Side, Side]:
        """c of both sides."""
        order = 2 - arb(self.depth)
        plus, minus = (
            [None if log is None else (order * log).exp() for log in side]
            for side in self.log_starts
        )
        return plus, minus

    def _slacks(self, z: Balls) -> tuple[list[arb | None], list[arb | None]]:
        plus, minus = self._ends
        up = [None if end is None else end - at for end, at in zip(plus, z, strict=True)]
        down = [None if end is None else end + at for end, at in zip(minus, z, strict=True)]
        return up, down

    def predictor(self, z: Balls) -> tuple[list[arb], list[arb]]:
        w, slope = [], []
        for up, down in zip(*self._slacks(z), strict=True):
            rise = arb(0) if up is None else up**-self.exponent
            fall = arb(0) if down is None else down**-self.exponent
            w.append(rise - fall)
            steep = arb(0) if up is None else rise / up
            steep += 0 if down is None else fall / down
            slope.append(self.exponent * steep)
        return w, slope

    def restricted(self, kept: Sequence[int]) -> PowerMap:
        plus, minus = ([side[i] for i in kept] for side in self.log_starts)
        return PowerMap(plus, minus, self.depth)

    def _nearest(self, z: Balls) -> list[arb]:
        """Distances to the nearer end of the domain, of which each coordinate has one at least."""
        ends = zip(*self._slacks(z), strict=True)
        return [min(slack for slack in pair if slack is not None) for pair in ends]

    def units(self, z: Balls) -> list[arb]:
        """slack / (k + 1), from w' = k slack^-(k+1)."""
        return [slack / (self.exponent + 1) for slack in self._nearest(z)]

    def costs(self) -> tuple[Side, Side]:
        """c of both sides."""
        return self._ends

    def ends(self, z: Balls, sign: int) -> list[arb]:
        up, down = self._slacks(z)
        return [arb.pos_inf() if s is None else s for s in (up if sign > 0 else down)]

    def contains(self, z: Balls) -> bool:
        return all(slack > 0 for slack in self._nearest(z))

    def damping(self, z: Balls, step: Balls) -> arb:
        """(1 - (1 + k r)^(-1/k)) / r with r = max |dz| / slack, from g = (1 - s r)^-(k+1)."""
        r = largest(abs(dz) / s for dz, s in zip(step, self._nearest(z), strict=True))
        k = self.exponent
        return (1 - (1 + k * r) ** (-1 / k)) / r if r > 0 else arb(1)

    def bits_lost(self, w: Balls) -> float:
        """log2(c / slack) with slack = |w|^(-1/k) of small starts, log2(start^D / |w|) of large."""
        most = 0.0
        for at, *logs in zip(w, *self.log_starts, strict=True):
            log_start = logs[0] if at > 0 else logs[1]
            if log_start is not None and not at.contains(0):
                ratio = self.depth * log_start - abs(at).log()
                most = max(most, _bits(-ratio / self.exponent), _bits(ratio))
        return most


class JoinedMap(DualMap):
    """One map on the first coordinates, another on the rest."""

    def __init__(self, first: DualMap, second: DualMap, split: int) -> None:
        self.first, self.second, self.split = first, second, split

    def predictor(self, z: Balls) -> tuple[list[arb], list[arb]]:
        one, two = self.first.predictor(z[: self.split]), self.second.predictor(z[self.split :])
        return one[0] + two[0], one[1] + two[1]

    def restricted(self, kept: Sequence[int]) -> JoinedMap:
        first, second = (
            [i for i in kept if i < self.split],
            [i - self.split for i in kept if i >= self.split],
        )
        return JoinedMap(self.first.restricted(first), self.second.restricted(second), len(first))

    def contains(self, z: Balls) -> bool:
        return self.first.contains(z[: self.split]) and self.second.contains(z[self.split :])

    def units(self, z: Balls) -> list[arb]:
        return self.first.units(z[: self.split]) + self.second.units(z[self.split :])

    def ends(self, z: Balls, sign: int) -> list[arb]:
        one = self.first.ends(z[: self.split], sign)
        return one + self.second.ends(z[self.split :], sign)

    def damping(self, z: Balls, step: Balls) -> arb:
        one = self.first.damping(z[: self.split], step[: self.split])
        return min(one, self.second.damping(z[self.split :], step[self.split :]))

    def bits_lost(self, w: Balls) -> float:
        one = self.first.bits_lost(w[: self.split])
        return max(one, self.second.bits_lost(w[self.split :]))


class LinearMap(DualMap):
    """w = z / weight."""

    def __init__(self, weights: Balls) -> None:
        self.weights = weights

    def predictor(self, z: Balls) -> tuple[list[arb], list[arb]]:
        slope = [1 / weight for weight in self.weights]
        return [at * steep for at, steep in zip(z, slope, strict=True)], slope

    def restricted(self, kept: Sequence[int]) -> LinearMap:
        return LinearMap([self.weights[i] for i in kept])

    def units(self, z: Balls) -> list[arb]:
        return [max(abs(at), weight) for at, weight in zip(z, self.weights, strict=True)]

    def damping(self, z: Balls, step: Balls) -> arb:
        return arb(1)
