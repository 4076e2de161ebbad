"""The entry point: `atropos COMMAND ...`. Imports typer and nothing heavier; commands come in when they run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, TextIO, cast

import typer

import atropos_cli
from atropos_cli import redaction
from atropos_cli.cli.failure import quit_in_component, report
from atropos_cli.cli.lazy import Help, LazyCommand, LazyGroup, add_common, load_target, new_app
from atropos_cli.cli.leaving import Leaving
from atropos_cli.config import dotenv
from atropos_cli.config.program import apply as apply_program_settings
from atropos_cli.config.program import program_settings
from atropos_cli.console.session import Session
from atropos_cli.errors import ExitCode
from atropos_cli.streams import claim_stdout, open_closed

_COMMANDS = "atropos_cli.cli.commands"
ROLLOUTS, DATA, TRAINING = "Rollouts", "Data", "Training"
COMPONENTS, SETUP, JOBS = "Environments, rewards, plugins", "Set-up", "Jobs and servers"

COMMANDS: dict[str, LazyCommand] = {
    "gen": LazyCommand(
        f"{_COMMANDS}.gen:app", "Roll out an environment against a model; write scored groups.", ROLLOUTS
    ),
    "eval": LazyCommand(f"{_COMMANDS}.eval:app", "Evaluate a model on an environment: accuracy, pass@k.", ROLLOUTS),
    "run": LazyCommand(f"{_COMMANDS}.run:run", "Carry out a plan.json, as a cluster job does.", ROLLOUTS),
    "runs": LazyCommand(f"{_COMMANDS}.runs:runs", "List runs: when, what, reward, and how each stands.", ROLLOUTS),
    "analyze": LazyCommand("", "Describe rollouts: rewards, pass@k, lengths, failures.", DATA, "atropos-view"),
    "score": LazyCommand(f"{_COMMANDS}.score:command", "Score stored rollouts again, with any rewards.", DATA),
    "filter": LazyCommand(f"{_COMMANDS}.filter:filter_rollouts", "Keep the rollouts that pass.", DATA),
    "merge": LazyCommand(f"{_COMMANDS}.merge:merge", "Join shards of a run, or files of one format.", DATA),
    "sft-gen": LazyCommand(f"{_COMMANDS}.sft_gen:sft_gen", "Make rows for supervised fine-tuning.", DATA),
    "dpo-gen": LazyCommand(f"{_COMMANDS}.dpo_gen:dpo_gen", "Make preference pairs.", DATA),
    "prompt-gen": LazyCommand(
        f"{_COMMANDS}.prompt_gen:prompt_gen", "Make rows of problems, for verl and TRL's GRPO.", DATA
    ),
    "push": LazyCommand("", "Push rows or a run to the Hugging Face hub, with a card.", DATA, "atropos-hub"),
    "view": LazyCommand("", "Browse rollouts in a local page; compare two runs.", DATA, "atropos-view"),
    "train": LazyCommand(
        "", "Train on live environments or data: grpo, sft, dpo, kto, reward.", TRAINING, "atropos-training"
    ),
    "reevaluate": LazyCommand("", "Evaluate the stored checkpoints of a training run.", TRAINING, "atropos-tracking"),
    "journal": LazyCommand("", "List training and evaluation runs, as Markdown.", TRAINING, "atropos-tracking"),
    "launch-sglang": LazyCommand("", "Start SGLang servers for a model.", JOBS, "atropos-serving"),
    "launch-skyrl": LazyCommand("", "Start SkyRL's training server for a model.", JOBS, "atropos-serving"),
    "launch-vllm": LazyCommand("", "Start vLLM servers for a model.", JOBS, "atropos-serving"),
    "serve": LazyCommand("", "Serve trajectories: groups in, batches out.", JOBS, "atropos-serve"),
    "job": LazyCommand(f"{_COMMANDS}.job:app", "Run commands as jobs of any launcher.", JOBS),
    "slurm": LazyCommand("", "Run commands as SLURM jobs, with their inference servers.", JOBS, "atropos-slurm"),
    "tmux": LazyCommand("", "Run commands in tmux, here or over ssh; they go on after logout.", JOBS, "atropos-tmux"),
    "pipeline": LazyCommand("", "Carry out steps that depend on each other.", JOBS, "atropos-pipeline"),
    "env": LazyCommand(f"{_COMMANDS}.env:app", "List, describe and check environments.", COMPONENTS),
    "env check": LazyCommand(
        "", "Check an environment without a model: tasks, gold answers, episodes.", COMPONENTS, "atropos-authoring"
    ),
    "env import": LazyCommand(
        "", "List the environments of atroposlib in a checkout.", COMPONENTS, "atropos-atroposlib"
    ),
    "export": LazyCommand(f"{_COMMANDS}.export:app", "Write environments for other frameworks.", COMPONENTS),
    "export verifiers": LazyCommand(
        "", "Write an environment as a package that verifiers' own runner plays.", COMPONENTS, "atropos-verifiers"
    ),
    "serve-env": LazyCommand("", "Serve an environment to OpenEnv's clients.", COMPONENTS, "atropos-openenv"),
    "reward": LazyCommand(f"{_COMMANDS}.reward:app", "List rewards.", COMPONENTS),
    "trainer": LazyCommand(f"{_COMMANDS}.trainer:app", "List trainers.", COMPONENTS),
    "plugins": LazyCommand(f"{_COMMANDS}.plugins:app", "List and check installed plugins.", COMPONENTS),
    "plugins check": LazyCommand(
        "", "Import every component for real, in a child process.", COMPONENTS, "atropos-authoring"
    ),
    "new": LazyCommand("", "Start a plugin from a template.", COMPONENTS, "atropos-authoring"),
    "config": LazyCommand(f"{_COMMANDS}.config:app", "Show each setting and where it comes from.", SETUP),
    "prefetch": LazyCommand(
        f"{_COMMANDS}.prefetch:prefetch", "Fetch models and data, for jobs without a network.", SETUP
    ),
    "doctor": LazyCommand(f"{_COMMANDS}.doctor:doctor", "Check this installation.", SETUP),
}


class RootGroup(LazyGroup):
    table = COMMANDS
    first = "COMMAND"


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"atropos {atropos_cli.__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """LLM reinforcement-learning data on the command line: generate, score, filter, convert, train, launch."""


def root_group() -> Any:
    """The whole command line as one command object."""
    app = new_app(
        cls=RootGroup,
        add_completion=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
    group = typer.main.get_command(app)
    add_common(group)
    return group


def _check_command(name: str) -> None:
    load_target("atropos_cli.cli.resolve:check_known")(name)


def run(args: Sequence[str]) -> int:
    """Run one command line; returns the exit code and lets no exception out but SystemExit."""
    from_dotenv = dotenv.load()
    session = Session(args)
    session.check_command = _check_command
    redaction.begin(args=args)
    plain, sys.stderr = sys.stderr, cast("TextIO", redaction.RedactedStream(sys.stderr))
    try:
        return _run(args, session)
    finally:
        sys.stderr = plain
        for name in from_dotenv:
            os.environ.pop(name, None)


def _run(args: Sequence[str], session: Session) -> int:
    try:
        session.program = program_settings(args)
        apply_program_settings(session.program)
        _reach_own_servers()
        group = root_group()
        with group.make_context("atropos", list(args), obj=session) as ctx:
            result = group.invoke(ctx)
        sys.stdout.flush()
    except typer.Exit as stop:
        return _flushed(stop.exit_code, session)
    except Help as help_text:
        session.out.note(help_text.message)
        return ExitCode.USAGE
    except SystemExit as error:
        return report(quit_in_component(error), session)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (the one place that turns errors into exit codes)
        return report(error, session)
    # A plugin's command may return anything: only an ExitCode is meant as one.
    return result if isinstance(result, ExitCode) else ExitCode.OK


def _reach_own_servers() -> None:
    if any(name.lower() in ("http_proxy", "https_proxy", "all_proxy") for name in os.environ):
        from atropos_cli.serving.state import reach_directly

        reach_directly()


def _flushed(code: int, session: Session) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:
        return report(error, session)
    return code


def main() -> None:
    """The installed script."""
    # Else pydantic reads the records of all distributions, and one that is damaged would stop every command.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if os.environ.get("_ATROPOS_COMPLETE"):  # the shell asks for completions; typer answers
        root_group().main(prog_name="atropos", obj=Session())
    open_closed()
    claim_stdout()
    leaving = Leaving()
    code = run(sys.argv[1:])
    if "atropos_cli.plugins.loader" in sys.modules:
        leaving.with_code(code)
    sys.exit(code)
