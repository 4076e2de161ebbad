"""The journal as a Markdown page that a person writes into as well: only the parts between its marks are made anew.

<!-- written by atropos journal -->
<!-- journal table begins 1c2b3a 99d0e1 -->      the key of the part, and a hash of each line that was generated
| ... |
<!-- journal ends -->
<!-- journal 3f9c0a1b2c-20260102T100000 begins ... -->
## first
<!-- journal ends -->

What a person wrote stays below the part that it stood in or under.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from urllib.parse import quote

from atropos_cli.sdk import clean_text
from atropos_cli.sdk.analysis import cell
from atropos_tracking.journal import JournalEntry, short_commit

MARK = "<!-- written by atropos journal -->"
"""Stands in every journal: such a file may be written again."""

_BEGIN = re.compile(r"<!-- journal (\S+) begins((?: [0-9a-f]{6})*) -->")
_END = "<!-- journal ends -->"
_TABLE = "table"
# Lines of journals that had no marks yet, all of them generated.
_UNMARKED = re.compile(r"\||# Runs in |\d+ runs?\.$|## .*: checkpoints evaluated again$")


@dataclass
class _Part:
    """A generated part, and a person's lines in it and below it. key None: the lines above all parts."""

    key: str | None
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def is_journal(text: str) -> bool:
    """Was the page written by this command, whatever was added to it since?"""
    return any(line.strip("\ufeff \t\r") == MARK for line in text.split("\n"))


def markdown(entries: Sequence[JournalEntry], title: str, old: str = "") -> str:
    """The page: a table, and a section for each run. old: the page as it is now, whose notes stay where they are."""
    fresh = {_TABLE: _table(entries, title)}
    for entry in entries:
        fresh.setdefault(_key(entry, fresh), _section(entry))
    parts = _merged(_parts(old), {key: [clean_text(line) for line in lines] for key, lines in fresh.items()})
    blocks = [MARK]
    for part in parts:
        if part.key is not None:
            hashes = "".join(f" {_hash(line)}" for line in part.lines if line.strip())
            blocks.append("\n".join([f"<!-- journal {part.key} begins{hashes} -->", *_trimmed(part.lines), _END]))
        notes = "\n".join(part.notes).strip("\n")
        if notes.strip():
            blocks.append(notes)
    text = "\n\n".join(blocks) + "\n"
    return text.replace("\n", "\r\n") if old.count("\r\n") * 2 > old.count("\n") else text  # as their editor has it


def _parts(text: str) -> list[_Part]:
    """The parts of a page, the first without a key. A line in a part that is none of its own is a note."""
    parts = [_Part(None)]
    own: set[str] = set()
    unmarked = _BEGIN.search(text) is None
    for raw in text.split("\n"):
        line = raw.rstrip("\r").removeprefix("\ufeff")
        begin = _BEGIN.fullmatch(line.strip())
        if begin is not None:
            parts.append(_Part(begin[1]))
            own = set(begin[2].split())
        elif line.strip() == _END:
            own = set()
        elif own and _hash(line) in own:
            parts[-1].lines.append(line)
        elif own and not line.strip():  # it may part the one or the other
            parts[-1].lines.append(line)
            parts[-1].notes += [line] if parts[-1].notes else []
        elif line.strip() != MARK and not (unmarked and _UNMARKED.match(line)):
            parts[-1].notes.append(line)
    return parts


def _merged(old: Sequence[_Part], fresh: Mapping[str, list[str]]) -> list[_Part]:
    """The old parts in their order, brought up to date; new ones behind those that they follow.

    A part of a run that is gone stays as it was if somebody wrote something there.
    """
    parts: list[_Part] = []
    seen: set[str] = set()
    for part in old:
        if part.key is None:
            parts.append(part)
        elif part.key in seen:  # copied by hand: once is enough, but for the notes
            parts[-1].notes += part.notes
        elif part.key in fresh:
            parts.append(_Part(part.key, fresh[part.key], part.notes))
        elif any(line.strip() for line in part.notes):
            parts.append(part)
        if part.key is not None:
            seen.add(part.key)
    place = 0
    for key, lines in fresh.items():
        found = next((number for number, part in enumerate(parts) if part.key == key), None)
        if found is None:
            place += 1
            parts.insert(place, _Part(key, lines))
        else:
            place = found
    return parts


def _trimmed(lines: Sequence[str]) -> list[str]:
    """Without empty lines at the end, and without two of them in a row."""
    kept = [line for number, line in enumerate(lines) if line.strip() or (number and lines[number - 1].strip())]
    return kept[:-1] if kept and not kept[-1].strip() else kept


def _hash(line: str) -> str:
    return blake2b(line.strip().encode("utf-8", "surrogatepass"), digest_size=3).hexdigest()


def _key(entry: JournalEntry, taken: Mapping[str, object]) -> str:
    """What a run is known by when its folder is moved; of copies the later ones have their path."""
    started = re.sub(r"[^0-9T]", "", (entry.started or "").partition("+")[0])
    key = f"{(entry.plan_digest or '')[:10]}-{started}"
    return key if entry.plan_digest and started and re.fullmatch(r"[\w-]+", key) and key not in taken else _path(entry)


def _path(entry: JournalEntry) -> str:
    return "run:" + quote(clean_text(entry.run))


def _table(entries: Sequence[JournalEntry], title: str) -> list[str]:
    head = ["started (UTC)", "run", "what", "model", "state", "steps", "results", "plan", "commit", "W&B"]
    lines = [f"# {cell(title)}", "", f"{len(entries)} run{'' if len(entries) == 1 else 's'}.", ""]
    lines += ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for entry in entries:
        results = "<br>".join(f"{cell(name)} {cell(value)}" for name, value in entry.results.items())
        if entry.note:
            results += ("<br>" if results else "") + cell(entry.note[:200])
        cells = [
            cell((entry.started or "?")[:16].replace("T", " ")),
            cell(entry.run),
            cell(f"{entry.kind} {entry.what}"),
            cell(entry.model or "?"),
            cell(entry.state or "?"),
            "" if entry.steps is None else str(entry.steps),
            results,
            cell((entry.plan_digest or "?")[:10]),
            cell(short_commit(entry.git_commit)),
            cell(entry.wandb or ""),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _section(entry: JournalEntry) -> list[str]:
    """The heading that a person writes under, and what the table has no place for."""
    lines = [f"## {cell(entry.run)}", "", f"{cell(entry.kind)} {cell(entry.what)}, {cell(entry.state or '?')}"]
    if entry.reevaluated:
        lines += ["", "Checkpoints evaluated again:", "", "| checkpoint | values |", "|---|---|"]
        lines += list(_reevaluated(entry))
    return lines


def _reevaluated(entry: JournalEntry) -> Iterator[str]:
    for name, values in entry.reevaluated.items():
        shown = ", ".join(f"{key.removeprefix('eval/')} {value:.3f}" for key, value in values.items())
        yield f"| {cell(name)} | {cell(shown)} |"
