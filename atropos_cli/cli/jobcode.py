"""The code of a job: recorded, or copied into the job's folder, where the command is resolved again and runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from atropos_cli.cli.joboptions import SubmitOptions
from atropos_cli.config.sizes import parse_limit
from atropos_cli.console.output import Output
from atropos_cli.errors import AtroposError, ConfigError
from atropos_cli.jobs.code import CODE_FOLDER, Found, bring, code_folder, code_of, digest_at, look
from atropos_cli.jobs.order import Order, Wanted
from atropos_cli.jobs.prepare import Prepared, check_free, prepare
from atropos_cli.paths import home
from atropos_cli.ports.launcher import Launcher


def prepared_with_code(
    ordered: Callable[[Wanted], Order], wanted: Wanted, launcher: Launcher, options: SubmitOptions, out: Output
) -> Prepared:
    """The job with the facts about its code.

    With --sync the command is resolved twice: in the folder, which decides where the job goes, and in the copy there.
    """
    here = wanted.cwd
    if options.sync is None:
        return prepare(ordered(replace(wanted, code=code_of(here))), launcher)
    source = code_folder(Path(home(str(options.sync))))
    most = parse_limit(options.sync_limit, "--sync-limit")
    inside = here.resolve().relative_to(source) if here.resolve().is_relative_to(source) else Path()
    wanted = replace(wanted, cwd=source / inside, home=here)
    order = ordered(wanted)
    first = prepare(order, launcher)
    place = first.folder / CODE_FOLDER
    found = look(source, most=most, without=first.folder)
    code = found.code(str(place))
    for note in (f"code: {found.describe()}", *found.notes):
        out.note(note)
    for name in _missed(found, order.words, source / inside):
        out.warning(f"{name} is not in the copy", "name a file that git ignores by its absolute path")
    if options.dry_run:
        return replace(first, plan=first.plan.replace(code=code))
    check_free(first.folder, launcher)
    if digest_at(place) == found.digest:
        out.note(f"unchanged since it was copied to {place}")
    try:
        for note in bring(found, place):
            out.note(note)
    except OSError as error:
        raise ConfigError(f"--sync: {error.filename or place}: {error.strerror or error}") from error
    try:
        return prepare(ordered(replace(wanted, cwd=place / inside, folder=first.folder, code=code)), launcher)
    except AtroposError as error:
        error.message += f"\nthis is the command in the copy, {place / inside}"
        error.hint = f"name files that git ignores by absolute paths; {error.hint or 'then the same command again'}"
        raise


def _missed(found: Found, words: tuple[str, ...], here: Path) -> list[str]:
    """Files that the command names relatively, and that are not copied."""
    copied = {found.folder / item.path for item in found.items}
    missed = []
    for word in words:
        name = word.rpartition("=")[2] if word.startswith("-") else word
        for text in (name, name.rpartition(":")[0]):
            path = here / text
            if text and not Path(text).is_absolute() and path.is_file() and path.absolute() not in copied:
                missed.append(text)
    return missed
