"""`atropos score`: run rewards over stored rollouts; a new file with new scores, the old ones beside them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.cli.lazy import command_of
from atropos_cli.cli.options import ConfigOption, JsonOption
from atropos_cli.cli.rewards import RewardCommand, options_given
from atropos_cli.console import dataio
from atropos_cli.console.dataio import Reading
from atropos_cli.console.ending import again, end, shell
from atropos_cli.console.session import Session, session_of
from atropos_cli.errors import ExitCode, UsageError
from atropos_cli.paths import shell_file

if TYPE_CHECKING:
    from atropos_cli.datasets.rescore.partial import Partial
    from atropos_cli.datasets.rescore.rescoring import ScoreJob, ScoreReport
    from atropos_cli.io.sources import Source
    from atropos_cli.io.writers_out import DataOutput, OutputSpec
    from atropos_cli.rollout.workers import RewardSet

REWARDS, WORK = "Rewards", "Execution"


def score(
    ctx: typer.Context,
    inputs: dataio.Inputs,
    output: dataio.OutputOption = None,
    reward: Annotated[
        list[str] | None,
        typer.Option(
            "--reward",
            metavar="NAME[=WEIGHT]",
            rich_help_panel=REWARDS,
            show_default=False,
            help="An installed reward or ./FILE.py:NAME; repeatable. Default for run folders: the run's own.",
        ),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            "--env",
            metavar="ENV",
            rich_help_panel=REWARDS,
            show_default=False,
            help="Environment whose own rewards may be named.",
        ),
    ] = None,
    group: Annotated[
        bool, typer.Option("--group", help="Join rows of one rollout into groups by task.", rich_help_panel=REWARDS)
    ] = False,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes.", rich_help_panel=WORK)] = 2,
    deadline: Annotated[
        float, typer.Option("--deadline", min=0.01, help="Seconds a reward may take.", rich_help_panel=WORK)
    ] = 30.0,
    memory: Annotated[
        int | None,
        typer.Option("--memory", metavar="MB", min=16, help="Memory a worker may take.", rich_help_panel=WORK),
    ] = None,
    max_error_rate: Annotated[
        float,
        typer.Option(
            "--max-error-rate", min=0.0, max=1.0, rich_help_panel=WORK, help="Stop when more than this share fails."
        ),
    ] = 0.5,
    max_failure_rate: Annotated[
        float,
        typer.Option(
            "--max-failure-rate", min=0.0, max=1.0, rich_help_panel=WORK, help="Exit code 1 above this share."
        ),
    ] = 0.0,
    form: dataio.FormatOption = "auto",
    tolerant: dataio.TolerantOption = False,
    strict: dataio.StrictOption = False,
    rejects: dataio.RejectsOption = None,
    kind: dataio.KindOption = None,
    overwrite: dataio.OverwriteOption = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a stopped run.", rich_help_panel=dataio.WRITING)
    ] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> int:
    """Score stored rollouts. The input is never changed; the output keeps the old scores under score_history.

    Rewards run in processes of their own. One that hangs, crashes or raises costs that rollout its score, with
    the reason in the output; exit code 1 says that there were some. `--reward NAME --help` shows a reward's options.
    """
    from atropos_cli.datasets.rescore.rescoring import ScoreJob, advantages_of
    from atropos_cli.io.upload import is_elsewhere
    from atropos_cli.rollout.workers import PoolOptions

    session = session_of(ctx)
    dataio.check_one_stdout(output, as_json=as_json)
    if resume and (output == "-" or "-" in inputs):
        raise UsageError("--resume needs files as input and output")
    if resume and output is not None and is_elsewhere(output):
        raise UsageError("--resume goes on with what lies on this machine", hint="give a local -o, and push it later")
    if resume and overwrite:
        raise UsageError("--resume and --overwrite exclude each other")
    reading = dataio.open_inputs(session, inputs, form=form, tolerant=tolerant, strict=strict)
    spec = dataio.output_spec(reading.sources, output, kind, overwrite=overwrite)
    job = ScoreJob(
        reading.sources,
        _rewards(reward or [], env, reading.sources, options_given(ctx, config)),
        PoolOptions(workers=workers, deadline=deadline, memory_mb=memory),
        reading.options,
        group_rows=group,
        max_error_rate=max_error_rate,
        advantages=advantages_of(reading.sources),
    )
    report = _carry_out(session, reading, job, spec, resume=resume)
    dataio.write_rejects(reading, spec, rejects)
    _print(session, report, spec, as_json=as_json)
    if report.state == "interrupted":
        following = again(session.args) if is_elsewhere(spec.target) else again(session.args, Path(spec.target))
        kept = "nothing was written: " if is_elsewhere(spec.target) else ""
        end(session.out, f"interrupted: {kept}{report.records} records are scored", following)
        return ExitCode.INTERRUPTED
    tried = report.scored + report.failed
    if tried and report.failed > max_failure_rate * tried:
        return ExitCode.FAILED
    return ExitCode.OK


def _rewards(texts: list[str], env: str | None, sources: list[Source], options: dict[str, dict[str, Any]]) -> RewardSet:
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


def _carry_out(session: Session, reading: Reading, job: ScoreJob, spec: OutputSpec, *, resume: bool) -> ScoreReport:
    """Score into a partial output, then put the output in place."""
    from atropos_cli.datasets.rescore.partial import Partial
    from atropos_cli.datasets.rescore.rescoring import run_score
    from atropos_cli.io.writers_out import open_output

    out = open_output(spec)
    with tempfile.TemporaryDirectory(prefix="atropos-score-") as scratch:
        partial = Partial(Path(scratch) / "out" if out.path is None else out.path)
        with dataio.ticking("score", reading) as ticker:
            report = run_score(job, partial, reading.log, resume=resume, overwrite=spec.overwrite, tick=ticker.tick)
        if report.state == "interrupted":
            partial.close()
            return report
        try:
            reading.require_rows()
            _finish(out, partial)
        except BaseException:
            partial.close()
            raise
        partial.remove()
    _write_card(session, reading, job, report, out)
    return report


def _finish(out: DataOutput, partial: Partial) -> None:
    with out:
        for line in partial.lines():
            out.write(line)


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
