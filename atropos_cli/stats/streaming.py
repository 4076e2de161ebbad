"""Statistics of values that come one at a time and are not kept: moments, quantiles, correlation."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from random import Random
from typing import Any, Self

SAMPLE = 10_000
"""Values kept for quantiles and histograms: all of them up to this number, then a random sample of this size."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Moments:
    """Count, mean, sample standard deviation, smallest and largest value (Welford's update)."""

    __slots__ = ("_m2", "high", "low", "mean", "n")

    def __init__(self) -> None:
        self.n = 0
        self.mean = 0.0
        self.low = math.inf
        self.high = -math.inf
        self._m2 = 0.0

    def add(self, value: float) -> None:
        self.n += 1
        delta = value - self.mean
        self.mean += delta / self.n
        self._m2 += delta * (value - self.mean)
        if value < self.low:
            self.low = value
        if value > self.high:
            self.high = value

    def state(self) -> list[float]:
        """What `from_state` makes the same moments of; of at least one value."""
        return [self.n, self.mean, self._m2, self.low, self.high]

    @classmethod
    def from_state(cls, state: Sequence[float]) -> Self:
        """Raises TypeError or ValueError for what `state` did not make."""
        moments = cls()
        n, *numbers = state
        moments.n = int(n)
        moments.mean, moments._m2, moments.low, moments.high = map(float, numbers)
        return moments

    def absorb(self, state: Sequence[float]) -> None:
        """Take in the moments of other values, as `state` gave them; none where there were none."""
        n, mean, m2, low, high = state
        if not n:
            return
        delta, total = mean - self.mean, self.n + n
        self.mean += delta * n / total
        self._m2 += m2 + delta * delta * self.n * n / total
        self.n = int(total)
        self.low, self.high = min(self.low, low), max(self.high, high)

    @property
    def std(self) -> float | None:
        return math.sqrt(self._m2 / (self.n - 1)) if self.n > 1 else None

    @property
    def stderr(self) -> float | None:
        """Standard error of the mean, if the values are independent."""
        std = self.std
        return None if std is None else finite(std / math.sqrt(self.n))

    def as_json(self) -> dict[str, Any]:
        if not self.n:
            return {"count": 0, "mean": None, "std": None, "min": None, "max": None}
        return {
            "count": self.n,
            "mean": finite(self.mean),
            "std": finite(self.std),
            "min": self.low,
            "max": self.high,
        }


class Series(Moments):
    """Moments and a sample of the values (reservoir sampling, seeded: the same data gives the same numbers)."""

    __slots__ = ("_random", "sample")

    def __init__(self) -> None:
        super().__init__()
        self.sample = array("d")
        self._random = Random(0).random

    def add(self, value: float) -> None:
        super().add(value)
        if self.n <= SAMPLE:
            self.sample.append(value)
        else:
            place = int(self._random() * self.n)
            if place < SAMPLE:
                self.sample[place] = value

    def whole_state(self) -> dict[str, Any]:
        """The moments and the sample."""
        return {"moments": self.state(), "sample": list(self.sample)}

    def absorb_whole(self, state: dict[str, Any]) -> None:
        """Take in other values as `whole_state` gave them: of samples each value stays as likely as before."""
        before, sample = self.n, state["sample"]
        self.absorb(state["moments"])
        if self.n <= SAMPLE:
            self.sample.extend(sample)
            return
        own, other = list(self.sample), list(sample)
        draw = Random(self.n)
        draw.shuffle(own)
        draw.shuffle(other)
        kept = array("d")
        left, right = before, self.n - before
        while len(kept) < SAMPLE and (own or other):
            mine = bool(own) and (not other or draw.random() * (left + right) < left)
            kept.append((own if mine else other).pop())
            left, right = left - mine, right - (not mine)
        self.sample = kept

    @property
    def exact(self) -> bool:
        """Does the sample hold every value?"""
        return self.n <= SAMPLE

    def as_json(self) -> dict[str, Any]:
        data = super().as_json()
        if self.n:
            data["quantiles"] = {f"{q:g}": finite(value) for q, value in zip(QUANTILES, self.quantiles(), strict=True)}
            data["quantiles_from"] = "all values" if self.exact else f"a random sample of {SAMPLE}"
        return data

    def quantiles(self, wanted: Sequence[float] = QUANTILES) -> list[float]:
        """By linear interpolation between the values of the sample; empty when there are none."""
        values = sorted(self.sample)
        return [quantile(values, q) for q in wanted] if values else []


def finite(value: float | None) -> float | None:
    """None for what is no number any more: values near the limits of floats overflow on the way."""
    return value if value is not None and math.isfinite(value) else None


def quantile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of sorted values: the point at q * (n - 1), interpolated."""
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


class Correlation:
    """Pearson's correlation of two values that come in pairs."""

    __slots__ = ("_cxy", "_mx", "_my", "_sxx", "_syy", "n")

    def __init__(self) -> None:
        self.n = 0
        self._mx = self._my = self._sxx = self._syy = self._cxy = 0.0

    def add(self, x: float, y: float) -> None:
        self.n += 1
        dx, dy = x - self._mx, y - self._my
        self._mx += dx / self.n
        self._my += dy / self.n
        self._sxx += dx * (x - self._mx)
        self._syy += dy * (y - self._my)
        self._cxy += dx * (y - self._my)

    def state(self) -> list[float]:
        """What `absorb` takes."""
        return [self.n, self._mx, self._my, self._sxx, self._syy, self._cxy]

    def absorb(self, state: Sequence[float]) -> None:
        """Take in the pairs that were counted elsewhere."""
        n, mx, my, sxx, syy, cxy = state
        if not n:
            return
        dx, dy, total = mx - self._mx, my - self._my, self.n + n
        share = self.n * n / total
        self._sxx += sxx + dx * dx * share
        self._syy += syy + dy * dy * share
        self._cxy += cxy + dx * dy * share
        self._mx += dx * n / total
        self._my += dy * n / total
        self.n = int(total)

    @property
    def value(self) -> float | None:
        """None for fewer than two pairs, and when one side does not vary."""
        spread = self._sxx * self._syy
        return finite(self._cxy / math.sqrt(spread)) if self.n > 1 and 0 < spread < math.inf else None
