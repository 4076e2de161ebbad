"""A pass over stored rows: in this process, or in shards that a launcher executes and this process puts together.

The same command runs everywhere. Called by a user with --on it cuts its input, lets `atropos run FOLDER/shards/I` make
the parts, and takes rows and counts from them instead of reading. What `atropos run` starts (the session has a `part`)
makes the pass over its piece, leaves rows and counts, and stops there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from atropos_cli.cli.parting import alone, check_shared, identities, kept_words, options_digest, part_words
from atropos_cli.cli.spread import ShardOptions, check_spreads, follow
from atropos_cli.config.commands import option
from atropos_cli.console.dataio import MOST_REJECTS, Reading
from atropos_cli.console.ending import command_name
from atropos_cli.console.session import Session
from atropos_cli.errors import DataError, ExitCode, LaunchError, PlanChanged, RunExists, UsageError
from atropos_cli.jobs.launchers import make_launcher

if TYPE_CHECKING:
    from atropos_cli.datasets.choices import Choices, Keyed
    from atropos_cli.io.parts import Part
    from atropos_cli.io.writers_out import DataOutput, OutputSpec
    from atropos_cli.ports.launcher import Launcher

_MOST_KEYS = 1 << 23
"""Bytes of input for each bucket of keys."""


class SpreadOptions(ShardOptions):
    """Who makes the pass over the rows."""

    resume: bool = option(False, "Go on with a stopped run.", panel="Elsewhere")


class Tally(Protocol):
    """Something that counts rows, and can add the counts of other processes."""

    def tally(self) -> Any:
        """The counts as JSON."""

    def absorb(self, state: Any) -> None:
        """Add the counts of a later part."""


class Write(Protocol):
    """Takes the rows of a pass."""

    def __call__(self, row: dict[str, Any] | bytes, *, task: str = "") -> None: ...


class PartFinished(Exception):
    """The part of this process is made; the command has nothing more to do here."""


@dataclass(slots=True)
class Pass:
    """One pass. do: reads, counts in `tallies`, writes rows. options: of the command, `SpreadOptions` among them.

    across: options that compare rows of the whole input, and can do so in one process only. keyed: how rows are
    compared over all parts, for a launcher that groups them by keys; choices: the same in a part.
    resumes: the command resumes a stopped run in one process, too.
    """

    session: Session
    reading: Reading
    options: Any
    spec: OutputSpec | None
    do: Callable[[Write], None]
    tallies: Sequence[Tally]
    across: Sequence[str] = ()
    keyed: Keyed | None = None
    choices: Choices | None = None
    resumes: bool = False
    _work: Path | None = field(default=None, init=False)

    def run(self, out: DataOutput | None) -> None:
        """Make the pass, into `out` where there is one. Raises PartFinished in the process of a part."""
        if self.session.part is not None:
            self._make_part(self.session.part)
            raise PartFinished
        launcher: str | None = getattr(self.options, "on", None)
        if launcher is None:
            if getattr(self.options, "resume", False) and not self.resumes:
                raise UsageError("--resume is for shards", hint="add --on LAUNCHER, or drop --resume")
            self.do(out.write if out is not None else _nowhere)
            return
        took = [used for part in self._spread(launcher) for used in self._take(part, out)]
        seconds, most = sum(cpu for cpu, _ in took), max(megabytes for _, megabytes in took)
        self.session.out.note(f"the shards took {seconds:.0f} s of CPU time, and up to {most:.0f} MB each")
        if not self.reading.log.records:  # an error, and nothing to resume
            self.clean_up()

    def clean_up(self) -> None:
        """The output is in place: the parts are not needed any more."""
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)

    # A part of it ----------------------------------------------------------------------------------------------

    def _make_part(self, part: Part) -> None:
        from atropos_cli.io.parts import ROWS, PartRows

        if options_digest(self.options) != part.options:
            raise PlanChanged(
                f"the options of {part.words[0]} are not those that {part.folder.parent.parent} was cut for",
                hint="a configuration file or a variable differs here; give the first command again with --overwrite",
            )
        if part.step != ROWS:
            self.do(_nowhere)
            if self.choices is not None:
                self.choices.close()
            return
        rows = PartRows(part.folder, self.spec)
        try:
            self.do(rows.write)
        finally:
            output = rows.close()
        self.reading.log.close()
        rejects = [reject.as_row() for reject in self.reading.rejects]
        states = [tally.tally() for tally in (self.reading.log, *self.tallies)]
        part.finish({"output": output, "rejects": rejects, "states": states})

    def _take(self, part: Part, out: DataOutput | None) -> list[tuple[float, float]]:
        """Add the rows and the counts of a finished part; returns the CPU seconds and megabytes of its steps."""
        from atropos_cli.io.parts import KEYS, part_rows
        from atropos_cli.io.readers import Reject

        result = part.result()
        if result is None:
            raise DataError(f"{part.folder} has no result", hint="give the command again with --resume")
        for tally, state in zip((self.reading.log, *self.tallies), result["states"], strict=True):
            tally.absorb(state)
        room = max(0, MOST_REJECTS - len(self.reading.rejects))
        self.reading.rejects.extend(Reject.of_row(row) for row in result["rejects"][:room])
        if out is not None:
            for line, split in part_rows(part):
                out.put(line, split)
            out.columns.update(result["output"]["columns"])
            out.scores.absorb(result["output"]["scores"])
        keys = _step(part, KEYS).result()
        return [result["used"], *([] if keys is None else [keys["used"]])]

    # All of it -------------------------------------------------------------------------------------------------

    def _spread(self, name: str) -> list[Part]:
        """Let a launcher make the parts; returns them in order, all done."""
        from atropos_cli.io.parts import KEYS, ROWS

        launcher = make_launcher(self.session, name, self.options.on_options)
        check_spreads(launcher)
        self._check(launcher)
        parts = self._cut()
        work = parts[0].folder.parent.parent
        self._prepare(work, parts)
        with alone(work):
            if self.keyed is not None and not (work / "chosen").exists():
                self._make(launcher, work, [_step(part, KEYS) for part in parts])
                self._choose(launcher, work, parts)
            parts = [_step(part, ROWS) for part in parts]
            self._make(launcher, work, parts)
        self._work = work
        return parts

    def _check(self, launcher: Launcher) -> None:
        for source in self.reading.sources:
            check_shared(source)
        if self.across:
            raise UsageError(
                f"{self.across[0]} compares rows of all shards, and --on makes each shard alone",
                hint="give the command without --on; --max-per-task and --balance may follow on the result",
            )
        if self.keyed is not None and not launcher.capabilities.keyed:
            raise UsageError(
                f"{self.keyed.what} compares rows of all shards, which launcher {launcher.name!r} cannot",
                hint="--on ray compares them through Ray Data; or give the whole command without --on",
            )

    def _cut(self) -> list[Part]:
        from atropos_cli.io.cutting import cut
        from atropos_cli.io.parts import ROWS, Part

        words = tuple(part_words(self.session.args))
        options = options_digest(self.options)
        count = self.options.shards
        whole = [*kept_words(words), options, str(count), *identities(self.reading.sources)]
        digest = blake2b("\0".join(whole).encode("utf-8", "replace"), digest_size=16).hexdigest()
        work = self._folder(digest)
        size = sum(source.path.stat().st_size for source in self.reading.sources if source.path is not None)
        buckets = min(4096, max(2 * count, size // _MOST_KEYS))
        pieces = [sources for sources in cut(self.reading.sources, count) if sources]
        return [
            Part(work / "shards" / str(i), i, len(pieces), ROWS, words, tuple(sources), digest, options, buckets)
            for i, sources in enumerate(pieces)
        ]

    def _folder(self, digest: str) -> Path:
        """Where the parts are made: beside the output, else in the working directory."""
        from atropos_cli.io.upload import is_remote_target
        from atropos_cli.paths import home

        if self.spec is None or self.spec.to_stdout or is_remote_target(self.spec.target):
            return Path(f"{command_name(self.session.args)}-{digest[:8]}.shards").absolute()
        path = Path(home(self.spec.target)).absolute()
        return path.with_name(f"{path.name}.shards")

    def _prepare(self, work: Path, parts: Sequence[Part]) -> None:
        """Make the folder, or check that it holds parts of this very command."""
        from atropos_cli.io.parts import Part as Stored
        from atropos_cli.io.remote import make_folder

        first = parts[0].folder / "plan.json"
        overwrite = getattr(self.options, "overwrite", False)
        if work.exists() and overwrite and not self.options.resume:
            with alone(work):
                shutil.rmtree(work)
        if first.exists() and not any(work.glob("shards/*/*result-*")) and not any(work.glob("shards/*/scored.*")):
            with alone(work):
                shutil.rmtree(work)  # nothing came of it
        if first.exists():
            if not self.options.resume:
                raise RunExists(
                    f"{work} holds shards of a stopped command", hint="--resume continues, --overwrite starts over"
                )
            if Stored.read(first).digest != parts[0].digest:
                raise PlanChanged(
                    f"{work} was made for another command, other options or inputs, or another number of shards",
                    hint="give the first command again with --resume, or start over with --overwrite",
                )
            return
        make_folder(work)
        for part in reversed(parts):  # the first one last: it says that all are there
            part.write()

    def _make(self, launcher: Launcher, work: Path, parts: Sequence[Part]) -> None:
        """Let the launcher make those parts that are not done. Raises LaunchError naming those that failed."""
        from atropos_cli.jobs.spreading import passed_on
        from atropos_cli.ports.launcher import JobSpec

        if all(part.result() is not None for part in parts):
            return
        for part in parts:
            part.write()
        job = JobSpec(
            name=work.name, run=str(work), resources={"shards": len(parts)}, cwd=str(Path.cwd()), env=passed_on()
        )
        job_id = launcher.submit(job)
        self.session.out.note(f"{len(parts)} shards on {launcher.name} -> {work}")
        status = follow(self.session, launcher, job_id)
        missing = [str(part.index) for part in parts if part.result() is None]
        if not missing:
            return
        if status is None:
            self.session.out.note("finished shards are kept: the same command with --resume makes the others")
            raise KeyboardInterrupt
        shown = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        error = LaunchError(
            f"shards {shown} of {len(parts)} on {launcher.name} are not done: {status.reason or status.state}",
            hint="the same command with --resume makes these alone; their output is above and in "
            f"{work / 'shards' / missing[0]}",
        )
        if status.exit_code in set(ExitCode) - {ExitCode.OK, ExitCode.BUG}:
            error.exit_code = ExitCode(status.exit_code)
        raise error

    def _choose(self, launcher: Launcher, work: Path, parts: Sequence[Part]) -> None:
        """Compare the keys of all parts, and hand each part what concerns its rows."""
        from atropos_cli.datasets.choices import hand_out, keys_of

        assert self.keyed is not None
        keys = [path for part in parts for path in keys_of(part.folder)]
        found = work / "verdicts"
        shutil.rmtree(found, ignore_errors=True)
        if keys:
            self.session.out.note(f"comparing rows across shards on {launcher.name}")
            launcher.decide(self.keyed.job(keys, found))
        hand_out(found, [part.folder for part in parts])
        (work / "chosen").touch()


def choices_of(session: Session, keyed: Keyed | None) -> Choices | None:
    """What takes the place of comparing rows in this process: in the parts of a pass, where rows are compared."""
    if session.part is None or keyed is None:
        return None
    from atropos_cli.datasets.choices import choices

    return choices(session.part)


def open_out(session: Session, spec: OutputSpec | None) -> DataOutput | None:
    """The command's output; none in a dry run, and none in a process that makes a part."""
    from atropos_cli.io.writers_out import open_output

    return None if spec is None or session.part is not None else open_output(spec)


def make_part(path: Path, session: Session) -> int:
    """Make the part whose plan this is: what `atropos run` does. A part that is done stays."""
    from atropos_cli.cli.app import root_group
    from atropos_cli.io.parts import Part

    part = Part.read(path)
    if part.result() is not None:
        session.out.note(f"{part.folder} is done already")
        return ExitCode.OK
    own = Session([*session.switches, *part.words])
    own.part = part
    own.check_command, own.program = session.check_command, session.program
    with alone(part.folder):
        try:
            with root_group().make_context("atropos", list(own.args), obj=own) as context:
                context.command.invoke(context)
        except PartFinished:
            return ExitCode.OK
    raise DataError(f"{path}: {part.words[0]} does not run in shards", hint="give it without --on")


def _step(part: Part, step: str) -> Part:
    return replace(part, step=step)


def _nowhere(row: dict[str, Any] | bytes, *, task: str = "") -> None:
    pass
