"""`atropos new environment|reward|... NAME`: start a plugin from a template."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from atropos_cli.sdk.commands import CommandOptions, JsonOption, Session, again, counted, end, option, with_flags


class NewOptions(CommandOptions):
    """Where the project is made."""

    into: Path | None = option(None, "Folder to make the project in; default: here.", metavar="DIR")
    dry_run: bool = option(False, "Say what would be made and stop.")


@with_flags("new", NewOptions)
def new(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="TEMPLATE",
            help="environment, reward, trainer, launcher, or a plugin's template.",
            show_default=False,
        ),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new component.", show_default=False)],
    *,
    options: NewOptions,
    session: Session,
    as_json: JsonOption = False,
) -> None:
    """Make a small project of your own: code, test, packaging, README."""
    from atropos_authoring.scaffold import instantiate, placeholders, planned_files

    template: Path = session.registry.find("template", kind).load()
    folder = (options.into or Path()) / placeholders(name)["atropos-template"]
    if options.dry_run:
        files = planned_files(template, name)
    else:
        files = [path.relative_to(folder) for path in instantiate(template, folder, name)]
    if as_json:
        made = {
            "folder": str(folder),
            "template": kind,
            "files": [str(file) for file in files],
            "made": not options.dry_run,
        }
        session.out.json(made)
        return
    session.out.data(str(folder))
    for file in files:
        session.out.note(f"  {file}")
    if options.dry_run:
        end(session.out, f"{counted(len(files), 'file')} would be made", again(session.args))
        return
    place = folder if not str(folder).startswith("-") else Path(f"./{folder}")
    end(
        session.out,
        f"made {counted(len(files), 'file')}",
        f"cd {shlex.quote(str(place))} && pip install -e . && pytest",
    )
