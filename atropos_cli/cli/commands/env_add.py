"""`atropos env add` and `env remove`: environments of other frameworks, each with a Python of its own."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.config.commands import CommandOptions, option
from atropos_cli.console.commands import with_flags
from atropos_cli.console.ending import end, shell
from atropos_cli.console.session import Session, session_of
from atropos_cli.errors import UsageError

if TYPE_CHECKING:
    from atropos_cli.foreign.family import Family
    from atropos_cli.foreign.store import Added

Dialect = Annotated[
    str, typer.Argument(metavar="DIALECT", help="Framework, such as atroposlib or lerobot.", show_default=False)
]
Name = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="Your name for the environment.", show_default=False)
]


class AddOptions(CommandOptions):
    """Where the environment and its Python come from."""

    source: str | None = option(None, "What NAME runs, such as FILE.py:CLASS.", flag="from", metavar="SOURCE")
    python: str | None = option(None, "A Python that has all it needs; without it one is made.", metavar="PATH")
    requirements: tuple[str, ...] = option((), "Install this too.", flag="with", metavar="REQUIREMENT")


@with_flags("env-add", AddOptions)
def add(dialect: Dialect, name: Name = None, *, options: AddOptions, session: Session) -> None:
    """Make an environment of another framework known, with a Python of its own.

    Without NAME: the Python that runs all environments of the framework that have none of their own.
    """
    from atropos_cli.foreign import store, venvs

    source, python, extra = options.source, options.python, options.requirements
    family = _family(session, dialect)
    if name is None and source is not None:
        raise UsageError("--from needs a NAME", hint=shell("env", "add", dialect, "NAME", "--from", source))
    chosen = store.DEFAULT if name is None else store.check_name(name)
    source = name if source is None and family.named else source
    found = None if source is None else family.check_source(source)
    own = family.installs(found) if family.installs is not None and found is not None else None
    requirements = (*(family.requirements if own is None else own), *extra)
    earlier = store.find(dialect, chosen)
    shared = store.find(dialect, store.DEFAULT)
    if name is not None and python is None and not extra and own is None and shared is not None:
        record = shared.model_copy(update={"name": chosen, "source": found, "made": False})
    else:
        record = _with_python(family, chosen, requirements, python, session)
        pinned = (name for name, _ in venvs.pins((*family.bare, *family.requirements)))
        lacking = [name for name in dict.fromkeys([family.dialect.packages[0], *pinned]) if name not in record.versions]
        if lacking:
            raise UsageError(f"{record.python} lacks {', '.join(lacking)}", hint=shell("env", "add", dialect))
        record = record.model_copy(update={"source": found})
    if earlier is not None and earlier.made and not record.made:
        shutil.rmtree(store.venv_folder(dialect, chosen), ignore_errors=True)
    store.save(record)
    if own is not None:
        _try(family, record)
    end(session.out, f"added {record.full_name} ({_versions(record)})", shell("env", "list"))


def _try(family: Family, record: Added) -> None:
    """Import it once, by its own Python; an environment that cannot be imported is not added."""
    from atropos_cli.foreign import store

    try:
        family.make(record.name)
    except BaseException:
        store.remove(record)
        raise


def _with_python(
    family: Family, name: str, requirements: tuple[str, ...], python: str | None, session: Session
) -> Added:
    """The record with the Python that was named, or one that is made now."""
    from atropos_cli.foreign import store, venvs

    kind, bare = family.dialect, family.bare
    dialect = kind.name
    packages = list(dict.fromkeys([*venvs.named((*bare, *requirements)), *kind.packages]))
    if python is not None:
        path = shutil.which(os.path.expanduser(python)) or python  # noqa: PTH111 - a name on PATH, too
        found = venvs.versions(path, packages)
        return store.Added(dialect=dialect, name=name, python=os.path.abspath(path), versions=found)  # noqa: PTH100
    place = store.venv_folder(dialect, name)
    path = venvs.make(place, requirements, python=venvs.python_since(family.least), say=session.out.note, bare=bare)
    return store.Added(
        dialect=dialect,
        name=name,
        python=path,
        made=True,
        requirements=(*bare, *requirements),
        versions=venvs.versions(path, packages),
    )


def remove(
    ctx: typer.Context,
    dialect: Dialect,
    name: Name = None,
) -> None:
    """Forget an environment that was added, and delete the Python that was made for it."""
    from atropos_cli.foreign import store

    session = session_of(ctx)
    record = store.find(dialect, name or store.DEFAULT)
    if record is None:
        raise UsageError(
            f"{dialect}:{name} was not added" if name else f"{dialect} was not added", hint=shell("env", "list")
        )
    users = [item.full_name for item in store.added(dialect) if item != record and item.python == record.python]
    if record.made and users:
        raise UsageError(
            f"{', '.join(users)} run in its Python", hint=shell("env", "remove", dialect, users[0].partition(":")[2])
        )
    store.remove(record)
    end(session.out, f"removed {record.full_name}", shell("env", "list"))


def _family(session: Session, dialect: str) -> Family:
    """What the plugin of the framework offers. Raises UsageError for an environment that is none."""
    from atropos_cli.foreign.family import Family

    trainer = next((item for item in session.registry.registrations("trainer") if item.name == dialect), None)
    if trainer is not None and isinstance(framework := getattr(trainer.load(), "framework", None), Family):
        return framework
    registration = session.registry.find("environment", dialect)
    if not registration.spec.family:
        families = [item.name for item in session.registry.registrations("environment") if item.spec.family]
        raise UsageError(
            f"{dialect!r} is an environment, not a framework", hint=f"frameworks: {', '.join(families) or 'none'}"
        )
    family: Any = registration.spec.load(dist=registration.dist)
    if not isinstance(family, Family):
        raise UsageError(f"{dialect} needs no Python of its own", hint=shell("gen", f"{dialect}:NAME"))
    return family


def _versions(record: Added) -> str:
    return ", ".join(f"{name} {version}" for name, version in record.versions.items())
