"""`atropos prompt-gen` and `atropos env tasks`: problems with their answers, for trainers that sample the replies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.cli import conversion, sharing
from atropos_cli.cli.conversion import option
from atropos_cli.cli.environments import Chosen
from atropos_cli.cli.options import ConfigOption, JsonOption
from atropos_cli.console import dataio
from atropos_cli.console.dataio import one_of
from atropos_cli.console.ending import counted
from atropos_cli.console.session import Session, session_of

if TYPE_CHECKING:
    from atropos_cli.datasets.convert.taskrows import TaskConverter
    from atropos_cli.domain.task import Task
    from atropos_cli.io.card import Card
    from atropos_cli.io.writers_out import OutputSpec

LINEAGE = "`task` names the problem, as rollouts of it do"

FormOption = Annotated[
    str,
    option(
        "--format",
        panel=dataio.WRITING,
        metavar="NAME",
        text="Shape of the rows: verl (data_source, prompt, ability, reward_model, extra_info), prompt-answer (for "
        "TRL's GRPO).",
        show_default=True,
    ),
]
SourceOption = Annotated[
    str | None,
    option(
        "--data-source",
        panel=dataio.WRITING,
        metavar="NAME",
        text="verl: what stands as data_source, which picks its reward, as in openai/gsm8k; default: the environment.",
    ),
]


def prompt_gen(
    ctx: typer.Context,
    inputs: dataio.Inputs,
    output: dataio.OutputOption = None,
    form: FormOption = "verl",
    data_source: SourceOption = None,
    group_rows: conversion.GroupOption = False,
    input_format: conversion.InputFormatOption = "auto",
    tolerant: dataio.TolerantOption = False,
    strict: dataio.StrictOption = False,
    rejects: dataio.RejectsOption = None,
    kind: dataio.KindOption = None,
    overwrite: dataio.OverwriteOption = False,
    shard_size: dataio.ShardOption = None,
    validation: dataio.ValidationOption = 0.0,
    split_seed: dataio.SplitSeedOption = 0,
    recipe: sharing.RecipeOption = None,
    push_to_hub: sharing.PushOption = None,
    private: sharing.PrivateOption = False,
    revision: sharing.RevisionOption = None,
    license_id: sharing.LicenseOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report and write nothing.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Make rows of the problems behind stored rollouts, for trainers that sample the replies: verl, TRL's GRPO.

    Each task comes once, with the mean score of its rollouts: filter first for tasks that are neither too easy nor
    too hard. `atropos env tasks ENV` makes the same rows of an environment, without rollouts.
    """
    from atropos_cli.datasets.convert.taskrows import FORMS, TaskConverter

    session = session_of(ctx)
    shape = one_of("--format", form, FORMS)
    passing = sharing.Sharing.of(recipe, push_to_hub, private=private, revision=revision, license_id=license_id)
    output = passing.output(output)
    dataio.check_one_stdout(output, as_json=as_json and not dry_run)
    reading = dataio.open_inputs(session, inputs, form=input_format, tolerant=tolerant, strict=strict)
    target = None
    if not dry_run:
        target = dataio.output_spec(
            reading.sources,
            output,
            kind,
            overwrite=overwrite,
            shard_size=shard_size,
            validation=validation,
            split_seed=split_seed,
        )
    passing.check(target, shape)
    converter = TaskConverter(shape, source=data_source)
    try:
        out = conversion.write_rows("prompt-gen", reading, target, converter.of_record, group_rows=group_rows)
    finally:
        reading.close()
    dataio.write_rejects(reading, target, rejects)
    from atropos_cli.io.card import Card

    card = Card.of(
        "prompt-gen",
        reading.sources,
        reading.log,
        counts=converter.report.as_json(),
        options={"format": form} | ({"data_source": data_source} if data_source else {}),
        lineage=LINEAGE,
        shape=shape,
    )
    lines = [] if as_json else dataio.read_lines(reading.log)
    _tell(session, converter, out, lines, quiet=as_json, to_stderr=output == "-")
    report = {"read": reading.log.as_json(), "format": form, **converter.report.as_json()}
    return conversion.conclude(session, out, _made(converter, card, report), passing, as_json=as_json)


def tasks(
    chosen: Chosen,
    *,
    output: dataio.OutputOption = None,
    form: FormOption = "verl",
    data_source: SourceOption = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Tasks to write.", show_default=False)] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="Split; default: the first one.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed given to open().")] = 0,
    write_as: dataio.KindOption = None,
    overwrite: dataio.OverwriteOption = False,
    shard_size: dataio.ShardOption = None,
    validation: dataio.ValidationOption = 0.0,
    recipe: sharing.RecipeOption = None,
    push_to_hub: sharing.PushOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> int:
    """Write an environment's tasks."""
    from atropos_cli.datasets.convert.taskrows import FORMS, TaskConverter
    from atropos_cli.io.card import Card

    shape = one_of("--format", form, FORMS)
    passing = sharing.Sharing.of(recipe, push_to_hub)
    output = passing.output(output)
    dataio.check_one_stdout(output, as_json=as_json)
    target = dataio.output_spec((), output, write_as, overwrite=overwrite, shard_size=shard_size, validation=validation)
    passing.check(target, shape)
    wanted = split or chosen.environment.splits[0]
    converter = TaskConverter(shape, split=wanted, source=data_source)
    out = asyncio.run(_write_tasks(chosen, converter, target, _Slice(wanted, limit, seed)))
    card = Card(
        command="env tasks",
        sources=[{"name": f"environment {chosen.registration.name}", "split": wanted}],
        counts=converter.report.as_json(),
        options={"format": form, "seed": seed, **_plain_options(chosen)},
        lineage=LINEAGE,
        shape=shape,
    )
    session = chosen.session
    _tell(session, converter, out, [], quiet=as_json, to_stderr=output == "-")
    report = {"format": form, "split": wanted, **converter.report.as_json()}
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


async def _write_tasks(chosen: Chosen, converter: TaskConverter, target: OutputSpec, part: _Slice) -> Any:
    """The output; None when no task became a row, and then no file is there."""
    from atropos_cli.io.writers_out import open_output
    from atropos_cli.rollout.planner import make_config

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


def _plain_options(chosen: Chosen) -> dict[str, Any]:
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
