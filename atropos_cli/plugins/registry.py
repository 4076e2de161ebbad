"""Everything that is registered, by kind and name. Whatever is wrong with a plugin is data here, not an exception."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from atropos_cli.errors import ComponentClash, ComponentNotFound
from atropos_cli.plugins import firstparty
from atropos_cli.plugins.entrypoints import normalized
from atropos_cli.plugins.errortext import describe_error
from atropos_cli.plugins.files import file_component, names_a_file
from atropos_cli.plugins.manager import OBSERVER_HOOKS
from atropos_cli.plugins.records import (
    DoctorCheck,
    FailureStage,
    PluginFailure,
    PluginInfo,
    Registration,
)
from atropos_cli.plugins.spec import KINDS, Kind
from atropos_cli.ports.analyzer import Analyzer
from atropos_cli.streams import stdout_to_stderr

__all__ = ["DoctorCheck", "FailureStage", "PluginFailure", "PluginInfo", "Registration", "Registry"]

logger = logging.getLogger("atropos.plugins")

_LIST_COMMANDS: dict[Kind, str] = {
    "environment": "atropos env list",
    "reward": "atropos reward list",
    "trainer": "atropos trainer list",
}
_STATUSES = ("ok", "warn", "fail", "info")
_SHOWN = 12  # names in one hint


class CallableHook(Protocol):
    """A hook of a plugin, whether the plugin is imported yet or not."""

    def call(self, kwargs: Mapping[str, Any]) -> Any: ...


class Registry:
    """What the installed plugins offer. Made by `discovery.load_registry`; nothing in it is imported until loaded."""

    def __init__(
        self,
        registrations: Iterable[Registration] = (),
        *,
        plugins: Sequence[PluginInfo] = (),
        failures: Sequence[PluginFailure] = (),
        hooks: Mapping[str, Sequence[tuple[PluginInfo, CallableHook]]] | None = None,
        again: Callable[[], Registry] | None = None,
    ) -> None:
        """again: searches again, where this registry was made from stored manifests."""
        self._by_kind: dict[Kind, list[Registration]] = {kind: [] for kind in KINDS}
        for registration in registrations:
            self._by_kind[registration.kind].append(registration)
        for items in self._by_kind.values():
            items.sort(key=lambda item: (item.name, normalized(item.dist or "")))
        self._plugins = tuple(plugins)
        self._failures = list(failures)
        self._hooks = dict(hooks or {})
        self._reported: set[tuple[str, str, str]] = set()
        self._again = again

    @property
    def plugins(self) -> tuple[PluginInfo, ...]:
        """All plugins found, the built-in one first; broken and disabled ones too."""
        return self._plugins

    @property
    def failures(self) -> tuple[PluginFailure, ...]:
        """Everything that went wrong so far, in a fixed order; observers that raised come last."""
        return tuple(self._failures)

    def registrations(self, kind: Kind) -> list[Registration]:
        """All components of a kind, sorted by name; a name may occur once per distribution."""
        return list(self._by_kind[kind])

    def by_plugin(self) -> dict[tuple[str | None, str | None], list[Registration]]:
        """All components by (entry point, distribution)."""
        found: dict[tuple[str | None, str | None], list[Registration]] = {}
        for kind in KINDS:
            for item in self._by_kind[kind]:
                found.setdefault((item.entry_point, item.dist), []).append(item)
        return found

    def find(self, kind: Kind, name: str, *, dist: str | None = None) -> Registration:
        """The component called `name`: "name", "dist/name", "dist:name" or "./file.py:Attr".

        dist: the distribution, where it is known apart from the name (a plan's ComponentRef).
        Raises ComponentNotFound with close matches, or ComponentClash when the short name is not unique.
        """
        if dist is not None and "/" not in name and ":" not in name:
            name = f"{dist}/{name}"
        try:
            return self._find(kind, name)
        except ComponentNotFound:
            if self._again is None or names_a_file(name):
                raise
        fresh, self._again = self._again(), None
        self._by_kind, self._plugins = fresh._by_kind, fresh._plugins
        self._failures, self._hooks = fresh._failures, fresh._hooks
        return self._find(kind, name)

    def _find(self, kind: Kind, name: str) -> Registration:
        if (member := self._of_family(kind, name)) is not None:
            return member
        if kind != "template" and names_a_file(name):
            spec, file, version = file_component(kind, name)
            return Registration(spec=spec, dist=None, version=version, entry_point=None, file=file)
        items = self._by_kind[kind]
        separator = next((char for char in name if char in "/:"), None)
        if separator is None:
            matches = [item for item in items if item.name == name]
        else:
            dist, _, short = name.partition(separator)
            matches = [item for item in items if item.name == short and _is_dist(item, dist)]
        if not matches:
            raise self._not_found(kind, name)
        return _only(matches, f"{kind} {name!r}")

    def families(self) -> frozenset[str]:
        """The prefixes of environments that are named PREFIX:REST."""
        return frozenset(item.name for item in self._by_kind["environment"] if item.spec.family)

    def _of_family(self, kind: Kind, name: str) -> Registration | None:
        """PREFIX:REST of a component that offers the prefix. A file in REST gets its absolute path, as any other."""
        prefix, mark, rest = name.partition(":")
        families = [item for item in self._by_kind[kind] if item.spec.family and item.name == prefix]
        if not mark or not families:
            return None
        family = _only(families, f"{kind} {prefix!r}")
        version = family.version
        if names_a_file(rest):
            spec, _, version = file_component(kind, rest)
            rest = spec.name
        return replace(family, spec=replace(family.spec, name=f"{prefix}:{rest}"), version=version)

    def backend_for_model(self, model: str) -> Registration | None:
        """The backend that claims this model name by an alias, or None. Raises ComponentClash when two do."""
        wanted = model.casefold()
        matches = [
            item for item in self._by_kind["backend"] if wanted in (alias.casefold() for alias in item.spec.aliases)
        ]
        return _only(matches, f"a backend for model {model!r}") if matches else None

    def call_observers(self, hook_name: str, **kwargs: Any) -> tuple[PluginFailure, ...]:
        """Call one observer hook of every plugin, each in its own `try`.

        Returns the failures that are new: a plugin that fails at every group is reported (and
        logged) once for the hook, yet called each time.
        """
        if hook_name not in OBSERVER_HOOKS:
            raise ValueError(f"{hook_name!r} is not an observer hook")
        new: list[PluginFailure] = []
        for plugin, hook in self._hooks.get(hook_name, ()):
            try:
                with stdout_to_stderr():
                    hook.call(kwargs)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - an observer must not end a run
                key = (plugin.dist, plugin.entry_point, hook_name)
                if key in self._reported:
                    continue
                self._reported.add(key)
                failure = PluginFailure.of(
                    plugin, "hook", error, hook=hook_name, hint=f"report it to the authors of {plugin.dist}"
                )
                new.append(failure)
                logger.warning(failure.message)
        self._failures.extend(new)
        return tuple(new)

    def hooks(self, name: str) -> Sequence[tuple[PluginInfo, Any]]:
        """(plugin, hook) of every plugin that implements the hook of this name."""
        return self._hooks.get(name, ())

    def analyzers(self, env: str) -> tuple[list[tuple[str, Analyzer]], list[str]]:
        """(plugin, analyzer) of every plugin's atropos_analyze that has one for `env`, and what went wrong."""
        found: list[tuple[str, Analyzer]] = []
        problems: list[str] = []
        for plugin, hook in self._hooks.get("atropos_analyze", ()):
            try:
                with stdout_to_stderr():
                    analyzer = hook.call({"env": env})
                if analyzer is not None and not isinstance(analyzer, Analyzer):
                    raise TypeError(f"atropos_analyze gave {type(analyzer).__name__}, not an Analyzer")
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the rest of the analysis stays
                problems.append(f"plugin {plugin.entry_point!r} ({plugin.dist}): {describe_error(error)}")
                continue
            if analyzer is not None:
                found.append((plugin.entry_point, analyzer))
        return found, problems

    def doctor(self) -> list[DoctorCheck]:
        """The checks of every plugin's atropos_doctor. One that raises becomes a check with status "fail"."""
        checks: list[DoctorCheck] = []
        for plugin, hook in self._hooks.get("atropos_doctor", ()):
            try:
                with stdout_to_stderr():
                    checks.extend(_check(plugin, item) for item in hook.call({}) or ())
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the doctor examines all plugins
                checks.append(DoctorCheck(plugin.entry_point, "atropos_doctor", "fail", describe_error(error)))
        return checks

    def _not_found(self, kind: Kind, name: str) -> ComponentNotFound:
        return ComponentNotFound(f"there is no {kind} {name!r}", hint="; ".join(self._suggestions(kind, name)))

    def _suggestions(self, kind: Kind, name: str) -> list[str]:
        items = self._by_kind[kind]
        full = "/" in name or ":" in name
        close = _close(name.replace(":", "/"), [item.qualified if full else item.name for item in items])
        short = re.split("[/:]", name)[-1]
        if full and not close and any(item.name == short for item in items):  # OWNER/NAME, as on a hub
            close = [short]
        if (known := firstparty.ELSEWHERE.get((kind, name.lower().replace("_", "-")))) is not None:
            return [known]
        hints: list[str] = []
        to_install = firstparty.missing(kind, name, [plugin.dist for plugin in self._plugins])
        if to_install is not None:
            hints.append(to_install)
        if close and (to_install is None or "did you mean" not in to_install):
            hints.append(f"did you mean {' or '.join(close)}?")
        elif to_install is None:
            elsewhere = [other for other in KINDS if any(item.name == name for item in self._by_kind[other])]
            if elsewhere:
                hints.append(f"{name!r} is a {elsewhere[0]}")
            hints.append(_installed(kind, items))
        broken = [plugin for plugin in self._plugins if plugin.failure is not None]
        # A plugin whose own name resembles the wanted one is the likeliest to have offered it.
        likely = _close(name, [plugin.entry_point for plugin in broken] + [plugin.dist for plugin in broken])
        broken.sort(key=lambda plugin: plugin.entry_point not in likely and plugin.dist not in likely)
        for plugin in broken[:3]:
            assert plugin.failure is not None
            hints.append(
                f"plugin {plugin.entry_point!r} ({plugin.dist}) is broken and may have offered it "
                f"({plugin.failure.error}): see atropos plugins list"
            )
        disabled = [plugin.entry_point for plugin in self._plugins if plugin.disabled]
        if disabled:
            hints.append(f"disabled by ATROPOS_DISABLE_PLUGINS: {', '.join(disabled)}")
        return hints


def _only(matches: Sequence[Registration], what: str) -> Registration:
    if len(matches) == 1:
        return matches[0]
    owners = " and ".join(f"{item.dist} {item.version}" for item in matches)
    raise ComponentClash(
        f"{what} is offered by {owners}", hint="use " + " or ".join(item.qualified for item in matches)
    )


def _is_dist(item: Registration, dist: str) -> bool:
    return item.dist is not None and normalized(item.dist) == normalized(dist)


def _close(name: str, names: Collection[str]) -> list[str]:
    by_fold = {candidate.casefold(): candidate for candidate in reversed(list(names))}
    return [by_fold[fold] for fold in difflib.get_close_matches(name.casefold(), list(by_fold), n=3, cutoff=0.6)]


def _installed(kind: Kind, items: Sequence[Registration]) -> str:
    if not items:
        return f"no {kind} is installed"
    names = list(dict.fromkeys(item.name for item in items))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{kind}s: {', '.join(names[:_SHOWN])}{more} ({_LIST_COMMANDS.get(kind, 'atropos plugins list')})"


def _check(plugin: PluginInfo, item: Any) -> DoctorCheck:
    try:
        name, status, detail = item
    except (TypeError, ValueError):
        raise TypeError(f"atropos_doctor gave {item!r}, not (name, status, detail)") from None
    if status not in _STATUSES:
        raise ValueError(f"atropos_doctor gave status {status!r}, not one of {', '.join(_STATUSES)}")
    return DoctorCheck(plugin.entry_point, str(name), status, str(detail))
