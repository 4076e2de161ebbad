"""Names of other tools that the command line understands, or answers with what to type instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from _pages.markdown import page, table


def pages() -> Iterator[tuple[str, str]]:
    """reference/other-tools.md."""
    from atropos_cli.cli import peernames

    groups = {*peernames.COMMANDS, *peernames.COMMAND_HINTS}
    sections = ["## Commands"]
    for path in sorted(groups):
        rows = _rows(path, peernames.COMMANDS.get(path, {}), peernames.COMMAND_HINTS.get(path, {}))
        sections += [table((f"{path} ...", "here"), rows)]
    sections.append("## Options")
    for family in peernames.OPTIONS | peernames.OPTION_HINTS:
        left_out = {name: f"left out: {why}" for name, (_, why) in peernames.IGNORED.get(family, {}).items()}
        hints = {**peernames.OPTION_HINTS.get(family, {}), **left_out}
        sections += [table((f"atropos {family} ...", "here"), _rows("", peernames.OPTIONS.get(family, {}), hints))]
    yield (
        "other-tools.md",
        page(
            "Names of other tools",
            "What users of atroposlib, verifiers, TRL, inspect, lm-evaluation-harness and of servers type. Where a "
            "name means the same as one of ours, the command says ours in one line and goes on; the others end with "
            "code 2 and this hint. `_` and `-` are the same in options. A name that an environment has as an option "
            "is the environment's.",
            *sections,
        ),
    )


def _rows(path: str, ours: Mapping[str, tuple[str, ...]], hints: Mapping[str, str]) -> list[tuple[str, str]]:
    by_words: dict[tuple[str, ...], list[str]] = {}
    for name, words in ours.items():
        by_words.setdefault(words, []).append(name)
    before = f"{path} " if path else ""
    rows = [(_code(names), f"`{before}{' '.join(words)}`") for words, names in by_words.items()]
    by_hint: dict[str, list[str]] = {}
    for name, hint in hints.items():
        by_hint.setdefault(hint, []).append(name)
    return [*rows, *((_code(names), f"*hint:* {hint}") for hint, names in by_hint.items())]


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
