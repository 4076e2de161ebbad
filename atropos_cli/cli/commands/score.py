"""`atropos score`: run rewards over stored rollouts; a new file with new scores, the old ones beside them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.cli.lazy import command_of
from atropos_cli.cli.passes import Pass, SpreadOptions, open_out
from atropos_cli.cli.rewards import RewardCommand, reward_options
from atropos_cli.config.commands import option
from atropos_cli.config.resolve import Resolved
from atropos_cli.console import dataio
from atropos_cli.console.commands import JsonOption, with_flags
from atropos_cli.console.dataio import Reading
from atropos_cli.console.ending import again, end, shell
from atropos_cli.console.session import Session
from atropos_cli.errors import ExitCode, UsageError
from atropos_cli.paths import shell_file

if TYPE_CHECKING:
    from atropos_cli.cli.passes import Write
    from atropos_cli.datasets.rescore.partial import Partial
    from atropos_cli.datasets.rescore.rescoring import ScoreJob, ScoreReport
    from atropos_cli.io.sources import Source
    from atropos_cli.io.writers_out import DataOutput, OutputSpec
    from atropos_cli.rollout.workers import RewardSet

REWARDS, WORK = "Rewards", "Execution"


class ScoreOptions(dataio.OutputOptions, dataio.FormatOptions, SpreadOptions):
    """Which rewards, how they run, and what is read and written."""

    rewards: tuple[str, ...] = option(
        (),
        "An installed reward or ./FILE.py:NAME; default for run folders: the run's own.",
        panel=REWARDS,
        flag="reward",
        metavar="NAME[=WEIGHT]",
    )
    env: str | None = option(None, "Environment whose own rewards may be named.", panel=REWARDS, metavar="ENV")
    group: bool = option(False, "Join rows of one rollout into groups by task.", panel=REWARDS)
    workers: int = option(2, "Processes.", panel=WORK, ge=1)
    deadline: float = option(30.0, "Seconds a reward may take.", panel=WORK, ge=0.01)
    memory: int | None = option(None, "Memory a worker may take.", panel=WORK, metavar="MB", ge=16)
    max_error_rate: float = option(0.5, "Stop when more than this share fails.", panel=WORK, ge=0.0, le=1.0)
    max_failure_rate: float = option(0.0, "Exit code 1 above this share.", panel=WORK, ge=0.0, le=1.0)


@with_flags("score", ScoreOptions)
def score(
    inputs: dataio.Inputs, *, options: ScoreOptions, session: Session, resolved: Resolved, as_json: JsonOption = False
) -> int:
    """Score stored rollouts. The input is never changed; the output keeps the old scores under score_history.

    Rewards run in processes of their own. One that hangs, crashes or raises costs that rollout its score, with
    the reason in the output; exit code 1 says that there were some. `--reward NAME --help` shows a reward's options.
    """
    from atropos_cli.datasets.rescore.rescoring import ScoreJob, advantages_of
    from atropos_cli.io.upload import is_remote_target
    from atropos_cli.rollout.workers import PoolOptions

    _check(options, inputs, as_json=as_json)
    reading = dataio.read_inputs(session, inputs, options)
    spec = dataio.target_of(reading.sources, options)
    job = ScoreJob(
        reading.sources,
        _rewards(options.rewards, options.env, reading.sources, reward_options(resolved)),
        PoolOptions(workers=options.workers, deadline=options.deadline, memory_mb=options.memory),
        reading.options,
        group_rows=options.group,
        max_error_rate=options.max_error_rate,
        advantages=advantages_of(reading.sources),
    )
    report = _carry_out(session, reading, job, spec, options)
    dataio.write_rejects(reading, spec, options.rejects)
    _print(session, report, spec, as_json=as_json)
    if report.state == "interrupted":
        following = again(session.args) if is_remote_target(spec.target) else again(session.args, Path(spec.target))
        kept = "nothing was written: " if is_remote_target(spec.target) else ""
        end(session.out, f"interrupted: {kept}{report.records} records are scored", following)
        return ExitCode.INTERRUPTED
    tried = report.scored + report.failed
    if tried and report.failed > options.max_failure_rate * tried:
        return ExitCode.FAILED
    return ExitCode.OK


def _check(options: ScoreOptions, inputs: list[str], *, as_json: bool) -> None:
    """Raises UsageError for options that exclude each other."""
    from atropos_cli.io.upload import is_remote_target

    output = options.output
    dataio.check_one_stdout(output, as_json=as_json)
    if options.resume and (output == "-" or "-" in inputs):
        raise UsageError("--resume needs files as input and output")
    if options.resume and output is not None and is_remote_target(output):
        raise UsageError("--resume goes on with what lies on this machine", hint="give a local -o, and push it later")
    if options.resume and options.overwrite:
        raise UsageError("--resume and --overwrite exclude each other")


def _rewards(
    texts: Sequence[str], env: str | None, sources: list[Source], options: dict[str, dict[str, Any]]
) -> RewardSet:
    """NAME or NAME=WEIGHT; nothing: the rewards of the one run that is the input."""
    from atropos_cli.datasets.rescore.rescoring import rewards_of_run
    from atropos_cli.rollout.workers import RewardSet

    if not texts:
        runs = {source.run for source in sources}
        run = runs.pop() if len(runs) == 1 else None
        if run is None or env is not None:
            raise UsageError("no reward given", hint="add --reward NAME; atropos reward list shows them")
        return rewards_of_run(run)
    pairs: list[tuple[str, float | None]] = []
    for text in texts:
        name, separator, weight = text.rpartition("=")
        try:
            pairs.append((name, float(weight)) if separator else (text, None))
        except ValueError as error:
            raise UsageError(f"reward {text!r}: {weight!r} is not a number", hint="give NAME=WEIGHT") from error
    names = [name for name, _ in pairs]
    doubled = [name for name in names if names.count(name) > 1]
    if doubled:
        raise UsageError(f"reward {doubled[0]!r} is given twice", hint="give each reward once, with one weight")
    return RewardSet(tuple(pairs), env, options)


class _Interrupted(Exception):
    """Stopped by a signal; finished scores are kept."""

    def __init__(self, report: ScoreReport) -> None:
        super().__init__("interrupted")
        self.report = report


def _carry_out(
    session: Session, reading: Reading, job: ScoreJob, spec: OutputSpec, options: ScoreOptions
) -> ScoreReport:
    """Score into a partial output, then put the output in place."""
    from atropos_cli.datasets.rescore.partial import Partial
    from atropos_cli.datasets.rescore.rescoring import ScoreReport

    out = open_out(session, spec)
    report = ScoreReport()
    with tempfile.TemporaryDirectory(prefix="atropos-score-") as scratch:
        place = Path(scratch) / "out" if out is None or out.path is None else out.path
        partial = Partial(place if session.part is None else session.part.folder / "scored.jsonl")

        def do(write: Write) -> None:
            report.absorb(_score(session, reading, job, partial, options).tally())
            if session.part is None:  # a part may have none
                reading.require_rows()
            for line in partial.lines():
                write(line)

        across = ["--group"] if options.group else []
        whole = Pass(session, reading, options, spec, do, [report], across, resumes=True)
        try:
            whole.run(out)
            reading.require_rows()
            if out is not None:
                out.commit()
        except _Interrupted as stopped:
            if out is not None:
                out.abort()
            return stopped.report
        except BaseException:
            if out is not None:
                out.abort()
            partial.close()
            raise
        partial.remove()
    whole.clean_up()
    if out is not None:
        _write_card(session, reading, job, report, out)
    return report


def _score(session: Session, reading: Reading, job: ScoreJob, partial: Partial, options: ScoreOptions) -> ScoreReport:
    """Score all records into the partial output. Raises _Interrupted; KeyboardInterrupt where a part was to be made."""
    from atropos_cli.datasets.rescore.rescoring import run_score

    resume = options.resume or session.part is not None
    with dataio.ticking("score", reading) as ticker:
        report = run_score(
            job, partial, reading.log, resume=resume, overwrite=options.overwrite and not resume, tick=ticker.tick
        )
    if report.state == "interrupted":
        partial.close()
        if session.part is not None:
            raise KeyboardInterrupt
        raise _Interrupted(report)
    return report


def _write_card(session: Session, reading: Reading, job: ScoreJob, report: ScoreReport, out: DataOutput) -> None:
    from atropos_cli.io.card import Card

    card = Card.of(
        "score",
        reading.sources,
        reading.log,
        options={"rewards": [list(pair) for pair in job.rewards.rewards], "environment": job.rewards.environment},
        steps=[{"reward": name, **told} for name, told in report.scorer.items()],
        counts=report.as_json(),
        lineage="rows keep their ids and all other fields; earlier scores are under score_history",
    )
    dataio.write_cards(out, card, session)


def _print(session: Session, report: ScoreReport, spec: OutputSpec, *, as_json: bool) -> None:
    for text in report.first_errors:
        session.out.warning(text)
    if report.failed > len(report.first_errors):
        session.out.warning(f"and {report.failed - len(report.first_errors)} more failures like these")
    if report.trace:
        session.out.trace(report.trace)
    if as_json:
        session.out.json(report.as_json())
        return
    say = session.out.note if spec.to_stdout else session.out.data
    data = report.as_json()
    before = f", {report.resumed} of them before" if report.resumed else ""
    say(f"scored {report.scored} of {report.rollouts} rollouts in {report.records} records{before}")
    if report.errors:
        say("failed: " + ", ".join(f"{count} {name}" for name, count in report.errors.most_common()))
    if report.not_scored:
        say(f"not scored, because they had failed before: {report.not_scored}")
    if data["mean"] is not None:
        if data["metrics"]:
            say("metrics: " + ", ".join(f"{name} {value:.4g}" for name, value in data["metrics"].items()))
        if len(report.scorer) > 1:
            say("rewards: " + ", ".join(f"{name} {value:.4g}" for name, value in data["rewards"].items()))
    changes = data["changes"]
    say(
        f"verdicts: {changes['higher']} higher, {changes['lower']} lower, {changes['same']} the same, "
        f"{changes['first']} scored for the first time, {changes['lost']} lost their score"
    )
    if report.state != "finished":
        return
    from atropos_cli.io.remote import shown

    old = f" (before: {data['mean_before']:.4g})" if data["mean_before"] is not None else ""
    mean = "no score" if data["mean"] is None else f"mean score {data['mean']:.4g}{old}"
    if spec.to_stdout:
        end(session.out, mean)
        return
    say(f"wrote {shown(spec.target)}")
    end(session.out, mean, shell("analyze", shell_file(shown(spec.target))), data=True)


command = command_of(score, name="score", cls=RewardCommand)
