"""`atropos dpo-gen`: preference pairs (DPO) or labelled completions (KTO) out of stored rollouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atropos_cli.cli import conversion, sharing
from atropos_cli.cli.passes import SpreadOptions
from atropos_cli.config.commands import option
from atropos_cli.console import dataio
from atropos_cli.console.commands import JsonOption, with_flags
from atropos_cli.console.ending import counted
from atropos_cli.console.session import Session
from atropos_cli.datasets.convert.spec import LENGTH, PairOptions
from atropos_cli.errors import UsageError

if TYPE_CHECKING:
    from atropos_cli.cli.passes import Tally
    from atropos_cli.console.dataio import Reading
    from atropos_cli.datasets.convert.dpo import PairConverter
    from atropos_cli.io.card import Card

LINEAGE = "`rollout_chosen` and `rollout_rejected` (KTO: `rollout`) name the rollouts, `task` their task"


class DpoGenOptions(PairOptions, sharing.SharingOptions, dataio.SplitOptions, dataio.InputOptions, SpreadOptions):
    """Which pairs become rows, how, and where the rows go."""

    warn_longer: float = option(
        0.7, "Warn when the chosen side is the longer one in more than this share.", panel=LENGTH, ge=0.0, le=1.0
    )
    dry_run: bool = option(False, "Report and write nothing.")


@with_flags("dpo-gen", DpoGenOptions)
def dpo_gen(inputs: dataio.Inputs, *, options: DpoGenOptions, session: Session, as_json: JsonOption = False) -> int:
    """Make preference rows {prompt, chosen, rejected}, as TRL reads them.

    Equal scores, identical texts (white space at the ends aside) and groups with different prompts are never
    paired; a file of finished pairs is checked by the same rules. In conversations of several turns the prompt
    goes up to the first reply that differs. Exit code 1 when no row comes out; no file is written then.
    """
    from atropos_cli.datasets.convert.dpo import PairConverter

    passing = sharing.Sharing.of(options, session)
    output = passing.output(options.output)
    options = options.replace(format=passing.form(options.format, "messages", text=options.text))
    _check(session, options)
    dataio.check_one_stdout(output, as_json=as_json and not options.dry_run)
    reading, target = conversion.open_both(session, inputs, options, output, "dpo")
    by_template = bool(options.tokenizer or options.chat_template)
    shape = _shape(options, by_template=by_template)
    passing.check(target, shape)
    rendering = None
    if options.max_tokens is not None or (options.text and by_template):
        rendering = conversion.make_rendering(options)
    knows = options.text and rendering is not None and rendering.knows_thinking()
    settled = options.with_template(knows_thinking=knows)
    converter = PairConverter(settled, rendering, reading.log.tell, table=conversion.is_table(target))
    tallies: list[Tally] = [converter.report, *([] if rendering is None else [rendering])]
    work = conversion.Converting("dpo-gen", reading, target, converter.rows, tallies)
    out = conversion.write_all(session, work, options)
    report = {
        "read": reading.log.as_json(),
        "policy": "kto" if options.kto else options.policy,
        "thinking": settled.thinking,
        **converter.report.as_json(),
    }
    if not as_json:
        _print(session, reading, converter, out, to_stderr=output == "-")
    _warn(session, converter, options.warn_longer)
    report_, kto = converter.report, options.kto
    rows = f"{counted(report_.rows, 'row' if kto else 'pair')} from {counted(report_.groups, 'group')}"
    # Labelled conversations are for trainers of others.
    training = "dpo" if not kto else None if options.sharegpt else "kto"
    made = conversion.Made(_card(converter, reading, report, shape), report, rows, training)
    return conversion.conclude(session, out, made, passing, as_json=as_json)


def _check(session: Session, options: PairOptions) -> None:
    if options.sharegpt and options.text:
        raise UsageError("--text writes text, --format sharegpt turns", hint="leave one of them out")
    if options.max_tokens is not None and options.tokenizer is None:
        raise UsageError("--max-tokens needs --tokenizer to count with")
    if options.max_tokens is None and not options.text and options.uses_template:
        unneeded = "rows of messages are not rendered, so they take no tokenizer and no template"
        hint = "--text writes what they make; --max-tokens counts with them"
        if options.chat_template or options.template_args:
            raise UsageError(unneeded, hint=hint)
        session.out.note(f"--tokenizer is not used: rows of messages are not rendered; {hint}")


def _shape(options: PairOptions, *, by_template: bool) -> str:
    rows = "-rendered" if by_template else "-text"
    return ("kto" if options.kto else "preference") + (
        rows if options.text else "-sharegpt" if options.sharegpt else ""
    )


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
    from atropos_cli.io.card import Card

    options = converter.options.model_dump(include=set(PairOptions.model_fields), exclude_defaults=True)
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
