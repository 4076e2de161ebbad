"""`atropos dpo-gen`: preference pairs (DPO) or labelled completions (KTO) out of stored rollouts."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.cli import conversion, sharing
from atropos_cli.cli.conversion import CHOICE, LENGTH, TEXTS, option
from atropos_cli.cli.options import JsonOption
from atropos_cli.console import dataio
from atropos_cli.console.dataio import one_of
from atropos_cli.console.ending import counted
from atropos_cli.console.session import Session, session_of
from atropos_cli.errors import UsageError

if TYPE_CHECKING:
    from atropos_cli.console.dataio import Reading
    from atropos_cli.datasets.convert.dpo import PairConverter
    from atropos_cli.datasets.convert.rendering import Rendering
    from atropos_cli.io.card import Card

LINEAGE = "`rollout_chosen` and `rollout_rejected` (KTO: `rollout`) name the rollouts, `task` their task"


def dpo_gen(
    ctx: typer.Context,
    inputs: dataio.Inputs,
    output: dataio.OutputOption = None,
    form: Annotated[
        str | None,
        option(
            "--format",
            panel=dataio.WRITING,
            metavar="NAME",
            text="Shape of the rows: messages (the default, as TRL reads them), sharegpt (the default of --recipe "
            "llama-factory).",
        ),
    ] = None,
    policy: Annotated[
        str,
        option(
            "--policy",
            panel=CHOICE,
            metavar="NAME",
            text="best-worst, all (every pair with a gap), best-random, correct-wrong (each rollout once).",
            show_default=True,
        ),
    ] = "best-worst",
    margin: Annotated[float, option("--margin", panel=CHOICE, text="Least gap between the two scores.", min=0.0)] = 0.0,
    min_chosen: Annotated[float | None, option("--min-chosen", panel=CHOICE, text="Least score of the chosen.")] = None,
    threshold: Annotated[
        float,
        option(
            "--threshold",
            panel=CHOICE,
            text="Score from which on a rollout is correct (correct-wrong, --kto).",
            show_default=True,
        ),
    ] = 0.5,
    max_pairs: Annotated[
        int, option("--max-pairs", panel=CHOICE, text="Pairs of a group, drawn by the seed.", min=1, show_default=True)
    ] = 4,
    tiebreak: Annotated[
        str,
        option(
            "--tiebreak",
            panel=CHOICE,
            metavar="NAME",
            text="Of equal best scores choose the first, the shorter or the longer.",
            show_default=True,
        ),
    ] = "first",
    same_prompt: Annotated[
        str,
        option(
            "--same-prompt",
            panel=CHOICE,
            metavar="all|user",
            text="Messages that must agree in the prompts of a group.",
            show_default=True,
        ),
    ] = "all",
    kto: Annotated[
        bool, option("--kto", panel=CHOICE, text="Rows {prompt, completion, label} of single rollouts instead.")
    ] = False,
    keep_truncated: conversion.KeepTruncatedOption = False,
    group_rows: conversion.GroupOption = False,
    seed: Annotated[int, option("--seed", panel=CHOICE, text="Seed of random choices.", show_default=True)] = 0,
    completion: Annotated[
        str | None,
        option(
            "--completion",
            panel=TEXTS,
            metavar="rest|turn",
            text="From the first differing reply on: all that follows (the default), or that reply alone (the default "
            "of --format sharegpt).",
        ),
    ] = None,
    thinking: conversion.ThinkingOption = "auto",
    system: conversion.SystemOption = "keep",
    as_text: Annotated[
        bool, option("--text", panel=TEXTS, text="Text instead of messages; by the template where there is one.")
    ] = False,
    tokenizer: conversion.TokenizerOption = None,
    chat_template: conversion.ChatTemplateOption = None,
    template_arg: conversion.TemplateArgOption = None,
    max_length_ratio: Annotated[
        float | None,
        option("--max-length-ratio", panel=LENGTH, text="Leave out pairs with one side longer than this.", min=1.0),
    ] = None,
    warn_longer: Annotated[
        float,
        option(
            "--warn-longer",
            panel=LENGTH,
            text="Warn when the chosen side is the longer one in more than this share.",
            min=0.0,
            max=1.0,
            show_default=True,
        ),
    ] = 0.7,
    max_tokens: Annotated[
        int | None,
        option("--max-tokens", panel=LENGTH, text="Leave out pairs with a longer side, prompt included.", min=8),
    ] = None,
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report and write nothing.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Make preference rows {prompt, chosen, rejected}, as TRL reads them.

    Equal scores, identical texts (white space at the ends aside) and groups with different prompts are never
    paired; a file of finished pairs is checked by the same rules. In conversations of several turns the prompt
    goes up to the first reply that differs. Exit code 1 when no row comes out; no file is written then.
    """
    from atropos_cli.datasets.convert.dpo import POLICIES, PairOptions
    from atropos_cli.datasets.convert.samples import SampleOptions

    session = session_of(ctx)
    passing = sharing.Sharing.of(recipe, push_to_hub, private=private, revision=revision, license_id=license_id)
    output = passing.output(output)
    form = one_of("--format", passing.form(form, "messages", text=as_text), ("messages", "sharegpt"))
    if form == "sharegpt" and as_text:
        raise UsageError("--text writes text, --format sharegpt turns", hint="leave one of them out")
    one_of("--thinking", thinking, ("auto", "tags", "field", "drop", "keep"))
    dataio.check_one_stdout(output, as_json=as_json and not dry_run)
    if max_tokens is not None and tokenizer is None:
        raise UsageError("--max-tokens needs --tokenizer to count with")
    if max_tokens is None and not as_text and (tokenizer or chat_template or template_arg):
        unneeded = "rows of messages are not rendered, so they take no tokenizer and no template"
        hint = "--text writes what they make; --max-tokens counts with them"
        if chat_template or template_arg:
            raise UsageError(unneeded, hint=hint)
        session.out.note(f"--tokenizer is not used: rows of messages are not rendered; {hint}")
    if kind is None and not dry_run:
        output = conversion.default_output(inputs, output, "dpo")
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
    rows = "-rendered" if tokenizer or chat_template else "-text"
    shape = ("kto" if kto else "preference") + (rows if as_text else "-sharegpt" if form == "sharegpt" else "")
    passing.check(target, shape)
    rendering = None
    if max_tokens is not None or (as_text and (tokenizer or chat_template)):
        rendering = conversion.make_rendering(tokenizer, chat_template, template_arg)
    options = PairOptions(
        policy=one_of("--policy", policy, POLICIES),
        margin=margin,
        min_chosen=min_chosen,
        threshold=threshold,
        max_pairs=max_pairs,
        tiebreak=one_of("--tiebreak", tiebreak, ("first", "shorter", "longer")),
        max_length_ratio=max_length_ratio,
        seed=seed,
        same_prompt=one_of("--same-prompt", same_prompt, ("all", "user")),
        completion=one_of("--completion", completion or ("rest" if form != "sharegpt" else "turn"), ("rest", "turn")),
        sharegpt=form == "sharegpt",
        kto=kto,
        as_text=as_text,
        max_tokens=max_tokens,
        sample=SampleOptions(
            thinking=_thinking(thinking, rendering if as_text else None),
            fold_system=one_of("--system", system, ("keep", "fold")) == "fold",
            keep_truncated=keep_truncated,
            fields=tuple(field or ()),
        ),
        arguments_as_text=conversion.is_table(target),
    )
    from atropos_cli.datasets.convert.dpo import PairConverter

    converter = PairConverter(options, rendering, reading.log.tell)
    try:
        out = conversion.write_rows(
            "dpo-gen", reading, target, converter.rows, group_rows=group_rows, fields=tuple(field or ())
        )
    finally:
        reading.close()
    dataio.write_rejects(reading, target, rejects)
    report = {
        "read": reading.log.as_json(),
        "policy": "kto" if kto else policy,
        "thinking": options.sample.thinking,
        **converter.report.as_json(),
    }
    if not as_json:
        _print(session, reading, converter, out, to_stderr=output == "-")
    _warn(session, converter, warn_longer)
    report_, kto = converter.report, converter.options.kto
    rows = f"{counted(report_.rows, 'row' if kto else 'pair')} from {counted(report_.groups, 'group')}"
    # A file with labels is for a trainer of somebody else.
    made = conversion.Made(_card(converter, reading, report, shape), report, rows, None if kto else "dpo")
    return conversion.conclude(session, out, made, passing, as_json=as_json)


