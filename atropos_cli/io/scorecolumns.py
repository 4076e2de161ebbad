"""What a card says of the scores of the rows it describes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_SCORES = ("score", "score_chosen", "score_rejected", "mean_score")


@dataclass(slots=True)
class ScoreColumns:
    """Mean, least and greatest of the columns that hold scores."""

    columns: dict[str, list[float]] = field(default_factory=dict)  # number, sum, least, greatest

    def see(self, row: dict[str, Any]) -> None:
        for name in _SCORES:
            value = row.get(name)
            if isinstance(value, float | int) and not isinstance(value, bool):
                have = self.columns.setdefault(name, [0, 0.0, value, value])
                have[0] += 1
                have[1] += value
                have[2:] = min(have[2], value), max(have[3], value)

    def absorb(self, columns: dict[str, list[float]]) -> None:
        """Add the columns of another part of the rows."""
        for name, (number, total, least, greatest) in columns.items():
            have = self.columns.setdefault(name, [0, 0.0, least, greatest])
            self.columns[name] = [have[0] + number, have[1] + total, min(have[2], least), max(have[3], greatest)]

    def as_json(self) -> dict[str, dict[str, float]]:
        return {
            name: {"rows": n, "mean": round(total / n, 6), "min": least, "max": greatest}
            for name, (n, total, least, greatest) in self.columns.items()
        }
