"""What number a place of a reply states: one, none, several, or one that it denies."""

from __future__ import annotations

import re

from atropos_verify.arithmetic import TooLarge, evaluate
from atropos_verify.cues import BOUND, NEGATION, TAKEN_BACK
from atropos_verify.latex import clean, split_top
from atropos_verify.numerals import Number, numbers, spaced_number, spell
from atropos_verify.quantity import quantity
from atropos_verify.shapes import label
from atropos_verify.statements import NONE, SEVERAL, Place, Stated, after_filler, describes, negated
from atropos_verify.written import WORDED_NUMBER

_REFUSES = re.compile(
    r"\W*(?:\\text\s*\{\s*)?(?:i (?:do not|don['’]?t|cannot|can['’]?t)|unknown|unclear|undefined|none"
    r"|no (?:solution|answer|real)|impossible"
    r"|cannot|can['’]t|not (?:possible|enough|defined|sure)|n/a|does not exist|dne|infinit|unsure"
    r"|insufficient|keine|aucune|ninguna|无解|無解)",
    re.IGNORECASE,
)
_ARITHMETIC = re.compile(
    r"(?:[\d\s.,+\-−*/×÷()$=≈€£%^{}·]|\\(?:times|cdot|div|frac|dfrac|left|right|approx|,|;|!|\$|%)|\\text\s*\{[^{}]*\}"
    r"|(?<=[\d\s])[A-Za-z]{1,12}(?=\s*[-+*/×÷=)])|\b[A-Za-z]\s*(?==))*"
)
_OPERATION = re.compile(r"[\d)}]\s*(?:[+*×÷·]|\\times|\\cdot|\\div)\s*[\d(\\$]|[\d)]\s+[-−/]\s+[\d($]")
_UNIT = r"(?:\s?(?:[A-Za-zÀ-ž°%℃\"]+\.?|\\text\s*\{[^{}]*\}|\\?[%$€£¥]|[⺀-鿿가-힯]{1,3})){0,3}?"
_OTHER = re.compile(
    rf"[\s*_$}}]*{_UNIT}[\s*_$}}]*(?:\\text\s*\{{\s*,?\s*(?:and|or|und|oder|et|ou|y|o)\s*\}}|,|;|/|:(?=\d)|±|\\pm|~|&|\||–|—|-|\.\.\.?|…|\\ldots|、|或者?|和|至|到|または|と|から"
    r"|(?<!\w)(?:or|and|und|oder|et|ou|y|o|e|en|to|through|till|bis|à|a|и|или|and/or|or maybe"
    r"|or perhaps|or possibly|or even)(?!\w))"
    r"[\s*_${]*(?:(?:maybe|perhaps|possibly|even|sometimes|else|alternatively|otherwise|vielleicht|peut-être)\s+)?(?:[A-Za-z]\s*=\s*)?(?=[$€£¥\\]*[-−]?[\d.½¼¾⅓⅔]|\\d?frac)"
)
_JOINED = re.compile(
    rf"[\s*_$}}]*{_UNIT}\s*(?:(?:\bor\b|\boder\b|\bou\b|或者?|または|か)\s*(?:maybe|perhaps|even)?[\s$]*|[-–—~:](?=$)|\s(?:to|bis|through)\s)"
)
_SENTENCE = re.compile(r"\n|[.!?](?=\s)")
_BETWEEN = re.compile(r"(?<!\w)(?:between|zwischen|entre|tra|from|von)\s[\s$*€£]*$", re.IGNORECASE)
_DENIED_AFTER = re.compile(
    rf"[\s*_$}}]*{_UNIT}\s*(?:(?:is|was|seems|looks)(?:n['’]t| not)|(?:is|was)\s+(?:wrong|incorrect"
    rf"|too \w+|a trap|impossible)|can(?:not|['’]t) be"
    r"|ist (?:nicht|falsch)|n['’]est pas|est (?:faux|incorrect)|no es|es incorrect|では(?:ない"
    r"|ありません)|じゃ|이? ?아니|不对|不正确|是错)",
    re.IGNORECASE,
)
_EXPRESSION = re.compile(r"\s?(?:\\(?:sqrt|pi|cdot|times)|[√π^]|\*\s*[a-z]|[xyzni](?![A-Za-z])|e\^|!\s*[+*/-])")
_DATE = re.compile(
    r"\b(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]*\.?\s+\d{1,2}(?:st|nd|rd|th)?,?\s+\d{4}\b"
    r"|\b\d{1,2}\.?\s+(?:jan|feb|m[aä]r|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-zé]*\.?\s+\d{4}\b",
    re.IGNORECASE,
)
_IN_WORDS = re.compile(
    r"(?:[a-zà-ž]+(?:[\s-][a-zà-ž]+){0,5}|[〇零一二三四五六七八九十百千万两]+)\s*\((?=[$€£\s]*-?[\d.]+[\s\w%]*\))",
    re.IGNORECASE,
)
_LEADS = re.compile(
    r"(?i:[\s(]*(?:page|day|year|number|no\.?|room|rs\.?|usd|eur|inr|rmb|us|week|chapter|item|group|case|step|seite|tag|jahr|jour|día|第"
    r"|[A-Za-z](?:_\w)?\s*(?:=|:|≈|\\approx|\bis\b)|[A-Za-z]{2,20}(?:\([a-z]\))?\s*=)[\s$*]*)?(?:\(\s*)?"
)
_JOINS = re.compile(
    r"(?:=|≈|\\approx|(?<!\w)(?:is|are|was|equals|makes|gives|leaves|totals|totaling|totalling|total of"
    r"|namely|i\.e\.|get|gets|has|have|had"
    r"|needs|need|costs|cost|earns|saves|pays|ist|sind|est|sont|es|son|那就是)(?!\w)|,(?=\s*[$€£]?-?\d[\d.,]*[\s\w%]*$)|[:：]|(?:是|为|有|共|は))"
)


