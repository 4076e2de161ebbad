"""`atropos sft-gen`: rows for supervised fine-tuning out of stored rollouts."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.cli import conversion, sharing
from atropos_cli.cli.conversion import CHOICE, LENGTH, TEXTS, option
from atropos_cli.cli.options import JsonOption
from atropos_cli.console import dataio
from atropos_cli.console.dataio import one_of
from atropos_cli.console.ending import counted, end
from atropos_cli.console.session import Session, session_of
from atropos_cli.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from atropos_cli.console.dataio import Reading
    from atropos_cli.datasets.convert.rendering import Rendering
    from atropos_cli.datasets.convert.sft import SftConverter, SftOptions
    from atropos_cli.io.card import Card

LINEAGE = "`rollout` names the rollout, `task` its task, `score` the score it was chosen by"


def sft_gen(
    ctx: typer.Context,
    inputs: dataio.Inputs,
    output: dataio.OutputOption = None,
    form: Annotated[
        str | None,
        option(
            "--format",
            panel=dataio.WRITING,
            metavar="NAME",
            text="Shape of the rows: messages (the default), prompt-completion, sharegpt (the default of --recipe "
            "llama-factory), text, tokens.",
        ),
    ] = None,
    select: Annotated[
        str,
        option(
            "--select",
            panel=CHOICE,
            metavar="best|top|all",
            text="Of each group: the best rollout, the --top best, or all that pass.",
            show_default=True,
        ),
    ] = "best",
    top: Annotated[
        int | None, option("--top", panel=CHOICE, text="The n best of a group (--select top).", min=1)
    ] = None,
    above: Annotated[float | None, option("--above", panel=CHOICE, text="Take score > this.")] = None,
    min_score: Annotated[float | None, option("--min-score", panel=CHOICE, text="Take score >= this.")] = None,
    min_gap: Annotated[
        float, option("--min-gap", panel=CHOICE, text="Take score > the group's worst + this.", min=0.0)
    ] = 0.0,
    max_per_task: Annotated[
        int | None, option("--max-per-task", panel=CHOICE, text="Rollouts of a task, over all groups.", min=1)
    ] = None,
    keep_duplicates: Annotated[
        bool, option("--keep-duplicates", panel=CHOICE, text="Take identical answers of a group more than once.")
    ] = False,
    keep_truncated: conversion.KeepTruncatedOption = False,
    group_rows: conversion.GroupOption = False,
    train_on: Annotated[
        str,
        option("--train-on", panel=TEXTS, metavar="all|last", text="Which replies are trained on.", show_default=True),
    ] = "all",
    split_turns: Annotated[
        bool, option("--split-turns", panel=TEXTS, text="One row for each reply, with what came before it.")
    ] = False,
    thinking: conversion.ThinkingOption = "auto",
    system: conversion.SystemOption = "keep",
    tokenizer: conversion.TokenizerOption = None,
    chat_template: conversion.ChatTemplateOption = None,
    template_arg: conversion.TemplateArgOption = None,
    as_text: Annotated[
        bool, option("--text", panel=TEXTS, text="prompt-completion: rendered text instead of messages.")
    ] = False,
    retokenize: Annotated[
        bool, option("--retokenize", panel=TEXTS, text="tokens: tokenise again where token ids are stored.")
    ] = False,
    max_tokens: Annotated[
        int | None, option("--max-tokens", panel=LENGTH, text="Longest row, in tokens of the template.", min=8)
    ] = None,
    over_length: Annotated[
        str,
        option(
            "--over-length",
            panel=LENGTH,
            metavar="POLICY",
            text="For longer ones: drop, truncate-prompt-middle, split (between exchanges).",
            show_default=True,
        ),
    ] = "drop",
    field: conversion.FieldOption = None,
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
    check: Annotated[
        bool,
        typer.Option("--check", help="The inputs are finished token or text rows: say what is wrong with them."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report and write nothing.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Make rows for supervised fine-tuning, as TRL, LLaMA-Factory, Axolotl and others read them.

    Failed rollouts, empty answers and rollouts that were cut off are left out and counted. Token ids that were
    stored with a rollout are used as they are; with --tokenizer, the masks of rendered rows are proven for the
    template. Exit code 1 when no row comes out; no file is written then.
    """
    from atropos_cli.datasets.convert.samples import SampleOptions
    from atropos_cli.datasets.convert.sft import FORMS, SftOptions

    session = session_of(ctx)
    if check:
        reading = dataio.open_inputs(session, inputs, form="auto", tolerant=tolerant, strict=strict)
        return _check_rows(session, reading, tokenizer, as_json=as_json)
    passing = sharing.Sharing.of(recipe, push_to_hub, private=private, revision=revision, license_id=license_id)
    output = passing.output(output)
    form = passing.form(form, "messages")
    options = SftOptions(
        form=one_of("--format", form, FORMS),
        select=one_of("--select", select, ("best", "top", "all")),
        top=top or 1,
        above=above,
        min_score=min_score,
        min_gap=min_gap,
        keep_duplicates=keep_duplicates,
        max_per_task=max_per_task,
        sample=SampleOptions(
            train_on=one_of("--train-on", train_on, ("all", "last")),
            fold_system=one_of("--system", system, ("keep", "fold")) == "fold",
            keep_truncated=keep_truncated,
            fields=tuple(field or ()),
        ),
        split_turns=split_turns,
        as_text=as_text,
        retokenize=retokenize,
        max_tokens=max_tokens,
        over_length=one_of("--over-length", over_length, ("drop", "truncate-prompt-middle", "split")),
    )
    one_of("--thinking", thinking, ("auto", "tags", "field", "drop", "keep"))
    _check(options, top, tokenizer, chat_template)
    if not options.rendered and max_tokens is None and (tokenizer or chat_template or template_arg):
        unneeded = f"--format {form} is not rendered, so it takes no tokenizer and no template"
        hint = "--max-tokens counts with them; --format tokens or text writes what they make"
        if chat_template or template_arg:
            raise UsageError(unneeded, hint=hint)
        session.out.note(f"--tokenizer is not used: --format {form} is not rendered; {hint}")
    dataio.check_one_stdout(output, as_json=as_json and not dry_run)
    if kind is None and not dry_run:
        output = conversion.default_output(inputs, output, "sft")
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
    passing.check(target, _shape(options))
    rendering = None
    if options.rendered or max_tokens is not None:
        rendering = conversion.make_rendering(tokenizer, chat_template, template_arg)
    converter = _converter(options, thinking, rendering, reading, table=conversion.is_table(target))
    try:
        out = conversion.write_rows(
            "sft-gen", reading, target, converter.rows, group_rows=group_rows, fields=tuple(field or ())
        )
    finally:
        reading.close()
    dataio.write_rejects(reading, target, rejects)
    report = _report(converter, reading)
    if not as_json:
        _print(session, reading, converter, out, to_stderr=output == "-")
    _warn(session, converter)
    rows = f"{counted(converter.report.rows, 'row')} from {counted(converter.report.rollouts, 'rollout')}"
    made = conversion.Made(_card(converter, reading, report, template_arg), report, rows, "sft")
    return conversion.conclude(session, out, made, passing, as_json=as_json)


