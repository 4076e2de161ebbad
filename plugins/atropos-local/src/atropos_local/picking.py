"""Replies that must be one of given texts: which tokens may come next.

At every step the tokens that no wanted text goes on with are left out, and the sampling parameters are applied to what
remains, as servers with guided decoding do it. A text is written in the tokens that the tokenizer makes of it, and then
ends with an end token; where one text begins another ("open box", "open box with key"), the model decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Picks:
    """A tree of the texts' tokens. ids: of each text. ends: the tokens that may end a reply."""

    def __init__(self, texts: Iterable[Sequence[int]], ends: Iterable[int]) -> None:
        self._next: dict[tuple[int, ...], list[int]] = {}
        last = sorted(ends)
        for ids in dict.fromkeys(map(tuple, texts)):
            for at, token in enumerate(ids):
                self._allow(ids[:at], [token])
            self._allow(ids, last)

    def _allow(self, before: tuple[int, ...], tokens: Sequence[int]) -> None:
        known = self._next.setdefault(before, [])
        known.extend(token for token in tokens if token not in known)

    def after(self, ids: Sequence[int]) -> Sequence[int]:
        """The tokens that may follow; none once the reply is whole."""
        return self._next.get(tuple(ids), ())
