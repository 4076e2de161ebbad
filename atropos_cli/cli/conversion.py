"""What `sft-gen` and `dpo-gen` share: options, the pass over the records, the report."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from atropos_cli.cli.passes import Pass, open_out
from atropos_cli.config.pairs import json_once, put_once
from atropos_cli.console import dataio
from atropos_cli.console.dataio import Reading
from atropos_cli.console.ending import end, shell
from atropos_cli.console.session import Session
from atropos_cli.errors import DataError, ExitCode, UsageError
from atropos_cli.io.sources import nearest
from atropos_cli.paths import home, shell_file

if TYPE_CHECKING:
    from atropos_cli.cli.passes import Tally, Write
    from atropos_cli.cli.sharing import Sharing
    from atropos_cli.datasets.choices import Choices, Keyed
    from atropos_cli.datasets.convert.rendering import Rendering
    from atropos_cli.datasets.convert.spec import TemplateOptions
    from atropos_cli.datasets.filter.presence import Presence
    from atropos_cli.io.card import Card
    from atropos_cli.io.records import Record, Row
    from atropos_cli.io.writers_out import DataOutput, OutputSpec


def default_output(inputs: Sequence[str], output: str | None, ending: str) -> str | None:
    """INPUT.sft.jsonl in this folder for one input, where no output is named; None where one has to be.

    Raises DataError for an input that is not there: other tools take the output as their first argument.
    """
    from atropos_cli.io.remote import is_remote

    text = inputs[0] if len(inputs) == 1 else "-"
    if output is not None or text == "-" or is_remote(text) or any(char in text for char in "*?["):
        return output
    path = Path(home(text))
    if not path.exists():
        near = nearest(path)
        near = f"did you mean {near}? " if near else ""
        raise DataError(
            f"{text} does not exist",
            hint=f"{near}what is read comes first, what is written is --output: "
            f"atropos {ending}-gen RUN --output {text}",
        )
    stem = re.sub(r"\.(jsonl|json|ndjson|parquet)(\.(gz|zst))?$", "", path.resolve().name)
    return f"{stem}.{ending}.jsonl"


def template_variables(pairs: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE options as variables. Raises UsageError."""
    variables: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--template-arg {pair!r} is not NAME=VALUE", hint="for example enable_thinking=false")
        try:
            given = json_once(value, "--template-arg")
        except ValueError:
            given = value
        put_once(variables, name, given, "--template-arg")
    return variables


def make_rendering(options: TemplateOptions) -> Rendering:
    """Tokenizer and template as asked for; loaded now, so that a wrong name stops before the first row."""
    from atropos_cli.datasets.convert.rendering import Rendering
    from atropos_cli.datasets.convert.tokenizers import load_tokenizer

    tokens = load_tokenizer(options.tokenizer) if options.tokenizer else None
    return Rendering(tokens, options.chat_template, template_variables(options.template_args))


def is_table(spec: OutputSpec | None) -> bool:
    """Are rows stored in columns, whose objects all get the same keys?"""
    if spec is None:
        return False
    return spec.kind in ("parquet", "datasets") or (spec.kind is None and spec.target.endswith(".parquet"))


def open_both(
    session: Session, inputs: Sequence[str], options: Any, output: str | None, ending: str
) -> tuple[Reading, OutputSpec | None]:
    """The inputs and the output of a conversion whose options have those of reading and writing; none in a dry run.

    ending: names the output of one input where none is given.
    """
    if options.write is None and not options.dry_run:
        output = default_output(inputs, output, ending)
    reading = dataio.read_inputs(session, inputs, options, options.input_format)
    return reading, None if options.dry_run else dataio.target_of(reading.sources, options.replace(output=output))


@dataclass(frozen=True, slots=True)
class Converting:
    """The pass of a conversion. rows_of: the rows of a record. tallies: what counts meanwhile. keyed: see `Pass`."""

    what: str
    reading: Reading
    spec: OutputSpec | None
    rows_of: Callable[[Record], list[Row]]
    tallies: Sequence[Tally]
    keyed: Keyed | None = None
    choices: Choices | None = None


