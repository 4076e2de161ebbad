"""Load the manifests of plugins one by one: import, check the hooks, register. Failures are noted, not raised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from atropos_cli.errors import PluginError
from atropos_cli.plugins import entrypoints
from atropos_cli.plugins.checks import to_spec
from atropos_cli.plugins.entrypoints import DISABLE_VARIABLE, Entry
from atropos_cli.plugins.manager import REGISTER_HOOKS, Hook, Manager
from atropos_cli.plugins.records import FailureStage, PluginFailure, PluginInfo, Registration
from atropos_cli.plugins.registry import Registry
from atropos_cli.plugins.spec import ComponentSpec, Kind, stdout_to_stderr


class Loader:
    """Loads one plugin after another and collects what the registry is made of."""

    def __init__(self, *, strict: bool) -> None:
        """strict: raise PluginError at the first failure instead of noting it."""
        self._strict = strict
        self._manager = Manager()
        self._registrations: dict[tuple[Kind, str, str], Registration] = {}
        self._failures: list[PluginFailure] = []
        self._hooks: dict[str, list[tuple[PluginInfo, Hook]]] = {}
        self._plugins: list[PluginInfo] = []

    def registry(self) -> Registry:
        return Registry(self._registrations.values(), plugins=self._plugins, failures=self._failures, hooks=self._hooks)

    def load(self, entry: Entry) -> None:
        """Import one manifest, check its hooks, and call those that register something."""
        info = _info(entry)
        before = len(self._failures)
        hooks: list[Hook] = []
        registered = len(self._registrations)
        try:
            with stdout_to_stderr():
                plugin = entry.point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - also SystemExit and pytest's outcomes: no plugin ends us
            self._fail(info, "import", error, _import_hint(entry, error))
        else:
            hooks = self._add(info, plugin)
            for hook in hooks:
                if hook.name in REGISTER_HOOKS:
                    self._register(info, hook)
        info = replace(
            info,
            hooks=tuple(dict.fromkeys(hook.name for hook in hooks)),
            components=len(self._registrations) - registered,
            failure=self._failures[before] if len(self._failures) > before else None,
        )
        for hook in hooks:
            self._hooks.setdefault(hook.name, []).append((info, hook))
        self._plugins.append(info)

    def leave_out(self, entry: Entry) -> None:
        """List a disabled plugin without importing it."""
        self._plugins.append(replace(_info(entry), disabled=True))

    def unreadable(self, record: entrypoints.Damaged) -> None:
        """Note a distribution whose entry points cannot be read."""
        info = PluginInfo(entry_point="?", dist=record.dist, version=record.version, module="?")
        hint = f"pip install --force-reinstall {record.dist} (its record is {record.place})"
        self._fail(info, "import", record.error, hint)
        self._plugins.append(replace(info, failure=self._failures[-1]))

    def _add(self, info: PluginInfo, plugin: Any) -> list[Hook]:
        try:
            hooks, bad = self._manager.add(plugin, f"{info.dist}/{info.entry_point}")
        except Exception as error:  # noqa: BLE001 - a lazy module may raise anything when it is looked at
            self._fail(info, "hook", error, _report_hint(info))
            return []
        for problem in bad:
            self._fail(info, "hook", problem, problem.hint)
        return hooks

    def _register(self, info: PluginInfo, hook: Hook) -> None:
        kind = REGISTER_HOOKS[hook.name]
        try:
            with stdout_to_stderr():
                for item in _items(hook.call({})):
                    self._accept(info, kind, hook.name, item)
        except _StrictFailure:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what was registered before stays
            self._fail(info, "register", error, _report_hint(info), hook.name)

    def _accept(self, info: PluginInfo, kind: Kind, hook_name: str, item: Any) -> None:
        try:
            spec = to_spec(kind, item)
            key = (kind, spec.name, entrypoints.normalized(info.dist))
            if key in self._registrations:
                raise ValueError(f"{kind} {spec.name!r} is registered twice by {info.dist}")
        except (TypeError, ValueError) as error:
            self._fail(info, "register", error, _report_hint(info), hook_name)
            return
        self._registrations[key] = Registration(
            spec=spec, dist=info.dist, version=info.version, entry_point=info.entry_point
        )

    def _fail(
        self, info: PluginInfo, stage: FailureStage, error: BaseException, hint: str | None, hook: str | None = None
    ) -> None:
        failure = PluginFailure.of(info, stage, error, hint=hint, hook=hook)
        if self._strict:
            raise _StrictFailure(failure.message, hint=failure.hint) from error
        self._failures.append(failure)


class _StrictFailure(PluginError):
    """The first failure, when any is fatal."""


def _info(entry: Entry) -> PluginInfo:
    return PluginInfo(entry_point=entry.name, dist=entry.dist, version=entry.version, module=entry.point.value)


def _items(result: Any) -> Iterable[Any]:
    """The items of a hook's result: None is no item; one component stands for itself."""
    if result is None:
        return ()
    single = (str, bytes, Mapping, ComponentSpec, type)  # what is unusable among these is refused by name
    if isinstance(result, single) or not isinstance(result, Iterable):
        return (result,)
    return result


def _import_hint(entry: Entry, error: BaseException) -> str:
    without = f"or run without it: {DISABLE_VARIABLE}={entry.name}"
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and (entry.module == missing or entry.module.startswith(missing + ".")):
        return f"its package is gone, but its record {entry.place} is left: pip uninstall {entry.dist}"
    if missing:
        return f"pip install {missing.partition('.')[0]}, {without}"
    if isinstance(error, ImportError) and (error.name or "").startswith("atropos_cli"):
        return f"it needs another version of atropos-cli: pip install --upgrade atropos-cli {entry.dist}, {without}"
    return f"report it to the authors of {entry.dist}, {without}"


def _report_hint(info: PluginInfo) -> str:
    return f"report it to the authors of {info.dist}; what it registered rightly still works"
