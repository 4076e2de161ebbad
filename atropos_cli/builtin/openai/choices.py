"""Replies that must be one of given texts: each kind of server is asked for it in its own way.

    structured_outputs  {"choice": [...]}   vLLM from 0.11 on
    guided_choice       [...]               older vLLM
    regex               "(a|b)"             SGLang
    grammar             root ::= "a" | "b"  llama.cpp

A server may ignore a field that it does not know and answer anything. So every reply is looked at, and what is none of
the texts leads to the next way, in the end to an error. Logprobs are not kept: servers give those of the constrained
distribution or of the whole one, by version and setting, and a trainer needs to know which.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal

from atropos_cli.sdk import clean_text
from atropos_cli.sdk.backends import FatalBackendError, Generation

Way = Literal["structured_outputs", "guided_choice", "regex", "grammar"]

_WAYS: dict[str, tuple[Way, ...]] = {
    "vllm": ("structured_outputs", "guided_choice"),
    "sglang": ("regex",),
    "llama.cpp": ("grammar",),
}
_UNKNOWN_KIND: tuple[Way, ...] = ("structured_outputs", "guided_choice", "regex")
_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]()|]")
_HINT = (
    "name the field that the server knows by --backend.choices-field, or leave out the option that asks for it "
    "(--pick-from-admissible)"
)


class ChoiceAsker:
    """How one run's servers are asked; learnt from their answers. wanted: the way that was named, "auto" for none."""

    def __init__(self, wanted: str, kind: str, version: str | None) -> None:
        ways = _WAYS.get(kind, _UNKNOWN_KIND) if wanted == "auto" else (wanted,)
        if len(ways) > 1 and kind == "vllm" and _before_structured(version):
            ways = ways[::-1]
        self._ways = list(ways)

    @property
    def way(self) -> str:
        """The request field in use."""
        return self._ways[0]

    def fields(self, choices: Sequence[str]) -> dict[str, Any]:
        """What goes into the body of a request."""
        if self.way == "regex":
            value: Any = "(" + "|".join(_SPECIAL.sub(r"\\\g<0>", text) for text in choices) + ")"
        elif self.way == "grammar":
            value = "root ::= " + " | ".join(map(_quoted, choices))
        else:
            value = {"choice": list(choices)} if self.way == "structured_outputs" else list(choices)
        return {self.way: value}

    def failed(self, way: str, why: str) -> None:
        """Go on to the next way. Raises FatalBackendError after the last one."""
        if way != self.way:  # another request has found out already
            return
        if len(self._ways) == 1:
            raise FatalBackendError(f"the server cannot choose among given replies: {why}", hint=_HINT)
        del self._ways[0]


def other_reply(generation: Generation, choices: Sequence[str]) -> str | None:
    """A reply that is none of the choices, nor the beginning of one where it was cut off; None where there is none."""
    allowed = {clean_text(text).strip() for text in choices}
    for completion in generation.completions:
        text = completion.message.text.strip()
        if text in allowed:
            continue
        begun = text.rstrip("\ufffd")  # the half of a character that was cut in two
        if completion.finish_reason == "stop" or not any(choice.startswith(begun) for choice in allowed):
            return text
    return None


def without_logprobs(generation: Generation) -> Generation:
    """The generation with token ids alone; see the module."""
    completions = []
    for completion in generation.completions:
        message = completion.message
        if message.tokens is not None:
            tokens = message.tokens.model_copy(update={"logprobs": None})
            completion = completion.model_copy(update={"message": message.model_copy(update={"tokens": tokens})})
        completions.append(completion)
    return generation.model_copy(update={"completions": tuple(completions)})


def _quoted(text: str) -> str:
    """As a grammar of llama.cpp has it: JSON but for two escapes that it does not know."""
    quoted = json.dumps(text, ensure_ascii=False)
    return re.sub(r"\\(.)", lambda found: {"b": r"\x08", "f": r"\x0C"}.get(found[1], found[0]), quoted)


def _before_structured(version: str | None) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version or "")
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < (0, 11)
