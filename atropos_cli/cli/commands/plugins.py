"""`atropos plugins`: which plugins are installed, what they offer, and what is wrong with them."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.cli.lazy import new_app
from atropos_cli.console.commands import JsonOption
from atropos_cli.console.ending import end, shell
from atropos_cli.console.session import Session, session_of
from atropos_cli.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from atropos_cli.plugins.records import PluginInfo, Registration
    from atropos_cli.plugins.registry import Registry

app = new_app(help="List and check installed plugins.")


@app.command("list")
def list_plugins(ctx: typer.Context, as_json: JsonOption = False) -> int:
    """List plugins, their components, and what is broken. Imports no component."""
    session = session_of(ctx)
    session.examine_plugins()
    registry = session.registry
    offered = components(registry)
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
    from atropos_cli.plugins.commands import command_entry_points

    rows = []
    for name, (dist, point) in command_entry_points(built_in=owners(COMMANDS)).items():
        hidden_by = point.name if point.name in COMMANDS and point.name != name else None
        rows.append({"name": name, "dist": dist, "module": point.value, "hidden_by": hidden_by})
    return rows


@app.command("check")
def check_plugins(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A plugin or distribution; default: all.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Import every component for real, in a child process. Exit code 4 when something is broken."""
    session = session_of(ctx)
    session.examine_plugins()
    registry = session.registry
    chosen = [plugin for plugin in registry.plugins if name in (None, plugin.entry_point, plugin.dist)]
    if not chosen:
        known = ", ".join(sorted({plugin.entry_point for plugin in registry.plugins}))
        raise UsageError(f"there is no plugin {name!r}", hint=f"plugins: {known}")
    results = [result for plugin in chosen for result in check_plugin(registry, plugin, session)]
    broken = [result for result in results if not result["ok"]]
    if as_json:
        session.out.json({"ok": not broken, "results": results})
    else:
        for result in results:
            what = f"{result['kind']} {result['name']}" if result["kind"] else "manifest"
            session.out.data(f"{'ok    ' if result['ok'] else 'BROKEN'}  {result['plugin']}: {what}")
            if not result["ok"]:
                session.out.data(f"        {result['error']}")
                if result["hint"]:
                    session.out.data(f"        hint: {result['hint']}")
        following = "pip install --force-reinstall " + shlex.quote(broken[0]["dist"] or "") if broken else None
        end(session.out, f"{len(results) - len(broken)} ok, {len(broken)} broken", following or shell("env", "list"))
    return ExitCode.PLUGIN if broken else ExitCode.OK


def check_plugin(registry: Registry, plugin: PluginInfo, session: Session) -> list[dict[str, Any]]:
    """One result for the manifest and one for each component."""
    from atropos_cli.plugins.trial import try_components

    if plugin.disabled:
        return []
    failures = [f for f in registry.failures if (f.entry_point, f.dist) == (plugin.entry_point, plugin.dist)]
    results = [_result(plugin, None, None, failure.message, failure.hint) for failure in failures]
    if not failures:
        results.append(_result(plugin, None, None))
    offered = components(registry).get((plugin.entry_point, plugin.dist), [])
    for item, trial in zip(offered, try_components(offered), strict=True):
        results.append(_result(plugin, item.kind, item.name, trial.error, trial.hint))
        if session.debug and trial.traceback:
            session.out.trace(trial.traceback)
    return results


def components(registry: Registry) -> dict[tuple[str | None, str | None], list[Registration]]:
    """All components by (entry point, distribution)."""
    from atropos_cli.plugins.spec import KINDS

    found: dict[tuple[str | None, str | None], list[Registration]] = {}
    for kind in KINDS:
        for item in registry.registrations(kind):
            found.setdefault((item.entry_point, item.dist), []).append(item)
    return found


def _result(
    plugin: PluginInfo, kind: str | None, name: str | None, error: str | None = None, hint: str | None = None
) -> dict[str, Any]:
    return {
        "plugin": plugin.entry_point,
        "dist": plugin.dist,
        "kind": kind,
        "name": name,
        "ok": error is None,
        "error": error,
        "hint": hint,
    }


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
