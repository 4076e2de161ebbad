"""`atropos prompt-gen` and `atropos env tasks`: problems with their answers, for trainers that sample the replies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from atropos_cli.cli import conversion, sharing
from atropos_cli.cli.environments import ConfiguredEnvironment
from atropos_cli.config.commands import option
from atropos_cli.console import dataio
from atropos_cli.console.commands import ConfigOption, JsonOption, with_flags
from atropos_cli.console.ending import counted
from atropos_cli.console.session import Session
from atropos_cli.datasets.convert.spec import RowOptions, TaskOptions

if TYPE_CHECKING:
    from atropos_cli.datasets.convert.taskrows import TaskConverter
    from atropos_cli.domain.task import Task
    from atropos_cli.io.card import Card
    from atropos_cli.io.writers_out import OutputSpec

LINEAGE = "`task` names the problem, as rollouts of it do"


class PromptGenOptions(TaskOptions, RowOptions, sharing.SharingOptions, dataio.SplitOptions, dataio.InputOptions):
    """The shape of the rows, and what is read and written."""

    dry_run: bool = option(False, "Report and write nothing.")


@with_flags("prompt-gen", PromptGenOptions)
def prompt_gen(
    inputs: dataio.Inputs, *, options: PromptGenOptions, session: Session, as_json: JsonOption = False
) -> int:
    """Make rows of the problems behind stored rollouts, for trainers that sample the replies: verl, TRL's GRPO.

    Each task comes once, with the mean score of its rollouts: filter first for tasks that are neither too easy nor
    too hard. `atropos env tasks ENV` makes the same rows of an environment, without rollouts.
    """
    from atropos_cli.datasets.convert.taskrows import TaskConverter
    from atropos_cli.io.card import Card

    passing = sharing.Sharing.of(options, session)
    output = passing.output(options.output)
    dataio.check_one_stdout(output, as_json=as_json and not options.dry_run)
    reading = dataio.read_inputs(session, inputs, options, options.input_format)
    target = None if options.dry_run else dataio.target_of(reading.sources, options.replace(output=output))
    passing.check(target, options.format)
    converter = TaskConverter(options.format, source=options.data_source)
    work = conversion.Converting("prompt-gen", reading, target, converter.of_record, ())
    out = conversion.write_all(session, work, options)
    card = Card.of(
        "prompt-gen",
        reading.sources,
        reading.log,
        counts=converter.report.as_json(),
        options={"format": options.format} | ({"data_source": options.data_source} if options.data_source else {}),
        lineage=LINEAGE,
        shape=options.format,
    )
    lines = [] if as_json else dataio.read_lines(reading.log)
    _tell(session, converter, out, lines, quiet=as_json, to_stderr=output == "-")
    report = {"read": reading.log.as_json(), "format": options.format, **converter.report.as_json()}
    return conversion.conclude(session, out, _made(converter, card, report), passing, as_json=as_json)


class TasksOptions(TaskOptions, sharing.RecipeOptions, dataio.OutputOptions):
    """Which tasks, and where their rows go."""

    limit: int | None = option(None, "Tasks to write.", ge=1)
    split: str | None = option(None, "Split; default: the first one.")
    seed: int = option(0, "Seed given to open().")
    shard_size: int | None = option(None, "Rows in a file.", panel=dataio.WRITING, ge=1)
    validation: float = option(0.0, "Share of tasks for a validation split.", panel=dataio.WRITING, ge=0.0, le=0.99)


def tasks(
    chosen: ConfiguredEnvironment, *, options: TasksOptions, as_json: JsonOption = False, config: ConfigOption = None
) -> int:
    """Write an environment's tasks."""
    from atropos_cli.datasets.convert.taskrows import TaskConverter
    from atropos_cli.io.card import Card

    passing = sharing.Sharing.of(options, chosen.session)
    output = passing.output(options.output)
    dataio.check_one_stdout(output, as_json=as_json)
    files = {"shard_size": options.shard_size, "validation": options.validation}
    target = dataio.output_spec((), output, options.write, overwrite=options.overwrite, **files)
    passing.check(target, options.format)
    wanted = options.split or chosen.environment.splits[0]
    converter = TaskConverter(options.format, split=wanted, source=options.data_source)
    out = asyncio.run(_write_tasks(chosen, converter, target, _Slice(wanted, options.limit, options.seed)))
    card = Card(
        command="env tasks",
        sources=[{"name": f"environment {chosen.registration.name}", "split": wanted}],
        counts=converter.report.as_json(),
        options={"format": options.format, "seed": options.seed, **_plain_options(chosen)},
        lineage=LINEAGE,
        shape=options.format,
    )
    session = chosen.session
    _tell(session, converter, out, [], quiet=as_json, to_stderr=output == "-")
    report = {"format": options.format, "split": wanted, **converter.report.as_json()}
    return conversion.conclude(session, out, _made(converter, card, report), passing, as_json=as_json)


def _made(converter: TaskConverter, card: Card, report: dict[str, Any]) -> conversion.Made:
    """Prompts alone train with rewards: GRPO. Of ours, that is; verl's shape is for verl."""
    training = "grpo" if converter.form != "verl" else None
    return conversion.Made(card, report, counted(converter.report.rows, "row"), training)


class _Slice:
    """Which tasks are wanted, and the seed of those that are made."""

    def __init__(self, split: str, limit: int | None, seed: int) -> None:
        self.split = split
        self.limit = limit
        self.seed = seed


async def _write_tasks(
    chosen: ConfiguredEnvironment, converter: TaskConverter, target: OutputSpec, part: _Slice
) -> Any:
    """The output; None when no task became a row, and then no file is there."""
    from atropos_cli.io.writers_out import open_output
    from atropos_cli.rollout.references import make_config

    cls = chosen.environment
    owner = f"environment {chosen.registration.name!r}"
    environment = cls(make_config(cls.Config, chosen.options, owner=owner, env_prefix="ATROPOS_ENV__"))
    out = open_output(target)
    try:
        await environment.open(workers=1, seed=part.seed)
        try:
            for task in _tasks_of(environment, part):
                for row in converter.of_task(task, cls.name):
                    out.write(row, task=row["task"])
        finally:
            await environment.close()
    except BaseException:
        out.abort()
        raise
    return conversion.finished(out)


def _tasks_of(environment: Any, part: _Slice) -> Iterator[Task]:
    from atropos_cli.rollout.tasks import TaskReader

    reader = TaskReader(environment, part.split, part.limit)
    index = 0
    while (task := reader.get(index)) is not None:
        yield task
        index += 1


def _plain_options(chosen: ConfiguredEnvironment) -> dict[str, Any]:
    """The environment's options that were given; secrets are not among them."""
    return {f"env.{name}": value for name, value in chosen.options.items()}


def _tell(
    session: Session, converter: TaskConverter, out: Any, lines: list[str], *, quiet: bool, to_stderr: bool
) -> None:
    say = session.out.note if to_stderr else session.out.data
    report = converter.report
    if not quiet:
        for line in lines:
            say(line)
        say(f"made {report.rows} rows of {report.seen} problems")
        conversion.say_counts(say, "left out", report.left_out)
        for name in out.names if out is not None else ():
            say(f"wrote {name}")
    if not report.rows:
        reason, _ = report.left_out.most_common(1)[0] if report.left_out else ("no problems", 0)
        hint = "roll it out first (atropos gen), then: atropos prompt-gen RUN" if reason == "no_prompt" else None
        session.out.error(f"no rows: {reason}", hint)
