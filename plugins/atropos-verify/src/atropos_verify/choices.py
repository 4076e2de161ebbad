"""Which letter of a multiple choice does a reply choose?

The places of `statements`, and those that only letters have: "B is correct", "I choose B", "so, B.". Else, not strict,
the one letter that the last line with any marks: in parentheses, in bold, or after "option". Listed options choose
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from atropos_verify.cues import QUALIFIED
from atropos_verify.extract import visible
from atropos_verify.latex import untext
from atropos_verify.scan import Led, near
from atropos_verify.statements import (
    NONE,
    SEVERAL,
    Place,
    Stated,
    after_filler,
    clause,
    decide,
    describes,
    guessed,
    negated,
)
from atropos_verify.written import one_script

_OPTION = (
    r"(?:(?<!\w)(?:the )?(?:answer|antwort|(?:answer )?(?:option|choice|letter|alternative|statement"
    r"|opción|alternativa|opzione|réponse|proposition|buchstabe"
    r"|möglichkeit|вариант|буква|optie|letra|lettera|lettre))(?!\w)|选项|選項|選択肢|보기)"
)
_AFTER_A = (
    r"because|since|as|and|or|not|rather|instead|with|but|for|due|which|where|here|based|given|over|is|are|was"
    r"|followed|by"
    r"|remains?|fits|works|survives|satisfies|matches|stands"
    r"|und|oder|weil|nicht|et|ou|car|y|o|porque|no"
)
_LETTER = re.compile(
    rf"[\s*_`$(\[{{\"'“:：]*+(?:(?:la|le|l['’]|die|der|das|el|il|a|o|the)\s*(?=[A-Z]\W|[A-Z]$"
    rf"|{_OPTION}))?(?:{_OPTION}[\s*_`$(\[{{\"':：#]*+)?"
    rf"(?:(?P<a>[AI])(?!['’]\w)(?=[)\].:,;*_`$}}\"'”’/|&!?]|\s*$|\s+(?:(?:{_AFTER_A})\b"
    rf"|[^\W\d_a-z]{{1}}(?![^\W\d_])|[-–—(/&+|0-9])|[⺀-鿿가-힯ぁ-ヿ、。])"
    rf"|(?P<b>[B-HJ-Z])(?![A-Za-z0-9'’]|\s*[=^+*]))"
)
_SMALL = re.compile(rf"[\s*_`$]*(?:{_OPTION}\s*)?(?:\(([a-z])\)|([a-j])[).](?=\s|$)|([a-z])[).:\s*_`$\"'}}]*$)")
_JOIN = (
    r"(?:,|;|/|&|\||\+|–|-|~|、"
    r"|(?<!\w)(?:and|or|und|oder|et|ou|y|o|e|and/or|or maybe|as well as|to)(?!\w)|和|或者?|与|以及|と|または|와|또는)"
)
_MORE = re.compile(
    rf"[\s)\].:*_`}}$\"']*(?:{_JOIN}[\s(\[*_`$\"']*)+(?:(?:maybe|perhaps|possibly|even|also"
    rf"|both)\s+)?(?:{_OPTION}\s*)?\(?([A-Za-z])(?=[)\].:,;*_`$}}\"'/|&]|\s*$|\s+(?:{_AFTER_A})\b|[⺀-鿿])"
    rf"|(?:[\s).:]+\(?([A-Z])\)?)+[\s.]*$"
)
_LATER = re.compile(rf"(?:{_JOIN}|\n)\s*(?:{_OPTION}\s*)?(?:\(([A-Z])\)|([A-Z])[).:](?=\s))")
_BEFORE_SEVERAL = re.compile(r"\W*(?:both|either|neither|beide|entweder|ambos|ambas|les deux)\b", re.IGNORECASE)
_MARKED = re.compile(rf"\(([A-Z])\)|\*\*\(?([A-Z])\)?[.:)]?\*\*|{_OPTION}\s*\(?([A-Z])(?![A-Za-z0-9'’])", re.IGNORECASE)
_ITEM = re.compile(rf"[\s>*_`#|•-]*(?:{_OPTION}\s*)?\(?([A-Z])\s*[).:|]", re.IGNORECASE)
_TICKED = re.compile(r"✓|✔|✅|☑|<-+|←|\b(?:this is )?(?:correct|right)\b(?!\s*\?)|\bcorrect answer\b", re.IGNORECASE)
_WRONG = re.compile(
    r"[\s)\].:*_`\"']*(?:(?:is|are|was|seems|looks)(?:\s+(?:clearly|definitely|also|obviously|therefore"
    r"|thus))*(?:n['’]t| not|\s+(?:wrong|incorrect|false"
    r"|ruled out|eliminated|impossible|out\b|too))|can(?:not|['’]t) be|(?:ist|sind) (?:falsch|nicht)"
    r"|est (?:faux|fausse|incorrect)|es incorrect"
    r"|:\s*(?:wrong|incorrect|false)\b|✗|✘|❌|是?错误?的?|不正确|不对|ではない|は間違い)"
    r"|[\s)\].:*_`,]*(?:but|however)\s+(?:(?:it|that|this|which)(?:['’]s| is| was)|is|was)\s+(?:wrong"
    r"|incorrect|not\b)",
    re.IGNORECASE,
)
_ALL_WRONG = re.compile(
    rf"(?:[\s,)]*(?:and|or|nor|&|和)?\s*\(?[A-Z]\)?(?![A-Za-z]))*(?:{_WRONG.pattern})|[项項]?(?:错|錯|誤|不)",
    re.IGNORECASE,
)
_SUBJECT = re.compile(
    rf"(?:(?P<option>{_OPTION})\s*[\"'(\[*_]{{0,4}}"
    rf"|(?<![\w'’.-])(?<![(\[*_]{{5}})[(\[*_\"']{{0,4}})(?P<letter>[A-Z])(?![A-Za-z0-9'’])[)\]*_\"'.]*\s*"
    r"(?:(?:is|was|must be|would be|should be|has to be|seems(?: to be)?|looks|remains|ist|est|es|è|é)\s+"
    r"(?:(?:the|clearly|definitely|indeed|therefore|thus|most likely|obviously|die|der|la|le|el|il|a|o"
    r"|only|single|our|my)\s+)*"
    r"(?:correct|right|best|true|answer|most (?:likely|accurate|appropriate|plausible)|richtig|korrekt"
    r"|richtige|correcte?|bonne|correcta|respuesta|corretta|certa|(?:one|option|choice|candidate|possibility) "
    r"(?:left|remaining|standing)|left(?!\s+\w))"
    r"|(?:是|为)?(?:正确|正確|对的)|项正确|が正解|が正しい|(?:가|이) 정답|만 남)",
    re.IGNORECASE,
)
_RIGHT_WORDS = (
    "correct|right|best|true|answer|most |richtig|korrekt|bonne|respuesta|corretta|certa|left|remaining"
    "|standing|正|对的|정답|만 남"
)
_REMAINS = (
    rf"leav(?:es|ing)(?: us(?: with)?|(?=\s+(?:(?:only|just)\s+)?(?:{_OPTION}\s*)?[(\[*_\"]{{0,4}}[A-Z][)\]*_\"]{{0,4}}"
    r"(?:[.,;!:\n]|\s*$|\s+(?:as|and|or|to be)\b)))(?: only| just)?|(?:zostaje|pozostaje)(?: tylko)?"
    r"|left with(?: only| just)?|remaining (?:option|choice"
    r"|answer|candidate"
    r"|possibility|one|letter)(?: left)?(?: is|:)|by (?:the )?(?:process of )?elimination[,:]?(?: it(?:['’]s| is))?"
    r"|elimination (?:gives|yields|leaves|points to)(?: us)?|ne reste (?:plus )?que|s[oó]lo (?:nos )?queda"
    r"|só (?:resta|sobra)"
    r"|rimane solo|resta solo|bleibt nur|übrig bleibt(?: nur)?|blijft alleen|остаётся(?: только)?|остается(?: только)?"
    rf"|(?:only|just|nur|alleen"
    rf"|seule?)(?=\s+(?:{_OPTION}\s*)?[(\[*_\"]{{0,4}}[A-Z][)\]*_\".]{{0,4}}\s+(?:remains|is left"
    r"|fits|works|survives|satisfies|matches|stands|is (?:possible|consistent|valid)|bleibt|blijft|reste|convient))"
)
"""What names the one option that is left."""
_PICK = Led(
    re.compile(
        r"(?:(?<!\w)(?:choose|select|pick|chose|picked|selected|choosing|go(?:ing)? with|opt(?:ing)? for"
        r"|settle on|vote for|say|richtig ist|(?:korrekte|richtige) (?:option|möglichkeit|wahl) ist|wähle"
        r"|nehme|choisis|elijo|escojo"
        r"|escolho|scelgo|выбираю|kies|(?:correct|right|best|final|my|chosen|selected|proper"
        r"|appropriate) (?:option|choice|letter|selection|pick|statement|alternative|one)"
        r"(?:\s+here)?(?:\s+(?:is|was|would be|must be|should be)|\s*:)|(?:therefore|thus|hence|so|ergo|also"
        r"|donc|entonces|quindi|portanto)[,:]?"
        rf"|{_REMAINS}"
        r"|it(?:['’]s| is| must be| has to be| should be)|(?:richtige|bonne|opción correcta|opción"
        r"|alternativa correta)\s+(?:option\s+)?(?:ist|est|es|é))(?!\w)"
        r"|只剩下?|剩下的?(?:是|只有)|残るは|故选|应选|应该选|應選|所以选|因此选|选择|选|選ぶ|正确选项[是为：:]*|選択肢は|선택(?:은"
        r"|:)?)[\s:：*_]*(?=\S)",
        re.IGNORECASE,
    ),
    "choos|chose|select|pick|go with|going with|opt|settle on|vote for|say|richtig|korrekt|wähle|"
    "nehme|choisis|elijo|escojo|escolho|scelgo|выбираю|kies|correct|right|best|final|my |proper|"
    "appropriate|therefore|thus|hence|so|ergo|also|donc|entonces|quindi|portanto|it|bonne|opción|"
    "alternativa|leav|zostaje|pozostaje|left with|remaining|by |elimination|ne reste|solo|sólo|só |rimane|resta|bleibt|"
    "übrig|blijft|оста|only|just|nur|alleen|seul|只剩|剩下|残るは|故选|应选|应该选|應選|所以选|因此选|选|選|正确选项"
    "|선택",
)


def choice_letter(text: str, *, strict: bool = False, options: Sequence[str] = ()) -> str | None:
    """The letter a reply chooses: in a box, an answer tag, after "answer is", or as the whole reply.

    Not strict: else where a letter is said to be right or chosen, or the one letter that the last line with any marks.
    options: the texts of the options; the text of one of them chooses it. A mere capital letter in a sentence is never
    taken for a choice, and a small one counts only in parentheses or alone.
    """
    answer = visible(text)
    if answer is None:
        return None
    answer = one_script(answer)
    texts = {squeezed(option): chr(65 + i) for i, option in enumerate(options[:26])}
    if len(texts) < len(options[:26]):
        texts = {}

    def read(place: Place) -> Stated:
        return _stated(place, texts)

    decision = decide(answer, read, _names_another, () if strict else _letter_places(answer))
    if decision.place is not None:
        return decision.stated.text if decision.stated.kind == "one" else None
    if decision.begin:
        answer = answer[decision.begin :]
    whole = answer.strip()
    if "\n" not in whole and (bare := _lead(whole[:500])) is not None:
        found = _with_others(bare, whole[:500])
        return found.text if found.kind == "one" and found.key not in decision.denied else None
    first, _, rest = whole.partition("\n")
    if (
        rest
        and (bare := _lead(first)) is not None
        and not first[bare.end() :].strip(" *_`.)]:")
        and not _ITEM.match(rest.lstrip())
    ):
        return next(group for group in bare.groups() if group).upper()
    if squeezed(whole) in texts:
        return texts[squeezed(whole)]
    return None if strict else _last_marked(answer, decision.denied)


def squeezed(text: str) -> str:
    """A text as it is compared with the texts of options."""
    return re.sub(r"[\s.*_`\"'“”$\\]+", " ", untext(text[:500])).strip().casefold()


def _stated(place: Place, texts: dict[str, str]) -> Stated:
    content = _plain(place.content[:600])
    if place.broken:
        return Stated("other")
    if not content:
        return NONE
    if squeezed(content) in texts:
        return _as_denied(place, Stated("one", texts[squeezed(content)]))
    rest = after_filler(content) if place.said else content
    denial = negated(rest, lambda inner: _letters(inner, texts))
    if denial is not None:
        found = _letters(denial.text or "", texts)
        return denial if denial.kind != "denied" else Stated("denied", found.text) if found.kind == "one" else NONE
    found = _letters(rest, texts)
    if found.kind == "none" and not place.correction and not (place.verb and describes(content)):
        found = _inside(rest, texts)
    if found.kind == "none" and place.rule in ("boxed", "tag"):
        return Stated("other") if re.fullmatch(r"[\W_]*[A-Z][\WA-Z]*", content) else NONE
    return _as_denied(place, found)


def _as_denied(place: Place, found: Stated) -> Stated:
    return Stated("denied", found.text) if place.denied and found.kind == "one" else found


def _plain(content: str) -> str:
    """Without Markdown and LaTeX around the words."""
    content = re.sub(r"\\(?:text|textbf|mathbf|mathrm|boldsymbol|textit|boxed)\s*\{([^{}]*)\}", r"\1", content)
    return re.sub(r"\\[()\[\],;! ]|\*\*|__|`|\$", " ", content).strip()


def _lead(content: str) -> re.Match[str] | None:
    return _LETTER.match(content) or _SMALL.match(content)


def _letters(content: str, texts: dict[str, str]) -> Stated:
    """The letter that a content begins with, or the one whose text it is."""
    if squeezed(content) in texts:
        return Stated("one", texts[squeezed(content)])
    if _BEFORE_SEVERAL.match(content) and _MARKED.search(content.upper()) is None and " and " not in content + " ":
        return NONE
    if _BEFORE_SEVERAL.match(content):
        return SEVERAL
    match = _lead(content)
    if match is None:
        return _before_its_text(content, texts)
    return _with_others(match, content)


def _before_its_text(content: str, texts: dict[str, str]) -> Stated:
    """ "A Paris", where Paris is option A."""
    letter, _, rest = content.partition(" ")
    return Stated("one", letter) if texts.get(squeezed(rest)) == letter != "" else NONE


def _with_others(match: re.Match[str], content: str) -> Stated:
    letter = next(group for group in match.groups() if group).upper()
    after = content[match.end() :]
    if _WRONG.match(after):
        return Stated("denied", letter)
    more = _MORE.match(after)
    if more is not None and any(other and other.upper() != letter for other in more.groups()):
        return SEVERAL if not _ALL_WRONG.match(after[more.end() :]) else Stated("one", letter)
    for later in _LATER.finditer(after):
        other = later[1] or later[2]
        if other != letter and not _WRONG.match(after[later.end() :]):
            return SEVERAL
    return Stated("one", letter)


def _inside(content: str, texts: dict[str, str]) -> Stated:
    """The one letter that is marked inside a content, or the option whose text it begins with."""
    found = {letter for letter, _ in _marked(content)}
    if len(found) == 1:
        return Stated("one", found.pop())
    if found:
        return SEVERAL
    said = squeezed(content)
    named = {letter for text, letter in texts.items() if text and re.match(re.escape(text) + r"(?:,|$| \()", said)}
    return Stated("one", named.pop()) if len(named) == 1 else NONE


def _marked(line: str) -> Iterator[tuple[str, int]]:
    """(letter, where) for each letter that is marked in a line and not said to be wrong."""
    for match in _MARKED.finditer(line):
        letter = match[1] or match[2] or match[3]
        if not letter.isupper() and not match[1]:
            continue
        before = line[max(0, match.start() - 24) : match.start()]
        if _WRONG.match(line[match.end() :]) or _refused(before):
            continue
        yield letter.upper(), match.start()


def _refused(before: str) -> bool:
    """True for what stands before a letter that is not meant: "not (A)", "rather than (A)", "eliminate (A)"."""
    return (
        re.search(
            r"(?:\bnot|n['’]t|\bthan|instead of|\beliminates?|\brules? out|\bruled out|\bexcludes?"
            r"|\brejects?|\bnor|\bnicht|\bpas|不是|排除)"
            r"\s*(?:be|option|choice|choose|pick|select)?\s*[(*]*$",
            before,
            re.IGNORECASE,
        )
        is not None
    )


def _letter_places(text: str) -> list[Place]:
    """The places that only letters have."""
    found: list[Place] = []
    for match in list(near(_SUBJECT, text, _RIGHT_WORDS, 100))[-40:]:
        letter, before = match["letter"], text[max(0, match.start() - 40) : match.start()]
        if not letter.isupper() or (letter == "I" and not match["option"]) or QUALIFIED.search(before):
            continue
        if re.search(
            r"\b(?:vitamin|type|group|class|grade|plan|hepatitis|point|figure|and|or|nor)\s*$", before, re.IGNORECASE
        ):
            continue
        found.append(Place("anchor", match.start(), match.end(), letter, denied=_refused(before)))
    for match in list(_PICK.finditer(text))[-40:]:
        content, end = clause(text, match.end())
        lead = _lead(_plain(content)[:200]) if content else None
        before = text[max(0, match.start() - 30) : match.start()]
        if lead is None or QUALIFIED.search(before) or text.startswith(("?", "？"), end):
            continue
        denied = _refused(before)
        found.append(Place("anchor", match.start(), end, content, denied=denied))
    return found


def _names_another(text: str, stated: Stated) -> bool:
    found = {letter for letter, _ in _marked(text)} | set(re.findall(r"(?<![\w'’])[B-HJ-Z](?![\w'’])", text))
    return bool(found - {stated.text})


def _last_marked(text: str, denied: frozenset[object]) -> str | None:
    """The one letter of the last line that marks any; of listed options the one that is ticked."""
    lines = [line for line in text[-20_000:].split("\n") if line.strip()]
    items = [(match[1].upper(), line) for line in lines if (match := _ITEM.match(line)) is not None]
    listed = len({letter for letter, _ in items}) > 1
    if listed:
        ticked = {
            letter
            for letter, line in items
            if _TICKED.search(line) and not re.search(r"\b(?:not|in)\W?correct", line, re.I)
        }
        if len(ticked) == 1:
            return ticked.pop()
    elif items and lines[0] == items[0][1] and _LETTER.match(lines[0]):
        return None if items[0][0].casefold() in denied else items[0][0]
    for line in reversed(lines):
        if (listed and _ITEM.match(line)) or line.rstrip("*_ ").endswith(("?", "？")):
            continue
        found = {letter: at for letter, at in _marked(line) if letter.casefold() not in denied}
        if found:
            letter, at = found.popitem()
            return letter if not found and not guessed(text, text.rfind(line) + at) else None
    return None
