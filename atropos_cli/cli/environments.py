"""Commands whose subcommand is the name of an environment: `gen ENV`, `env check ENV`, `config show gen ENV`.

The environment is found while the command line is parsed, and its options become flags of the command.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from atropos_cli.cli.lazy import Group, add_common, command_of, new_app
from atropos_cli.cli.rewards import reward_buckets, reward_options
from atropos_cli.cli.roles import role_buckets, role_options
from atropos_cli.cli.toolsources import tools_buckets, tools_options
from atropos_cli.console.command import Command
from atropos_cli.console.commands import entries_of, set_signature
from atropos_cli.console.environments import ChosenEnvironment, EnvironmentCommands
from atropos_cli.console.session import Session, session_of
from atropos_cli.errors import AtroposError, UsageError
from atropos_cli.jobs.order import is_planner, makes_plan

if TYPE_CHECKING:
    from atropos_cli.cli.backends import Unnamed
    from atropos_cli.config.resolve import Resolved
    from atropos_cli.config.settings import GenSettings
    from atropos_cli.config.sources import Bucket, Entry
    from atropos_cli.plugins.registry import Registration, Registry

_HELP_WORDS = {"--help", "-h"}
_WAITS = frozenset({"--dry-run", "--on"})
"""With one of these no server is needed now."""
_SECOND_NAME = re.compile(r", --(?:env|backend|reward)\.[\w.-]+")
FOOTER = (
    "An option of the environment is also reachable as --env.NAME, and only so when a run option has its name. "
    "Everything can be set in ./atropos.toml and by ATROPOS_* variables as well: see atropos config show gen."
)


@dataclass(frozen=True)
class ConfiguredEnvironment(ChosenEnvironment):
    """With the settings of a run, for the commands that roll out."""

    @property
    def settings(self) -> GenSettings:
        """The run's settings, with the backend's options filled in."""
        return gen_settings(self.resolved)


def gen_settings(resolved: Resolved) -> GenSettings:
    """How rollouts are made, with the options of the backend and the rewards filled in."""
    settings: Any = resolved.models["settings"]
    options = {
        "backend_options": resolved.given["backend"],
        "reward_options": reward_options(resolved),
        "role_options": role_options(resolved),
        "tools_options": tools_options(resolved),
    }
    result: GenSettings = settings.model_copy(update=options)
    return result


Action = Callable[..., int | None]
"""action(chosen, *, own options...) -> exit code."""


class EnvironmentCommand(Command):
    """Hides the long second names of options in help: each would double its line."""

    def shown_name(self, name: str) -> str:
        first, slash, second = name.partition(" / ")
        return _SECOND_NAME.sub("", first) + slash + _SECOND_NAME.sub("", second)


@dataclass(frozen=True)
class Use:
    """What a command does with an environment: action(chosen, *, options=..., more switches).

    own: the command's own options. full: run options and backend options are wanted too. looks: it only shows them.
    """

    action: Action
    own: Bucket | None = None
    full: bool = True
    looks: bool = False


class EnvironmentGroup(Group):
    """One command per environment. Subclasses give the use."""

    first = "ENV"
    use: Use

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name.startswith("-"):
            return super().resolve_command(ctx, args)
        return name, build_command(session_of(ctx), name, args[1:], self.use), args[1:]

    def list_commands(self, ctx: Any) -> list[str]:
        return [registration.name for registration in session_of(ctx).registry.registrations("environment")]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return build_command(session_of(ctx), cmd_name, ["--help"], replace(self.use, looks=False))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [(item.name, item.summary) for item in session_of(ctx).registry.registrations("environment")]
        rows.append(("./FILE.py:NAME", "An environment class in a file of yours."))
        with formatter.section("Environments"):
            formatter.write_dl(rows)


def environment_app(use: Use, doc: str) -> typer.Typer:
    """A command group with one command per environment."""
    cls = type("_Environments", (EnvironmentGroup,), {"use": use})
    app = new_app(cls=cls, subcommand_metavar="ENV [OPTIONS]", help=doc)

    def group() -> None:
        return None

    app.callback(help=doc)(group)
    return app


def declared_group(commands: EnvironmentCommands) -> Any:
    """The group that a plugin's EnvironmentCommands ask for."""
    from atropos_cli.config.commands import command_bucket

    use = Use(commands.action, command_bucket(commands.section, commands.options), full=False)
    return typer.main.get_command(environment_app(use, commands.help))


