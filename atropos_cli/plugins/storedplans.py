"""The runner of the stored plans of a plugin's command."""

from __future__ import annotations

from atropos_cli.errors import AtroposError, ComponentNotFound
from atropos_cli.plugins.firstanswer import first_answer
from atropos_cli.plugins.firstparty import PLANS, install_command_of
from atropos_cli.plugins.registry import Registry
from atropos_cli.ports.plans import PlanRunner


def plan_runner(registry: Registry, command: str) -> PlanRunner:
    """The runner, from the first plugin that knows the command.

    Raises ComponentNotFound when none does, PluginError for the fault of a plugin.
    """
    asked, task = {"command": command}, f"execute a plan of {command!r}"
    # mypy takes no abstract class for type[T]; here it is only the type of the answer
    runner = first_answer(registry, "atropos_open_plan", asked, PlanRunner, task, AtroposError)  # type: ignore[type-abstract]
    if runner is not None:
        return runner
    if (dist := PLANS.get(command)) is not None:
        raise ComponentNotFound(
            f"plans of {command!r} need {dist}, which is not installed", hint=install_command_of(dist)
        )
    raise ComponentNotFound(
        f"no installed plugin executes plans of {command!r}", hint="atropos plugins list; install the plugin of the run"
    )
