"""The command group in whose terms hints about a job are given, and the lines for one that was submitted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atropos_cli.console.ending import end, shell
from atropos_cli.console.output import Output
from atropos_cli.jobs.store import Submitted
from atropos_cli.ports.launcher import Launcher


@dataclass(frozen=True, slots=True)
class Face:
    """The command group that a user called: `job`, or the name of a launcher, in whose terms hints are given."""

    words: tuple[str, ...] = ("job",)

    def line(self, *words: str | Path) -> str:
        """A command of this group, for a shell."""
        return shell(*self.words, *words)


def print_submitted(out: Output, job: Submitted, launcher: Launcher, face: Face, *, as_json: bool) -> None:
    """A job was submitted: its id is the output."""
    if as_json:
        found = {"id": job.id, "name": job.name, "folder": str(job.folder)}
        call = launcher.call(job.spec)
        out.json({**found, **({"script": call[-1]} if call else {})})
        return
    out.note(f"folder {job.folder}")
    for words in ("status", "cancel"):
        out.note(f"  {face.line(words, job.id)}")
    end(out, f"job {job.id}", face.line("logs", "-f", job.id), data=True)
