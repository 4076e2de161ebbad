"""What is known of each plugin and component, as plain records: `plugins list`, `--json` and the registry use them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from atropos_cli.plugins.checks import check_component
from atropos_cli.plugins.errortext import describe_error, trace_of
from atropos_cli.plugins.files import load_from_file
from atropos_cli.plugins.spec import ComponentSpec, Kind

FailureStage = Literal["import", "hook", "register"]
CheckStatus = Literal["ok", "warn", "fail", "info"]


@dataclass(frozen=True, slots=True)
class PluginFailure:
    """One thing that went wrong with one plugin.

    stage "import": its entry point could not be loaded. "hook": a function is not a valid hook, or
    an observer raised. "register": a registration hook raised or returned something unusable.
    error: "Type: message". traceback: the full text, for --debug. hook: the hook that failed, if it was one.
    """

    entry_point: str
    dist: str
    version: str
    stage: FailureStage
    error: str
    traceback: str = ""
    hint: str | None = None
    hook: str | None = None

    @classmethod
    def of(
        cls,
        plugin: PluginInfo,
        stage: FailureStage,
        error: BaseException,
        *,
        hint: str | None = None,
        hook: str | None = None,
    ) -> PluginFailure:
        """The failure of a plugin with an exception."""
        return cls(
            entry_point=plugin.entry_point,
            dist=plugin.dist,
            version=plugin.version,
            stage=stage,
            error=describe_error(error),
            traceback=trace_of(error),
            hint=hint,
            hook=hook,
        )

    @property
    def message(self) -> str:
        """One line for stderr: which plugin, of which distribution, and what happened."""
        where = f"{self.stage} ({self.hook})" if self.hook else self.stage
        return f"plugin {self.entry_point!r} ({self.dist} {self.version}) failed at {where}: {self.error}"


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """One entry point: where it comes from, what it does, and its first failure.

    module: the entry point's value. hooks: names of the valid hooks found. components: how many it
    registered. disabled: it was left out by ATROPOS_DISABLE_PLUGINS, so nothing else is known.
    """

    entry_point: str
    dist: str
    version: str
    module: str
    hooks: tuple[str, ...] = ()
    components: int = 0
    failure: PluginFailure | None = None
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One line of `atropos doctor` that a plugin contributed."""

    plugin: str
    name: str
    status: CheckStatus
    detail: str


@dataclass(frozen=True, slots=True)
class Registration:
    """A component that can be loaded, and who offers it.

    A component given as `./file.py:Attr` has the absolute path in its name (so that the name works
    from any folder), no distribution, and a digest of the file as its version.
    """

    spec: ComponentSpec
    dist: str | None
    version: str | None
    entry_point: str | None
    file: Path | None = None

    @property
    def kind(self) -> Kind:
        return self.spec.kind

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def summary(self) -> str:
        return self.spec.summary

    @property
    def qualified(self) -> str:
        """The name that is never ambiguous: "dist/name", or the file's name."""
        return f"{self.dist}/{self.name}" if self.dist else self.name

    def load(self) -> Any:
        """Import the component and check that it is one. Raises PluginError."""
        if self.file is not None:
            attr = self.name.rpartition(":")[2]
            component = load_from_file(self.kind, self.file, attr)
        elif self.kind == "template":
            component = Path(self.spec.target)
        else:
            component = self.spec.load(dist=self.dist)
            if self.spec.family:
                component = component(self.name.partition(":")[2])
        origin = f"{self.dist} {self.version}" if self.dist else str(self.file)
        return check_component(self.kind, self.name, component, origin=origin)
