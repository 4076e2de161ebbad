"""The positions of the assistant's turns in a rendered conversation, proven for each row.

A turn begins where the prompt of the turn ends (the conversation before it, rendered with the generation
prompt) and ends behind its end-of-turn token. To find that without rendering every prefix:

1. The skeleton (see `skeleton`) is rendered once: it shows the template's own text between the texts.
2. What a prompt ends with is taken from one real prefix for each kind of turn, and must then be found, letter
   by letter, before every turn of that kind. The same for what ends a turn.
3. The conversation itself is rendered once and must equal the skeleton's pieces and the texts put together.

Where 3 fails (a template that looks into the texts), every prefix of this row is rendered after all; where
these are no prefixes of the whole, the row is refused. All of it is linear in turns except that last resort.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from atropos_cli.datasets.convert.skeleton import MARK, Leaf, Skeleton, make_skeleton, split_markers
from atropos_cli.datasets.convert.template import ChatTemplate, Turn
from atropos_cli.datasets.convert.turns import BadMessage

_V = TypeVar("_V")
_ID = re.compile(r"[\w.:/-]*")
_LONGEST_RESORT = 400  # assistant turns of a row for which every prefix may be rendered


@dataclass(slots=True)
class Rendered:
    """A rendered conversation.

    spans: (begin, end) of each trained turn in `text`, in order. no_end: trained turns without an end-of-turn
    token. no_prompt: turns whose prompt at generation is no prefix of the text, so that they cannot be trained.
    dropped_thinking: assistant turns whose thinking the template leaves out.
    """

    text: str
    spans: list[tuple[int, int]] = field(default_factory=list)
    no_end: int = 0
    no_prompt: list[int] = field(default_factory=list)
    dropped_thinking: int = 0


@dataclass(slots=True)
class _Layout:
    """Pieces and leaves of a skeleton, and the positions of its turns in them: ((piece, offset), (piece, offset)).

    The same for all conversations of one shape, so it is worked out once for each.
    """

    pieces: list[str]
    order: list[int]
    places: list[tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=list)
    no_end: int = 0
    no_prompt: list[int] = field(default_factory=list)
    dropped_thinking: int = 0

    def in_text(self, text: str, skeleton: Skeleton) -> Rendered | None:
        """The turns in a rendered conversation; None when it is not this layout with its texts."""
        starts = _assembled(text, self.pieces, self.order, skeleton)
        if starts is None:
            return None
        spans = [(starts[a] + begin, starts[b] + end) for (a, begin), (b, end) in self.places]
        return Rendered(text, spans, self.no_end, list(self.no_prompt), self.dropped_thinking)


@dataclass(frozen=True, slots=True)
class _Opening:
    """The text between the one before a turn and the turn: the prompt's end, and a header never sampled."""

    prompt: str
    header: str


class _Cache(dict[Any, _V]):
    """Forgets all when it grows too large: its keys hold white space of untrusted texts."""

    def __setitem__(self, key: Any, value: _V) -> None:
        if len(self) >= 1000:
            self.clear()
        super().__setitem__(key, value)


