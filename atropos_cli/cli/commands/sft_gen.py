"""`atropos sft-gen`: rows for supervised fine-tuning out of stored rollouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atropos_cli.cli import conversion, sharing
from atropos_cli.cli.passes import SpreadOptions, choices_of
from atropos_cli.config.commands import option
from atropos_cli.console import dataio
from atropos_cli.console.commands import JsonOption, with_flags
from atropos_cli.console.ending import counted, end
from atropos_cli.console.session import Session
from atropos_cli.datasets.convert.spec import SftOptions
from atropos_cli.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from atropos_cli.cli.passes import Tally
    from atropos_cli.console.dataio import Reading
    from atropos_cli.datasets.choices import Choices
    from atropos_cli.datasets.convert.rendering import Rendering
    from atropos_cli.datasets.convert.sft import SftConverter
    from atropos_cli.io.card import Card

LINEAGE = "`rollout` names the rollout, `task` its task, `score` the score it was chosen by"


class SftGenOptions(SftOptions, sharing.SharingOptions, dataio.SplitOptions, dataio.InputOptions, SpreadOptions):
    """Which rollouts become rows, how, and where the rows go."""

    check: bool = option(False, "The inputs are finished token or text rows: say what is wrong with them.")
    dry_run: bool = option(False, "Report and write nothing.")


@with_flags("sft-gen", SftGenOptions)
def sft_gen(inputs: dataio.Inputs, *, options: SftGenOptions, session: Session, as_json: JsonOption = False) -> int:
    """Make rows for supervised fine-tuning, as TRL, LLaMA-Factory, Axolotl and others read them.

    Failed rollouts, empty answers and rollouts that were cut off are left out and counted. Token ids that were
    stored with a rollout are used as they are; with --tokenizer, the masks of rendered rows are proven for the
    template. Exit code 1 when no row comes out; no file is written then.
    """
    from atropos_cli.datasets.convert.sft import keyed_cap

    if options.check:
        return _check_rows(session, dataio.read_inputs(session, inputs, options), options.tokenizer, as_json=as_json)
    passing = sharing.Sharing.of(options, session)
    output = passing.output(options.output)
    options = options.replace(format=passing.form(options.format, "messages"))
    _check(options)
    if not options.rendered and options.max_tokens is None and options.uses_template:
        unneeded = f"--format {options.form} is not rendered, so it takes no tokenizer and no template"
        hint = "--max-tokens counts with them; --format tokens or text writes what they make"
        if options.chat_template or options.template_args:
            raise UsageError(unneeded, hint=hint)
        session.out.note(f"--tokenizer is not used: --format {options.form} is not rendered; {hint}")
    dataio.check_one_stdout(output, as_json=as_json and not options.dry_run)
    reading, target = conversion.open_both(session, inputs, options, output, "sft")
    passing.check(target, _shape(options))
    rendering = None
    if options.rendered or options.max_tokens is not None:
        rendering = conversion.make_rendering(options)
    keyed = keyed_cap(options)
    choices = choices_of(session, keyed)
    converter = _converter(options, rendering, reading, choices, table=conversion.is_table(target))
    tallies: list[Tally] = [converter.report, *([] if rendering is None else [rendering])]
    work = conversion.Converting("sft-gen", reading, target, converter.rows, tallies, keyed, choices)
    out = conversion.write_all(session, work, options)
    report = _report(converter, reading)
    if not as_json:
        _print(session, reading, converter, out, to_stderr=output == "-")
    _warn(session, converter)
    rows = f"{counted(converter.report.rows, 'row')} from {counted(converter.report.rollouts, 'rollout')}"
    made = conversion.Made(_card(converter, reading, report), report, rows, "sft")
    return conversion.conclude(session, out, made, passing, as_json=as_json)


def _shape(options: SftOptions) -> str:
    return "prompt-completion-text" if options.text else options.form


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


def _check(options: SftOptions) -> None:
    if options.top is not None and options.select != "top":
        raise UsageError("--top needs --select top")
    if options.text and options.form != "prompt-completion":
        raise UsageError(f"--text is for prompt-completion, not for {options.form}")
    if options.retokenize and (options.form != "tokens" or options.tokenizer is None):
        raise UsageError("--retokenize needs --format tokens and --tokenizer")
    no_template = options.tokenizer is None and options.chat_template is None
    if (options.form == "text" or options.text) and no_template:
        raise UsageError(
            f"--format {options.form} needs a template", hint="add --tokenizer NAME or --chat-template FILE"
        )
    if options.max_tokens is not None and options.tokenizer is None and options.form != "tokens":
        raise UsageError("--max-tokens needs --tokenizer to count with")


def _converter(
    options: SftOptions, rendering: Rendering | None, reading: Reading, choices: Choices | None, *, table: bool
) -> SftConverter:
    from atropos_cli.datasets.convert.sft import SftConverter

    known = rendering if rendering is not None and (rendering.tokens is not None or options.form != "tokens") else None
    knows = options.rendered and known is not None and known.knows_thinking()
    settled = options.with_template(knows_thinking=knows)
    return SftConverter(settled, rendering, reading.log.tell, table=table, choices=choices)


def _report(converter: SftConverter, reading: Reading) -> dict[str, Any]:
    made: dict[str, Any] = {
        "read": reading.log.as_json(),
        "format": converter.options.form,
        "thinking": converter.options.thinking,
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


def _card(converter: SftConverter, reading: Reading, report: dict[str, Any]) -> Card:
    from atropos_cli.io.card import Card

    options = converter.options.model_dump(include=set(SftOptions.model_fields), exclude_defaults=True)
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
