"""`atropos env check ENV`: open the environment, make tasks, prove gold answers, start episodes. No model."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk import AtroposError, UsageError
from atropos_cli.sdk.commands import (
    ChosenEnvironment,
    CommandOptions,
    ConfigOption,
    EnvironmentCommands,
    ExitCode,
    JsonOption,
    counted,
    end,
    option,
    shell,
)

if TYPE_CHECKING:
    from atropos_authoring.gold import GoldRewards
    from atropos_cli.sdk import Task
    from atropos_cli.sdk.authoring import Rehearsal
    from atropos_cli.sdk.runs import Plan

SHOWN = 5
"""Problems of a kind that are printed; --json has them all."""


@dataclass
class Report:
    """Counts of the checks, and the problems found: (task id or None, message)."""

    tasks: int = 0
    endless: bool = False
    gold_ok: int = 0
    gold_failed: int = 0
    gold_none: int = 0
    episodes: int = 0
    rehearsal: Rehearsal | None = None
    seconds: float = 0.0
    problems: list[tuple[str | None, str]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.tasks > 0 and not self.problems


class CheckOptions(CommandOptions):
    """Which tasks are looked at."""

    limit: int = option(20, "Tasks to look at.", ge=1)
    split: str | None = option(None, "Split; default: the first one.")
    seed: int = option(0, "Seed given to open().")


def check(
    chosen: ChosenEnvironment, *, options: CheckOptions, as_json: JsonOption = False, config: ConfigOption = None
) -> int:
    """Check an environment."""
    from atropos_authoring.gold import GoldRewards
    from atropos_cli.sdk.authoring import rehearse
    from atropos_cli.sdk.engine import make_config

    cls = chosen.environment
    wanted = options.split or cls.splits[0]
    if wanted not in cls.splits:
        raise UsageError(f"{chosen.registration.name} has no split {wanted!r}", hint=f"splits: {', '.join(cls.splits)}")
    owner = f"environment {chosen.registration.name!r}"
    environment = cls(make_config(cls.Config, chosen.options, owner=owner, env_prefix="ATROPOS_ENV__"))
    gold = GoldRewards(cls.rewards, chosen.session.registry)
    plan = _scripted_plan(chosen, wanted, options.seed)

    async def play(task: Task) -> Rehearsal:
        return await rehearse(plan, environment, task, chosen.session.registry)

    report = asyncio.run(examine(environment, wanted, options.limit, options.seed, gold, play))
    if as_json:
        chosen.session.out.json(_as_json(chosen.registration.name, wanted, report))
    else:
        _print(chosen, wanted, report)
    return ExitCode.OK if report.ok else ExitCode.FAILED


def _scripted_plan(chosen: ChosenEnvironment, split: str, seed: int) -> Plan:
    """A run of one group whose model says the same every time."""
    from atropos_cli.sdk.authoring import REPLY
    from atropos_cli.sdk.engine import Execution, GenSettings, build_plan

    settings = GenSettings(
        backend="scripted",
        backend_options={"replies": [REPLY], "token_ids": True},
        limit=1,
        group_size=2,
        split=split,
        seed=seed,
        execution=Execution(workers=1, retries=0),
    )
    return build_plan(settings, chosen.given_name, chosen.options, chosen.session.registry)


async def examine(
    environment: Any,
    split: str,
    limit: int,
    seed: int,
    rewards: GoldRewards | None = None,
    play: Callable[[Task], Awaitable[Rehearsal]] | None = None,
) -> Report:
    """Open, look at `limit` tasks one after the other, close. `rewards` judge gold answers beside validate().

    play: plays a task with a scripted reply; the first one that could be reset.
    """
    report = Report()
    started = time.monotonic()
    await environment.open(workers=1, seed=seed)
    try:
        seen: dict[str, int] = {}
        for number, task in enumerate(itertools.islice(_tasks(environment, split, report), limit)):
            report.tasks += 1
            first = seen.setdefault(task.id, number)
            if first != number:
                report.problems.append((task.id, f"tasks {first} and {number} have the same id"))
            _round_trip(task, report)
            await _gold(environment, task, report, rewards)
            if await _episode(environment, task, report) and play is not None and report.rehearsal is None:
                report.rehearsal = await play(task)
                report.problems += [(task.id, problem) for problem in report.rehearsal.problems]
        if report.tasks == 0:
            report.problems.append((None, f"split {split!r} has no tasks"))
    finally:
        await environment.close()
        report.seconds = round(time.monotonic() - started, 3)
    return report


def _tasks(environment: Any, split: str, report: Report) -> Iterator[Task]:
    """The tasks, until one cannot be made."""
    from atropos_cli.sdk import Task

    try:
        for task in environment.tasks(split):
            if not isinstance(task, Task):
                report.problems.append((None, f"tasks() gave {type(task).__name__} instead of Task"))
                return
            yield task
    except AtroposError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the environment's own error is the finding)
        report.problems.append((None, f"tasks() failed: {_text(error)}"))


def _round_trip(task: Task, report: Report) -> None:
    try:
        again = type(task).model_validate_json(task.model_dump_json())
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever cannot be written or read is the finding)
        report.problems.append((task.id, f"does not survive JSON: {_text(error)}"))
        return
    if again != task:
        report.problems.append((task.id, "is another task after a round trip through JSON"))


async def _gold(environment: Any, task: Task, report: Report, rewards: GoldRewards | None) -> None:
    step = "validate()"
    try:
        verdict = await _value(environment.validate(task))
        if verdict is not False and rewards is not None:
            step = "scoring the gold answer"
            scored = await rewards.full_marks(task)
            verdict = scored if verdict is None else bool(verdict) and scored is not False
    except (Exception, SystemExit) as error:  # noqa: BLE001 (a check that raises proves nothing)
        report.gold_failed += 1
        report.problems.append((task.id, f"{step} failed: {_text(error)}"))
        return
    if verdict is None:
        report.gold_none += 1
    elif verdict:
        report.gold_ok += 1
    else:
        report.gold_failed += 1
        report.problems.append((task.id, "the gold answer does not earn full marks"))


async def _episode(environment: Any, task: Task, report: Report) -> bool:
    """Begin an episode; did it begin as it should?"""
    from atropos_authoring.beginnings import begin, first_messages
    from atropos_cli.sdk import Environment, GameEnvironment, Message

    if type(environment).roll_group not in (Environment.roll_group, GameEnvironment.roll_group) and not task.prompt:
        return True  # its groups begin elsewhere, such as in the process of another framework
    episode: Any = None
    found = len(report.problems)
    try:
        episode = begin(environment, task)
        first = await first_messages(episode)
        if not first:
            report.problems.append((task.id, "reset() gave no message"))
        elif not all(isinstance(message, Message) for message in first):
            report.problems.append((task.id, "reset() gave something other than messages"))
        report.episodes += 1
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the episode's own error is the finding)
        report.problems.append((task.id, f"reset() failed: {_text(error)}"))
    finally:
        if episode is not None:
            try:
                await _value(episode.close())
            except (Exception, SystemExit) as error:  # noqa: BLE001 (as above)
                report.problems.append((task.id, f"close() failed: {_text(error)}"))
    return len(report.problems) == found


async def _value(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


def _text(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _as_json(name: str, split: str, report: Report) -> dict[str, Any]:
    return {
        "environment": name,
        "split": split,
        "ok": report.ok,
        "tasks": report.tasks,
        "gold": {"ok": report.gold_ok, "failed": report.gold_failed, "unchecked": report.gold_none},
        "episodes": report.episodes,
        "rewards": {
            "scored": report.rehearsal.scored if report.rehearsal else [],
            "left_out": report.rehearsal.left_out if report.rehearsal else {},
        },
        "seconds": report.seconds,
        "problems": [{"task": task, "message": message} for task, message in report.problems],
    }


def _rewards(rehearsal: Rehearsal | None) -> str:
    if rehearsal is None:
        return "not tried"
    left_out = "; ".join(f"{name} not tried: {why}" for name, why in rehearsal.left_out.items())
    return "; ".join(filter(None, (f"{len(rehearsal.scored)} scored a scripted reply", left_out)))


def _print(chosen: ChosenEnvironment, split: str, report: Report) -> None:
    out = chosen.session.out
    out.details(
        {
            "environment": chosen.registration.name,
            "split": split,
            "tasks": str(report.tasks),
            "gold answers": f"{report.gold_ok} ok, {report.gold_failed} failed, {report.gold_none} not checked",
            "episodes": f"{report.episodes} started",
            "rewards": _rewards(report.rehearsal),
            "seconds": f"{report.seconds:.2f}",
        }
    )
    for task, message in report.problems[:SHOWN]:
        out.data(f"  {f'task {task}' if task is not None else split}: {message}")
    if len(report.problems) > SHOWN:
        out.data(f"  and {len(report.problems) - SHOWN} more (--json shows all)")
    name = chosen.given_name
    if report.ok:
        end(out, f"result: ok, {counted(report.tasks, 'task')}", shell("gen", name), data=True)
    else:
        bad = counted(len(report.problems), "problem") if report.problems else "no tasks"
        end(out, f"result: {bad}", f"correct the environment, then {shell('env', 'check', name)}", data=True)


command = EnvironmentCommands(
    "env-check", CheckOptions, check, "Check an environment without a model: tasks, gold answers, episodes."
)
