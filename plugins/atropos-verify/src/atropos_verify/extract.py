"""Find the final answer in a completion, by rules that are stated and tried in one order.

1.  Thinking is dropped: the answer is what follows the last </think>. A block that is opened and never
    closed means that there is no answer.
2.  Text after an invented next question ("Question: ...") or an end-of-turn mark does not count.
3.  boxed: the last \\boxed{...} or \\fbox{...}, with balanced braces; if the last one is not balanced,
    there is no answer.
4.  marker: what follows the last "####".
5.  tag: the last [answer]...[/answer], then the last <answer>...</answer>.
6.  anchor: what follows the last "answer is", "answer:" or the like.
7.  bare: the whole text, if it is one expression (style "math") or ends in a number: last number of the
    text (style "number").
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from atropos_cli.sdk import split_thinking
from atropos_verify.arithmetic import TooLarge
from atropos_verify.latex import clean, matching, split_top
from atropos_verify.numerals import last_number, numbers, spaced_number, spell, unify
from atropos_verify.quantity import FUNCTIONS, quantity
from atropos_verify.shapes import label

Style = Literal["number", "math"]
MAX_TEXT = 400_000

_NEXT = re.compile(
    r"^[ \t]*(?:\*\*|#+ )?(?:Question|Problem|Q|Human|User|Instruction)(?:[ \t]+\d+)?[ \t]*(?:\*\*)?:", re.MULTILINE
)
_END_MARK = re.compile(r"<\|(?:im_end|im_start|endoftext|eot_id|end_of_text|end)\|>|</s>|<end_of_turn>|<eos>")
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_MARKER = re.compile(r"####")
_STRICT = re.compile(r"#### (\-?[0-9.,]+)")
_TAGS = [
    re.compile(rf"{left}answer{right}((?:(?!{left}answer{right}).)*?){left}/answer{right}", re.IGNORECASE | re.DOTALL)
    for left, right in ((r"\[", r"\]"), ("<", ">"))
]
_ANCHOR = re.compile(
    r"\banswer(?:\s+to\s+[^.\n:]{0,80}?)?\s*+(?:\*\*|__)?+\s*+"
    r"(?:\b(?:is|was|are|will\s+be|would\s+be|must\s+be|should\s+be|equals)\b|=|:)(?!\s*+(?:\*\*)?+\s*+not\b)"
    r"\s*+(?:\*\*|__)?+\s*+:?",
    re.IGNORECASE,
)
_GIVEN = (_BOX, _MARKER, _ANCHOR, re.compile(r"\[/answer\]|</answer>", re.IGNORECASE))
_CUT = re.compile(
    r"[.!?](?=\s+[A-Z*(\\]|\s*$)|,?(?<!\s)\s{1,8}(?:because|since|which|where|so that|as we|and so|I hope)\b",
    re.IGNORECASE,
)
_ABOUT = re.compile(
    r"(?:\s|\*\*|__|:|\\\(|\\\[|\$\$|\b(?:about|approximately|exactly|around|roughly|only|just|a total of)\b)*", re.I
)
_ARITHMETIC = re.compile(r"[\d\s+\-−*/×÷().,=$€£]*")
_WORD = re.compile(r"[A-Za-z]{3,}")
_COMMAND = re.compile(r"\\text\s*\{[^{}]*\}|\\[A-Za-z]+")


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
    given = [match.end() for pattern in _GIVEN if (match := pattern.search(answer)) is not None]
    following = _NEXT.search(answer, min(given)) if given else None
    return answer[: following.start()] if following is not None else answer


def extract(text: str, style: Style) -> Extraction:
    """The final answer of a completion. Time is linear in the text."""
    answer = visible(text)
    if answer is None:
        return NOTHING
    answer = unify(answer) if style == "number" else answer
    finish = _as_number if style == "number" else _as_math
    box = boxed(answer)
    if box is not None:
        return finish(box, "boxed") if box else NOTHING
    for rule in (_from_marker, _from_tags, _from_anchor):
        found = rule(answer, style, finish)
        if found is not None:
            return found
    return _last_number(answer) if style == "number" else _bare(answer)


def extract_strict(text: str) -> Extraction:
    """GSM8K's strict rule: the last "#### " followed at once by a plain number; nothing else counts."""
    answer = visible(text)
    if answer is None:
        return NOTHING
    last = last_match(_STRICT, answer)
    if last is None:
        return NOTHING
    return _as_number(last[1].rstrip(".,"), "marker")


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last match of a pattern, or None."""
    matches = deque(pattern.finditer(text), maxlen=1)
    return matches[0] if matches else None


def boxed(text: str) -> str | None:
    """What the last box holds; "" when that is nothing or its braces are not balanced; None without a box."""
    last = last_match(_BOX, text)
    if last is None:
        return None
    if text.startswith("{", last.end()):
        end = matching(text, last.end())
        return text[last.end() + 1 : end].strip() if end is not None else ""
    if last.end() == len(text) or not text[last.end() - 1].isspace():
        return ""  # \boxed needs a group, or a space and a token
    line = text[last.end() :].split("\n", 1)[0]
    inner = line.split("$", 1)[0] if "$" in line else line.split(" ", 1)[0]
    return inner.strip().rstrip(".,;")


Finish = Callable[[str, str], Extraction]


def _from_marker(text: str, style: Style, finish: Finish) -> Extraction | None:
    positions = [match.end() for match in _MARKER.finditer(text)]
    for position in reversed(positions[-20:]):
        line = text[position:].lstrip(" \t#").split("\n", 1)[0].strip()
        if style == "math":
            if line and not _is_prose(line):
                return finish(line, "marker")
            first = _leading(line)
            if first is not None:
                return Extraction(first.text, "marker", first.value)
            continue
        first = _leading(line)
        if first is not None:
            return first_number(first, "marker")
    return None


def first_number(found: Extraction, rule: str) -> Extraction:
    """The same number under the rule that led to it."""
    return Extraction(found.text, rule, found.value)


def _leading(text: str) -> Extraction | None:
    """The number that the text begins with, after currency, emphasis, or a name and "="."""
    about = _ABOUT.match(text)
    begin = about.end() if about else 0
    named = re.compile(r"[A-Za-z]\s*=\s*").match(text, begin)
    begin = named.end() if named else begin
    rest = text[begin:]
    spaced = spaced_number(rest)
    if spaced is not None:
        return Extraction(spaced.text, "marker", spaced.value)
    for found in numbers(rest):
        return (
            Extraction(found.text, "marker", found.value)
            if found.start <= 1 and not rest[: found.start].strip("(")
            else None
        )
    return None


def tagged(text: str) -> str | None:
    """The content of the last [answer]...[/answer], else of the last <answer>...</answer>, else None."""
    for pattern in _TAGS:
        last = last_match(pattern, text)
        if last is not None:
            return last[1].strip()
    return None


def _from_tags(text: str, style: Style, finish: Finish) -> Extraction | None:
    content = tagged(text)
    if content is None:
        return None
    return finish(content, "tag") if content else NOTHING


def answer_clause(text: str) -> str | None:
    """What follows the last "answer is" or the like, to the end of its sentence; None without any."""
    last = last_match(_ANCHOR, text)
    return _clause(text[last.end() :]) or None if last is not None else None


def _from_anchor(text: str, style: Style, finish: Finish) -> Extraction | None:
    last = last_match(_ANCHOR, text)
    if last is None:
        return None
    clause = _clause(text[last.end() :])
    if not clause:
        return None
    if style == "math":
        return finish(_math_part(clause), "anchor")
    found = _clause_number(clause)
    return found if found.text is not None else _last_number(text[last.end() :])


def _clause(text: str) -> str:
    """The rest of the sentence, or the display formula, that follows an anchor."""
    text = text.lstrip(" \t*_:\r\n")
    for opening, closing in (("\\[", "\\]"), ("$$", "$$")):
        if text.startswith(opening) and (end := text.find(closing, len(opening))) > 0:
            return text[len(opening) : end].strip()
    line = text.split("\n", 1)[0]
    cut = _CUT.search(line)
    return (line[: cut.start()] if cut else line).strip()


def _math_part(clause: str) -> str:
    """An expression with its delimiters dropped: "$x=5$ and $x=7$", "**36**", "\\(x\\) apples"."""
    clause = clause.strip().strip("*_`\"'").strip()
    for opening, closing in (("$", "$"), ("\\(", "\\)")):
        if clause.startswith(opening):
            closed = re.compile(r"(?<!\\)\$" if closing == "$" else r"\\\)").search(clause, len(opening))
            end = closed.start() if closed else -1
            rest = clause[end + len(closing) :] if end > 0 else ""
            if end > 0 and (not rest or not re.match(r"\s*(?:,|and\b|or\b)\s*(?:\$|\\\()", rest)):
                return clause[len(opening) : end].strip()
    if len(re.findall(r"(?<!\\)\$", clause)) >= 2:
        clause = re.sub(r"(?<!\\)\$", "", clause)
    return clause.replace("\\(", "").replace("\\)", "").strip().rstrip(".,;").strip()


def _clause_number(clause: str) -> Extraction:
    """The number a clause states: the one it begins with, after the last "=" of a sum, else its last one."""
    about = _ABOUT.match(clause)
    rest = clause[about.end() if about else 0 :]
    whole = _as_number(rest.strip("*_ `$"), "anchor")
    if whole.value is not None:
        return whole
    arithmetic = _ARITHMETIC.match(rest)
    prefix = arithmetic[0] if arithmetic else ""
    if "=" in prefix:
        for found in numbers(prefix.rpartition("=")[2]):
            return Extraction(found.text, "anchor", found.value)
    elif re.search(r"\d\s*[+*/×÷]\s*\d|\d\s+[-−]\s+\d", prefix) and whole.text is not None:
        return Extraction(prefix.strip().rstrip(".,"), "anchor")
    leading = _leading(rest)
    if leading is not None:
        return Extraction(leading.text, "anchor", leading.value)
    last = last_number(clause)
    return Extraction(last.text, "anchor", last.value) if last else NOTHING


def _as_number(content: str, rule: str) -> Extraction:
    """The content as a number if it is one as a whole, else as it stands, without a value."""
    body = clean(content) if len(content) <= 500 else ""
    parts = split_top(body, ("=",))
    if len(parts) > 1:
        body = parts[-1].strip() if label(parts[0]) or not re.search("[A-Za-z]", "".join(parts[:-1])) else body
    try:
        whole = quantity(body) if body else None
    except TooLarge:
        whole = None
    if whole is not None and not whole.unevaluated and not whole.base:
        return Extraction(spell(whole.value), rule, whole.value)
    if rule == "tag" and whole is None:
        nested = _from_anchor(content, "number", _as_number)
        if nested is not None and nested.value is not None:
            return Extraction(nested.text, rule, nested.value)
        last = last_number(content)
        if last is not None:
            return Extraction(last.text, rule, last.value)
    return Extraction(content or None, rule)


def _as_math(content: str, rule: str) -> Extraction:
    if rule == "tag" and _is_prose(content):
        nested = _from_anchor(content, "math", _as_math)
        if nested is not None:
            return Extraction(nested.text, rule)
    return Extraction(content or None, rule)


def _last_number(text: str) -> Extraction:
    last = last_number(text)
    return Extraction(last.text, "last_number", last.value) if last else NOTHING


def _bare(text: str) -> Extraction:
    """The whole text, when it is one short line that is an expression and not prose."""
    lines = [line.strip() for line in text.strip().split("\n") if line.strip()]
    if len(lines) != 1 or len(lines[0]) > 300 or _is_prose(lines[0]):
        return NOTHING
    return Extraction(_math_part(lines[0]) or None, "bare")


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