def stated_number(place: Place) -> Stated:
    """What a place states, as a number."""
    content = place.content[:2_000]
    if place.broken:
        return Stated("other")
    if place.correction:
        return _corrected(content)
    if place.said:
        found = _said(content, place.verb)
    else:
        found = _marked(content, place.rule)
    return Stated("denied", found.text, found.value) if place.denied and found.kind == "one" else found


def _corrected(content: str) -> Stated:
    """What follows "wait, no": a number with hardly a word after it; else it is only the next step."""
    found = number_of(content)
    return found if found.kind in ("one", "several") and len(re.findall(r"[^\W\d]{2,}", content)) <= 4 else NONE


def _marked(content: str, rule: str) -> Stated:
    """A box, a tag or a marker: the whole is a number, or its words state one."""
    if not content:
        return NONE
    whole = whole_number(content)
    if whole.value is not None:
        return whole
    if rule == "marker":
        return number_of(content)
    found = _said(content, verb=False)
    if found.kind != "none":
        return found
    if _REFUSES.match(content) or not re.search(r"\w{3,}", content) or rule == "boxed":
        return Stated("other", content)
    return NONE


def whole_number(content: str) -> Stated:
    """The content as a number, if it is one as a whole; else as "other", unchanged."""
    body = clean(content) if len(content) <= 500 else ""
    parts = split_top(body, ("=", "\\approx"))
    if len(parts) > 1:
        body = parts[-1].strip() if label(parts[0]) or not re.search("[A-Za-z]", "".join(parts[:-1])) else body
    try:
        whole = quantity(body) if body else None
    except TooLarge:
        whole = None
    if whole is None or whole.unevaluated or whole.base or _split_words(body):
        return Stated("other", content or None)
    return Stated("one", spell(whole.value), whole.value)


def _split_words(body: str) -> bool:
    """True for what reads as a number with a unit and is none: "40 or so", "5 minus"."""
    return re.search(r"\d\s*(?:or|and|not|minus|plus|less|more|few)\b", body) is not None


def _said(content: str, verb: bool) -> Stated:
    """The number a sentence states: the one it begins with, or what it comes down to."""
    content = _after_taking_back(content)
    rest = after_filler(content)
    denial = negated(rest, number_of)
    if denial is not None:
        found = number_of(denial.text or "")
        return denial if denial.kind != "denied" else Stated("denied", found.text, found.value)
    if _REFUSES.match(rest) or _DATE.search(rest):
        return Stated("other")
    found = _leading(rest)
    if found.kind != "none":
        return found
    if verb and describes(content):
        return NONE
    words = _IN_WORDS.match(rest)
    if words is not None:
        return _leading(rest[words.end() :].replace(")", "", 1))
    for join in reversed(list(_JOINS.finditer(rest))[-12:]):
        found = number_of(rest[join.end() :])
        if found.kind != "none":
            return found
    if WORDED_NUMBER.match(rest) and not re.search(r"\d", rest):
        return Stated("other", rest)
    if verb and not re.match(r"that\b|dass\b|que\b", rest, re.IGNORECASE):
        return NONE
    return _only(rest)


def _after_taking_back(content: str) -> str:
    backs = list(TAKEN_BACK.finditer(content))
    if backs and number_of(content[backs[-1].end() :]).kind == "one":
        return content[backs[-1].end() :]
    return content


def number_of(text: str) -> Stated:
    """The number that a text begins with, words that only lead to it aside."""
    return _leading(after_filler(text))