def build_command(session: Session, name: str, args: Sequence[str], use: Use) -> Any:
    """The command for one environment, its flags made from the models of the environment and the backend."""
    from atropos_cli.cli.options import all_flags, foreign_flags, signature_of

    registry = session.registry
    registration = registry.find("environment", name)
    environment = registration.load()
    lenient = not use.full or not _HELP_WORDS.isdisjoint(args)
    try:
        picked = without_model(registry, environment, args) or pick_backend(registry, args, lenient=lenient)
    except UsageError:
        if not use.looks:
            raise
        picked = pick_backend(registry, args, lenient=True)
    buckets = gen_buckets(registry, registration, environment, None if picked is None else picked.backend)
    of_backend = buckets[-1].label
    own = [] if use.own is None else [use.own]
    if use.full:
        buckets += reward_buckets(registry, args, environment, lenient=lenient)
        buckets += role_buckets(args, environment.roles, lenient=lenient)
        buckets += tools_buckets(registry, args, lenient=lenient)
    extra = signature_of(use.action)
    shown = buckets if use.full else [bucket for bucket in buckets if bucket.name == "env"]
    flags = all_flags(shown, extra, own)
    foreign = foreign_flags(buckets) if use.full else {}

    def call(**given: Any) -> int | None:
        for flag in foreign:
            if given[flag] is not None:
                raise UsageError(
                    f"{of_backend} has no option --{flag.replace('_', '-')}",
                    hint="drop it, or choose another --backend (atropos plugins list)",
                )
        found = () if picked is None else picked.entries
        resolved = resolve_settings([*buckets, *own], given.get("config"), [*found, *entries_of(flags, given)])
        if picked is not None and use.full:
            _tell_backend(session, picked, resolved, looks=use.looks)
        switches = {key: given[key] for key in extra}
        options = {} if use.own is None or use.looks else {"options": resolved.models[use.own.name]}
        return use.action(
            ConfiguredEnvironment(session, registration, environment, resolved, name), **options, **switches
        )

    if is_planner(use.action):
        makes_plan(call)
    doc = inspect.getdoc(environment) if environment.__doc__ else None
    return settings_command(
        call,
        [*extra.values(), *(flag.as_parameter() for flag in flags), *foreign.values()],
        name=name,
        doc=doc or registration.summary or f"Environment {registration.name}.",
        short=registration.summary,
        epilog=FOOTER if use.full else None,
    )


def settings_command(
    call: Callable[..., int | None],
    parameters: Sequence[inspect.Parameter],
    *,
    name: str,
    doc: str,
    short: str,
    epilog: str | None = None,
) -> Any:
    """A command whose options were made from models: call gets the values by the names of the parameters."""
    set_signature(call, parameters)
    command = command_of(
        call,
        name=name,
        cls=EnvironmentCommand,
        help=doc,
        short_help=short,
        epilog=epilog,
        context_settings={"token_normalize_func": _dashes},
    )
    add_common(command)
    return command


def named(
    args: Sequence[str], buckets: Sequence[Bucket], owners: Mapping[str, str], preset: Path | None = None
) -> dict[str, str]:
    """What flags, variables and files give for some options, before anything is parsed. owners: bucket by option."""
    from atropos_cli.cli.habits import peek_values
    from atropos_cli.config.problems import Origin
    from atropos_cli.config.sources import Entry, collect

    flags = [
        Entry(bucket, (name,), value, Origin("flag", f"--{name}"), text=True)
        for name, bucket in owners.items()
        for value in peek_values(args, name)
    ]
    configs = peek_values(args, "config")
    said = collect(buckets, config=Path(configs[-1]) if configs else None, flags=flags, preset=preset)
    return {entry.path[0]: str(entry.value) for entry in said.entries if owners.get(entry.path[0]) == entry.bucket}


def _tell_backend(session: Session, picked: Unnamed, resolved: Resolved, *, looks: bool) -> None:
    """Say which model was found, and see that a server which nobody named answers."""
    from atropos_cli.cli.backends import check_default_server
    from atropos_cli.config.problems import DEFAULT

    if picked.note is not None:
        session.out.note(picked.note)
    patient = resolved.origin("settings", ("execution", "max_wait")) != DEFAULT  # asked for: let it wait
    elsewhere = session.take is not None  # a job's plan: its server answers where and when the job runs
    if picked.must_answer and not (patient or looks or elsewhere):
        check_default_server(session.registry, picked.backend, gen_settings(resolved).model)


def gen_buckets(registry: Registry, registration: Registration | None, environment: Any, backend: Any) -> list[Bucket]:
    """The option groups in force. environment None: only the settings and the backend."""
    from atropos_cli.config.buckets import backend_bucket, environment_bucket, settings_bucket

    model = None if environment is None else environment.Config
    return [
        settings_bucket(),
        environment_bucket(model, _names(registration, environment), _installed(registry, "environment")),
        backend_bucket(
            None if backend is None else backend.load().Config, _names(backend), _installed(registry, "backend")
        ),
    ]


