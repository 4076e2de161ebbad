"""`atropos env`: list and describe environments, write their tasks, and add those of other frameworks."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.cli.commands.env_add import add, remove
from atropos_cli.cli.commands.prompt_gen import TasksOptions, tasks
from atropos_cli.cli.environments import Use, environment_app
from atropos_cli.cli.lazy import new_app
from atropos_cli.cli.listing import Listed, print_components
from atropos_cli.cli.runs import flattened
from atropos_cli.config.commands import command_bucket
from atropos_cli.console.commands import JsonOption
from atropos_cli.console.ending import counted, end, shell
from atropos_cli.console.session import session_of

if TYPE_CHECKING:
    from atropos_cli.config.options import Option

app = new_app(help="List, describe and check environments.")


@app.command("list")
def list_environments(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List installed environments, and those that were added. Imports none of them."""
    print_components(session_of(ctx), "environment", as_json=as_json, more=_added())


def _added() -> list[Listed]:
    from atropos_cli.foreign.store import added

    return [
        Listed(
            item.full_name,
            {
                "source": item.source,
                "python": item.python,
                "versions": item.versions,
                "health": item.health,
            },
            " ".join(f"{name} {version}" for name, version in item.versions.items() if name != "python"),
            f"{item.source or 'the Python of ' + item.dialect}: {item.health}",
        )
        for item in added()
    ]


app.command("add")(add)
app.command("remove")(remove)


@app.command("info")
def info(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="ENV", help="Name, or ./FILE.py:NAME.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Describe an environment: options, rewards, splits."""
    from atropos_cli.config.options import options_of

    session = session_of(ctx)
    registration = session.registry.find("environment", name)
    environment = registration.load()
    options = options_of(environment.Config)
    rewards = [_reward(item) for item in environment.rewards]
    doc = inspect.getdoc(environment) if environment.__doc__ else None
    if as_json:
        session.out.json(
            {
                "name": registration.name,
                "dist": registration.dist,
                "version": registration.version,
                "summary": registration.summary,
                "doc": doc,
                "splits": list(environment.splits),
                "default_limit": environment.default_limit,
                "rewards": rewards,
                "prompt": environment.prompt.data,
                "options": [_option(option) for option in options],
            }
        )
        return
    session.out.details(
        {
            "name": registration.name,
            "from": f"{registration.dist} {registration.version}" if registration.dist else str(registration.file),
            "splits": ", ".join(environment.splits),
            "rewards": ", ".join(
                item["name"] if item["weight"] is None else f"{item['name']}={item['weight']:g}" for item in rewards
            )
            or "none",
        }
    )
    if doc:
        session.out.data(f"\n{doc}\n")
    rows = [(o.key, o.type_text, "required" if o.required else o.default_text or "", _text(o)) for o in options]
    session.out.table(rows, header=("option", "type", "default", "meaning"))
    if environment.prompt.data:
        session.out.data("\nprompts, which --prompt FILE replaces:")
        session.out.details(dict(flattened(environment.prompt.data)))
    end(session.out, f"{counted(len(options), 'option')}, {counted(len(rewards), 'reward')}", shell("gen", name))


def _reward(item: Any) -> dict[str, Any]:
    if isinstance(item, str):
        name, separator, weight = item.rpartition("=")
        known = float(weight) if separator else None
        return {"name": name or item, "weight": known, "kind": None, "summary": "an installed reward"}
    return {"name": item.name, "weight": item.weight, "kind": item.kind, "summary": item.summary}


def _option(option: Option) -> dict[str, Any]:
    from pydantic_core import to_jsonable_python

    return {
        "name": option.key,
        "flag": None if option.secret else f"--env.{option.flag}",
        "type": option.type_text,
        "repeatable": option.kind == "list",
        "required": option.required,
        "default": None if option.secret else to_jsonable_python(option.default, fallback=str),
        "range": option.range or None,
        "description": option.description,
    }


def _text(option: Option) -> str:
    return f"{option.description} ({option.range})" if option.range else option.description


app.add_typer(
    environment_app(
        Use(tasks, command_bucket("env-tasks", TasksOptions), full=False),
        "Write an environment's tasks as rows for verl or TRL's GRPO.",
    ),
    name="tasks",
)
