"""Makes any text safe to send to the game's interpreter, or refuses it.

The interpreter runs C code of the 1990s on a game that also has commands for its author and its
operating system. Unsafe text makes it hang (a NUL), crash, answer the wrong command (a newline),
write files (save, script), show what is hidden (print_state) or change how it prints (superbrief).
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

LONGEST = 120

Refusal = Literal["empty", "chain", "system"]
REFUSALS: tuple[Refusal, ...] = ("empty", "chain", "system")

_SYSTEM_WORDS = {
    "the interpreter's files": ("save", "restore", "script", "noscript", "unscript", "transcript", "commands"),
    "the interpreter's life": ("restart", "quit", "q", "undo", "recording", "replay", "verify", "version"),
    "how the game prints": ("superbrief", "brief", "verbose", "short", "long", "normal", "notify", "style"),
    "what the game prints": ("print_state", "enable", "disable", "restrict"),
    "changes the command before it into any of these": ("oops", "o"),
    "for the author of a game": ("trace", "actions", "rules", "relations", "responses", "test", "random"),
    "also for the author": ("scope", "tree", "showme", "showverb", "showobj", "purloin", "abstract", "gonear", "goto"),
}
_DICTIONARY_LENGTH = 9
"""The interpreter looks only at so many characters: "superbriefly" is superbrief to it."""
_SYSTEM = frozenset(word[:_DICTIONARY_LENGTH] for words in _SYSTEM_WORDS.values() for word in words)
_SYSTEM_PREFIX = "tw-"
_SYSTEM_PHRASES = ("print state",)

_QUOTES = "\"'`*_"
_CHAIN = re.compile(r"[.;,&|]|\bthen\b")
_KEPT = re.compile(r"[^a-z0-9 '-]+")


@dataclass(frozen=True, slots=True)
class Refused:
    """A command that is not sent. `kind` is counted."""

    kind: Refusal

    @property
    def name(self) -> str:
        """As it is counted."""
        return f"refused_{self.kind}"


def sanitise(text: str) -> str | Refused:
    """One line of lower-case ASCII words, at most 120 characters; or why there is none.

    Only the first line with text counts. Quotes around it and punctuation at its end are dropped;
    more than one command in it is refused, because a step is one command.
    """
    lines = [line for line in re.split(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", text) if line.strip()]
    plain = unicodedata.normalize("NFKD", lines[0] if lines else "").encode("ascii", "ignore").decode()
    command = "".join(" " if char.isspace() else char for char in plain if char.isspace() or char.isprintable())
    command = " ".join(command.lower().split())
    command = command.removeprefix(">").strip(" " + _QUOTES).rstrip(" .!?,;:" + _QUOTES)
    if _CHAIN.search(command):
        return Refused("chain")
    if command.replace("_", " ").startswith(_SYSTEM_PHRASES):
        return Refused("system")
    command = " ".join(_KEPT.sub(" ", command)[:LONGEST].split()).strip("'- ")
    if not command:
        return Refused("empty")
    first = command.split()[0]
    if first[:_DICTIONARY_LENGTH] in _SYSTEM or command.startswith(_SYSTEM_PREFIX):
        return Refused("system")
    return command