def without_model(registry: Registry, environment: Any, args: Sequence[str]) -> Unnamed | None:
    """The backend of an environment that is played without a language model, where an option says by whom."""
    from atropos_cli.cli.backends import Unnamed
    from atropos_cli.config.buckets import SETTINGS, environment_bucket, settings_bucket
    from atropos_cli.config.problems import Origin
    from atropos_cli.config.sources import Entry

    if not environment.without_model:
        return None
    bucket = environment_bucket(environment.Config)
    spelt = [f"--{word[6:]}" if word.startswith("--env.") else word for word in args]
    said = named(spelt, [settings_bucket(), bucket], dict.fromkeys(environment.without_model, bucket.name))
    for option, value in said.items():
        backend = registry.find("backend", environment.without_model[option])
        origin = Origin("flag", f"--{option}")
        values = {"backend": backend.name, "model": value}
        return Unnamed(backend, tuple(Entry(SETTINGS, (key,), one, origin) for key, one in values.items()))
    return None


def pick_backend(registry: Registry, args: Sequence[str], *, lenient: bool) -> Unnamed | None:
    """The backend whose options apply, by what flags, variables and files say of backend, model and base_url.

    Where they name none, a model is looked for. lenient: for help; nothing is looked for, errors are ignored, and None
    means that the backend is unknown.
    """
    from atropos_cli.cli.backends import Unnamed, find_unnamed, resumed_folder
    from atropos_cli.cli.habits import peek_values
    from atropos_cli.config.buckets import BACKEND, backend_bucket, environment_bucket, settings_bucket
    from atropos_cli.config.problems import Origin
    from atropos_cli.config.settings import GenSettings
    from atropos_cli.config.sources import Entry, collect, usual_address
    from atropos_cli.rollout.planner import SERVER_BACKEND, choose_backend, runs_here

    flags = []
    for name in ("backend", "model", "base-url"):
        for value in peek_values(args, name):
            bucket = BACKEND if name == "base-url" else "settings"
            flags.append(Entry(bucket, (name.replace("-", "_"),), value, Origin("flag", f"--{name}"), text=True))
    configs = peek_values(args, "config")
    try:
        server = registry.find("backend", SERVER_BACKEND)
        buckets = [settings_bucket(), environment_bucket(None), backend_bucket(server.load().Config, _names(server))]
        said = collect(buckets, config=Path(configs[-1]) if configs else None, flags=flags)
        values = {(entry.bucket, entry.path): entry.value for entry in said.entries}
        model = values.get(("settings", ("model",)))
        if model is not None and usual_address(said.entries) and runs_here(str(model)):
            del values[BACKEND, ("base_url",)]  # OPENAI_BASE_URL is for the models of that server
        wanted = {key: values.get(("settings", (key,))) for key in ("backend", "model")}
        url = values.get((BACKEND, ("base_url",)))
        settings = GenSettings(
            backend=str(wanted["backend"] or "auto"),
            model=str(wanted["model"]) if wanted["model"] is not None else None,
            backend_options={} if url is None else {"base_url": str(url)},
        )
        named = settings.backend != "auto" or settings.model is not None or url is not None
        if not named and not lenient and not peek_values(args, "models"):  # eval may name several
            return find_unnamed(registry, resumed_folder(args))
        chosen = choose_backend(settings, registry, exists=False)
        waits = lenient or chosen.name != SERVER_BACKEND or url is not None
        return Unnamed(chosen, must_answer=not waits and _WAITS.isdisjoint(map(_option, args)))
    except AtroposError:
        if lenient:
            return None
        raise


def resolve_settings(
    buckets: Sequence[Bucket], config: Path | None, flags: Sequence[Entry], preset: Path | None = None
) -> Resolved:
    """Merge and check everything. Secrets from files are handed on as variables, since a plan must not hold them."""
    from atropos_cli.config.resolve import resolve
    from atropos_cli.config.secrets import export_secrets
    from atropos_cli.config.sources import collect

    resolved = resolve(buckets, collect(buckets, config=config, flags=flags, preset=preset))
    export_secrets(resolved)
    return resolved


def _names(registration: Registration | None, environment: Any = None) -> tuple[str, ...]:
    """The names a component goes by in files, the one for messages first."""
    if registration is None:
        return ()
    own = (environment.name,) if environment is not None and (registration.file or registration.spec.family) else ()
    return tuple(dict.fromkeys((*own, registration.name, registration.qualified)))


def _installed(registry: Registry, kind: Any) -> frozenset[str]:
    return frozenset(name for item in registry.registrations(kind) for name in (item.name, item.qualified))


def _option(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")


def _dashes(name: str) -> str:
    """Options may be written with underscores, as many tools do."""
    return name.replace("_", "-")
