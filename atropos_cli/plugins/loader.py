"""Take in plugins one by one: import a manifest, check its hooks, register; or take what was read of it elsewhere.

Failures are noted, not raised.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from atropos_cli.errors import PluginError
from atropos_cli.plugins import entrypoints
from atropos_cli.plugins.checks import to_spec
from atropos_cli.plugins.entrypoints import DISABLE_VARIABLE, Entry
from atropos_cli.plugins.manager import REGISTER_HOOKS, Hook, Manager
from atropos_cli.plugins.manifests import Manifest
from atropos_cli.plugins.records import FailureStage, PluginFailure, PluginInfo, Registration
from atropos_cli.plugins.registry import Registry
from atropos_cli.plugins.spec import ComponentSpec, Deferred, Kind
from atropos_cli.streams import stdout_to_stderr


class Loader:
    """Takes in one plugin after another and collects what the registry is made of.

    registrations: by kind, name and distribution. failures: in the order in which they were found.
    """

    def __init__(self, *, strict: bool) -> None:
        """strict: raise PluginError at the first failure instead of noting it."""
        self._strict = strict
        self._manager = Manager()
        self.registrations: dict[tuple[Kind, str, str], Registration] = {}
        self.failures: list[PluginFailure] = []
        self._hooks: dict[str, list[tuple[PluginInfo, Hook | LaterHook]]] = {}
        self._plugins: list[PluginInfo] = []

    def registry(self, again: Callable[[], Registry] | None = None) -> Registry:
        return Registry(
            self.registrations.values(), plugins=self._plugins, failures=self.failures, hooks=self._hooks, again=again
        )

    @property
    def hooks(self) -> dict[str, list[Hook | LaterHook]]:
        """The valid hooks by name."""
        return {name: [hook for _, hook in found] for name, found in self._hooks.items()}

    def load(self, entry: Entry) -> None:
        """Import one manifest into this process, check its hooks, and call those that register something."""
        info = _info(entry)
        before = len(self.failures)
        hooks: list[Hook] = []
        registered = len(self.registrations)
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
            components=len(self.registrations) - registered,
            failure=self.failures[before] if len(self.failures) > before else None,
        )
        for hook in hooks:
            self._hooks.setdefault(hook.name, []).append((info, hook))
        self._plugins.append(info)

    def add(self, entry: Entry, manifest: Manifest) -> None:
        """Take in what another process read: nothing of the plugin is imported before it is used."""
        for failure in manifest.failures:
            self._note(failure, None)
        info = replace(
            _info(entry),
            hooks=tuple(dict.fromkeys(manifest.hooks)),
            components=len(manifest.components),
            failure=manifest.failures[0] if manifest.failures else None,
        )
        live = LiveManifest(entry)
        for fields in manifest.components:
            spec = ComponentSpec(**fields)
            if spec.target is None:
                spec = replace(spec, target=Deferred(functools.partial(live.component, spec.kind, spec.name)))
            key = (spec.kind, spec.name, entrypoints.normalized(info.dist))
            if key in self.registrations:
                error = ValueError(f"{spec.kind} {spec.name!r} is registered twice by {info.dist}")
                self._fail(info, "register", error, _report_hint(info), f"atropos_register_{spec.kind}s")
                continue
            self.registrations[key] = Registration(
                spec=spec, dist=info.dist, version=info.version, entry_point=info.entry_point
            )
        if manifest.is_usable:
            for name in info.hooks:
                self._hooks.setdefault(name, []).append((info, LaterHook(name, live)))
        self._plugins.append(info)

    def leave_out(self, entry: Entry) -> None:
        """List a disabled plugin without importing it."""
        self._plugins.append(replace(_info(entry), disabled=True))

    def unreadable(self, record: entrypoints.Damaged) -> None:
        """Note a distribution whose entry points cannot be read."""
        info = PluginInfo(entry_point="?", dist=record.dist, version=record.version, module="?")
        hint = f"pip install --force-reinstall {record.dist} (its record is {record.place})"
        self._fail(info, "import", record.error, hint)
        self._plugins.append(replace(info, failure=self.failures[-1]))

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
            if key in self.registrations:
                raise ValueError(f"{kind} {spec.name!r} is registered twice by {info.dist}")
        except (TypeError, ValueError) as error:
            self._fail(info, "register", error, _report_hint(info), hook_name)
            return
        self.registrations[key] = Registration(
            spec=spec, dist=info.dist, version=info.version, entry_point=info.entry_point
        )

    def _fail(
        self, info: PluginInfo, stage: FailureStage, error: BaseException, hint: str | None, hook: str | None = None
    ) -> None:
        self._note(PluginFailure.of(info, stage, error, hint=hint, hook=hook), error)

    def _note(self, failure: PluginFailure, cause: BaseException | None) -> None:
        if self._strict:
            raise _StrictFailure(failure.message, hint=failure.hint) from cause
        self.failures.append(failure)


class LiveManifest:
    """A manifest that is imported into this process when something of it is first used."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._loaded: Loader | None = None

    def component(self, kind: Kind, name: str) -> Any:
        """The object that the manifest registers under this name. Raises PluginError."""
        found = self._load().registrations.get((kind, name, entrypoints.normalized(self._entry.dist)))
        if found is None:
            raise PluginError(
                f"plugin {self._entry.name!r} ({self._entry.dist}) no longer registers {kind} {name!r}",
                hint="atropos plugins list looks again",
            )
        return found.spec.target

    def call(self, hook: str, kwargs: Mapping[str, Any]) -> Any:
        """Call one of its hooks. Raises what the hook raises, or PluginError."""
        for found in self._load().hooks.get(hook, ()):
            return found.call(kwargs)
        return None

    def _load(self) -> Loader:
        if self._loaded is None:
            self._loaded = Loader(strict=False)
            self._loaded.load(self._entry)
        failed = next((failure for failure in self._loaded.failures if failure.stage == "import"), None)
        if failed is not None:
            raise PluginError(failed.message, hint=failed.hint)
        return self._loaded


@dataclass(frozen=True, slots=True)
class LaterHook:
    """A hook of a manifest that is not imported yet."""

    name: str
    manifest: LiveManifest

    def call(self, kwargs: Mapping[str, Any]) -> Any:
        return self.manifest.call(self.name, kwargs)


class _StrictFailure(PluginError):
    """The first failure, when any is fatal."""


def _info(entry: Entry) -> PluginInfo:
    return PluginInfo(entry_point=entry.name, dist=entry.dist, version=entry.version, module=entry.point.value)


def _items(result: Any) -> Iterable[Any]:
    """The items of a hook's result: None means no items; one component counts as a list of one."""
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
