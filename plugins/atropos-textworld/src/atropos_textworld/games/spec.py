"""Names a game: its kind, difficulty and seed. The same spec is the same game in any process."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

DIFFICULTIES = ("easy", "medium", "hard", "expert")

PLAN_BANDS = {"easy": (4, 8), "medium": (9, 16), "hard": (17, 28), "expert": (29, 45)}
"""Shortest and longest own plan, in commands, that a generated game of a difficulty may have."""

SPLITS = ("train", "valid", "test")


class GameError(Exception):
    """A game could not be made from its spec."""


@dataclass(frozen=True, slots=True)
class GameSpec:
    """One game. `split` matters to challenges that keep apart what training and testing may show."""

    kind: str
    difficulty: str
    seed: int
    split: str = "train"

    @property
    def id(self) -> str:
        """As in task ids: "quest-fetch-easy-12345"."""
        return f"{self.kind}-{self.difficulty}-{self.seed}"

    def as_json(self) -> dict[str, Any]:
        """A JSON object from which `from_json` makes the same spec."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> GameSpec:
        """Raises KeyError for a missing key."""
        return cls(
            kind=str(data["kind"]),
            difficulty=str(data["difficulty"]),
            seed=int(data["seed"]),
            split=str(data["split"]),
        )
