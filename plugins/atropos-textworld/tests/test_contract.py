"""The contract that every environment keeps, in the real engine and with real games."""

from __future__ import annotations

from atropos_authoring import EnvironmentContract


class TestTextWorld(EnvironmentContract):
    environment = "textworld"
    config = {"game_type": "quest-fetch", "difficulty": "easy", "processes": 1, "max_steps": 4}  # noqa: RUF012
    replies = ("> look", "> inventory", "no idea")
    limit = 2

    # Each strange reply would start processes anew; test_hostile.py plays them all in one game.
    test_strange_replies_are_answers_not_errors = None  # type: ignore[assignment]
