"""`atropos plugins check`: import every component for real, and report those that fail."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.sdk import UsageError
from atropos_cli.sdk.commands import ExitCode, JsonOption, Session, end, session_of, shell

if TYPE_CHECKING:
    from atropos_cli.sdk.authoring import PluginInfo
    from atropos_cli.sdk.engine import Registry


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
    from atropos_cli.sdk.authoring import try_components

    if plugin.disabled:
        return []
    failures = [f for f in registry.failures if (f.entry_point, f.dist) == (plugin.entry_point, plugin.dist)]
    results = [_result(plugin, None, None, failure.message, failure.hint) for failure in failures]
    if not failures:
        results.append(_result(plugin, None, None))
    offered = registry.by_plugin().get((plugin.entry_point, plugin.dist), [])
    for item, trial in zip(offered, try_components(offered), strict=True):
        results.append(_result(plugin, item.kind, item.name, trial.error, trial.hint))
        if session.debug and trial.traceback:
            session.out.trace(trial.traceback)
    return results


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