def _thinking(form: str, rendering: Rendering | None) -> Any:
    if form != "auto":
        return form
    return "field" if rendering is not None and rendering.knows_thinking() else "tags"


def _print(session: Session, reading: Reading, converter: PairConverter, out: Any, *, to_stderr: bool) -> None:
    say = session.out.note if to_stderr else session.out.data
    report = converter.report
    for line in dataio.read_lines(reading.log):
        say(line)
    if converter.options.kto:
        say(f"made {report.rows} rows: {report.labels[True]} with label true, {report.labels[False]} with false")
    else:
        say(f"groups {report.groups}, with pairs {report.groups_with_pairs}, ties {report.left_out_groups['tie']}")
        many = ", ".join(f"{n} groups with {pairs}" for pairs, n in sorted(report.per_group.items()) if pairs)
        say(f"made {report.rows} pairs" + (f" ({many})" if many else ""))
    if report.rows and not converter.options.kto:
        share = report.longer_share or 0.0
        say(
            f"mean length: chosen {report.chosen_chars / report.rows:.0f} characters, "
            f"rejected {report.rejected_chars / report.rows:.0f}; chosen is longer in {100 * share:.0f} %"
        )
    conversion.say_counts(say, "groups left out", +report.left_out_groups)
    conversion.say_counts(say, "rollouts left out", +report.left_out_rollouts)
    conversion.say_counts(say, "pairs left out", +report.left_out_pairs)
    for path in out.names if out is not None else ():
        say(f"wrote {path}")


def _warn(session: Session, converter: PairConverter, warn_longer: float) -> None:
    from atropos_cli.datasets.convert.advice import pair_advice, why_no_pairs

    for text, hint in pair_advice(converter.report, converter.options, warn_longer):
        session.out.warning(text, hint)
    if not converter.report.rows:
        session.out.error(*why_no_pairs(converter.report, converter.options))


def _card(converter: PairConverter, reading: Reading, report: dict[str, Any], shape: str) -> Card:
    from atropos_cli.datasets.convert.dpo import PairOptions
    from atropos_cli.io.card import Card

    given, default = asdict(converter.options), asdict(PairOptions())
    options = {name: value for name, value in given.items() if value != default[name]}
    counts = {name: value for name, value in report.items() if name != "read"}
    steps = [
        {"step": reason, f"dropped_{what}": count}
        for what in ("groups", "rollouts", "pairs")
        for reason, count in report[f"left_out_{what}"].items()
    ]
    return Card.of(
        "dpo-gen",
        reading.sources,
        reading.log,
        options=options,
        steps=steps,
        counts=counts,
        lineage=LINEAGE,
        shape=shape,
    )
