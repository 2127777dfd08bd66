"""A clock that counts steps and sums what they last in two doubles."""

from __future__ import annotations

import numpy as np

from flowbias.ground.typing import FloatArray


class StepClock:
    """Reading k is the end of the k-th step; between two of them time runs evenly."""

    def __init__(self) -> None:
        self._high, self._low, self._lengths = [0.0], [0.0], [0.0]

    @property
    def end(self) -> float:
        """The time at the last reading."""
        return self._high[-1]

    @property
    def last(self) -> float:
        """How long the last step lasted; for ever where there was none."""
        return self._lengths[-1] if len(self._lengths) > 1 else np.inf

    def tick(self, length: float) -> None:
        """One more step."""
        high, low = self._high[-1], self._low[-1] + length
        total = high + low
        self._high.append(total)
        self._low.append(low - (total - high) if low <= high else high - (total - low))
        self._lengths.append(length)

    def turn_back(self, reading: float) -> None:
        """Forget the steps after a reading: they were not accepted."""
        kept = int(reading) + 1
        del self._high[kept:], self._low[kept:], self._lengths[kept:]

    def times(self, readings: FloatArray) -> FloatArray:
        """Rounded to one double each."""
        step = np.minimum(np.ceil(readings).astype(int), len(self._high) - 1)
        before = (step - readings) * np.take(self._lengths, step)
        return np.asarray(np.take(self._high, step) + (np.take(self._low, step) - before))

    def durations(self, readings: FloatArray) -> FloatArray:
        """From one reading, a whole number like all of them, to the next."""
        return np.take(self._lengths, readings.astype(int))

    def readings(self, times: FloatArray) -> FloatArray:
        """The last reading at each of the times, as far as doubles tell times apart."""
        rounded = times * (1.0 + 4.0 * float(np.finfo(float).eps))
        step = np.searchsorted(self._high, rounded, side="right") - 1
        after = np.minimum(step + 1, len(self._high) - 1)
        lengths = np.take(self._lengths, after)
        passed = (times - np.take(self._high, step)) - np.take(self._low, step)
        share = np.divide(passed, lengths, out=np.zeros_like(passed), where=lengths > 0.0)
        return np.where(after > step, step + np.clip(share, 0.0, 1.0), step)
