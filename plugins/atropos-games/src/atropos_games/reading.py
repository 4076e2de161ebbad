"""Which move a reply makes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from atropos_cli.sdk import split_thinking

Fault = Literal["unreadable", "illegal"]
"""unreadable: no move can be found in the reply. illegal: one can be, which the position does not allow."""

_BRACKETS = re.compile(r"\[([^\[\]\n]{1,80})\]")
_LONGEST = 80


@dataclass(frozen=True)
class Said:
    """move: in lower case, single spaces. bracketed: was it written as asked, in brackets?"""

    move: str
    bracketed: bool


def read_move(text: str) -> Said | None:
    """The last text in brackets after the thinking; without any, the whole answer if it is one short line."""
    _, answer = split_thinking(text)
    if answer is None:
        return None
    found = _BRACKETS.findall(answer)
    said = found[-1] if found else answer.strip()
    if not found and (len(said) > _LONGEST or "\n" in said):
        return None
    move = " ".join(said.casefold().split())
    return Said(move, bool(found)) if move else None
