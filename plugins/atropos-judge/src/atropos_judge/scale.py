"""The scale of a judge's scores: numbers from LOW to HIGH, or pass and fail."""

from __future__ import annotations

import re
from dataclasses import dataclass

PASS_FAIL = "pass-fail"  # noqa: S105 - not a password
_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:-|to|\.\.)\s*(-?\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Scale:
    """low and high are 0 and 1 for pass and fail."""

    low: float
    high: float
    words: bool = False

    @classmethod
    def of(cls, text: str) -> Scale:
        """The scale that "0-10", "1 to 5" or "pass-fail" names. Raises ValueError."""
        plain = text.strip().lower()
        if re.fullmatch(r"pass\s*[-/]\s*fail", plain):
            return cls(0.0, 1.0, words=True)
        match = _RANGE.fullmatch(plain)
        if match is None or not float(match[1]) < float(match[2]):
            raise ValueError(f"{text!r} is no scale: give LOW-HIGH, such as 0-10 or 1-5, or {PASS_FAIL}")
        return cls(float(match[1]), float(match[2]))

    def __str__(self) -> str:
        return PASS_FAIL if self.words else f"{self.low:g}-{self.high:g}"

    def __contains__(self, score: float) -> bool:
        return self.low <= score <= self.high

    def value(self, score: float) -> float:
        """The score as a reward: 0 at the low end, 1 at the high end."""
        return (score - self.low) / (self.high - self.low)

    @property
    def in_words(self) -> str:
        """For the prompt."""
        return "pass or fail" if self.words else f"from {self.low:g} (worst) to {self.high:g} (best)"

    @property
    def answer_format(self) -> str:
        """What the judge is told about the form of its reply."""
        if self.words:
            return 'End your reply with one line that holds nothing but "Verdict: pass" or "Verdict: fail".'
        return (
            f'End your reply with one line that holds nothing but "Score: N", '
            f"N being a number from {self.low:g} to {self.high:g}."
        )
