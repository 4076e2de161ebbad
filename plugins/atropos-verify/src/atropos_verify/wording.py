"""Which text does a reply give as its answer, and how texts are compared."""

from __future__ import annotations

import re
import unicodedata

from atropos_verify.extract import visible
from atropos_verify.latex import untext
from atropos_verify.statements import NONE, Place, Stated, after_filler, decide, describes, negated
from atropos_verify.written import one_script

_MARKUP = re.compile(r"\*{1,3}|_{2,3}|`+|~~|\\[()\[\]]|(?<!\\)\$|^#+\s|</?(?:b|i|em|strong|u|code)>", re.MULTILINE)
_COMMANDS = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|boldsymbol|operatorname|mbox|emph)\s*\{([^{}]*)\}")
_ASIDE = re.compile(
    r",?\s+(?:and not|but not|rather than|instead of|not|und nicht|statt|et non|plutôt que|y no|en lugar de)\s"
    r"|,\s+(?:the|a|an|which|who|where|located|as|with|in|der|die|das|la|le|el|il|o)\s",
)
_POLITE = re.compile(r"(?<=[^\W\d_a-zA-Z])(?:です|でした|である|になります|입니다|이에요|예요|이다)$")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", "‐": "-", "‑": "-", "−": "-"})
_EDGES = " \t\n\"'.,;:!。，；：！、"


def plain_text(text: str, *, ignore_case: bool = True) -> str:
    """A text as it is compared: normalised Unicode, without markup, quotes and a final full stop."""
    text = unicodedata.normalize("NFKC", text)
    text = (
        _MARKUP.sub("", untext(_COMMANDS.sub(r"\1", text))).translate(_QUOTES).replace("\\%", "%").replace("\\$", "$")
    )
    text = re.sub(r"\s+", " ", text).strip().lstrip(" \"'").rstrip(_EDGES)
    return text.casefold() if ignore_case else text


def stated_text(text: str, *, whole: bool = False) -> str | None:
    """The text that a reply gives as its answer; None when it gives none."""
    answer = visible(text)
    if answer is None:
        return None
    if whole:
        return answer.strip()
    decision = decide(answer if answer.isascii() else one_script(answer), _read, _names)
    if decision.place is None:
        said = next(
            (place.content for place in decision.passed if negated(after_filler(place.content), _given_one)), None
        )
        return after_filler(said).strip() if said else answer.strip()
    return decision.stated.text if decision.stated.kind == "one" else None


def _names(text: str, stated: Stated) -> bool:
    return re.search(r"\w{2,}", text) is not None


def _read(place: Place) -> Stated:
    content = place.content[:5_000]
    if place.broken:
        return Stated("other")
    if not content.strip():
        return NONE
    if place.rule in ("boxed", "tag", "marker"):
        heading = place.rule == "marker" and re.match(
            r"(?:step|part|case|note|explanation|verification|solution)\b", content, re.I
        )
        return Stated("weak" if heading else "one", content)
    if place.correction and len(content) > 60:
        return NONE
    rest = after_filler(content)
    found = negated(rest, _given_one)
    if found is not None:
        return found
    stated = _given(rest)
    if not stated:
        return NONE
    if place.verb and describes(content):
        return Stated("weak", stated) if not place.correction else NONE
    return Stated("denied" if place.denied else "one", stated)


def _given_one(rest: str) -> Stated:
    return Stated("one", _given(rest))


def _given(rest: str) -> str:
    """What is stated, without an aside, and without what closes a JSON string."""
    rest = re.split(r"\"\s*[,}]", rest, maxsplit=1)[0]
    rest = _POLITE.sub("", rest)
    aside = _ASIDE.search(rest)
    return (rest[: aside.start()] if aside and aside.start() else rest).strip(' *_`"“”')
