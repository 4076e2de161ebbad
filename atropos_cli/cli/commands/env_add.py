"""`atropos env add` and `env remove`: environments of other frameworks, each with a Python of its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
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
    python: str | None = option(None, "Python that has the framework, or makes its environment.", metavar="PATH")
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
    venv = store.venv_folder(dialect, chosen)
    there = venv.exists()
    try:
        if name is not None and python is None and not extra and own is None and shared is not None:
            record = shared.model_copy(update={"name": chosen, "source": found, "made": False})
        else:
            record = _with_python(family, chosen, requirements, python, session)
            pinned = (name for name, _ in venvs.pins((*family.bare, *family.requirements)))
            wanted = dict.fromkeys([family.dialect.packages[0], *pinned])
            if lacking := [name for name in wanted if name not in record.versions]:
                raise UsageError(f"{record.python} lacks {', '.join(lacking)}", hint=shell("env", "add", dialect))
            record = record.model_copy(update={"source": found})
        kept = record.made or Path(record.python).is_relative_to(venv)
        if earlier is not None and not kept:
            _check_unused(earlier, f"remove them first, or give another name than {earlier.full_name}")
        store.save(record)
        if own is not None:  # import it once, by its own Python; an environment that cannot be imported is not added
            family.make(record.name)
    except BaseException:
        _undo(dialect, chosen, earlier, there=there)
        raise
    venvs.drop(venvs.set_aside(venv))
    if not kept:
        venvs.drop(venv)
    end(session.out, f"added {record.full_name} ({_versions(record)})", shell("env", "list"))


def _undo(dialect: str, name: str, earlier: Added | None, *, there: bool) -> None:
    """Put the record and the Python of that name back as they were before. there: was there a Python?"""
    from atropos_cli.foreign import store, venvs

    venv = store.venv_folder(dialect, name)
    venvs.restore(venv)
    if earlier is not None:
        store.save(earlier)
        return
    if not there:
        venvs.drop(venv)
    if (record := store.find(dialect, name)) is not None:
        store.remove(record.model_copy(update={"made": False}))


def _check_unused(record: Added, hint: str | None = None) -> None:
    """Raises UsageError where other environments run in the Python that was made for this one."""
    from atropos_cli.foreign import store

    others = [item for item in store.added(record.dialect) if item != record and item.python == record.python]
    if record.made and others:
        hint = hint or shell("env", "remove", record.dialect, others[0].name)
        raise UsageError(f"{', '.join(item.full_name for item in others)} run in its Python", hint=hint)


def _with_python(
    family: Family, name: str, requirements: tuple[str, ...], python: str | None, session: Session
) -> Added:
    """The record with the Python that was named, where it has the framework, or one that is made now."""
    from atropos_cli.foreign import store, venvs

    kind, bare = family.dialect, family.bare
    dialect = kind.name
    packages = list(dict.fromkeys([*venvs.named((*bare, *requirements)), *kind.packages]))
    if python is not None:
        path = shutil.which(os.path.expanduser(python)) or python  # noqa: PTH111 - a name on PATH, too
        found = venvs.versions(path, packages)
        # Into a virtual environment of the user's nothing is installed: that it lacks the framework is an error.
        if kind.packages[0] in found or venvs.is_virtual(path):
            return store.Added(dialect=dialect, name=name, python=os.path.abspath(path), versions=found)  # noqa: PTH100
        python = path
    place = store.venv_folder(dialect, name)
    base = python or venvs.python_since(family.least)
    path = venvs.make(place, requirements, python=base, say=session.out.note, bare=bare)
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
    _check_unused(record)
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
        families = ", ".join(sorted(session.registry.families()))
        raise UsageError(f"{dialect!r} is an environment, not a framework", hint=f"frameworks: {families or 'none'}")
    family: Any = registration.spec.load(dist=registration.dist)
    if not isinstance(family, Family):
        raise UsageError(f"{dialect} needs no Python of its own", hint=shell("gen", f"{dialect}:NAME"))
    return family


def _versions(record: Added) -> str:
    return ", ".join(f"{name} {version}" for name, version in record.versions.items())