def _shape(options: SftOptions) -> str:
    return "prompt-completion-text" if options.as_text else options.form


def _check_rows(session: Session, reading: Reading, tokenizer: str | None, *, as_json: bool) -> int:
    """Look at finished rows; exit code 1 when one of them is faulty."""
    from atropos_cli.datasets.convert.check import RowCheck
    from atropos_cli.datasets.convert.tokenizers import load_tokenizer
    from atropos_cli.io.readers import read_objects

    if tokenizer is None:
        raise UsageError("--check needs --tokenizer", hint="the one that made the tokens, or that will make them")
    looked = RowCheck(load_tokenizer(tokenizer))
    for source in reading.sources:
        for item in read_objects(source, reading.options, reading.log):
            for found in looked.see(item.value):
                reading.log.tell(found, f"{source.name}:{item.number}: {found}")
    reading.log.close()
    report = looked.report
    if as_json:
        session.out.json(report.as_json())
    else:
        session.out.data(f"longest row {report.longest}; {dataio.share(report.ended, report.rows)} end in an end token")
        conversion.say_counts(session.out.data, "found", report.found)
        rows = f"{counted(report.rows, 'row')}, {report.tokens} tokens, {report.trained} trained on"
        faulty = report.faults or not report.rows
        following = (
            "correct what was found, and make the rows again"
            if faulty
            else conversion.train_command("sft", reading.sources[0].name)
        )
        end(session.out, rows, following, data=True)
    return ExitCode.FAILED if report.faults or not report.rows else ExitCode.OK


