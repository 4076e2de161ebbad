"""What users of other tools type: names that mean one of ours, and names that do not exist here but have an answer.

A name stands for ours only where it means the same; the program then says ours in one line and goes on. For the rest
there is a hint: what to type instead. A page of the reference lists the names, --help does not.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from atropos_cli.errors import UsageError

if TYPE_CHECKING:
    from atropos_cli.cli.peernames import Words


def spellings(option: str) -> frozenset[str]:
    """What other tools call an option of ours that is looked for before anything is parsed, e.g. --model."""
    from atropos_cli.cli.peernames import OPTIONS

    return frozenset(
        name for family in ("gen", "eval", "train") for name, words in OPTIONS[family].items() if words == (option,)
    )


def peek_values(args: Sequence[str], name: str) -> list[str]:
    """The values of a flag among arguments that are not parsed yet, whatever other tools call it."""
    found = []
    names = {f"--{name}", *spellings(f"--{name}")}
    words = list(args[: args.index("--")] if "--" in args else args)
    for position, word in enumerate(words):
        head, equals, value = word.partition("=")
        if head.replace("_", "-") in names:
            if equals:
                found.append(value)
            elif position + 1 < len(words):
                found.append(words[position + 1])
    return found


def command_words(path: str, name: str) -> Words | None:
    """The words of ours that a foreign name stands for in the group at `path`."""
    from atropos_cli.cli.peernames import COMMANDS

    return COMMANDS.get(path, {}).get(_dashed(name))


def close_names(name: str, known: Sequence[str]) -> list[str]:
    """The names, two at most, that are spelt like this one; case and underscores do not matter."""
    from difflib import get_close_matches

    return get_close_matches(_dashed(name), known, n=2)


def next_step(path: str, name: str, known: Sequence[str]) -> str | None:
    """What to type instead of a name that the group at `path` has not, and that stands for none of ours."""
    from atropos_cli.cli.peernames import COMMAND_HINTS

    word = _dashed(name)
    if word in known:
        return f"did you mean {word}?"
    hints = COMMAND_HINTS.get(path, {})
    program = word.partition(".")[0]  # openrlhf.cli.train_ppo_ray
    hint = hints.get(word) or hints.get(program) or _elsewhere(path, name)
    if hint is None and (close := close_names(name, known)):
        hint = f"did you mean {' or '.join(close)}?"
    return hint


def _dashed(name: str) -> str:
    return name.lower().replace("_", "-")


def _elsewhere(path: str, name: str) -> str | None:
    """The command line where a name belongs that is an environment, a file or a whole command line."""
    first = name.split()[0] if " " in name.strip() else ""
    if first and path == "atropos":
        return f"each word by itself, without quotes around them all: atropos {name.strip()}"
    if path == "atropos train" and name.endswith((".toml", ".yaml", ".yml")):
        return f"{path} grpo --config {shlex.quote(name)}"
    if path == "atropos train" and name.endswith((".jsonl", ".parquet")):
        return f"{path} sft --data {shlex.quote(name)}"
    line = _ENVIRONMENT_FIRST.get(path)
    if line is None or not _is_environment(name):
        return None
    return f"{name} is an environment: {line} {shlex.quote(name)}"


_ENVIRONMENT_FIRST = {
    "atropos": "atropos gen",
    "atropos train": "atropos train grpo --env",
    "atropos env": "atropos env info",
}


def _is_environment(name: str) -> bool:
    from atropos_cli.plugins.discovery import get_registry
    from atropos_cli.plugins.firstparty import COMPONENTS

    if re.search(r"\.py(:|$)", name) or ("environment", name) in COMPONENTS:
        return True
    return any(name in (item.name, item.qualified) for item in get_registry().registrations("environment"))


def translated(ctx: Any, args: Sequence[str]) -> list[str]:
    """The arguments with the names that a command knows; says which were replaced. Raises UsageError with a hint.

    A name that the command has itself is its own, and so is whatever stands for a value or behind two dashes.
    """
    path = ctx.command_path.split()
    if len(path) < 2 or ctx.resilient_parsing:
        return list(args)
    from atropos_cli.cli.peernames import OPTIONS

    family = path[1]
    family = next((word for word in path[2:] if word in OPTIONS), family) if family == "config" else family
    if family not in OPTIONS:
        return list(args)
    walk = _Walk(ctx, family)
    done = list(walk.words(iter(args)))
    session = ctx.find_root().obj
    for note in dict.fromkeys(walk.notes):
        session.out.note(note)
    return done


class _Walk:
    """Goes over the arguments of one command, value by value."""

    def __init__(self, ctx: Any, family: str) -> None:
        from atropos_cli.cli.peernames import IGNORED, OPTION_HINTS, OPTIONS

        self.ctx = ctx
        self.known = {name: param for param in ctx.command.get_params(ctx) for name in _names(param)}
        self.table = OPTIONS[family]
        self.hints = OPTION_HINTS.get(family, {})
        self.ignored = IGNORED.get(family, {})
        self.notes: list[str] = []

    def words(self, args: Iterator[str]) -> Iterator[str]:
        for word in args:
            if word == "--":
                yield word
                break
            if word == "-" or not word.startswith("-"):
                yield word
                if self.ctx.allow_interspersed_args:
                    continue
                break
            yield from self._option(word, args)
        yield from args

    def _option(self, word: str, args: Iterator[str]) -> Iterator[str]:
        long = word.startswith("--")
        if not long and len(word) > 2:
            self._one_dash(word)
        given, equals, value = word.partition("=") if long else (word[:2], word[2:], word[2:])
        dashed = given.replace("_", "-")
        name = given if given in self.known or not long else dashed
        if name not in self.known:
            if name in self.ignored:
                takes_value, why = self.ignored[name]
                self.notes.append(f"{given} is left out: {why}")
                if takes_value and not equals:
                    next(args, None)
                return
            words = self._ours(given, name)
            if words is None:  # the parser says that there is no such option
                yield word
                return
            yield from words[:-1]
            name = words[-1]
        if equals:
            yield f"{name}={value}" if name.startswith("--") else word
        else:
            yield name
            if _takes_value(self.known[name]):
                yield from (item for item in (next(args, None),) if item is not None)

    def _ours(self, given: str, name: str) -> Words | None:
        words = self.table.get(name)
        if words is not None and words[-1] in self.known:
            self.notes.append(f"{given} is {' '.join(words)} here")
            return words
        hint = self.hints.get(name)
        if hint is None and name.lower() in self.known and name.startswith("--"):
            hint = f"did you mean {name.lower()}?"
        if hint is not None:
            raise UsageError(f"no such option: {given}", hint=hint)
        return None

    def _one_dash(self, word: str) -> None:
        """-output is not -o with the value utput."""
        given = word.partition("=")[0]
        name = f"-{given.replace('_', '-')}"
        if name in self.known:
            raise UsageError(f"no such option: {given}", hint=f"did you mean {name}?")


def _names(param: Any) -> tuple[str, ...]:
    return (*param.opts, *param.secondary_opts) if param.param_type_name == "option" else ()


def _takes_value(param: Any) -> bool:
    return not (param.is_flag or getattr(param, "count", False))