class SpanFinder:
    """Renders conversations with one template and finds the turns of the assistant.

    end_tokens: texts of the tokenizer's special tokens, one of which ends a turn.
    """

    def __init__(self, template: ChatTemplate, end_tokens: Collection[str] = ()) -> None:
        self.template = template
        self.end_tokens = sorted(end_tokens, key=len, reverse=True)
        self.openings: _Cache[_Opening] = _Cache()
        self.ends: _Cache[str] = _Cache()
        self._layouts: _Cache[_Layout] = _Cache()

    def render(self, turns: Sequence[Turn], trained: Collection[int], tools: Any = None) -> Rendered:
        """Render, and find the spans of the trained turns (positions in `turns`).

        Raises TemplateRefused with the template's words, BadMessage when a text is lost or nothing can be proven.
        """
        text = self.template.render(turns, tools)
        skeleton = make_skeleton(turns)
        trained = sorted(trained)
        if not _hostile(turns, tools):
            shape = (skeleton.shape(), *trained) if tools is None and skeleton.plain else None
            layout = self._layouts.get(shape) if shape is not None else None
            if layout is None:
                layout = self._layout(turns, skeleton, trained, text, tools)
                if shape is not None and layout is not None:
                    self._layouts[shape] = layout
            found = layout.in_text(text, skeleton) if layout is not None else None
            if found is not None:
                return found
        return self._by_prefixes(text, turns, trained, tools)

    def _layout(
        self, turns: Sequence[Turn], skeleton: Skeleton, trained: Sequence[int], text: str, tools: Any
    ) -> _Layout | None:
        """The layout of a conversation; None when its text does not follow its skeleton."""
        pieces, order = split_markers(self.template.render(skeleton.turns, tools))
        if any(number >= len(skeleton.leaves) for number in order):
            return None
        if _assembled(text, pieces, order, skeleton) is None:
            return None
        return _Row(self, turns, tools, skeleton, _Layout(pieces, order)).laid_out(trained)

    def end_in(self, close: str) -> str:
        """The part of a turn's close that the model writes itself: up to the first special token, else all of it
        but white space behind other text.
        """
        found = [(at, token) for token in self.end_tokens if (at := close.find(token)) >= 0]
        if found:
            at, token = min(found, key=lambda pair: (pair[0], -len(pair[1])))
            return close[: at + len(token)]
        return close.rstrip() or close

    def _by_prefixes(self, text: str, turns: Sequence[Turn], trained: Sequence[int], tools: Any) -> Rendered:
        """The last resort: each prefix is rendered for itself."""
        if len(trained) > _LONGEST_RESORT:
            raise BadMessage("not_provable", f"the template looks into the texts of {len(trained)} turns")
        result = Rendered(text, dropped_thinking=_all_there(turns, text))
        render = self.template.render
        for i in trained:
            prompt = render(turns[:i], tools, generation_prompt=True)
            if prompt == render(turns[:i], tools):
                probe = render([*turns[:i], {"role": "assistant", "content": MARK}], tools)
                header = probe[len(prompt) : max(probe.rfind(MARK), 0)] if probe.startswith(prompt) else ""
                prompt += header if header.strip() else ""
            upto = render(turns[: i + 1], tools)
            tail = self.plain_end(turns, i, tools)
            end = upto.rfind(tail) + len(tail) if tail else len(upto.rstrip())
            if end <= len(prompt) or not text.startswith(prompt) or not text.startswith(upto[:end]):
                result.no_prompt.append(i)
                continue
            result.no_end += not any(token in tail for token in self.end_tokens)
            result.spans.append((len(prompt), end))
        return result

    def plain_end(self, turns: Sequence[Turn], i: int, tools: Any) -> str:
        """How a turn with nothing but a text ends at this place."""
        key = ("plain", turns[i - 1]["role"] if i else None, tools is not None)
        if key not in self.ends:
            probe = make_skeleton([*turns[:i], {"role": "assistant", "content": "text"}])
            pieces, _ = split_markers(self.template.render(probe.turns, tools))
            self.ends[key] = self.end_in(pieces[-1])
        return self.ends[key]


def _hostile(turns: Sequence[Turn], tools: Any) -> bool:
    """Could texts that stay in the skeleton (ids, names, tool schemas) be taken for a marker or an end of turn?"""
    for turn in turns:
        if len(turn) > 2:
            kept = [turn.get("tool_call_id", ""), turn.get("name", "")]
            kept += [call.get("id", "") for call in turn.get("tool_calls", ())]
            if not all(isinstance(text, str) and _ID.fullmatch(text) for text in kept) or MARK in "".join(kept):
                return True
    return tools is not None and MARK in str(tools)


def _assembled(text: str, pieces: Sequence[str], order: Sequence[int], skeleton: Skeleton) -> list[int] | None:
    """Where each piece of the skeleton begins in the text; None when text and skeleton do not agree."""
    position = 0
    starts = []
    for k, number in enumerate(order):
        piece, after = pieces[k], pieces[k + 1]
        if not text.startswith(piece, position):
            return None
        starts.append(position)
        position += len(piece)
        leaf = skeleton.leaves[number]
        if leaf.kind == "argument":
            for form in leaf.forms():
                if text.startswith(form, position) and text.startswith(after, position + len(form)):
                    position += len(form)
                    break
            else:
                return None
        elif text.startswith(leaf.core, position):
            position += len(leaf.core)
        else:
            return None
    starts.append(position)
    return starts if text[position:] == pieces[-1] else None


def _all_there(turns: Sequence[Turn], text: str) -> int:
    """How many turns lost their thinking, as far as the text shows. Raises BadMessage when something else is lost."""
    dropped = set()
    for leaf in make_skeleton(turns).leaves:
        if any(form in text for form in leaf.forms()):
            continue
        if leaf.kind != "thinking":
            raise _lost(leaf, turns)
        dropped.add(leaf.owner)
    return len(dropped)


def _lost(leaf: Leaf, turns: Sequence[Turn]) -> BadMessage:
    what = "a tool call" if leaf.kind == "argument" else f"the text of a {turns[leaf.owner]['role']} message"
    return BadMessage("text_lost", f"the chat template leaves out {what} (message {leaf.owner})")


