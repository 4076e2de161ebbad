"""`atropos runs`: the runs below a folder, how each stands, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated

import typer

from atropos_cli.config.commands import CommandOptions, option
from atropos_cli.console.commands import JsonOption, with_flags
from atropos_cli.console.session import Session
from atropos_cli.errors import DataError

if TYPE_CHECKING:
    from atropos_cli.runs.entry import RunEntry
    from atropos_cli.runs.listing import Listing, Wanted

DEFAULT = "runs"
"""The folder that gen, eval and train write to."""

_ROWS = 30
_MODEL = 28
_UNFINISHED = ("interrupted", "lost")

FILTERS = "Which runs"


class RunsOptions(CommandOptions):
    """Which runs are listed."""

    states: tuple[str, ...] = option(
        (),
        "running, finished, interrupted, stopped, failed, lost, planned or unreadable.",
        panel=FILTERS,
        flag="state",
        metavar="STATE",
    )
    kinds: tuple[str, ...] = option((), "gen, eval or train.", panel=FILTERS, flag="kind")
    envs: tuple[str, ...] = option((), "Part of the environment's name, or a pattern.", panel=FILTERS, flag="env")
    models: tuple[str, ...] = option((), "Part of the model's name, or a pattern.", panel=FILTERS, flag="model")
    since: str | None = option(None, "Begun since: 12h, 2d, 1w, or a date.", panel=FILTERS, metavar="TIME")
    limit: int | None = option(
        None,
        f"The newest N; 0: all; default: {_ROWS}, all with --json.",
        panel=FILTERS,
        short="n",
        metavar="N",
        ge=0,
    )


@with_flags("runs", RunsOptions)
def runs(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER]...", help="Where to look, at any depth.  [default: runs]", show_default=False),
    ] = None,
    *,
    options: RunsOptions,
    session: Session,
    as_json: JsonOption = False,
) -> None:
    """List runs of gen, eval and train: when, what, which model, how far, the reward, the state.

    A run is running when a process holds its lock; one that was killed is interrupted, and `atropos run FOLDER` goes
    on with it. Only small files are read, so the size of the runs does not matter. `atropos view runs` shows the same
    list in the browser, live.
    """
    from atropos_cli.runs.entry import KINDS
    from atropos_cli.runs.listing import Wanted, list_runs, one_of
    from atropos_cli.runs.listing import since as time_of
    from atropos_cli.runs.state import STATES

    wanted = Wanted(
        states=one_of("--state", options.states, STATES),
        kinds=one_of("--kind", options.kinds, KINDS),
        envs=options.envs,
        models=options.models,
        since=time_of(options.since) if options.since is not None else None,
    )
    places = _places(folders or ())
    listing = list_runs(places)
    most = options.limit if options.limit is not None else 0 if as_json else _ROWS
    chosen = [entry for entry in listing.entries if wanted.matches(entry)]
    shown = chosen[:most] if most else chosen
    if as_json:
        _as_json(session, folders or [Path(DEFAULT)], listing, chosen, shown)
        return
    _as_table(session, shown)
    for note in listing.notes:
        session.out.note(note)
    if not listing.entries:
        names = ", ".join(str(folder) for folder in folders or [Path(DEFAULT)])
        session.out.note(f"no runs below {names}; atropos gen ENV makes one")
    elif not chosen:
        session.out.note(f"none of {len(listing.entries)} runs is one of those; {_there(listing, wanted)}")
    elif len(shown) < len(chosen):
        session.out.note(f"the newest {len(shown)} of {len(chosen)} runs; -n 0 lists all")
    _tell_next(session, shown)


def _places(folders: Sequence[Path]) -> list[Path]:
    """The folders to look in; the one that nobody named need not be there yet."""
    for folder in folders:
        if not folder.is_dir():
            what = "is no folder" if folder.exists() else "does not exist"
            raise DataError(f"{folder} {what}", hint="atropos runs FOLDER, where the run folders are")
    return list(folders) or [folder for folder in (Path(DEFAULT),) if folder.is_dir()]


def _as_json(
    session: Session, folders: Sequence[Path], listing: Listing, chosen: list[RunEntry], shown: list[RunEntry]
) -> None:
    session.out.json(
        {
            "folders": [str(folder) for folder in folders],
            "runs": [entry.model_dump(mode="json") for entry in shown],
            "matching": len(chosen),
            "found": len(listing.entries),
            "notes": listing.notes,
        }
    )


def _as_table(session: Session, entries: list[RunEntry]) -> None:
    from atropos_cli.runs.listing import progress, result, telling_options, what

    options = telling_options(entries)
    rows = [
        [
            (entry.started or "?")[:16].replace("T", " "),
            entry.kind,
            _cut(what(entry, options.get(entry.run, {})), 48),
            _model(entry),
            progress(entry),
            result(entry),
            entry.state,
            entry.run + (f"  ({_cut(entry.error, 100)})" if entry.error else ""),
        ]
        for entry in entries
    ]
    session.out.table(rows, header=("started (UTC)", "kind", "what", "model", "done", "result", "state", "run"))


def _model(entry: RunEntry) -> str:
    """Of a path its last part."""
    name = entry.model or entry.backend or "?"
    return _cut(PurePath(name).name if name.startswith(("/", ".", "~")) else name, _MODEL)


def _cut(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _there(listing: Listing, wanted: Wanted) -> str:
    """What there is instead of what was asked for."""
    from collections import Counter

    if wanted.envs:
        names = sorted({entry.env for entry in listing.entries if entry.env})
        return f"environments: {', '.join(names[:10]) or 'none'}"
    if wanted.models:
        names = sorted({entry.model for entry in listing.entries if entry.model})
        return f"models: {', '.join(names[:10]) or 'none'}"
    counts = Counter(entry.state for entry in listing.entries)
    return "there are " + ", ".join(f"{count} {state}" for state, count in counts.most_common())


def _tell_next(session: Session, entries: Sequence[RunEntry]) -> None:
    """What to type: to look at the newest run, and to go on with the newest one that was broken off."""
    looked = next((e for e in entries if e.next and e.next.startswith("atropos view") and e.done), None)
    broken = next((e for e in entries if e.next and e.state in _UNFINISHED), None)
    if looked is not None and looked.next is not None:
        session.out.following(looked.next)
    if broken is not None:
        session.out.note(f"{broken.run} was broken off; to go on: {broken.next}")
