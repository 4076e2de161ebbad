"""Pieces of Markdown that the pages share."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Union, get_args, get_origin

NOTE = "<!-- Made by docs/generate.py; edit the code instead. -->"


def page(title: str, *parts: str) -> str:
    """A page with its title and the note on where it comes from."""
    return "\n\n".join([NOTE, f"# {title}", *(part.strip("\n") for part in parts if part)]) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A pipe table; nothing for no rows."""
    lines = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    if not lines:
        return ""
    return "\n".join(["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *lines])


def code(text: str, language: str = "text") -> str:
    """A fenced block."""
    return f"```{language}\n{text.strip(chr(10))}\n```"


def quoted(text: str | None) -> str:
    """Text as inline code; nothing for None or the empty text."""
    return f"`{text}`" if text else ""


def doc_of(value: Any, names: Collection[str] = ()) -> str:
    """A thing's own docstring as Markdown. Lines that begin with one of the names become a list."""
    doc = value.__doc__ if isinstance(value, type) else getattr(value, "__doc__", None)
    return _as_markdown(inspect.cleandoc(doc), set(names)) if doc else ""


def signature(function: Any) -> str:
    """Parameters and result of a function, annotations as they are written; `self` is left out."""
    found = inspect.signature(function)
    shown: list[str] = []
    starred = False
    for name, parameter in found.parameters.items():
        if name in ("self", "cls"):
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            starred = True
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        text = prefix + name
        annotated = parameter.annotation is not parameter.empty
        if annotated:
            text += f": {annotation_text(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            default = _default_text(parameter.default)
            text += f" = {default}" if annotated else f"={default}"
        shown.append(text)
    result = "" if found.return_annotation is found.empty else f" -> {annotation_text(found.return_annotation)}"
    return f"({', '.join(shown)}){result}"


def _default_text(default: Any) -> str:
    # The repr of a function holds its address, which differs in each process.
    return "..." if inspect.isroutine(default) else repr(default)


def annotation_text(annotation: Any) -> str:
    """A type as one would write it, without module names."""
    if isinstance(annotation, str):
        return annotation
    if annotation is type(None):
        return "None"
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return " | ".join(annotation_text(part) for part in get_args(annotation))
    if isinstance(annotation, type) and origin is None:
        return annotation.__name__
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", str(annotation))


def first_line(value: Any) -> str:
    """The first paragraph of a docstring, on one line."""
    doc = getattr(value, "__doc__", None) or ""
    return " ".join(inspect.cleandoc(doc).split("\n\n")[0].split())


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _as_markdown(text: str, names: set[str]) -> str:
    """Parts indented behind an empty line are code; lines `name: meaning` with a known name are a list."""
    out: list[str] = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        if all(line.startswith("    ") for line in lines) and out:
            body = inspect.cleandoc("\n" + paragraph)
            if out[-1].startswith("```"):  # a block with an empty line in it
                out[-1] = f"{out[-1].removesuffix('```')}\n{body}\n```"
            else:
                out.append(code(body))
            continue
        for number, line in enumerate(lines):
            head, colon, rest = line.partition(":")
            if colon and head and names.issuperset(head.split(", ")):
                before = "\n" if number and not lines[number - 1].lstrip("\n").startswith((" ", "- ")) else ""
                lines[number] = f"{before}- {', '.join(f'`{name}`' for name in head.split(', '))}:{rest}"
            elif number and lines[number - 1].lstrip("\n").startswith(("- ", "  ")):
                lines[number] = f"  {line.strip()}"
        out.append("\n".join(lines))
    return "\n\n".join(out)
