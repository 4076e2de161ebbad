"""The places of a reply that may state its answer, in their order.

A place is a box, a "####" marker, an answer tag, what follows a cue ("the answer is"), or what follows the words that
take such a place back ("wait, no:"). Whether a place holds a candidate is for its readers to say: numbers, mathematics,
choices and text have different ones. The answer is the last place that does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice

from atropos_verify.cues import (
    CORRECTION,
    CUE,
    DEMONSTRATIVE,
    DESCRIPTION,
    EXPLAINS,
    FILLER,
    GUESSED,
    INSTEAD,
    NEGATION,
    POSTFIX,
    QUALIFIED,
    RETRACTION,
    REVERSED,
    REVERSED_NOUNS,
    RIGHT,
    SENTENCE_END,
    UNSURE,
)
from atropos_verify.latex import matching
from atropos_verify.scan import near

MOST = 60
"""Places that are looked at, from the end."""
BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*")
_MARKER = re.compile(r"####+")
_TAG_NAMES = r"(?:final[_\- ]?)?answer|ans"
TAGS = [
    re.compile(
        rf"{left}({_TAG_NAMES}){right}((?:(?!{left}(?:{_TAG_NAMES}){right}).)*?){left}/\1{right}",
        re.IGNORECASE | re.DOTALL,
    )
    for left, right in ((r"\[", r"\]"), ("<", ">"))
]
_BULLETS = re.compile(r"\s*(?:[-*•+]|\d{1,2}[.)])\s+")
_ASIDE = re.compile(r"(?<=[^\s,;:.(—–…!?-])\s?[,;:.(—–…!?-]+\s*")
_LAST_PART = re.compile(
    r"[.;:!?。，]\s|,\s|\n|(?<!\w)(?:so|hence|thus|therefore|and|that|get|gets|got|have|obtain|find|also|daher|donc|entonces)(?!\w)",
    re.IGNORECASE,
)
_TABLE = re.compile(
    r"^(?P<head>[ \t]*\|[^\n]{1,300}\|)[ \t]*\n[ \t]*\|[ :|-]{3,200}\|[ \t]*\n"
    r"(?P<row>[ \t]*\|[^\n]{1,300}\|)[ \t]*(?!\n[ \t]*\|)(?:\n|$)",
    re.MULTILINE,
)
_ANSWER_COLUMN = re.compile(r"(?:final |correct )?answer|antwort|réponse|respuesta|答案|答え|정답", re.IGNORECASE)
_INITIAL = re.compile(r"(?<!\w)(?!(?i:option|choice|letter|answer|antwort|is)\b)(?:[A-Z][a-z'’-]+|[A-Z]\.) [A-Z]$")
_NUMBERED = re.compile(r"1[.)]\s+\S[^\n]*\n\s*2[.)]\s")
_HEAD = re.compile(r"[\W_\d]*(?:[^\W\d]+[^\w\n]+){0,3}$")
_SIGN = re.compile(r"(?<![\w)\]}$])[-−]\s*$|=\s*[-−]\s*$")
_LINK = re.compile(
    r"[\s$.*]*(?:\\text\s*\{\s*,?\s*(?:and|or|und|oder|et|ou|y|o)\s*\}|,|;|/|、|\b(?:and|or|und|oder|et|ou|y|o|e)\b|或|和|または)"
    r"[\s$*]*(?:(?:maybe|perhaps|possibly|even|else)\s+)?(?:\\text\s*\{[^{}]*\}[\s$]*)?(?:[A-Za-z]\s*=\s*)?$"
)


@dataclass(frozen=True, slots=True)
class Place:
    """A place that may state the answer.

    rule: boxed, marker, tag, anchor. start, end: its place. content: its text, white space stripped.
    verb: it follows a verb, so that words about the answer are allowed there as well. said: a sentence, or a line.
    weak: it counts only when no other place does. broken: a box that was never closed. denied: "the answer is not".
    correction: it takes back what was stated before; without such a statement it is none.
    """

    rule: str
    start: int
    end: int
    content: str
    verb: bool = False
    weak: bool = False
    broken: bool = False
    denied: bool = False
    correction: bool = False

    @property
    def said(self) -> bool:
        return self.rule == "anchor"


def places(text: str) -> list[Place]:
    """All places, in order. Of many only the last ones. Takes time linear in the text."""
    found = [*boxes(text), *_markers(text), *_tags(text), *_cues(text), *_reversed(text), *_tables(text)]
    found.sort(key=lambda place: (place.start, place.end))
    return found[-MOST:]


def retracted(text: str, end: int, names: Callable[[str], bool]) -> int | None:
    """Where what was stated before `end` is taken back with nothing in its place; None when it is not.

    names: does a text name another candidate? Then "that is wrong" is about that one.
    """
    for match in RETRACTION.finditer(text, end, end + 4_000):
        if RIGHT.fullmatch(match[0]):
            continue
        if not match["near"] or not names(text[end : match.start()]):
            return match.end()
    return None


def corrections(text: str, begin: int) -> Iterator[Place]:
    """The places after `begin` that take something back and state something else."""
    for match in islice(CORRECTION.finditer(text, begin, begin + 20_000), MOST):
        content, end = clause(text, match.end())
        if content:
            yield Place("anchor", match.start(), end, content, verb=True, correction=True)


def boxes(text: str) -> list[Place]:
    """The boxes, in order; boxes that are joined by "and" or a comma are one."""
    found: list[Place] = []
    for match in list(BOX.finditer(text))[-MOST:]:
        content, end = _box(text, match)
        sign = "-" if _SIGN.search(text, max(0, match.start() - 4), match.start()) else ""
        place = Place("boxed", match.start(), end, sign + content if content else "", broken=content is None)
        before = found[-1] if found else None
        link = text[before.end : match.start()] if before is not None else ""
        if before and place.content and before.content and len(link) < 40 and _LINK.fullmatch(link):
            joined = before.content if _bare(before.content) == _bare(place.content) else ""
            place = replace(place, start=before.start, content=joined or f"{before.content}, {place.content}")
        found.append(place)
    return found


def _bare(text: str) -> str:
    return re.sub(r"\s", "", text)


def _box(text: str, match: re.Match[str]) -> tuple[str | None, int]:
    """(content, end) of a box; None when its braces are not balanced."""
    if text.startswith("{", match.end()):
        end = matching(text, match.end())
        return (text[match.end() + 1 : end].strip(), end + 1) if end is not None else (None, len(text))
    if match.end() == len(text) or not text[match.end() - 1].isspace():
        return None, match.end()  # \boxed needs a group, or a space and a token
    line = text[match.end() :].split("\n", 1)[0]
    inner = line.split("$", 1)[0] if "$" in line else line.split(" ", 1)[0]
    return inner.strip().rstrip(".,;"), match.end() + len(inner)


def _markers(text: str) -> Iterator[Place]:
    for match in list(_MARKER.finditer(text))[-MOST:]:
        begin = match.end()
        while text.startswith(("\n", " ", "\t"), begin):
            begin += 1
        end = text.find("\n", begin)
        end = len(text) if end < 0 else end
        content = text[begin:end].strip(" \t#")
        if content:
            yield Place("marker", match.start(), end, content)


def _tags(text: str) -> Iterator[Place]:
    for pattern in TAGS if "</" in text or "[/" in text else ():
        for match in list(pattern.finditer(text))[-MOST:]:
            yield Place("tag", match.start(), match.end(), match[2].strip())


def _cues(text: str) -> Iterator[Place]:
    for match in list(CUE.finditer(text))[-MOST:]:
        line = text.rfind("\n", 0, match.start()) + 1
        before = text[max(line, match.start() - 60) : match.start()]
        if match["head"] is not None and not _HEAD.fullmatch(before):
            continue
        content, end = clause(text, match.end())
        if not content:
            continue
        if match["about"] or QUALIFIED.search(before) or _may_be(text, match):
            yield Place("anchor", match.start(), end, "")  # it is about an answer, and states none
            continue
        if match["neg"]:
            content = f"not {content}"
        asks = text.startswith(("?", "？"), end)
        weak = asks or bool(match["result"] or match["cresult"]) or (match["verb"] and DEMONSTRATIVE.search(before))
        yield Place(
            "anchor",
            match.start(),
            end,
            content,
            verb=bool(match["verb"] or match["neg"]),
            weak=bool(weak),
        )


def _may_be(text: str, match: re.Match[str]) -> bool:
    """ "It could be", of an answer that the reply says it does not know."""
    return GUESSED.fullmatch(match["verb"] or "") is not None and guessed(text, match.end())


def _reversed(text: str) -> Iterator[Place]:
    for match in list(near(REVERSED, text, REVERSED_NOUNS, 100))[-MOST:]:
        before = text[max(0, match.start() - 80) : match.start()]
        content = _LAST_PART.split(before)[-1].strip()
        if re.search(r"\d|\$|\\", content) and not BOX.search(content):
            yield Place("anchor", match.end() - 6, match.end(), f"not {content}" if match["neg"] else content)


def _tables(text: str) -> Iterator[Place]:
    """The one row of a table that has a column for the answer."""
    for match in list(_TABLE.finditer(text))[-MOST:] if "|" in text else ():
        heads, cells = ([cell.strip(" *") for cell in match[part].strip(" |").split("|")] for part in ("head", "row"))
        columns = [i for i, head in enumerate(heads) if _ANSWER_COLUMN.fullmatch(head)]
        if len(columns) == 1 and len(cells) == len(heads):
            yield Place("tag", match.start("row"), match.end("row"), cells[columns[0]])


def clause(text: str, begin: int) -> tuple[str, int]:
    """(the rest of the sentence, or the display formula, or a list of lines, from begin on; where it ends)."""
    while begin < len(text) and text[begin] in " \t*_:：\r\n}\\|" and not text.startswith(("\\[", "\\("), begin):
        if text[begin] == "\\" and text[begin + 1 : begin + 2].isalpha():
            break
        begin += 1
    for opening, closing in (("\\[", "\\]"), ("$$", "$$")):
        if text.startswith(opening, begin) and (end := text.find(closing, begin + 2)) > 0:
            return text[begin + 2 : end].strip(), end + 2
    end = text.find("\n", begin)
    end = len(text) if end < 0 else end
    line = text[begin : min(end, begin + 2_000)]
    if line.startswith(("- ", "* ", "• ")) or _NUMBERED.match(text, begin):
        return _listed(text, begin)
    bar = line.find("|") if line.endswith("|") else -1
    cuts = [at for mark in ("</", "[/") if (at := line.find(mark)) >= 0]
    cuts += [match.start() for match in _ASIDE.finditer(line) if CORRECTION.match(line, match.end())][:1]
    cuts += [match.start() for match in (_sentence_end(line), EXPLAINS.search(line)) if match is not None]
    cut = min([*cuts, len(line), *([bar] if bar >= 0 else [])])
    return line[:cut].strip(), begin + cut


def _sentence_end(line: str) -> re.Match[str] | None:
    """Where the first sentence ends; the initial of a name, as in "Ann B. Smith", ends none."""
    for match in SENTENCE_END.finditer(line):
        if not _INITIAL.search(line, max(0, match.start() - 40), match.start()):
            return match
    return None


def _listed(text: str, begin: int) -> tuple[str, int]:
    """The items of a list as one line."""
    items, end = [], begin
    for line in text[begin : begin + 2_000].split("\n"):
        bullet = _BULLETS.match(line)
        if bullet is None:
            break
        items.append(line[bullet.end() :].strip())
        end += len(line) + 1
    return "; ".join(items), min(end, len(text))


@dataclass(frozen=True, slots=True)
class Stated:
    """What a reader finds in a place.

    kind: one, none (keep looking), weak (counts when there is nothing else), denied, several (no answer), or other
    (an answer of another kind). text: unchanged. key: equal for equal candidates.
    """

    kind: str
    text: str | None = None
    value: Fraction | None = None

    @property
    def key(self) -> object:
        return self.value if self.value is not None else _bare(self.text or "").casefold()


NONE = Stated("none")
SEVERAL = Stated("several")


@dataclass(frozen=True, slots=True)
class Decision:
    """The last place that states a candidate, and what it states; None when no place does.

    begin: what was stated before was taken back there. passed: places that state nothing. denied: keys of what the
    reply says the answer is not.
    """

    place: Place | None
    stated: Stated
    begin: int = 0
    passed: tuple[Place, ...] = ()
    denied: frozenset[object] = frozenset()


def decide(
    text: str, read: Callable[[Place], Stated], names: Callable[[str, Stated], bool], more: Sequence[Place] = ()
) -> Decision:
    """The one rule of what a reply's answer is, for every kind of answer.

    The last place that states a candidate, unless a later one denies it; then what takes it back; "several" and "other"
    end the search as well. names: does a text name another candidate than this one? more: places of one kind of answer.
    """
    found = sorted([*places(text), *more], key=lambda place: (place.start, place.end)) if more else places(text)
    passed: list[Place] = []
    denied: set[object] = set()
    chosen: tuple[Place, Stated] | None = None
    weak: tuple[Place, Stated] | None = None
    word: tuple[Place, Stated] | None = None
    for place in reversed(found):
        stated = read(place)
        if stated.kind == "none":
            passed.append(place)
        elif stated.kind == "denied":
            denied.add(stated.key)
            passed.append(place)
        elif stated.kind == "one" and stated.key in denied:
            continue
        elif stated.kind == "weak":
            word = word or (place, replace(stated, kind="one"))
        elif place.weak:
            weak = weak or (place, stated)
        else:
            chosen = (place, stated)
            break
    weak = weak or word
    if weak is not None and chosen is None and (weak[1].value is None or not names(text[weak[0].end :], weak[1])):
        chosen = weak
    rest = (tuple(passed), frozenset(denied))
    if chosen is None:
        return Decision(None, NONE, 0, *rest)
    place, stated = chosen
    for correction in corrections(text, place.end):
        if correction.start >= place.end and (now := read(correction)).kind in ("one", "several"):
            place, stated = correction, now
    if not place.broken:
        back = retracted(text, place.end, lambda between: names(between, stated))
        if back is not None:
            return Decision(None, NONE, back, rest[0], rest[1] | {stated.key})
    return Decision(place, stated, 0, *rest)


def negated(content: str, read: Callable[[str], Stated]) -> Stated | None:
    """ "not X" is denied, "not X but Y" is Y; None for what denies nothing."""
    postfix = None if content.isascii() else POSTFIX.match(content)
    if postfix is not None:
        found = read(postfix["but"])
        return found if found.kind == "one" else Stated("denied", postfix["not"])
    denial = NEGATION.match(content)
    if denial is None or denial.end() == len(content):
        return None
    rest = content[denial.end() :]
    instead = INSTEAD.search(rest)
    if instead is not None and (found := read(rest[instead.end() :])).kind == "one":
        return found
    return Stated("denied", rest[: instead.start()].strip() if instead else rest)


def guessed(text: str, start: int) -> bool:
    """Is the text there only a guess, in a reply that says beside it that it knows no answer?"""
    around = text[max(0, start - 200) : start + 120]
    if UNSURE.search(around) is None:
        return False
    begin = max(text.rfind(mark, 0, start) for mark in ("\n", ". ", "! ", "? ", "。"))
    return GUESSED.search(text, max(begin, start - 80, 0), start) is not None


def describes(content: str) -> bool:
    """True for words that say something about an answer instead of stating it."""
    return DESCRIPTION.match(FILLER.sub("", content, count=1) if content else content) is not None


def after_filler(content: str) -> str:
    """What is stated, without the words and marks that may precede it."""
    match = FILLER.match(content)
    return content[match.end() :] if match is not None else content
