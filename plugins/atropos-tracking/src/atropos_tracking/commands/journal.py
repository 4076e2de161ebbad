"""`atropos journal`: the trainings and evaluations below a folder, as a table, JSON or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atropos_cli.sdk import DataError
from atropos_cli.sdk.commands import CommandOptions, JsonOption, Session, counted, end, option, shell, with_flags
from atropos_cli.sdk.data import atomic_write, make_folder

if TYPE_CHECKING:
    from atropos_tracking.journal import JournalEntry


class JournalOptions(CommandOptions):
    """Where the journal goes."""

    output: Path | None = option(None, "Write Markdown to this file; - is stdout.", short="o", metavar="FILE")
    overwrite: bool = option(False, "Replace a file that is no journal written by this command.")


@with_flags("journal", JournalOptions)
def journal(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the run folders are.")] = Path("runs"),
    *,
    options: JournalOptions,
    session: Session,
    as_json: JsonOption = False,
) -> None:
    """List training and evaluation runs: date, plan digest, git commit, W&B id, main results.

    A run is a folder with train.json (atropos train) or eval.json (atropos eval), at any depth. A journal that this
    command wrote before is brought up to date: what you wrote into it stays where it is.
    """
    from atropos_tracking.journal import journal as read_journal
    from atropos_tracking.journal import short_commit
    from atropos_tracking.journalpage import is_journal, markdown

    out, output = session.out, options.output
    entries, problems = read_journal(folder)
    for problem in problems:
        out.warning(f"left out: {problem}")
    if output is not None:
        title = f"Runs in {folder}"
        if str(output) == "-":
            out.data(markdown(entries, title).rstrip("\n"))
            return
        if output.is_dir():
            raise DataError(f"{output} is a folder", hint="give a file to -o")
        old = output.read_bytes().decode("utf-8", "surrogateescape") if output.exists() else ""
        if old and not options.overwrite and not is_journal(old):
            raise DataError(f"{output} is already there, and no journal", hint="--overwrite replaces it")
        text = markdown(entries, title, old if is_journal(old) else "")
        make_folder(output.parent)
        atomic_write(output, text.encode("utf-8", "surrogateescape"))
        end(out, f"wrote {output}: {counted(len(entries), 'run')}", _following(entries, folder))
    if as_json:
        out.json([entry.model_dump(mode="json") for entry in entries])
        return
    if output is not None:
        return
    rows = [
        [
            (entry.started or "?")[:16].replace("T", " "),
            entry.run,
            f"{entry.kind} {entry.what}",
            entry.model or "?",
            entry.state or "?",
            (entry.plan_digest or "?")[:10],
            short_commit(entry.git_commit) or "-",
            entry.wandb or "-",
            "; ".join(f"{name} {value}" for name, value in entry.results.items()) or entry.note or "-",
        ]
        for entry in entries
    ]
    out.table(rows, header=("started (UTC)", "run", "what", "model", "state", "plan", "commit", "W&B", "results"))
    headline = counted(len(entries), "run") if entries else f"no training or evaluation runs below {folder}"
    end(out, headline, _following(entries, folder))


def _following(entries: Sequence[JournalEntry], folder: Path) -> str:
    """The newest run is looked at first."""
    if not entries:
        return shell("train", "grpo", "--help")
    newest = max(entries, key=lambda entry: entry.started or "")
    return shell("view" if newest.kind == "eval" else "analyze", folder / newest.run)
