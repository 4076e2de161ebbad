"""Read records from files, and account for every row that cannot be used.

Rules. A torn last line (a killed writer) is one warning; with `strict` it stops. A broken line elsewhere, or a
JSON value that is no object, means a damaged file: reading stops and names all such lines, unless `tolerant`,
which counts them and hands them to `on_reject`. A row whose fields are wrong is left out and reported with
file:line, field, expected and found; with `strict` it stops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from atropos_cli.errors import DataError, UsageError
from atropos_cli.io.formats import FORMATS, Format, RowError, detect, read_as
from atropos_cli.io.jsonvalue import kind_of
from atropos_cli.io.records import Record
from atropos_cli.io.sources import Source, table_rows
from atropos_cli.io.values import Item, read_values
from atropos_cli.stats.tallies import add_tally, tally_state

_NAMED = 20  # line numbers in one message
_SHOWN = 10  # rejected rows told one by one
_STRANGE = 20  # rows of no known format after which a file is given up


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that was left out. kind: "broken", "fields" or "torn"."""

    source: str
    line: int
    kind: str
    reason: str
    text: bytes = b""

    def as_row(self) -> dict[str, Any]:
        """For a rejects file."""
        return {
            "file": self.source,
            "line": self.line,
            "kind": self.kind,
            "reason": self.reason,
            "text": self.text.decode("utf-8", "replace"),
        }

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> Reject:
        """What `as_row` made."""
        return cls(row["file"], row["line"], row["kind"], row["reason"], str(row["text"]).encode("utf-8", "replace"))


@dataclass(slots=True)
class ReadLog:
    """What reading found: filled while records are taken.

    warn: called with each line for people. on_reject: called with every row left out.
    """

    warn: Callable[[str], None] = lambda text: None
    on_reject: Callable[[Reject], None] | None = None
    rows: int = 0
    records: int = 0
    rollouts: int = 0
    non_finite: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    _told: Counter[str] = field(default_factory=Counter)

    def reject(self, reject: Reject) -> None:
        self.rejected[reject.kind] += 1
        if self.on_reject is not None:
            self.on_reject(reject)
        self.tell(reject.kind, f"{reject.source}:{reject.line}: {reject.reason}")

    def tell(self, kind: str, text: str) -> None:
        """Warn, the first few times of each kind; `close` tells how many more there were."""
        self._told[kind] += 1
        if self._told[kind] <= _SHOWN:
            self.warn(text)

    def close(self) -> None:
        for kind, count in self._told.items():
            if count > _SHOWN:
                self.warn(f"{count - _SHOWN} more like that ({kind})")
        self._told.clear()

    def tally(self) -> dict[str, Any]:
        """The counts, for `absorb`; without the warnings, which the part itself prints."""
        return tally_state(self, "rows", "records", "rollouts", "non_finite", "formats", "rejected")

    def absorb(self, state: dict[str, Any]) -> None:
        """Add the counts of another part of the input."""
        add_tally(self, state)

    def as_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "records": self.records,
            "rollouts": self.rollouts,
            "formats": dict(self.formats),
            "rejected": dict(self.rejected),
            "non_finite_scores": self.non_finite,
        }


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """format: name a format instead of detecting it row by row.

    switches: whether the command has --format, --strict and --tolerant, so that hints may name them.
    """

    format: str | None = None
    tolerant: bool = False
    strict: bool = False
    switches: bool = True


def pick_format(name: str | None) -> Format | None:
    """The format called `name`. Raises UsageError with close matches."""
    if name is None or name == "auto":
        return None
    if name not in FORMATS:
        close = get_close_matches(name, FORMATS, n=1)
        raise UsageError(
            f"unknown format {name!r}", hint=f"did you mean {close[0]}?" if close else f"formats: {', '.join(FORMATS)}"
        )
    return FORMATS[name]


def read_records(
    sources: Iterable[Source], options: ReadOptions | None = None, log: ReadLog | None = None
) -> Iterator[Record]:
    """The records of all sources, in order. Raises DataError as the rules above say; calls log.close at the end."""
    options = options or ReadOptions()
    log = log if log is not None else ReadLog()
    fixed = pick_format(options.format)
    for source in sources:
        strange = 0
        known = source.before > 0  # the beginning of the file was looked at where it was cut
        for item in read_objects(source, options, log):
            if not known and fixed is None:
                known = detect(item.value) is not None
                strange += not known
                if strange == _STRANGE:
                    raise _unknown(source, item, options)
            record = _record(item, fixed, source.name, options, log)
            if record is not None:
                yield record
    log.close()


