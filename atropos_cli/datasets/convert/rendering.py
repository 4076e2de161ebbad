"""Rendered training text: one chat template (or one for tools and one without) and, where given, a tokenizer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atropos_cli.datasets.convert.samples import Sample, is_cut
from atropos_cli.datasets.convert.skeleton import MARK
from atropos_cli.datasets.convert.spans import Rendered, SpanFinder
from atropos_cli.datasets.convert.template import TemplateRefused
from atropos_cli.datasets.convert.tokenizers import Tokens, load_template
from atropos_cli.datasets.convert.turns import BadMessage, as_turns, plain_text
from atropos_cli.io.records import Message, Row
from atropos_cli.stats.tallies import add_tally, tally_state

Warn = Callable[[str, str], None]
"""Called as (kind, text)."""


class Rendering:
    """Renders samples and counts the results.

    rows, tokens, trained: totals of token rows. ended: rows whose last trained token is a special one.
    doubled_bos: rows that began with two BOS before one was taken away.
    """

    def __init__(
        self, tokens: Tokens | None, template_file: str | None = None, variables: Mapping[str, Any] | None = None
    ) -> None:
        self.tokens = tokens
        self._file = template_file
        self._variables = dict(variables or {})
        self._finders: dict[bool, SpanFinder] = {}
        special = tokens.end_tokens if tokens is not None else ()
        self._special = re.compile("|".join(map(re.escape, special))) if special else None
        self.rows = self.total = self.trained = self.longest = self.ended = self.doubled_bos = 0

    def finder(self, tools: bool = False) -> SpanFinder:
        """Raises ConfigError when there is no template."""
        if tools not in self._finders:
            template = load_template(self._file, self.tokens, self._variables, tools=tools)
            end_tokens = self.tokens.end_tokens if self.tokens is not None else ()
            self._finders[tools] = SpanFinder(template, end_tokens)
        return self._finders[tools]

    def knows_thinking(self) -> bool:
        """Does the template write the thinking of a message that carries it beside its text?"""
        turn = {"role": "assistant", "content": "a", "reasoning_content": MARK, "thinking": MARK}
        try:
            return MARK in self.finder().template.render([{"role": "user", "content": "q"}, turn])
        except TemplateRefused:
            return False

    def count(self, messages: Sequence[Message], tools: Sequence[Row] | None) -> int:
        """Tokens of a conversation."""
        if self.tokens is None:
            raise BadMessage("no_tokens", "a token limit needs a tokenizer")
        text = self.finder(bool(tools)).template.render(as_turns(messages), tools)
        return self.tokens.count(text)

    def render(self, sample: Sample, trained: Sequence[int], notes: Counter[str]) -> Rendered:
        """The conversation, with the spans of the trained turns. Raises BadMessage, TemplateRefused."""
        rendered = self.finder(bool(sample.tools)).render(as_turns(sample.messages), trained, sample.tools)
        notes["thinking_dropped"] += rendered.dropped_thinking > 0
        if sample.tools and not any(_name(tool) in rendered.text for tool in sample.tools):
            notes["tools_not_rendered"] += 1
        if self._special is not None and any(self._special.search(_text(message)) for message in sample.messages):
            notes["special_token_in_text"] += 1
        return rendered

    def text(self, sample: Sample, notes: Counter[str]) -> str:
        """The whole conversation as a trainer's `text` column wants it."""
        rendered = self.render(sample, (), notes)
        return self.tokens.own_text(rendered.text) if self.tokens is not None else rendered.text

    def prompt_and_completion(self, sample: Sample, notes: Counter[str]) -> Row:
        """{prompt, completion} as text: the completion is the last trained turn."""
        rendered = self._trained(sample, notes)
        begin, end = rendered.spans[-1]
        prompt = rendered.text[:begin]
        return {
            "prompt": self.tokens.own_text(prompt) if self.tokens is not None else prompt,
            "completion": rendered.text[begin:end],
        }

    def tokens_of(self, sample: Sample, notes: Counter[str]) -> tuple[list[int], list[bool]]:
        """(ids, mask) with at least one trained token. Raises BadMessage, TemplateRefused."""
        if self.tokens is None:
            raise BadMessage("no_tokens", "no token ids are stored, and no tokenizer is given")
        rendered = self._trained(sample, notes)
        ids, mask, straddling = self.tokens.encode(rendered.text, rendered.spans)
        notes["begins_inside_a_token"] += straddling > 0
        if self.tokens.bos_id is not None and ids[:2] == [self.tokens.bos_id] * 2:
            self.doubled_bos += 1
            ids, mask = ids[1:], mask[1:]
        if not any(mask):
            raise BadMessage("no_trained_token", "no token is trained on")
        return ids, mask

    def _trained(self, sample: Sample, notes: Counter[str]) -> Rendered:
        rendered = self.render(sample, sample.trained, notes)
        if not rendered.spans:
            if rendered.no_prompt:
                raise BadMessage(
                    "prompt_not_prefix", "the prompt of the reply, rendered alone, is not how the conversation begins"
                )
            raise BadMessage("no_trained_token", "the template writes nothing of the replies")
        self._leave_out_ends(sample, rendered)
        notes["turn_without_prompt"] += bool(rendered.no_prompt)
        notes["turn_without_end"] += rendered.no_end > 0
        return rendered

    def _leave_out_ends(self, sample: Sample, rendered: Rendered) -> None:
        """A reply that was cut off ends with its own text: the end mark behind it was never the model's. BadMessage."""
        cut = {i for i in sample.trained if is_cut(sample.messages[i])}
        if not cut:
            return
        turns = [i for i in sample.trained if i not in rendered.no_prompt]
        if len(turns) != len(rendered.spans):
            raise BadMessage("cut_end_mark", "the end of a reply that was cut off cannot be found")
        for place, i in enumerate(turns):
            if i in cut:
                begin, end = rendered.spans[place]
                end = self._end_of_text(sample.messages[i], rendered.text, begin, end)
                rendered.spans[place] = (begin, end)

    def _end_of_text(self, message: Message, text: str, begin: int, end: int) -> int:
        """Where the message's own text ends in its span: before the end mark."""
        words = plain_text(message).strip()
        at = text.rfind(words, begin, end) if words and not message.get("tool_calls") else -1
        if at >= 0:
            return at + len(words)
        tokens = self.tokens.end_tokens if self.tokens is not None else ()
        mark = next((token for token in tokens if token and text.endswith(token, begin, end)), None)
        if mark is None:
            raise BadMessage("cut_end_mark", "the end of a reply that was cut off cannot be found")
        return end - len(mark)

    def check_tokens(self, ids: Sequence[int], mask: Sequence[bool]) -> None:
        """Count a finished row."""
        self.rows += 1
        self.total += len(ids)
        self.trained += sum(mask)
        self.longest = max(self.longest, len(ids))
        if self.tokens is not None:
            last = len(mask) - 1
            while last > 0 and not mask[last]:
                last -= 1
            self.ended += ids[last] in self.tokens.special_ids or ids[last] in self.tokens.eos_ids

    def tally(self) -> dict[str, Any]:
        """The counts, for `absorb`."""
        return {
            "sums": tally_state(self, "rows", "total", "trained", "ended", "doubled_bos"),
            "longest": self.longest,
            "templates": list(self._finders),
        }

    def absorb(self, state: dict[str, Any]) -> None:
        """Add the counts of another part of the input."""
        add_tally(self, state["sums"])
        self.longest = max(self.longest, state["longest"])
        for tools in state["templates"]:
            self.finder(tools)

    def as_json(self) -> dict[str, Any]:
        """What a report says of token rows."""
        return {
            "tokenizer": self.tokens.name if self.tokens is not None else None,
            "template": next(iter(self._finders.values())).template.name if self._finders else None,
            "rows": self.rows,
            "tokens": self.total,
            "trained_tokens": self.trained,
            "longest": self.longest,
            "rows_ending_in_an_end_token": self.ended if self.tokens is not None else None,
            "doubled_bos_removed": self.doubled_bos,
        }


def _name(tool: Row) -> str:
    function = tool.get("function", tool)
    return str(function.get("name", "")) if isinstance(function, dict) else ""


def _text(message: Message) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""
