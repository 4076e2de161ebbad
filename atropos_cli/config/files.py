"""Read a TOML or YAML configuration file together with the line of each key.

YAML is read by the core schema of YAML 1.2: `1e-6` is a number, `yes`, `no`, `on` and `off` are text,
a repeated key is an error. Nothing but text, numbers, booleans, null, lists and mappings can come out.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atropos_cli.config.problems import short_path
from atropos_cli.errors import ConfigError
from atropos_cli.redaction import learn_url

MAX_BYTES = 1 << 20
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A parsed file. `lines` maps the path of a key to its line, as far as it is known."""

    path: Path
    tree: dict[str, Any]
    lines: dict[Key, int] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The path as messages show it."""
        return short_path(self.path)

    def line(self, key: Key) -> int | None:
        """The line of a key, or of the closest key above it."""
        while key:
            if key in self.lines:
                return self.lines[key]
            key = key[:-1]
        return None


def read_config(path: Path, *, explicit: bool = False) -> ConfigFile:
    """Parse a file by its suffix. `explicit`: the user named it, so an empty one is an error."""
    shown = short_path(path)
    text = _read_text(path, shown)
    learn_url(text)
    suffix = path.suffix.lower()
    if suffix == ".toml":
        tree, lines = _read_toml(text, shown)
    elif suffix in (".yaml", ".yml", ".json"):
        tree, lines = _read_yaml(text, shown)
    else:
        raise ConfigError(
            f"{shown}: cannot infer the format of a configuration file from the suffix {suffix!r}",
            hint="name it .toml, .yaml, .yml or .json",
        )
    if explicit and not tree:
        raise ConfigError(f"{shown}: the configuration is empty", hint="put at least one key in it, or drop --config")
    return ConfigFile(path, tree, lines)


def _read_text(path: Path, shown: str) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration file {shown}", hint="check the path given to --config") from None
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {shown}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{shown}: a configuration file of {len(data)} bytes is too large (at most {MAX_BYTES})")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{shown}:{line}: not UTF-8 text", hint="save the file as UTF-8") from error


# TOML ----------------------------------------------------------------------------------------------------------------


def _read_toml(text: str, shown: str) -> tuple[dict[str, Any], dict[Key, int]]:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
        if at is None:
            raise ConfigError(f"{shown}: not valid TOML: {error}") from error
        reason = str(error)[: at.start()]
        raise ConfigError(f"{shown}:{at[1]}: not valid TOML: {reason} (line {at[1]}, column {at[2]})") from error
    except RecursionError as error:
        raise ConfigError(f"{shown}: nested too deeply") from error
    return tree, _toml_lines(text)


_BARE = r"[A-Za-z0-9_-]+"
_PART = rf"(?:{_BARE}|\"(?:[^\"\\]|\\.)*\"|'[^']*')"
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]")
_ASSIGN = re.compile(rf"\s*({_DOTTED})\s*=")
_TOKEN = re.compile(
    r"\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''.*?'''|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|#[^\n]*|[\[\]{}]|[^\"'#\[\]{}]+|.",
    re.DOTALL,
)


def _toml_lines(text: str) -> dict[Key, int]:
    """The line of each key of a valid TOML text; keys of inline tables get the line of their table."""
    lines: dict[Key, int] = {}
    section: Key = ()
    position, number = 0, 1
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        line = text[position:end]
        header, assign = _HEADER.match(line), _ASSIGN.match(line)
        if header:
            section = _split_dotted(header[1])
            lines.setdefault(section, number)
        elif assign:
            lines.setdefault(section + _split_dotted(assign[1]), number)
            end = _value_end(text, position + assign.end())
        number += text.count("\n", position, end + 1)
        position = end + 1
    return lines


def _value_end(text: str, start: int) -> int:
    """The offset of the newline that ends a value which begins at `start`: brackets and strings may span lines."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        word = token[0]
        if word in "[{":
            depth += 1
        elif word in "]}":
            depth -= 1
        elif depth <= 0 and word[0] not in "\"'#" and "\n" in word:
            return token.start() + word.index("\n")
    return len(text)


def _split_dotted(text: str) -> Key:
    return tuple(part.strip("\"'") for part in re.findall(_PART, text))


# YAML ----------------------------------------------------------------------------------------------------------------


def _read_yaml(text: str, shown: str) -> tuple[dict[str, Any], dict[Key, int]]:
    import yaml

    from atropos_cli.config.yamlread import parse

    try:
        tree, lines = parse(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        context = error.context
        if context and error.context_mark and mark and error.context_mark.line != mark.line:
            context = f"{context} that begins in line {error.context_mark.line + 1}"
        reason = ", ".join(part for part in (context, error.problem) if part)
        if mark is None:
            raise ConfigError(f"{shown}: not valid YAML: {reason}") from error
        where = f"line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigError(f"{shown}:{mark.line + 1}: not valid YAML: {reason} ({where})") from error
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{shown}: not valid YAML: {reason}") from error
    except RecursionError as error:
        raise ConfigError(f"{shown}: nested too deeply") from error
    if tree is None:
        return {}, {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{shown}: expected keys and values, got {type(tree).__name__}")
    return tree, lines