def write_all(session: Session, work: Converting, options: Any) -> DataOutput | None:
    """`write_rows`, then the rows that were left out."""
    try:
        out = write_rows(session, work, options)
    finally:
        work.reading.close()
    dataio.write_rejects(work.reading, work.spec, options.rejects)
    return out


def write_rows(session: Session, work: Converting, options: Any) -> DataOutput | None:
    """Stream records into the output; returns the output, or None when nothing was written.

    Files appear at the end, and only when there are rows. A `--field` that rows should carry along and no record has
    is an error.
    """
    from atropos_cli.datasets.filter.presence import Presence

    reading = work.reading
    out = open_out(session, work.spec)
    presence = Presence()
    gc.freeze()  # what is loaded by now stays: looking through it again and again costs as much as the work
    try:
        with dataio.ticking(work.what, reading) as ticker:

            def do(write: Write) -> None:
                _convert(work, options, presence, write, ticker.tick)

            across = ["--group"] if options.group else []
            tallies = [presence, *work.tallies]
            whole = Pass(session, reading, options, work.spec, do, tallies, across, work.keyed, work.choices)
            whole.run(out)
        reading.require_rows("--input-format")
        for text in presence.check():
            reading.log.warn(text)
    except BaseException:
        if out is not None:
            out.abort()
        raise
    made = finished(out)
    whole.clean_up()
    return made


def _convert(work: Converting, options: Any, presence: Presence, write: Write, tick: Callable[[], None]) -> None:
    from atropos_cli.datasets.convert.samples import has_field

    for record in _records(work.reading, options.group):
        for name in getattr(options, "fields", ()):
            there = has_field(record, name)
            presence.see("--field", name, there=there, known=() if there else (*record.raw, *record.info))
        for row in work.rows_of(record):
            write(row, task=row["task"])
        tick()


def finished(out: DataOutput | None) -> DataOutput | None:
    """The output in its place; None when there is none, or nothing was written to it, and then no file is there."""
    if out is None:
        return None
    if not out.total:
        out.abort()
        return None
    out.commit()
    return out


def _records(reading: Reading, group_rows: bool) -> Iterator[Record]:
    from atropos_cli.io import grouping
    from atropos_cli.io.readers import read_records

    records = read_records(reading.sources, reading.options, reading.log)
    return grouping.group_rows(records) if group_rows else records


class Made(NamedTuple):
    """What a conversion has made. rows: how many, in words; training: the one that takes them, None: none of ours."""

    card: Card
    report: dict[str, Any]
    rows: str
    training: str | None


def conclude(
    session: Session,
    out: DataOutput | None,
    made: Made,
    sharing: Sharing,
    *,
    as_json: bool,
) -> int:
    """Write the card, pass the rows on, print the report as JSON or the command's last lines; returns the exit code."""
    files = []
    recipes = []
    if out is not None:
        data = dataio.write_cards(out, made.card, session)
        files = out.names
        recipes = sharing.share(out, data, session)
    if as_json:
        session.out.json({**made.report, "files": files, "recipes": recipes, "hub": sharing.url})
    elif out is not None:
        end(session.out, made.rows, _following(made, out), data=not out.spec.to_stdout)
    sharing.raise_failure()
    return ExitCode.OK if made.report["rows"] else ExitCode.FAILED


def _following(made: Made, out: DataOutput) -> str | None:
    """The next step with rows that stand in a file: training on them, or else a look at them."""
    if out.path is None:
        return None
    names = [name for name, split in zip(out.names, out.splits, strict=True) if split == "train"] or out.names
    name = names[0] if len(names) == 1 else names[0].replace("-00000-of-", "-?????-of-")
    return shell("view", shell_file(name)) if made.training is None else train_command(made.training, name)


def train_command(method: str, data: str) -> str:
    """The training that reads these rows."""
    return shell("train", method, "--data", shell_file(data), "--model", "MODEL")


def say_counts(say: Callable[[str], None], title: str, counts: Mapping[str, int]) -> None:
    """A block of numbers with their names, the largest first."""
    if counts:
        say(f"{title}:")
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        say(f"  {count:>8}  {name}")
