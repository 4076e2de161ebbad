"""Options of roles on the command line: `--role.user.model NAME` for the model that plays the role `user`.

Which roles there are is found before the arguments are parsed: the environment's own, those that --role, its variable
or a file name, and those of the flags themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.errors import UsageError

if TYPE_CHECKING:
    from atropos_cli.config.resolve import Resolved
    from atropos_cli.config.sources import Bucket
    from atropos_cli.console.commands import Flag

_FLAG = re.compile(r"--role\.([^.=]+)\.")


def role_buckets(args: Sequence[str], own: Iterable[str] = (), *, lenient: bool = False) -> list[Bucket]:
    """One option group for each role. own: the environment's roles. Raises UsageError for a name that is none."""
    from atropos_cli.config.buckets import is_role_name, role_bucket
    from atropos_cli.config.problems import suggest

    found = []
    own, said, in_flags = tuple(own), _said(args), [match[1] for word in args if (match := _FLAG.match(word))]
    names = dict.fromkeys((*own, *said, *in_flags))
    for name in in_flags if own and not lenient else ():
        if is_role_name(name) and name not in (*own, *said) and (close := suggest(name, own)) is not None:
            raise UsageError(
                f"the environment has no role {name!r}",
                hint=f"did you mean --role.{close}? For one more role: --role {name}",
            )
    for name in names:
        if is_role_name(name):
            found.append(role_bucket(name, tuple(names)))
        elif not lenient:
            raise UsageError(
                f"{name!r} cannot be the name of a role", hint="small letters, digits and -, such as user or judge-2"
            )
    return found


def _said(args: Sequence[str]) -> list[str]:
    """Those that --role, its variable or a file names."""
    from atropos_cli.cli.habits import peek_values
    from atropos_cli.config.buckets import settings_bucket
    from atropos_cli.config.commands import said_of

    flags = [*peek_values(args, "role"), *peek_values(args, "roles")]
    configs = peek_values(args, "config")
    return flags or [*said_of(settings_bucket(), "roles", Path(configs[-1]) if configs else None)]


def role_flags(buckets: Sequence[Bucket]) -> list[Flag]:
    """--role.NAME.OPTION for each option of each role, and --tool.NAME.OPTION of each source of tools."""
    from atropos_cli.config.buckets import ROLE, TOOLS
    from atropos_cli.console.commands import Flag

    return [
        Flag(bucket.name, option, (f"{bucket.section}.{option.flag}",), f"Options of {bucket.label}", parameter)
        for place, bucket in enumerate(bucket for bucket in buckets if bucket.table in (ROLE, TOOLS))
        for number, option in enumerate(bucket.options)
        if not option.secret
        for parameter in (f"{bucket.table}_{place}_{number}",)
    ]


def role_options(resolved: Resolved) -> dict[str, dict[str, Any]]:
    """What was given for each role, by its name."""
    from atropos_cli.config.buckets import ROLE

    return {bucket.names[0]: resolved.given[bucket.name] for bucket in resolved.buckets if bucket.table == ROLE}
