"""What the commands over stored rollouts share: their options, reading with warnings, outputs with a card."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.config.commands import CommandOptions, option
from atropos_cli.console.output import Output, is_rich_terminal
from atropos_cli.console.session import Session
from atropos_cli.console.statusline import StatusLine
from atropos_cli.errors import DataError, UsageError
from atropos_cli.paths import home

if TYPE_CHECKING:
    from atropos_cli.io.card import Card
    from atropos_cli.io.readers import ReadLog, ReadOptions, Reject
    from atropos_cli.io.sources import Source
    from atropos_cli.io.writers_out import DataOutput, OutputSpec

READING, WRITING, SHARING = "Reading", "Output", "Passing it on"

Inputs = Annotated[
    list[str],
    typer.Argument(metavar="INPUT...", help="Files, run folders, globs; - is standard input.", show_default=False),
]

FORMAT: Any = option(
    "auto",
    "Format of the rows: native, atropos, sharegpt, messages, preference, completion, solutions, outcomes, dump, "
    "taubench, text; auto looks at each row.",
    panel=READING,
    metavar="NAME",
)
"""The field `format` of a command that reads rows."""


class InputOptions(CommandOptions):
    """How rows that cannot be used are dealt with."""

    tolerant: bool = option(False, "Leave broken lines out instead of stopping.", panel=READING)
    strict: bool = option(False, "Stop at any row that cannot be used.", panel=READING)
    rejects: str | None = option(
        None,
        "Write rows that were left out there; with --tolerant the default is OUTPUT.rejects.jsonl.",
        panel=READING,
        metavar="FILE",
    )


class FormatOptions(InputOptions):
    """The same for a command that only reads, or writes what it reads: --format is that of the input."""

    format: str = FORMAT


class OutputOptions(CommandOptions):
    """Where rows go, and as what."""

    output: str | None = option(
        None,
        "Where rows go: .jsonl, .jsonl.gz, .jsonl.zst, .parquet, also at s3://, gs:// and the like; - is standard "
        "output.",
        panel=WRITING,
        short="o",
        metavar="FILE",
    )
    write: str | None = option(
        None,
        "jsonl, jsonl.gz, jsonl.zst, parquet or datasets (a folder); default: by the ending.",
        panel=WRITING,
        metavar="KIND",
    )
    overwrite: bool = option(False, "Replace an existing output.", panel=WRITING)


class SplitOptions(OutputOptions):
    """The same in several files."""

    shard_size: int | None = option(None, "Rows in a file.", panel=WRITING, ge=1)
    validation: float = option(0.0, "Share of tasks for a validation split.", panel=WRITING, ge=0.0, le=0.99)
    split_seed: int = option(0, "Seed of that split.", panel=WRITING)


EVERY = 10.0


@dataclass(slots=True)
class Reading:
    """Opened inputs: sources, options and the log that collects what was left out."""

    sources: list[Source]
    options: ReadOptions
    log: ReadLog
    rejects: list[Reject]
    out: Output
    spooled: list[Path] = field(default_factory=list)

    def close(self) -> None:
        """Remove the copy of standard input, if one was made."""
        for path in self.spooled:
            path.unlink(missing_ok=True)

    def require_rows(self, option: str = "--format") -> None:
        """Raise DataError when nothing usable was read. option: what names the input's format."""
        if self.log.records:
            return
        names = ", ".join(source.name for source in self.sources[:3])
        if not self.rejects:
            raise DataError(f"{names}: no rows", hint="is it the right file?")
        first = self.rejects[0]
        raise DataError(
            f"{names}: no usable rows; the first one, {first.source}:{first.line}: {first.reason}",
            hint=f"{option} names a format if it was not recognised",
        )


MOST_REJECTS = 100_000


def open_inputs(
    session: Session, inputs: Sequence[str], *, form: str, tolerant: bool, strict: bool, twice: bool = False
) -> Reading:
    """Find the inputs and make the log. twice: standard input is spooled so that it can be read again."""
    from atropos_cli.io.readers import ReadLog, ReadOptions, pick_format
    from atropos_cli.io.sources import find_sources, spool

    if tolerant and strict:
        raise UsageError("--tolerant and --strict exclude each other")
    pick_format(form)
    rejects: list[Reject] = []

    def on_reject(reject: Reject) -> None:
        if len(rejects) < MOST_REJECTS:
            rejects.append(reject)

    sources = find_sources(inputs) if session.part is None else list(session.part.sources)
    spooled = []
    if twice:
        copies = [spool(source) for source in sources]
        spooled = [copy.path for copy, source in zip(copies, sources, strict=True) if source.path is None and copy.path]
        sources = copies
    log = ReadLog(warn=session.out.warning, on_reject=on_reject)
    return Reading(
        sources, ReadOptions(None if form == "auto" else form, tolerant, strict), log, rejects, session.out, spooled
    )


def read_inputs(
    session: Session, inputs: Sequence[str], options: InputOptions, form: str = "auto", *, twice: bool = False
) -> Reading:
    """`open_inputs` as the options say."""
    form = options.format if isinstance(options, FormatOptions) else form
    return open_inputs(session, inputs, form=form, tolerant=options.tolerant, strict=options.strict, twice=twice)


def target_of(sources: Sequence[Source], options: OutputOptions, output: str | None = None) -> OutputSpec:
    """`output_spec` as the options say. output: another place than theirs."""
    more: dict[str, Any] = {"overwrite": options.overwrite}
    if isinstance(options, SplitOptions):
        more |= {name: getattr(options, name) for name in ("shard_size", "validation", "split_seed")}
    return output_spec(sources, options.output if output is None else output, options.write, **more)