@dataclass(slots=True)
class _Row:
    """One conversation whose text equals its skeleton's pieces and its texts put together."""

    finder: SpanFinder
    turns: Sequence[Turn]
    tools: Any
    skeleton: Skeleton
    layout: _Layout
    pieces: list[str] = field(init=False)
    order: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.pieces, self.order = self.layout.pieces, self.layout.order

    def laid_out(self, trained: Sequence[int]) -> _Layout:
        """The layout with the places of the trained turns. Raises BadMessage."""
        layout = self.layout
        items: dict[int, list[int]] = {}
        for k, number in enumerate(self.order):
            items.setdefault(self.skeleton.leaves[number].owner, []).append(k)
        layout.dropped_thinking = self._check_lost()
        for i in trained:
            own = items.get(i)
            if not own:
                continue  # thinking alone, which the template leaves out
            if own[-1] - own[0] != len(own) - 1:
                raise BadMessage("not_provable", f"the template does not write turn {i} in one piece")
            begin = self._begin(i, own[0])
            if begin is None or (i == trained[-1] and not self._is_prefix(i, own[0])):
                layout.no_prompt.append(i)
                continue
            end, known = self._end(i, own[-1] + 1)
            layout.no_end += not known
            layout.places.append(((own[0], begin), (own[-1] + 1, end)))
        return layout

    def _check_lost(self) -> int:
        """How many turns lost their thinking. Raises BadMessage when anything else is lost."""
        if len(self.order) >= len(self.skeleton.leaves) and len(set(self.order)) == len(self.skeleton.leaves):
            return 0
        shown = set(self.order)
        dropped = set()
        for number, leaf in enumerate(self.skeleton.leaves):
            if number in shown:
                continue
            if leaf.kind != "thinking":
                raise _lost(leaf, self.turns)
            dropped.add(leaf.owner)
        return len(dropped)

    def _begin(self, i: int, k: int) -> int | None:
        """Where the turn begins in piece k, the one before its first text; None when its prompt is not there."""
        piece = self.pieces[k]
        before = self.skeleton.leaves[self.order[k - 1]].owner if k else -1
        kinds = tuple(self.skeleton.kind(j) for j in range(max(before, 0), i))
        key = (k == 0, kinds, self.tools is not None)
        known = self.finder.openings.get(key)
        if known is None or not piece.startswith(known.prompt + known.header):
            known = self.finder.openings[key] = self._opening(i)
        whole = known.prompt + known.header
        return len(whole) if piece.startswith(whole) else None

    def _is_prefix(self, i: int, k: int) -> bool:
        """Is the text before turn i its whole prompt? Asked for the last turn, whose prompt holds the rest."""
        pieces, order = split_markers(
            self.finder.template.render(self.skeleton.turns[:i], self.tools, generation_prompt=True)
        )
        return order == self.order[:k] and pieces[:-1] == self.pieces[:k] and self.pieces[k].startswith(pieces[-1])

    def _opening(self, i: int) -> _Opening:
        """From real prefixes of the skeleton: the prompt of turn i, and the header where no prompt writes it."""
        render, turns = self.finder.template.render, self.skeleton.turns
        prompt = split_markers(render(turns[:i], self.tools, generation_prompt=True))[0][-1]
        if prompt != split_markers(render(turns[:i], self.tools))[0][-1]:
            return _Opening(prompt, "")
        # No generation prompt here. What the template writes before any reply is its header, unless it is white space.
        probe = make_skeleton([*self.turns[:i], {"role": "assistant", "content": "text"}])
        before = split_markers(render(probe.turns, self.tools))[0][-2]
        header = before[len(prompt) :] if before.startswith(prompt) else ""
        return _Opening(prompt, header if header.strip() else "")

    def _end(self, i: int, k: int) -> tuple[int, bool]:
        """(where the turn ends in piece k, the one behind its last text; is there an end token)."""
        piece = self.pieces[k]
        calls = "tool_calls" in self.turns[i]
        key = (self.skeleton.kind(i), calls, self.tools is not None)
        end = self.finder.ends.get(key)
        if end is None:
            end = self.finder.ends[key] = self._close(i, calls)
        marked = any(token in end for token in self.finder.end_tokens)
        if calls and marked:
            # What closes the arguments differs from call to call; the end token itself does not.
            at = piece.find(end)
            return (at + len(end), True) if at >= 0 else self._exact(i, piece)
        if piece.startswith(end) and not calls:
            return len(end), marked
        return self._exact(i, piece)

    def _close(self, i: int, calls: bool) -> str:
        """What ends a turn like turn i; of a turn with calls, the end token only."""
        close = split_markers(self.finder.template.render(self.skeleton.turns[: i + 1], self.tools))[0][-1]
        if not calls:
            return self.finder.end_in(close)
        plain = self.finder.plain_end(self.turns, i, self.tools)
        token = next((token for token in self.finder.end_tokens if plain.endswith(token)), "")
        if token and token in close:
            return token
        end = self.finder.end_in(close)
        return next((token for token in self.finder.end_tokens if end.endswith(token)), end)

    def _exact(self, i: int, piece: str) -> tuple[int, bool]:
        """The end by a prefix of this row: as much of the turn's end as is really here."""
        close = split_markers(self.finder.template.render(self.skeleton.turns[: i + 1], self.tools))[0][-1]
        end = self.finder.end_in(close)
        if piece.startswith(end):
            return len(end), any(token in end for token in self.finder.end_tokens)
        # No end token here. White space that ends both is the turn's own; half a token is nothing.
        space = end[: len(end) - len(end.lstrip())]
        return (len(space), False) if piece.startswith(space) else (0, False)
