"""From options and the words of a command to an Order: the command resolved here, its servers planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer

from atropos_cli.cli.resolve import check_known, frozen_config, parsed, planned
from atropos_cli.console.ending import without_option
from atropos_cli.console.session import Session
from atropos_cli.errors import ConfigError, UsageError
from atropos_cli.jobs.order import Order, PlannedRun, Wanted
from atropos_cli.jobs.prepare import RUNS, world_variables
from atropos_cli.ports.serving import TRAJECTORIES, Serve

_REFUSED = frozenset({"job", "slurm", "tmux", "launch-sglang", "launch-vllm", "view"})
_DUMMY_URL = ("--base-url", "http://127.0.0.1:9/v1")
"""Stands for servers whose addresses are known when the job runs."""


def make_order(session: Session, command: Sequence[str], wanted: Wanted, *, example: str = "") -> Order:
    """Resolve the command as it would be carried out now. Raises UsageError, ConfigError."""
    words = tuple(command[1:] if command and command[0] == "atropos" else command)
    if not words or words[0].startswith("-"):
        raise UsageError("give the command to run", hint=example)
    check_known(words[0])
    if words[0] in _REFUSED:
        raise UsageError(f"atropos {words[0]} is no command for a batch job")
    if words[0] in RUNS and len(without_option(words, "--output", "-o")[1]) > 1:
        raise UsageError("--output is given twice, and it takes one value", hint="give it once")
    serve, served = wanted.serve, tuple[str, ...]()
    if serve is not None and serve.engine == TRAJECTORIES:
        served = (_trajectory_option(words, serve), "http://127.0.0.1:9")
    elif serve is not None:
        words, serve = _with_model(words, serve)
        served = _DUMMY_URL
    nodes = 1 if words[0] != "train" else wanted.resources.nodes
    env = {**wanted.env, **world_variables(nodes)}
    run: PlannedRun | None = None
    try:
        run = planned((*words, *served), env, wanted.cwd, check=wanted.check)
    except Exception as error:  # noqa: BLE001 (the parser's errors have no common public class)
        _cannot_run(session, error, check=wanted.check)
    order = Order(
        words=words,
        resources=wanted.resources,
        run=run,
        frozen=None if run is not None and run.complete else _frozen(words),
        name=wanted.name,
        folder=wanted.folder,
        after=wanted.after,
        env=wanted.env,
        options=wanted.options,
        start_timeout=wanted.start_timeout,
        max_requeues=wanted.max_requeues,
        cwd=wanted.cwd,
        home=wanted.home,
        setup=wanted.setup,
        code=wanted.code,
    )
    order = replace(order, words=tuple(without_option(words, "--config")[0])) if order.frozen is not None else order
    return order if serve is None else _served(session, order, serve)


def _frozen(words: Sequence[str]) -> dict[str, object]:
    configs = without_option(words, "--config")[1]
    return frozen_config(Path(configs[-1]) if configs else None)


def _cannot_run(session: Session, error: Exception, *, check: bool) -> None:
    """The command does not come to a plan: refuse it, or let it be resolved where the job starts."""
    from atropos_cli.cli.failure import explained

    message, hint = ("it asks for help only", None) if isinstance(error, typer.Exit) else explained(error)
    if check:
        more = f"\nhint: {hint}" if hint else ""
        raise ConfigError(f"the command cannot run: {message}{more}", hint="--no-check submits it all the same")
    session.out.note(f"not checked, and resolved when the job starts: {message}")


def model_of(words: Sequence[str]) -> str | None:
    """The model that a command names, read by its own parser."""
    try:
        found = parsed((*words, *_DUMMY_URL)).value("--model")
    except Exception:  # noqa: BLE001 - a command that takes no model, or that cannot be parsed: said elsewhere
        return None
    return None if found is None else str(found)


def _trajectory_option(words: tuple[str, ...], serve: Serve) -> str:
    """The option by which the command gets the address of a trajectory server. Raises UsageError."""
    option = {("gen",): "--to", ("train", "grpo"): "--from"}.get(words[: 2 if words[0] == "train" else 1])
    if option is None:
        raise UsageError(f"--serve {TRAJECTORIES} is for gen and for train grpo", hint="drop --serve")
    if any(word.partition("=")[0] == option for word in words):
        raise UsageError(f"--serve {TRAJECTORIES} starts the server that {option} would name", hint="drop one of them")
    if serve.model or serve.tp or serve.dp or serve.python:
        raise UsageError("a trajectory server has no model", hint="drop --model, --tp, --dp and --engine-python")
    return option


def _with_model(words: tuple[str, ...], serve: Serve) -> tuple[tuple[str, ...], Serve]:
    """The command and its servers, with the same model. Raises UsageError where neither names one."""
    if any(word.partition("=")[0] in ("--base-url", "--base_url") for word in words):
        raise UsageError("--serve starts the servers that --base-url would name", hint="drop one of them")
    own = model_of(words)
    asked = serve.model or own
    if asked is None:
        raise UsageError(f"--serve {serve.engine} needs a model", hint="--model MODEL, there or for the command")
    takes = own is None and words[0] != "pipeline"
    return (*words, "--model", asked) if takes else words, replace(serve, model=asked)


def _served(session: Session, order: Order, serve: Serve) -> Order:
    """The order with the servers as components of its job."""
    from atropos_cli.plugins.servers import plan_servers

    served = plan_servers(session.registry, serve, order.resources.nodes, order.resources.gpus_per_node)
    for note in served.notes:
        session.out.note(note)
    order = replace(order, servers=served.components)
    if serve.engine == TRAJECTORIES:
        url = f"http://{{endpoint:{served.heads[0]}}}"
        option = (
            "--trajectories" if order.run is not None and order.run.complete else _trajectory_option(order.words, serve)
        )
        return replace(order, addresses=(option, url))
    return replace(
        order,
        addresses=tuple(word for name in served.heads for word in ("--base-url", f"http://{{endpoint:{name}}}/v1")),
    )
