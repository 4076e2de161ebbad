"""`atropos plugins`: which plugins are installed, and what they offer."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from atropos_cli.cli.lazy import new_app
from atropos_cli.console.commands import JsonOption
from atropos_cli.console.session import Session, session_of
from atropos_cli.errors import ExitCode

if TYPE_CHECKING:
    from atropos_cli.plugins.records import PluginInfo, Registration

app = new_app(help="List and check installed plugins.")


@app.callback()
def _plugins() -> None:
    return None


@app.command("list")
def list_plugins(ctx: typer.Context, as_json: JsonOption = False) -> int:
    """List plugins, their components, and what is broken. Imports no component."""
    session = session_of(ctx)
    session.examine_plugins()
    registry = session.registry
    offered = registry.by_plugin()
    rows = [_plugin_record(plugin, offered.get((plugin.entry_point, plugin.dist), [])) for plugin in registry.plugins]
    commands = _commands()
    if as_json:
        failures = [_failure(session, item) for item in registry.failures]
        session.out.json({"plugins": rows, "commands": commands, "failures": failures})
        return ExitCode.OK
    for plugin, row in zip(registry.plugins, rows, strict=True):
        state = "disabled" if plugin.disabled else "broken" if plugin.failure else "ok"
        session.out.data(f"{plugin.entry_point}  ({plugin.dist} {plugin.version})  {state}")
        for kind, names in row["components"].items():
            session.out.data(f"  {kind}: {', '.join(names)}")
        for failure in registry.failures:
            if (failure.entry_point, failure.dist) == (plugin.entry_point, plugin.dist):
                session.out.data(f"  error: {failure.message}")
                if failure.hint:
                    session.out.data(f"  hint: {failure.hint}")
                if session.debug and failure.traceback:
                    session.out.trace(failure.traceback)
    for command in commands:
        hidden = f"; {command['hidden_by']!r} alone is the built-in command" if command["hidden_by"] else ""
        session.out.data(f"command {command['name']}  (from {command['dist']}{hidden})")
    return ExitCode.OK


def _commands() -> list[dict[str, Any]]:
    """The extra commands, by the names under which they run."""
    from atropos_cli.cli.app import COMMANDS
    from atropos_cli.cli.lazy import owners
    from atropos_cli.plugins.commands import command_entry_points, words_of

    rows = []
    ours = owners(COMMANDS)
    for name, (dist, point) in command_entry_points(built_in=ours).items():
        words = words_of(point.name)
        hidden_by = words if words in ours and words != name else None
        rows.append({"name": name, "dist": dist, "module": point.value, "hidden_by": hidden_by})
    return rows


def _plugin_record(plugin: PluginInfo, offered: list[Registration]) -> dict[str, Any]:
    by_kind: dict[str, list[str]] = {}
    for item in offered:
        by_kind.setdefault(item.kind, []).append(item.name)
    return {
        "name": plugin.entry_point,
        "dist": plugin.dist,
        "version": plugin.version,
        "module": plugin.module,
        "state": "disabled" if plugin.disabled else "broken" if plugin.failure else "ok",
        "components": by_kind,
    }


def _failure(session: Session, failure: Any) -> dict[str, Any]:
    record = asdict(failure)
    if not session.debug:
        record.pop("traceback", None)
    return record
