"""The class of a command: its help has sections. Imported for every command line, so it imports next to nothing."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand


class Command(TyperCommand):
    """A command whose help shows its options in sections (`rich_help_panel`), in plain text."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                default = "Arguments" if param.param_type_name == "argument" else "Options"
                panels.setdefault(getattr(param, "rich_help_panel", None) or default, []).append(record)
        general = panels.pop("Options")
        for title, rows in [*panels.items(), ("Options", general)]:
            if rows:
                with formatter.section(title):
                    formatter.write_dl([(self.shown_name(_switch(name, text)), text) for name, text in rows])

    def shown_name(self, name: str) -> str:
        """The first column of an option's help, as the parser would print it."""
        return name


_NEGATED = re.compile(r"^((?:-\w, )?--([\w-]+)) / --no-\2$")


def _switch(name: str, text: str) -> str:
    """A switch that is off until it is given is shown without the name that turns it off again."""
    found = _NEGATED.match(name)
    return name if found is None or "default: " in text else found[1]
