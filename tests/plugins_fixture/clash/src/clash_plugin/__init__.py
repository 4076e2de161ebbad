"""Manifest of a plugin that offers an environment called "letters", as another plugin does."""

from __future__ import annotations

from atropos_cli.sdk import Environment, Task, hookimpl, user


class OtherLetters(Environment):
    """Name a letter."""

    name = "letters"

    def tasks(self, split: str) -> list[Task]:
        return [Task(id="a", prompt=(user("Name a letter."),), answer="a")]


@hookimpl
def atropos_register_environments() -> type[Environment]:
    return OtherLetters
