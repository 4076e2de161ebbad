"""The file .env of the working folder: variables that are not set otherwise. Read at every start, so standard library.

    OPENAI_BASE_URL=http://gpu1:8000/v1        a name of ours (ATROPOS_*), or one of those below
    export WANDB_PROJECT="sums"                the word export, quotes and comments as in a shell; nothing is expanded

It is believed as atropos.toml is, and may set no other variables: a line that is not understood, or that is meant
for another program, is ignored.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

FILE = ".env"
MARK = "_ATROPOS_DOTENV"
"""Variable that says which variables come from the file, and from which line; programs we start inherit it."""
SWITCH = "ATROPOS_DOTENV"
MAX_BYTES = 1 << 16
READ_BY_LIBRARIES = (
    "OPENAI_API_KEY",
    "HF_TOKEN",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_DATASETS_CACHE",
    "HF_DATASETS_OFFLINE",
    "TRANSFORMERS_OFFLINE",
    "WANDB_API_KEY",
    "WANDB_DIR",
    "WANDB_ENTITY",
    "WANDB_MODE",
    "WANDB_NAME",
    "WANDB_NOTES",
    "WANDB_PROJECT",
    "WANDB_RUN_GROUP",
    "WANDB_TAGS",
)
"""Usual variables that need nothing of us but to be there when the library starts."""
SETTINGS = {
    "OPENAI_API_BASE": ("backend", "base_url"),
    "OPENAI_BASE_URL": ("backend", "base_url"),
}
"""Usual variables that stand for a setting of ours, as (bucket, option); of two for one setting the last wins."""
_ALLOWED = frozenset(READ_BY_LIBRARIES) | SETTINGS.keys()
# Not the addresses that keys of the real environment are sent to by themselves: HF_ENDPOINT, WANDB_BASE_URL.
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*", re.DOTALL)
_MEANT = re.compile(r"\s*(?:export\s+|set\s+|\$env:)?([A-Za-z_][A-Za-z0-9_]*)", re.IGNORECASE)
_QUOTED = re.compile(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True, slots=True)
class Line:
    """One assignment. name None: the line is none, though it may begin with a name: `meant`."""

    number: int
    name: str | None
    value: str = ""
    meant: str = ""


def parse(text: str) -> list[Line]:
    """The lines that are neither empty nor comments."""
    found = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            match = _LINE.fullmatch(line)
            value = None if match is None or "\0" in line else _value(match[2])
            if match is not None and value is not None:
                found.append(Line(number, match[1], value))
            else:
                start = _MEANT.match(line)
                found.append(Line(number, None, meant="" if start is None else start[1]))
    return found


def _value(text: str) -> str | None:
    """The text behind the equals sign, without quotes and comment. None: quotes that do not close."""
    if text[:1] in ("'", '"'):
        match = _QUOTED.match(text)
        if match is None or text[match.end() :].strip()[:1] not in ("", "#"):
            return None
        if match[1] is not None:
            return match[1]
        return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), match[2])
    return re.split(r"(?:^|\s+)#", text, maxsplit=1)[0].strip()


def allowed(name: str) -> bool:
    """May the file set a variable of this name?"""
    ours = name.startswith("ATROPOS_") and name != SWITCH
    return ours or name in _ALLOWED or re.fullmatch(r"[A-Z0-9_]+_API_KEY", name) is not None


def read() -> tuple[list[Line], str | None]:
    """The lines of the file in the working folder, and why they were not read if it is there and they were not."""
    path = Path(FILE)
    try:
        if not path.is_file():
            return [], "it is not a file" if os.path.lexists(path) else None
        if path.stat().st_size > MAX_BYTES:
            return [], f"it is larger than {MAX_BYTES >> 10} KiB"
        data = path.read_bytes()
    except OSError as error:
        return [], error.strerror or str(error)
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # as PowerShell's > writes it
    return parse(data.decode("utf-16" if wide else "utf-8", errors="replace")), None


def truth(text: str) -> bool | None:
    """What a variable says that is either on or off; None for neither."""
    word = text.strip().lower()
    return word in _TRUE if word in _TRUE or word in _FALSE else None


def is_on(environ: Mapping[str, str] | None = None) -> bool:
    """Is the file read at all? ATROPOS_DOTENV=0 says no."""
    env = os.environ if environ is None else environ
    return truth(env.get(SWITCH) or "on") is not False


def load(environ: MutableMapping[str, str] | None = None) -> tuple[str, ...]:
    """Set the file's variables where they are not set, and say in MARK which these are. Returns the names set."""
    env = os.environ if environ is None else environ
    if not is_on(env):
        return ()
    lines: dict[str, Line] = {}
    for line in read()[0]:
        if line.name is not None and line.value and allowed(line.name):
            lines[line.name] = line  # the last one, as in a shell
    new = {name: line for name, line in lines.items() if not env.get(name)}
    if not new:
        return ()
    env.update({name: line.value for name, line in new.items()})
    earlier = [env[MARK]] if env.get(MARK) else []
    env[MARK] = ",".join([*earlier, *(f"{name}:{line.number}" for name, line in new.items())])
    return (*new, MARK)


def from_dotenv(name: str) -> int | None:
    """The line of .env that a variable comes from, None when it comes from the environment itself."""
    for item in os.environ.get(MARK, "").split(","):
        known, _, line = item.partition(":")
        if known == name and line.isdigit():
            return int(line)
    return None