def _check(options: SftOptions, top: int | None, tokenizer: str | None, chat_template: str | None) -> None:
    if top is not None and options.select != "top":
        raise UsageError("--top needs --select top")
    if options.as_text and options.form != "prompt-completion":
        raise UsageError(f"--text is for prompt-completion, not for {options.form}")
    if options.retokenize and (options.form != "tokens" or tokenizer is None):
        raise UsageError("--retokenize needs --format tokens and --tokenizer")
    if (options.form == "text" or options.as_text) and tokenizer is None and chat_template is None:
        raise UsageError(
            f"--format {options.form} needs a template", hint="add --tokenizer NAME or --chat-template FILE"
        )
    if options.max_tokens is not None and tokenizer is None and options.form != "tokens":
        raise UsageError("--max-tokens needs --tokenizer to count with")


def _converter(
    options: SftOptions, thinking: str, rendering: Rendering | None, reading: Reading, *, table: bool
) -> SftConverter:
    from dataclasses import replace

    from atropos_cli.datasets.convert.sft import SftConverter, resolved

    known = rendering if rendering is not None and (rendering.tokens is not None or options.form != "tokens") else None
    options = resolved(replace(options, arguments_as_text=table), thinking, known)
    return SftConverter(options, rendering, reading.log.tell)


def _report(converter: SftConverter, reading: Reading) -> dict[str, Any]:
    made: dict[str, Any] = {
        "read": reading.log.as_json(),
        "format": converter.options.form,
        "thinking": converter.options.sample.thinking,
        **converter.report.as_json(),
    }
    if converter.rendering is not None:
        made["tokens"] = converter.rendering.as_json()
    return made


def _print(session: Session, reading: Reading, converter: SftConverter, out: Any, *, to_stderr: bool) -> None:
    say = session.out.note if to_stderr else session.out.data
    report = converter.report
    for line in dataio.read_lines(reading.log):
        say(line)
    say(f"took {dataio.share(report.selected, report.rollouts)} rollouts, made {report.rows} rows")
    conversion.say_counts(say, "left out", report.left_out)
    conversion.say_counts(say, "rows with", {name: n for name, n in report.notes.items() if n})
    rendering = converter.rendering
    if rendering is not None and rendering.rows:
        say(f"{rendering.total} tokens, {rendering.trained} trained on, longest row {rendering.longest}")
    for path in out.names if out is not None else ():
        say(f"wrote {path}")


def _warn(session: Session, converter: SftConverter) -> None:
    from atropos_cli.datasets.convert.advice import advice, why_nothing

    for text, hint in advice(converter.report, converter.options, converter.rendering):
        session.out.warning(text, hint)
    if not converter.report.rows:
        session.out.error(*why_nothing(converter.report))


def _card(converter: SftConverter, reading: Reading, report: dict[str, Any], variables: Any) -> Card:
    from atropos_cli.datasets.convert.sft import SftOptions
    from atropos_cli.io.card import Card

    given, default = asdict(converter.options), asdict(SftOptions())
    options = {name: value for name, value in given.items() if value != default[name]}
    if variables:
        options["template_args"] = list(variables)
    counts = {name: value for name, value in report.items() if name != "read"}
    steps = [{"step": reason, "dropped": count} for reason, count in report["left_out"].items()]
    return Card.of(
        "sft-gen",
        reading.sources,
        reading.log,
        options=options,
        steps=steps,
        counts=counts,
        lineage=LINEAGE,
        shape=_shape(converter.options),
    )
