"""Duplicates among completions: exact ones by their text, near ones by MinHash over word shingles.

The first of its kind is kept, in the order of the input. Texts are compared without white space around
them. Scope "task": only attempts at the same task are compared; "all": all attempts.
"""

from __future__ import annotations

from typing import Any, Literal

from atropos_cli.errors import PluginError
from atropos_cli.io.records import Attempt, Record, text_of

Scope = Literal["task", "all"]
SHINGLE = 5
"""Words in a shingle."""


def completion_key(attempt: Attempt) -> str:
    """The completion as one text that two attempts share only when they did the same: text, tool calls, results."""
    if not attempt.messages:
        return str(attempt.tokens)
    if len(attempt.messages) - attempt.prompt_length == 1 and "tool_calls" not in attempt.messages[-1]:
        return text_of(attempt.messages[-1]).strip()
    parts = []
    for message in attempt.completion:
        parts.append(f"{message['role']}\x00{text_of(message).strip()}")
        for call in message.get("tool_calls") or ():
            parts.append(f"\x01{call['function']['name']}\x00{call['function'].get('arguments', '')}")
    return "\x02".join(parts)


class ExactDuplicates:
    """Remembers 64 bits of every completion seen."""

    def __init__(self, scope: Scope = "task") -> None:
        self._scope = scope
        self._seen: set[int] = set()

    def is_new(self, record: Record, attempt: Attempt) -> bool:
        """True for the first attempt with this completion (in its scope), and for one without any."""
        if not attempt.messages and not attempt.sequences:
            return True
        key = hash((record.task_key if self._scope == "task" else "", completion_key(attempt)))
        if key in self._seen:
            return False
        self._seen.add(key)
        return True


class NearDuplicates:
    """Remembers a MinHash of every completion kept (about 2 kB each). Raises PluginError without datasketch."""

    def __init__(
        self, threshold: float = 0.8, scope: Scope = "task", *, permutations: int = 128, seed: int = 1
    ) -> None:
        try:
            import datasketch
        except ModuleNotFoundError as error:
            raise PluginError(
                "near-duplicate removal needs datasketch", hint="pip install 'atropos-cli[dedup]'"
            ) from error
        self._make: Any = lambda: datasketch.MinHash(num_perm=permutations, seed=seed)
        # Candidates only: each is checked against the threshold itself.
        self._index = datasketch.MinHashLSH(threshold=min(threshold, 0.95), num_perm=permutations)
        self._threshold = threshold
        self._scope = scope
        self._kept: list[tuple[str, Any]] = []

    def is_new(self, record: Record, attempt: Attempt) -> bool:
        """True unless a kept attempt has an estimated Jaccard similarity of at least the threshold."""
        if not attempt.messages and not attempt.sequences:
            return True
        scope = record.task_key if self._scope == "task" else ""
        sketch = self._make()
        sketch.update_batch(shingles(completion_key(attempt)))
        for number in self._index.query(sketch):
            other_scope, other = self._kept[number]
            if other_scope == scope and sketch.jaccard(other) >= self._threshold:
                return False
        self._index.insert(len(self._kept), sketch, check_duplication=False)
        self._kept.append((scope, sketch))
        return True


def shingles(text: str, size: int = SHINGLE) -> list[bytes]:
    """All runs of `size` words, in lower case; a shorter text is one shingle."""
    words = text.lower().split()
    if len(words) <= size:
        return [" ".join(words).encode("utf-8", "replace")]
    return [" ".join(words[i : i + size]).encode("utf-8", "replace") for i in range(len(words) - size + 1)]