def output_spec(sources: Sequence[Source], output: str | None, kind: str | None = None, **options: Any) -> OutputSpec:
    """The output as asked for. Raises UsageError for none, for an unknown kind, and for one of the inputs."""
    from atropos_cli.io.remote import is_remote, shown
    from atropos_cli.io.upload import local_name
    from atropos_cli.io.writers_out import KINDS, OutputSpec

    if output is None:
        raise UsageError("no output given", hint="add -o FILE, or -o - for standard output")
    if kind is not None and kind not in KINDS:
        raise UsageError(f"unknown kind of output {kind!r}", hint=f"one of {', '.join(KINDS)}")
    path = Path(home(local_name(output)))
    if is_remote(output) and any(source.name == shown(output) for source in sources):
        raise UsageError(f"{shown(output)} is an input: the input is never changed", hint="give another -o")
    if output != "-":
        keep_inputs(sources, path, output, "-o")
    return OutputSpec(output, kind, **options)  # type: ignore[arg-type]


def keep_inputs(sources: Sequence[Source], path: Path, shown: str, option: str) -> None:
    """Raises UsageError when an output would take the place of an input, also with --overwrite."""
    if path.exists():
        for source in sources:
            if source.path is not None and source.path.exists() and path.samefile(source.path):
                raise UsageError(f"{shown} is an input: the input is never changed", hint=f"give another {option}")


def check_one_stdout(output: str | None, *, as_json: bool) -> None:
    """Raises UsageError where rows and the report as JSON would both go to standard output."""
    if as_json and output == "-":
        raise UsageError("--json and -o - would both write to stdout", hint="drop --json, or give a file")


def write_rejects(reading: Reading, spec: OutputSpec | None, rejects: str | None) -> str | None:
    """Write the rows that were left out, where that was asked for; returns the file."""
    from atropos_cli.io.append import atomic_write
    from atropos_cli.io.jsonvalue import dump
    from atropos_cli.io.remote import make_folder
    from atropos_cli.io.upload import is_remote_target, local_name, send_bytes

    if rejects is None and reading.options.tolerant and spec is not None and not spec.to_stdout:
        rejects = f"{spec.target}.rejects.jsonl"
    if rejects is None or not reading.rejects:
        return None
    data = b"".join(dump(reject.as_row()) + b"\n" for reject in reading.rejects)
    if is_remote_target(rejects):
        send_bytes(rejects, data)
        return rejects
    path = Path(home(local_name(rejects)))
    make_folder(path.parent)
    atomic_write(path, data)
    return str(path)


def write_cards(output: DataOutput, card: Card, session: Session) -> dict[str, Any]:
    """The card beside the output; a card that cannot be written is a warning, the rows are there."""
    from atropos_cli.io.card import card_data, write_card

    data = card_data(output, card)
    try:
        write_card(output, data)
    except DataError as error:
        session.out.warning(error.message, error.hint)
    return data


class RepositoryOptions(CommandOptions):
    """A repository of the hub."""

    private: bool = option(False, "A new repository is private.", panel=SHARING)
    revision: str | None = option(None, "Branch to push to.", panel=SHARING, metavar="BRANCH")
    license: str | None = option(
        None,
        "License in the card, as in apache-2.0; default: what stands there, else unknown.",
        panel=SHARING,
        metavar="ID",
    )


class Ticker:
    """Tells how far a long pass is: a line that is renewed on a terminal, a line now and then elsewhere."""

    def __init__(self, what: str, log: ReadLog, *, quiet: bool = False) -> None:
        self._what = what
        self._log = log
        self._quiet = quiet
        self._line = StatusLine() if is_rich_terminal(sys.stderr) and not quiet else None
        self._started = self._told = time.monotonic()

    def tick(self) -> None:
        now = time.monotonic()
        if now - self._told < (EVERY if self._line is None else 0.5) or self._quiet:
            return
        self._told = now
        rate = self._log.records / (now - self._started)
        parts = [f"{self._what}: {self._log.records} records", f"{rate:.0f}/s"]
        if self._line is not None:
            self._line.show(list(enumerate(parts)), None)
            return
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{', '.join(parts)}\n")
            sys.stderr.flush()

    def clear(self) -> None:
        """Remove the renewed line."""
        if self._line is not None:
            self._line.close()


@contextlib.contextmanager
def ticking(what: str, reading: Reading) -> Iterator[Ticker]:
    """A ticker that is cleared at the end. Meanwhile SIGTERM is as good as Ctrl-C: nothing unfinished stays behind."""
    ticker = Ticker(what, reading.log, quiet=reading.out.quiet)
    with _sigterm_interrupts():
        try:
            yield ticker
        finally:
            ticker.clear()


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)


def share(part: int, whole: int) -> str:
    """ "3 of 8 (37.5 %)"."""
    return f"{part} of {whole}" + (f" ({100 * part / whole:.1f} %)" if whole else "")


def read_lines(log: ReadLog) -> list[str]:
    """What was read, in one or two lines."""
    formats = ", ".join(f"{count} {name}" for name, count in log.formats.most_common())
    lines = [f"read {log.records} records with {log.rollouts} rollouts ({formats})"]
    left_out = sum(log.rejected.values())
    if left_out:
        kinds = ", ".join(f"{count} {kind}" for kind, count in log.rejected.items())
        lines.append(f"left out {left_out} rows ({kinds})")
    if log.non_finite:
        lines.append(f"{log.non_finite} scores were not finite")
    return lines
