"""Find the final answer in a completion: the last place that states one.

1.  Thinking is dropped: the answer is what follows what the model's family marks as thinking. A block that is opened
    and never closed means that there is no answer.
2.  Text after an invented next question ("Question: ...") or an end-of-turn mark does not count.
3.  A place that may state the answer is a box, a "####" marker, an answer tag, and what follows "answer is" or the like
    in many languages (`statements`). The last place that holds a candidate counts; places without one are passed over,
    and what is taken back ("wait, no: 17") is replaced. A box that is never closed, and several candidates, are no
    answer.
4.  Where no place states one: the whole text, if it is one expression (style "math"), or the last number of the text
    that is neither denied, nor a bound, nor one of several (style "number").
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from atropos_cli.sdk import split_thinking
from atropos_verify.arithmetic import TooLarge
from atropos_verify.cues import BOUND, CUE, NEGATION
from atropos_verify.latex import clean
from atropos_verify.numerals import numbers, numbers_from_the_end
from atropos_verify.quantity import FUNCTIONS, quantity
from atropos_verify.stated import denied_after, joined_before, number_of, stated_number, whole_number
from atropos_verify.statements import (
    BOX,
    NONE,
    Decision,
    Place,
    Stated,
    after_filler,
    decide,
    describes,
    guessed,
    negated,
)
from atropos_verify.written import one_script, plain_numbers, scaled, worded_value

Style = Literal["number", "math"]
MAX_TEXT = 400_000

_NEXT = re.compile(
    r"^[ \t]*(?:\*\*|#+ )?(?:Question|Problem|Q|Human|User|Instruction|Frage|Pregunta|问题"
    r"|問題)(?:[ \t]+\d+)?[ \t]*(?:\*\*)?[:：]",
    re.MULTILINE,
)
_END_MARK = re.compile(
    r"<\|(?:im_end|im_start|endoftext|eot_id|end_of_text|end|return|call|END_OF_TURN_TOKEN)\|>|</s>|<end_of_turn>|<turn\|>"
    r"|<eos>|<\uff5cend\u2581of\u2581sentence\uff5c>|\[/?INST\]"
)
_STRICT = re.compile(r"#### (\-?[0-9.,]+)")
_GIVEN = (
    re.compile(r"^A:[ \t]*\S[^\n]*", re.MULTILINE),
    BOX,
    re.compile("####"),
    CUE,
    re.compile(r"\[/answer\]|</answer>", re.IGNORECASE),
)
_WORD = re.compile(r"[^\W\d_]{3,}|[⺀-鿿가-힯]{2,}")
_COMMAND = re.compile(r"\\text\s*\{[^{}]*\}|\\[A-Za-z]+")
_MATH = re.compile(r"(?<!\\)\$([^$\n]{1,500})(?<!\\)\$|\\\((.{1,500}?)\\\)", re.DOTALL)
_LOOKS_MATH = re.compile(r"[\d\\$^=+<>{}]")


@dataclass(frozen=True, slots=True)
class Extraction:
    """The answer, or None, and the rule that found it: boxed, marker, tag, anchor, bare, last_number, none.

    value: the number, for style "number" when the answer is one.
    """

    text: str | None
    rule: str
    value: Fraction | None = None


NOTHING = Extraction(None, "none")


def visible(text: str) -> str | None:
    """The text in which an answer may stand (rules 1 and 2), or None when the thinking never ended."""
    _, answer = split_thinking(text)
    if answer is None:
        return None
    if len(answer) > MAX_TEXT:
        answer = answer[-MAX_TEXT:]
    mark = _END_MARK.search(answer)
    if mark is not None:
        answer = answer[: mark.start()]
    following = _NEXT.search(answer)
    if following is None:
        return answer
    given = [match.end() for pattern in _GIVEN if (match := pattern.search(answer)) is not None]
    following = _NEXT.search(answer, min(given)) if given else None
    return answer[: following.start()] if following is not None else answer


def extract(text: str, style: Style) -> Extraction:
    """The final answer of a completion. Time is linear in the text."""
    answer = visible(text)
    if answer is None:
        return NOTHING
    answer = one_script(answer)
    if style == "math":
        answer = scaled(answer)
        decision = decide(answer, stated_math, _sentence_between)
    else:
        answer = plain_numbers(answer)
        decision = decide(answer, stated_number, _number_between)
    if decision.place is not None:
        stated = decision.stated
        if style == "number" and stated.kind == "other" and (worded := worded_value(stated.text or "")) is not None:
            last = _last_number(answer, Decision(None, NONE))  # "the answer is five, as 2 + 3 = 5": the digits say it
            return last if last.value == worded else NOTHING
        return Extraction(stated.text, decision.place.rule, stated.value if stated.kind == "one" else None)
    return _bare(answer) if style == "math" else _last_number(answer, decision)


def extract_strict(text: str) -> Extraction:
    """GSM8K's strict rule: the last "#### " followed at once by a plain number; nothing else counts."""
    answer = visible(text)
    if answer is None:
        return NOTHING
    last = last_match(_STRICT, answer)
    if last is None:
        return NOTHING
    line = one_script(answer[last.start() + 5 :].split("\n", 1)[0])
    if number_of(line).kind != "one":
        return NOTHING
    found = whole_number(last[1].rstrip(".,"))
    return Extraction(found.text, "marker", found.value)


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last match of a pattern, or None."""
    matches = deque(pattern.finditer(text), maxlen=1)
    return matches[0] if matches else None


def _number_between(text: str, stated: Stated) -> bool:
    return any(number.value != stated.value for number in numbers(text[:4_000]))


def _sentence_between(text: str, stated: Stated) -> bool:
    return _WORD.search(text) is not None or _LOOKS_MATH.search(text.strip(" .$*")) is not None


def stated_math(place: Place) -> Stated:
    """What a place states, as mathematics."""
    content = place.content[:3_000]
    if place.broken:
        return Stated("other")
    if not content:
        return NONE
    if place.rule in ("boxed", "tag"):
        found = negated(content, lambda rest: Stated("one", math_part(rest)))
        return found or Stated("one", content)
    if place.rule == "marker":
        if _is_prose(content):
            return number_of(after_filler(content))
        return (
            Stated("one" if re.search(r"[\d\\]", content) else "weak", content) if re.search(r"\w", content) else NONE
        )
    if place.correction:
        stated = _expression(content)
        return stated if stated.kind == "one" and _LOOKS_MATH.search(content) and len(content) < 80 else NONE
    found = _expression(content, verb=place.verb)
    return Stated("denied", found.text) if place.denied and found.kind == "one" else found


def _expression(content: str, *, verb: bool = True) -> Stated:
    """The expression that a sentence states."""
    whole = math_part(content)
    rest = whole if whole and not _is_prose(whole) and not verb else _after_words(content)
    found = negated(rest, _expression)
    if found is not None:
        return found
    part = math_part(rest)
    if not part:
        return NONE
    if not _is_prose(part):
        if verb and not _LOOKS_MATH.search(part):
            return Stated("weak", part)  # a word about the answer, unless there is nothing else
        return Stated("one", part)
    if verb and describes(content):
        return NONE
    spans = [match[1] or match[2] for match in _MATH.finditer(rest)]
    if spans and len(set(spans)) == 1:
        return Stated("one", spans[0].strip())
    if spans and rest.startswith(("$", "\\(")):
        return Stated("one", spans[0].strip())
    number = number_of(rest)
    if number.kind != "none":
        return number if number.kind != "one" else Stated("one", part if len(part) < 80 else number.text)
    return Stated("weak", part)


def _after_words(content: str) -> str:
    """The clause without words that only lead to the expression; an opening delimiter stays."""
    led = after_filler(content)
    words = content[: len(content) - len(led)]
    opening = re.search(r"(?:\$|\\\(|\\\[|\\text\s*\{|\\math\w+\s*\{|\\\{)+[\s*_]*$", words)
    return content[opening.start() :] if opening is not None else led


def math_part(clause: str) -> str:
    """An expression with its delimiters dropped: "$x=5$ and $x=7$", "**36**", "\\(x\\) apples"."""
    clause = clause.strip().strip("*_`\"'“”").strip()
    for opening, closing in (("$", "$"), ("\\(", "\\)")):
        if clause.startswith(opening):
            closed = re.compile(r"(?<!\\)\$" if closing == "$" else r"\\\)").search(clause, len(opening))
            end = closed.start() if closed else -1
            rest = clause[end + len(closing) :] if end > 0 else ""
            if end > 0 and (
                not rest or not re.match(r"\s*(?:,|and\b|or\b|und\b|et\b|ou\b|y\b|o\b|和|或)\s*(?:\$|\\\()", rest)
            ):
                return clause[len(opening) : end].strip()
    if len(re.findall(r"(?<!\\)\$", clause)) >= 2:
        clause = re.sub(r"(?<!\\)\$", "", clause)
    return clause.replace("\\(", "").replace("\\)", "").strip().rstrip(".,;").strip()


def _last_number(text: str, decision: Decision) -> Extraction:
    """The last number that is neither denied, nor asked for, nor a bound, nor in words about the answer."""
    skipped = [(place.start, place.end) for place in decision.passed]
    for found in numbers_from_the_end(text, decision.begin):
        if any(begin <= found.start < end for begin, end in skipped) or found.value in decision.denied:
            continue
        before, after = text[max(0, found.start - 40) : found.start], text[found.end : found.end + 80]
        if (NEGATION.search(before[-14:]) and not re.search(r"\d", before[-14:])) or BOUND.search(before):
            continue
        if guessed(text, found.start):
            return NOTHING
        if denied_after(after) or re.match(r"[^\S\n]*[^\s.!;]{0,12}[?？]", after):
            continue
        if joined_before(text[max(0, found.start - 60) : found.end], found):
            return NOTHING
        return Extraction(found.text, "last_number", found.value)
    return NOTHING


def _bare(text: str) -> Extraction:
    """The whole text, when it is one short line that is an expression and not prose."""
    lines = [line.strip() for line in text.strip().split("\n") if line.strip()]
    if len(lines) != 1 or len(lines[0]) > 300 or BOX.search(lines[0]) or _is_prose(lines[0]):
        return NOTHING
    return Extraction(math_part(lines[0]) or None, "bare")


def _is_prose(line: str) -> bool:
    """True for sentences: words that are neither commands, units after a number, nor a single word."""
    words = _WORD.findall(_COMMAND.sub(" ", line[:2000]))
    if not words:
        return False
    if len(line) > 500:
        return True
    stripped = line.strip().strip("*_`$.\"'")
    if stripped.isalpha():
        return False
    try:
        return quantity(clean(stripped)) is None and len(words) > sum(word in _MATH_WORDS for word in words)
    except TooLarge:
        return False


_MATH_WORDS = {*FUNCTIONS, "and"}
