"""Tell a model's thinking from its answer, in text where the thinking was left inside the family's marks.

FAMILIES is the one table of these marks. Rewards, training rows, histories, the viewer and the readers of tool calls
all go by it. What looks like such a mark and is not in the table is logged once: its text counts as answer.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

log = logging.getLogger("atropos.thinking")

_NAME = r"(?:[a-z0-9]+[:_-])?(?:think|thinking|thought|thoughts|reasoning)"


@dataclass(frozen=True, slots=True)
class Family:
    """The marks around thinking, as patterns.

    alone: a closing mark without an opening one counts, because chat templates write the opening one into the prompt.
    """

    name: str
    opening: str
    closing: str
    alone: bool = True


FAMILIES = (
    Family("tags", rf"(?i:<{_NAME}\s*>)", rf"(?i:</{_NAME}\s*>)"),  # most families, Seed's <seed:think> among them
    Family("mistral", r"\[THINK\]", r"\[/THINK\]"),
    Family("kimi", "◁think▷", "◁/think▷"),
    Family("cohere", r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    Family("gemma", r"<\|channel>(?:thought\b)?", r"<channel\|>"),
    Family("gemma3", r"<unused94>(?:thought\b)?", "<unused95>"),
    Family("openthinker", r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    Family("apertus", r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),
    Family("solar", r"<\|think(?:ing)?\|>", r"<\|/think(?:ing)?\|>|<\|end\|>\s*<\|begin\|>assistant\s*<\|content\|>"),
    Family("granite", r"\A\s*Here(?:'s| is) my thought process:", r"Here(?:'s| is) my response:", alone=False),
    Family(
        "gpt-oss",
        r"<\|channel\|>\s*analysis[^<]*<\|message\|>",
        r"<\|end\|>|<\|channel\|>\s*final[^<]*<\|message\|>",
        alone=False,
    ),
)
"""Every way in which a model family marks thinking."""

MARKS = (
    "|".join(f"{family.opening}|{family.closing}" for family in FAMILIES if family.alone)
    + "|"
    + "|".join(family.opening for family in FAMILIES if not family.alone)
)
"""A pattern for the marks of all families, without groups; closing marks that mean nothing alone are not in it."""

_SPLIT = re.compile("|".join(f"(?P<o{i}>{f.opening})|(?P<c{i}>{f.closing})" for i, f in enumerate(FAMILIES)))
_MARK = re.compile(MARKS)
_CLOSINGS = [re.compile(family.closing) for family in FAMILIES]
_CHANNEL = re.compile(
    r"(?:<\|start\|>\s*(?P<role>[^<]*))?<\|channel\|>\s*(?P<channel>\w*)[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>"
    r"|<\|start\|>\s*assistant\s*(?P<plain><\|message\|>)?"
)
_CHANNEL_END = re.compile(r"<\|(?:end|return|call|start|channel)\|>")
_BARE_CHANNEL = re.compile(r"\A\s*(?:assistant)?analysis(?=[A-Z])")
_BARE_FINAL = "assistantfinal"
_ANSWER = re.compile(r"\s*(?:<\|START_(?:RESPONSE|TEXT)\|>|<\|begin_of_solution\|>|<\|content\|>)")
_ANSWER_END = re.compile(r"<\|END_(?:RESPONSE|TEXT)\|>|<\|end_of_solution\|>")
_LOOKS_LIKE = re.compile(
    r"[<\[◁][^<>\[\]◁▷\n]{0,30}?(?:think|thought|reasoning|reflect|scratch|deliberat|ponder|monologue|rationale|(?<![a-z])cot"
    r"(?![a-z]))[^<>\[\]◁▷\n]{0,20}[>\]▷](?!\()",
    re.IGNORECASE,
)
_HINTS = ("think", "thought", "reason", "<|", "◁", "<unused9", "channel")
_WORDS = ("think", "thought", "reason", "reflect", "scratch", "deliberat", "ponder", "monologue", "rationale", "cot")
_QUOTES = frozenset(("``", '""', "''", "“”", "„“", "«»", "「」", "‘’"))
_told: set[str] = set()


def may_think(text: str) -> bool:
    """False for text that surely holds no mark of thinking; cheap, for the usual case."""
    if "<" in text:
        low = text.lower()
        return any(hint in low for hint in _HINTS)
    if "THINK]" in text or "◁" in text:
        return True
    return text.lstrip()[:12].startswith(("Here", "analysis", "assistant"))


def split_thinking(text: str) -> tuple[str, str | None]:
    """(thinking, answer): the answer is what follows the last closing mark of thinking.

    The answer is None when a block is opened and never closed: the model was cut off while it thought. A closing
    mark alone counts, because a chat template may have written the opening one. Of a text with channels the answer is
    what the final channel holds. Without any mark the whole text is the answer.
    """
    if not may_think(text):
        log_unknown_marks(text)
        return "", text
    if "<|channel|>" in text or ("<|start|>assistant" in text and "<|message|>" in text):
        return _split_channels(text)
    if _BARE_CHANNEL.match(text):
        before, final, answer = text.rpartition(_BARE_FINAL)
        return (before + final, answer) if final else (text, None)
    end, inside = 0, ""
    for match in _SPLIT.finditer(text):
        kind = str(match.lastgroup)
        if _mentioned(text, match):
            continue
        if not inside and kind[0] == "o":
            inside = kind[1:]
        elif kind == f"c{inside}" or (not inside and FAMILIES[int(kind[1:])].alone):
            end, inside = match.end(), ""
    if inside:
        return text, None
    if not end:
        log_unknown_marks(text)
    return text[:end], _unwrapped(text[end:])


def _mentioned(text: str, match: re.Match[str]) -> bool:
    """Is the mark only spoken about: `<think>` between back-ticks, or between quotation marks?"""
    return text[match.start() - 1 : match.start()] + text[match.end() : match.end() + 1] in _QUOTES


def thought_text(thinking: str) -> str:
    """The first part of `split_thinking` without its marks, and without white space around it."""
    if not may_think(thinking):
        return thinking.strip()
    if "<|channel|>" in thinking or "<|start|>" in thinking:
        thinking = _CHANNEL_END.sub("", _CHANNEL.sub("\n", thinking))
    thinking = thinking.removesuffix(_BARE_FINAL)
    thinking = _BARE_CHANNEL.sub("", thinking)
    return _SPLIT.sub("", thinking).strip()


def is_mark(text: str) -> bool:
    """True for a text that is one mark of thinking and nothing else."""
    return _MARK.fullmatch(text) is not None


def mark_of(text: str) -> tuple[int, bool] | None:
    """(number of the family, is it a closing mark) of a text that is a mark; None for any other text."""
    match = _SPLIT.fullmatch(text)
    return (int(str(match.lastgroup)[1:]), str(match.lastgroup)[0] == "c") if match is not None else None


def closing_mark(family: int, text: str, pos: int) -> re.Match[str] | None:
    """The next closing mark of a family from pos on."""
    return _CLOSINGS[family].search(text, pos)


def unknown_mark(text: str) -> str | None:
    """What looks like a mark of thinking and is none of a known family: at the start of a text, or as a pair."""
    found: list[str] = []
    for match in _LOOKS_LIKE.finditer(text[:100_000]):
        if is_mark(match[0]):
            continue
        if not text[: match.start()].strip():
            return match[0]
        found.append(match[0])
        if len(set(found)) > 1:
            return found[0]
    return None


def log_unknown_marks(text: str) -> None:
    """Log what looks like a mark of thinking and is none of a known family, each mark once."""
    if ("<" not in text and "[" not in text and "◁" not in text) or len(_told) >= 20:
        return
    low = text[:100_000].lower()
    if not any(word in low for word in _WORDS):
        return
    mark = unknown_mark(text)
    if mark is not None and mark not in _told:
        _told.add(mark)
        log.warning("%s looks like a mark of thinking, but of no known family: its content counts as answer", mark)


def _split_channels(text: str) -> tuple[str, str | None]:
    end = text.find("<|return|>")
    last = None
    for match in _CHANNEL.finditer(text, 0, end if end >= 0 else len(text)):
        last = match
    if last is None or not (last["channel"] == "final" or last["plain"]):
        return text, None
    over = _CHANNEL_END.search(text, last.end())
    return text[: last.end()], text[last.end() : over.start() if over else len(text)]


def _unwrapped(answer: str) -> str:
    """The answer without the marks that some families write around it."""
    if "<|" not in answer:
        return answer
    begin = _ANSWER.match(answer)
    if begin is not None:
        answer = answer[begin.end() :]
    over = _ANSWER_END.search(answer)
    return answer[: over.start()] if over is not None else answer
