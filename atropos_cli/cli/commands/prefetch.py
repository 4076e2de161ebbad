"""`atropos prefetch`: bring models, data sets and what environments need to this machine, for jobs offline."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.config.commands import CommandOptions, option
from atropos_cli.console.commands import JsonOption, with_flags
from atropos_cli.console.ending import end
from atropos_cli.console.session import Session
from atropos_cli.errors import AtroposError, ExitCode, UsageError

if TYPE_CHECKING:
    from atropos_cli.rollout.prefetch import Fetched


class PrefetchOptions(CommandOptions):
    """What is fetched."""

    models: tuple[str, ...] = option((), "A model of the hub.", flag="model", metavar="NAME[@REVISION]")
    datasets: tuple[str, ...] = option((), "A data set.", flag="dataset", metavar="NAME[:CONFIG]")
    envs: tuple[str, ...] = option((), "What an environment needs.", flag="env", metavar="ENV")
    plugins: bool = option(False, "What all installed environments need, as they are configured.")


@with_flags("prefetch", PrefetchOptions)
def prefetch(*, options: PrefetchOptions, session: Session, config: Path | None, as_json: JsonOption = False) -> int:
    """Fetch what a job needs, where there is a network; then run it with --offline.

    atropos prefetch --model Qwen/Qwen3-8B --env gsm8k
    """
    from atropos_cli.rollout.prefetch import check_reachable, is_local, refuse_offline

    if not (options.models or options.datasets or options.envs or options.plugins):
        raise UsageError("nothing to fetch", hint="--model NAME, --dataset NAME, --env ENV or --plugins")
    refuse_offline()
    if not all(is_local(name) for name in options.models + options.datasets):
        check_reachable()
    fetched: list[Fetched] = []
    problems: list[tuple[str, AtroposError]] = []
    for name, call in _wanted(session, options, config):
        session.out.note(f"fetching {name}")
        try:
            found = call()
        except AtroposError as error:
            problems.append((name, error))
            session.out.error(error.message, error.hint)
            continue
        fetched += found
        if not as_json:
            for item in found:
                size = "" if item.size is None else f", {item.size / 1e9:.2f} GB"
                session.out.data(f"{item.kind} {item.name}: {item.place}{size}")
    if as_json:
        failed = [{"name": name, "error": error.message, "hint": error.hint} for name, error in problems]
        session.out.json({"fetched": [asdict(item) for item in fetched], "failed": failed})
    elif problems:
        end(session.out, f"fetched {len(fetched)}, failed {len(problems)}: {', '.join(name for name, _ in problems)}")
    else:
        whole = sum(item.size or 0 for item in fetched)
        headline = f"fetched {len(fetched)}" + (f", {whole / 1e9:.2f} GB" if whole else "")
        end(session.out, headline, "the same names work with --offline now, e.g. atropos gen ENV --offline")
    return ExitCode(problems[0][1].exit_code) if problems else ExitCode.OK


def _wanted(session: Session, options: PrefetchOptions, config: Path | None) -> Any:
    """(what is fetched, how) of everything that was asked for."""
    from atropos_cli.rollout.prefetch import fetch_dataset, fetch_model

    for name in options.models:
        base, _, revision = name.partition("@")
        yield f"model {name}", partial(_one, fetch_model, base, revision or None)
    for name in options.datasets:
        base, _, subset = name.partition(":")
        yield f"data set {name}", partial(_one, fetch_dataset, base, subset or None)
    for name in options.envs:
        yield f"environment {name}", partial(_environment, session, name, config)
    if options.plugins:
        for item in session.registry.registrations("environment"):
            if item.name not in options.envs and item.qualified not in options.envs:
                yield f"environment {item.qualified}", partial(_environment, session, item.qualified, config, True)


def _one(fetch: Any, name: str, detail: str | None) -> list[Fetched]:
    return [fetch(name, detail)]


def _environment(session: Session, name: str, config: Path | None, lenient: bool = False) -> list[Fetched]:
    """Open the environment as it is configured and let it fetch. lenient: one that needs options is left out."""
    from atropos_cli.cli.environments import gen_buckets, resolve_settings
    from atropos_cli.rollout.prefetch import fetch_environment
    from atropos_cli.rollout.references import make_config

    registration = session.registry.find("environment", name)
    try:
        kind = registration.load()
        options = resolve_settings(gen_buckets(session.registry, registration, kind, None), config, ()).given["env"]
        made = make_config(kind.Config, options, owner=f"environment {name!r}", env_prefix="ATROPOS_ENV__")
        environment = kind(made)
    except AtroposError as error:
        if not lenient:
            raise
        session.out.note(f"left out: {error.message}")
        return []
    return list(fetch_environment(registration.name, environment))