def _unknown(source: Source, item: Item, options: ReadOptions) -> DataError:
    named = " (--format names one)" if options.switches else ""
    keys = ", ".join(list(item.value)[:8]) or "none"
    return DataError(
        f"{source.name}: none of the first {_STRANGE} rows is of a known format; row {item.number} has the keys {keys}",
        hint=f"rows need a model's replies; formats: {', '.join(FORMATS)}{named}",
    )


def _record(item: Item, fixed: Format | None, name: str, options: ReadOptions, log: ReadLog) -> Record | None:
    try:
        form = fixed or detect(item.value)
        if form is None:
            keys = ", ".join(list(item.value)[:8]) or "none"
            raise RowError("the row", "a known format", f"an object with the keys {keys}")
        record = read_as(form, item.value, name, item.number)
    except RowError as error:
        if options.strict:
            raise DataError(f"{name}:{item.number}: {error}", hint="without --strict such rows are left out") from error
        log.reject(Reject(name, item.number, "fields", str(error), item.line or b""))
        return None
    log.records += 1
    log.rollouts += len(record.rollouts)
    log.formats[record.format] += 1
    if record.non_finite:
        log.non_finite += len(record.non_finite)
        places = ", ".join(map(str, record.non_finite))
        log.tell(
            "non-finite score", f"{record.where}: the score at position {places} is not finite; it counts as no score"
        )
    else:
        record.line_bytes = item.line
    return record


def read_objects(source: Source, options: ReadOptions, log: ReadLog) -> Iterator[Item]:
    """The JSON objects of one source, with the rules for torn and broken lines applied; any object, of any format."""
    if source.kind != "lines":
        for number, row in table_rows(source):
            log.rows += 1
            yield Item(number, row)
        return
    broken: list[Item] = []
    seen = 0
    file = source.open()
    try:
        for item in read_values(file, source.before):
            if item.problem is None and isinstance(item.value, dict):
                log.rows += 1
                seen += 1
                if not broken or options.tolerant:
                    yield item
            elif item.early:
                _ended_early(source, item, seen, options, log)
            elif item.tail and not broken:
                _torn(source, item, options, log)
            else:
                item.problem = item.problem or f"expected an object, found {kind_of(item.value)}"
                log.rows += 1
                if options.tolerant:
                    log.reject(Reject(source.name, item.number, "broken", item.problem, item.text or item.line or b""))
                else:
                    broken.append(item)
    finally:
        if source.path is not None:
            file.close()
    if broken:
        raise _damaged(source, broken, options)


def _ended_early(source: Source, item: Item, seen: int, options: ReadOptions, log: ReadLog) -> None:
    text = f"{source.name}: compressed data ends early after row {seen}"
    if not options.tolerant:
        raise DataError(text, hint="copy the file again" + _or(options, "to take the rows before the cut"))
    log.reject(Reject(source.name, item.number, "torn", text.partition(": ")[2]))


def _torn(source: Source, item: Item, options: ReadOptions, log: ReadLog) -> None:
    text = f"the last line is torn: {item.problem}"
    if options.strict:
        raise DataError(f"{source.name}:{item.number}: {text}", hint="without --strict a torn tail is left out")
    log.reject(Reject(source.name, item.number, "torn", text, item.text))


def _or(options: ReadOptions, end: str) -> str:
    return f", or use --tolerant {end}" if options.switches else ""


def _damaged(source: Source, broken: list[Item], options: ReadOptions) -> DataError:
    numbers = ", ".join(str(item.number) for item in broken[:_NAMED])
    more = f" and {len(broken) - _NAMED} more" if len(broken) > _NAMED else ""
    lines = "\n".join(f"  {source.name}:{item.number}: {item.problem}" for item in broken[:3])
    noun = "line" if len(broken) == 1 else "lines"
    return DataError(
        f"{source.name}: broken {noun} {numbers}{more}\n{lines}",
        hint="mend the file" + _or(options, "to leave such lines out"),
    )