def denied_after(text: str) -> bool:
    """True for what follows a number that is then said to be wrong."""
    return _DENIED_AFTER.match(text) is not None


def joined_before(text: str, number: Number) -> bool:
    """Is the number at the end of the text one of several: 40 or 42, 40-42, between 40 and 42, 10:30?"""
    begin = len(text) - (number.end - number.start)
    if re.search(r"[\[(]\s*-?[\d.]+\s*[,;]\s*$", text[:begin]):
        return True
    for found in list(numbers(text[:begin]))[-2:]:
        between = text[found.end : begin]
        joint = None if _SENTENCE.search(between) else _JOINED.fullmatch(between)
        if joint is None and not _BETWEEN.search(text[: found.start]):
            continue
        if found.value != number.value:
            return True
    return False


def _leading(rest: str) -> Stated:
    """The number that the text begins with; after the last "=" when it works one out. Joined to another: several."""
    whole = whole_number(rest.strip("*_ `$\"'").rstrip(".")) if len(rest) < 200 else Stated("other")
    if whole.kind == "one":
        return whole
    worked = _worked_out(rest)
    if worked is not None:
        return worked
    begin = _LEADS.match(rest)
    number = _number_at(rest, begin.end() if begin else 0)
    if number is None:
        return NONE
    after = rest[number.end : number.end + 300]
    if _DENIED_AFTER.match(after):
        return Stated("denied", number.text, number.value)
    if _EXPRESSION.match(after):
        return Stated("other", rest[:100])
    joined = _OTHER.match(after)
    if joined is not None and not _same_again(number, rest, number.end + joined.end(), joined[0]):
        return SEVERAL
    return Stated("one", number.text, number.value)


def _same_again(number: Number, rest: str, position: int, joint: str) -> bool:
    """Is the number that follows the same one, or its percentage?"""
    if joint.strip()[-1:] in ("/", ":", "-", "–"):
        return False
    for other in numbers(rest[position : position + 60]):
        percent = rest[position + other.end : position + other.end + 2].strip("\\ ")[:1] == "%"
        return other.value == number.value or (percent and other.value == 100 * number.value)
    return False


def _number_at(rest: str, begin: int) -> Number | None:
    text = rest[begin:]
    spaced = spaced_number(text)
    if spaced is not None:
        return Number(begin, begin + spaced.end, spaced.value)
    for found in numbers(text):
        if found.start <= 2 and not text[: found.start].strip("($ "):
            return Number(begin + found.start, begin + found.end, found.value)
        return None
    return None


def _worked_out(rest: str) -> Stated | None:
    """ "3 + 4 = 7" is 7; "7 = 3 + 4" is 7; "3 + 4" is a sum that was left standing; None for anything else."""
    match = _ARITHMETIC.match(rest)
    prefix = match[0] if match else ""
    if "=" in prefix or "≈" in prefix or "\\approx" in prefix:
        last = re.split(r"=|≈|\\approx", prefix)[-1]
        tail = last + rest[len(prefix) : len(prefix) + 60]
        if not _OPERATION.search(last):
            number = _number_at(tail.lstrip("$ {("), 0)
            return Stated("one", number.text, number.value) if number is not None else None
        first = whole_number(re.split(r"=|≈|\\approx", prefix)[0])
        try:
            value = evaluate(clean(last.strip().rstrip(".,($")))
        except TooLarge:
            value = None
        return (
            first
            if first.value is not None and value is not None and value.value == first.value
            else Stated("other", prefix)
        )
    if _OPERATION.search(prefix) and rest[:1] not in ("(",):
        return _worked_in_words(prefix, rest) or Stated("other", prefix.strip().rstrip(".,"))
    return None


def _worked_in_words(prefix: str, rest: str) -> Stated | None:
    """ "6 x 7, or 42": the number that the operation comes to, when it is said."""
    try:
        value = evaluate(clean(prefix.strip().rstrip(".,($")))
    except TooLarge:
        return None
    for number in list(numbers(rest[len(prefix.rstrip(" $")) :]))[:3] if value is not None else ():
        if value is not None and number.value == value.value:
            return Stated("one", number.text, number.value)
    return None


def _only(rest: str) -> Stated:
    """The one number of a sentence that does not begin with it."""
    found = [n for n in list(numbers(rest))[:8] if not BOUND.search(rest[max(0, n.start - 30) : n.start])]
    if not found or any(NEGATION.search(rest[max(0, n.start - 12) : n.start]) for n in found):
        return NONE
    if len({n.value for n in found}) > 1:
        return SEVERAL
    return Stated("one", found[-1].text, found[-1].value)
