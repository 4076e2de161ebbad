"""The hooks a plugin may implement. pluggy project name and entry-point group: `atropos`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from pathlib import Path

    from atropos_cli.domain.group import ScoredGroup
    from atropos_cli.domain.plan import Plan
    from atropos_cli.domain.run import RunSummary
    from atropos_cli.plugins.spec import ComponentSpec
    from atropos_cli.ports.analyzer import Analyzer
    from atropos_cli.ports.launcher import Launcher
    from atropos_cli.ports.modelfile import ModelFile
    from atropos_cli.ports.plans import PlanRunner
    from atropos_cli.ports.serving import Serve, Served
    from atropos_cli.ports.sharing import Repository, Share

PROJECT = "atropos"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def atropos_register_environments() -> Iterable[ComponentSpec | type]:
    """Environments this plugin offers: ComponentSpec objects, or Environment classes."""
    raise AssertionError("a hook specification is never called")


@hookspec
def atropos_register_rewards() -> Iterable[ComponentSpec | Any]:
    """Rewards this plugin offers: ComponentSpec objects, or Reward objects."""
    raise AssertionError("a hook specification is never called")


@hookspec
def atropos_register_backends() -> Iterable[ComponentSpec | type]:
    """Inference backends this plugin offers."""
    raise AssertionError("a hook specification is never called")


@hookspec
def atropos_register_trainers() -> Iterable[ComponentSpec | type]:
    """Trainers this plugin offers."""
    raise AssertionError("a hook specification is never called")


@hookspec
def atropos_register_launchers() -> Iterable[ComponentSpec | type]:
    """Launchers this plugin offers."""
    raise AssertionError("a hook specification is never called")


@hookspec
def atropos_register_writers() -> Iterable[ComponentSpec | type]:
    """Writers this plugin offers."""
    raise AssertionError("a hook specification is never called")


@hookspec
def atropos_register_trackers() -> Iterable[ComponentSpec | type]:
    """Trackers this plugin offers, for --track NAME."""
    raise AssertionError("a hook specification is never called")


@hookspec
def atropos_register_toolsets() -> Iterable[ComponentSpec | type]:
    """Sources of tools this plugin offers, for --tools NAME:TARGET."""
    raise AssertionError("a hook specification is never called")


@hookspec
def atropos_register_templates() -> Iterable[ComponentSpec]:
    """Project templates for `atropos new`; the target is a folder path."""
    raise AssertionError("a hook specification is never called")


@hookspec
def atropos_run_started(plan: Plan, folder: str | None) -> None:
    """A run is about to send its first request. folder is None when groups go to stdout."""


@hookspec
def atropos_group_scored(plan: Plan, group: ScoredGroup) -> None:
    """A group was written."""


@hookspec
def atropos_run_finished(plan: Plan, summary: RunSummary) -> None:
    """The run ended: finished, interrupted or failed."""


@hookspec
def atropos_analyze(env: str) -> Analyzer | None:
    """An Analyzer for rollouts of the environment of this name, for `atropos analyze`; None for any other name.

    env is the name stored in the groups. Asked for once per environment and command.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def atropos_open_model_file(path: Path) -> ModelFile | None:
    """The model in a file, opened; None for a format that the plugin does not read. The first plugin wins."""
    raise AssertionError("a hook specification is never called")


@hookspec
def atropos_plan_servers(serve: Serve, nodes: int, gpus_per_node: int) -> Served | None:
    """Servers beside the command of a job, for --serve; None for an engine that the plugin does not know.

    nodes and gpus_per_node: of the job. The first plugin wins.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def atropos_submit_file(
    path: Path, launcher: Launcher, folder: Path | None, session: Any, dry_run: bool, as_json: bool
) -> int | None:
    """Submit the jobs that a file describes, for `atropos job submit FILE`; None for a file of another kind.

    session: of the command. The answer is the exit code. The first plugin wins.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def atropos_share(repository: Repository) -> Share | None:
    """A place to which rows are pushed, for --push-to-hub; None for one that the plugin does not know.

    The first plugin wins. Raises UsageError for a name that cannot be one.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def atropos_open_plan(command: str) -> PlanRunner | None:
    """The runner of stored plans of a command of this plugin, for `atropos run` and jobs; None for any other.

    command: the plan's own field of that name. The first plugin wins.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def atropos_doctor() -> Iterable[tuple[str, str, str]]:
    """Checks for `atropos doctor`: (name, "ok" | "warn" | "fail" | "info", detail)."""
    raise AssertionError("a hook specification is never called")
