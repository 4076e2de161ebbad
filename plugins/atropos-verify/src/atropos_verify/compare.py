"""Is this answer the gold answer? By structure first, exactly; the rest goes to a symbolic comparison.

Numbers, quantities, lists, tuples, intervals, sets, matrices, assignments, inequalities, choices and
words are decided here. What remains are expressions: `symbolic(gold, answer)` is called for each pair.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from atropos_verify.arithmetic import MAX_EXPONENT, TooLarge, evaluate
from atropos_verify.latex import bracketed, clean, in_radians, matching, split_top, squash, untext
from atropos_verify.quantity import Quantity, quantity, split_unit
from atropos_verify.shapes import interval, label, matrix_rows, relation_kind, to_interval, union_parts

MAX_LENGTH = 2_000
"""Longer answers are not answers; they are wrong unless they are spelled as the gold is."""
MAX_ITEMS = 24

Symbolic = Callable[[str, str], bool]
_OR = (",", ";", "\\text{ or }", "\\text{or}", "\\text{ and }", "\\text{and}", " or ", " and ", "\\lor", "\\vee")
_OPERATORS = ("+", "-", "\\times", "\\cdot", "*", "\\div")
_MEMBER = re.compile(r"^\(?[A-Za-z](?:_\{?\w+\}?)?\)?\s*\\in\s*")
_CHOICE_GOLD = re.compile(r"\(?([A-Z])\)?[.:)]?")
_CHOICE = re.compile(r"\(?\s*([A-Z])\s*(?:\)|[.:](?=\s|$)|$)\s*.*", re.DOTALL)
_NAME = re.compile(r"[A-Za-z](?:_\{?\w+\}?)?|\\[A-Za-z]+")
_REMARK = re.compile(
    r"\s*,?\s*(?:\\text\s*\{\s*,?\s*)?\(?(?:for (?:an? )?(?:any|all|every|each|some|arbitrary|constant"
    r"|real)|where|with arbitrary)\b(?=.*[A-Za-z]).*$"
    r"|\s*,\s*(?:\\forall\s*)?[A-Za-z](?:\s*,\s*[A-Za-z])*\s*\\in\s*\\mathbb\s*\{?[A-Z]\}?.*$|\s*,?\s*\\forall.*$",
    re.DOTALL,
)
"""What only says over what a letter ranges: "for any real c"."""
_SET_ALGEBRA = re.compile(r"\\(?:setminus|backslash|cap|mathbb)")
_INFINITY = re.compile(r"([-+]?)\s*\\infty")
_TIME = re.compile(r"(\d{1,2}):(\d{2})\s*(?:([ap])\.?\s*m\.?)?", re.IGNORECASE)
_HUGE = re.compile(r"\d{5,}\s*!|!\s*!")


@dataclass(frozen=True, slots=True)
class Comparison:
    """How to compare. depth counts nesting; symbolic raises what stops the verdict."""

    symbolic: Symbolic
    tolerance: float = 0.0
    depth: int = 0

    def deeper(self) -> Comparison:
        return replace(self, depth=self.depth + 1)


def same_answer(gold: str, answer: str, symbolic: Symbolic, tolerance: float = 0.0) -> bool:
    """The verdict. gold and answer are LaTeX or plain text; whatever `symbolic` raises is passed on."""
    if squash(gold) == squash(answer) != "":
        return True
    if len(answer) > MAX_LENGTH or len(gold) > MAX_LENGTH:
        return False
    how, target, given = Comparison(symbolic, tolerance), in_radians(clean(gold)), in_radians(clean(answer))
    exact, sign, _ = given.partition("\\approx")
    if sign and exact.strip() and _same(target, exact.strip(), how):
        return True
    return _same(target, given, how)


def _same(gold: str, answer: str, how: Comparison) -> bool:
    if not gold or not answer or how.depth > 8:
        return bool(gold) and squash(gold) == squash(answer)
    if squash(gold) == squash(answer):
        return True
    gold, answer = _MEMBER.sub("", gold), _MEMBER.sub("", answer)
    if (_REMARK.search(gold) is None) != (_REMARK.search(answer) is None):
        return _same(_REMARK.sub("", gold).strip(), _REMARK.sub("", answer).strip(), how.deeper())
    named = _assignments(gold), _assignments(answer)
    if named[0] and named[1] and len(named[0]) > 1 and len(named[1]) > 1:
        if set(named[0]) != set(named[1]):
            return False
        return all(_same(value, named[1][name], how.deeper()) for name, value in named[0].items())
    ordered = [_in_order(named[0]), _in_order(named[1])]
    if (ordered[0] and interval(answer)) or (ordered[1] and interval(gold)):
        return _same(ordered[0] or gold, ordered[1] or answer, how.deeper())
    for rule in (_choice, _words, _quantities, _time, _lists, _equations, _unions, _brackets, _relations, _matrices):
        verdict = rule(gold, answer, how)
        if verdict is not None:
            return verdict
    return _expression(gold, answer, how)


def _assignments(text: str) -> dict[str, str] | None:
    """The values by their names in (a,b)=(1,2), or in a=1,b=2; None for anything else."""
    parts = [part.strip() for part in split_top(text, ("=",))]
    if len(parts) == 2 and (names := interval(parts[0])) and (values := interval(parts[1])):
        pairs = list(zip(names[1], values[1], strict=False)) if len(names[1]) == len(values[1]) else []
    else:
        pairs = [
            (name.strip(), value.strip()) for name, sign, value in (i.partition("=") for i in _items(text)) if sign
        ]
        if len(pairs) != len(_items(text)):
            return None
    found = {squash(name): value for name, value in pairs if _NAME.fullmatch(squash(name)) and value}
    return found if pairs and len(found) == len(pairs) else None


def _in_order(named: dict[str, str] | None) -> str | None:
    """x=3, y=4 as the tuple (3,4), in the order of the letters; None for what is no list of such values."""
    if not named or len(named) < 2 or any(re.fullmatch("[a-z]", name) is None for name in named):
        return None
    return f"({','.join(named[name] for name in sorted(named))})"


def _number(text: str) -> Quantity | None:
    try:
        return quantity(text)
    except TooLarge:
        return None


def _choice(gold: str, answer: str, how: Comparison) -> bool | None:
    r"""(B), \text{(B)}, B and "(B) 12" are one choice."""
    bare = untext(gold).strip()
    match = _CHOICE_GOLD.fullmatch(bare)
    if match is None:
        return None
    given = _CHOICE.fullmatch(untext(answer).strip())
    return given is not None and given[1] == match[1]


def is_words(text: str) -> bool:
    r"""True for text without mathematics: \text{...}, or one word or more of three letters."""
    if re.fullmatch(r"\\text\s*\{[^{}]*\}", text):
        return not re.search(r"\d", text)
    return re.fullmatch(r"[A-Za-z][A-Za-z' \-]*", text) is not None and re.search(r"[A-Za-z]{3}", text) is not None


def _words(gold: str, answer: str, how: Comparison) -> bool | None:
    if not is_words(gold):
        return None
    return _plain_words(gold) == _plain_words(answer)


def _plain_words(text: str) -> str:
    return re.sub(r"[\s.,()]+", " ", untext(text)).strip().casefold()


def _quantities(gold: str, answer: str, how: Comparison) -> bool | None:
    """Numbers are compared exactly; a sum or product left standing is no final answer to a number."""
    target = _number(gold)
    if target is None:
        return None
    final = _after_label(answer)
    if final is None:
        return False if "=" in answer else None
    try:
        given = quantity(final)
    except TooLarge:
        return False
    if given is None:
        return _not_a_number(target, final)
    if given.unevaluated and not target.unevaluated:
        return False
    return target.same(given, how.tolerance)


def _not_a_number(target: Quantity, answer: str) -> bool | None:
    """An expression beside a plain number: False when it must be, None when it takes symbolic work."""
    core, _ = split_unit(answer)
    terms = [part for part in split_top(core, _OPERATORS) if part.strip()]
    if len(terms) > 1 and not target.unevaluated:
        return False
    if re.fullmatch(r"-?\s*[A-Za-z]", core) or is_words(core) or relation_kind(core):
        return False
    return None


def _time(gold: str, answer: str, how: Comparison) -> bool | None:
    target = _TIME.fullmatch(untext(gold).strip())
    if target is None:
        return None
    given = _TIME.fullmatch(untext(answer).strip())
    if given is None:
        return False
    same_half = not target[3] or not given[3] or target[3].lower() == given[3].lower()
    return int(target[1]) == int(given[1]) and target[2] == given[2] and same_half


def _items(text: str) -> list[str]:
    """The members of a list without brackets, with a \\pm written out; one item when it is no list."""
    items: list[str] = []
    for part in split_top(text, _OR):
        stripped = part.strip()
        if not stripped:
            continue
        if "\\pm" in stripped:
            items.extend([stripped.replace("\\pm", "+"), stripped.replace("\\pm", "-")])
        else:
            items.append(stripped)
    return items


def _lists(gold: str, answer: str, how: Comparison) -> bool | None:
    """Unordered: 1,-3 and {-3, 1} and "x=1 or x=-3"."""
    targets, target_set = _members(gold)
    givens, given_set = _members(answer)
    if not (target_set or given_set or len(targets) > 1 or len(givens) > 1):
        return None
    if any(relation_kind(text) for text in (*targets, *givens)):
        return None
    return _same_members(targets, givens, how)


def _members(text: str) -> tuple[list[str], bool]:
    if text == "\\emptyset":
        return [], True
    body = _after_label(text) or text
    around = bracketed(body)
    if around and around[0] in ("\\{", "{") and around[2] in ("\\}", "}"):
        if re.search(r"\\mid|\||:", around[1]):
            return [text], False  # set-builder notation
        return _items(around[1]), True
    return _items(text), False


def _same_members(targets: list[str], givens: list[str], how: Comparison) -> bool:
    if len(targets) > MAX_ITEMS or len(givens) > MAX_ITEMS:
        return sorted(map(squash, targets)) == sorted(map(squash, givens))
    left = [_after_label(item) or item for item in targets]
    right = [_after_label(item) or item for item in givens]
    if not left or not right:
        return not left and not right
    if len(right) == 1 and len(left) > 1 and len({squash(item) for item in left}) > 1:
        return False
    matched: set[int] = set()
    for target in left:
        hits = [i for i, given in enumerate(right) if _same(target, given, how.deeper())]
        if not hits:
            return False
        matched.update(hits)
    return len(matched) == len(right)


def _after_label(text: str) -> str | None:
    """What follows the last top-level "=", if all before it only names or works out the value.

    None when the text is an equation of its own (a+b=5); a text without "=" comes back as it is.
    """
    parts = [part.strip() for part in split_top(text, ("=", "\\approx"))]
    if len(parts) == 1:
        return text
    if not parts[-1] or re.search(r"[<>!]$", parts[-2]):
        return None
    for i, part in enumerate(parts[:-1]):
        try:
            worked = evaluate(split_unit(part)[0]) is not None
        except TooLarge:
            worked = False
        if not (label(part) and i == 0) and not worked:
            return None
    return parts[-1]


def _equations(gold: str, answer: str, how: Comparison) -> bool | None:
    """x=5 against 5; y=2x+1 against 2x+1. Two named values need compatible names."""
    gold_value, answer_value = _after_label(gold), _after_label(answer)
    if gold_value is None and answer_value is None:
        return None  # two equations: symbolic
    if gold_value is None or answer_value is None:
        if "=" in gold and "=" in answer:
            return None
        return False
    if gold_value == gold and answer_value == answer:
        return None
    names = [squash(text.split("=")[0]) for text in (gold, answer) if "=" in text]
    if len(names) == 2 and names[0] != names[1] and all(re.fullmatch(r"[A-Za-z]", name) for name in names):
        return False
    return _same(gold_value, answer_value, how.deeper())


def _unions(gold: str, answer: str, how: Comparison) -> bool | None:
    targets, givens = union_parts(gold), union_parts(answer)
    if (len(targets) < 2 and len(givens) < 2) or _SET_ALGEBRA.search(gold + answer):
        return None
    if not all(targets) or not all(givens):
        return None
    return _same_members([part for part in targets if part], [part for part in givens if part], how)


def _brackets(gold: str, answer: str, how: Comparison) -> bool | None:
    """Tuples and intervals: same brackets, same members in order."""
    left, right = interval(gold), interval(answer)
    if left is None and right is None:
        return None
    if left is None or right is None:
        rows = matrix_rows(gold) or matrix_rows(answer)
        ordered = (left or right or ("", [], ""))[1]
        if rows is not None:  # a column or row vector may be written as a tuple
            vector = len(rows) == 1 or all(len(row) == 1 for row in rows)
            cells = [cell for row in rows for cell in row]
            return vector and (_same_cells(ordered, cells, how) if left else _same_cells(cells, ordered, how))
        return False if _number(gold) or _number(answer) else None
    if (left[0], left[2]) != (right[0], right[2]) or len(left[1]) != len(right[1]):
        return False
    return _same_cells(left[1], right[1], how)


def _same_cells(targets: list[str], givens: list[str], how: Comparison) -> bool:
    if len(targets) != len(givens):
        return False
    return all(_same(target, given, how.deeper()) for target, given in zip(targets, givens, strict=True))


def _relations(gold: str, answer: str, how: Comparison) -> bool | None:
    """Inequalities in one variable are intervals: 0<x<1 is (0,1), and 3 >= x is x <= 3."""
    if not relation_kind(gold) and not relation_kind(answer):
        return None
    left, right = to_interval(gold), to_interval(answer)
    if left is None or right is None:
        return None
    if left.variable and right.variable and left.variable != right.variable:
        return False
    if (left.opening, left.closing) != (right.opening, right.closing):
        return False
    return _same(left.low, right.low, how.deeper()) and _same(left.high, right.high, how.deeper())


def _matrices(gold: str, answer: str, how: Comparison) -> bool | None:
    left, right = matrix_rows(gold), matrix_rows(answer)
    if left is None and right is None:
        return None
    if left is None or right is None:
        return False
    if [len(row) for row in left] != [len(row) for row in right]:
        return False
    return all(_same_cells(a, b, how) for a, b in zip(left, right, strict=True))


def _expression(gold: str, answer: str, how: Comparison) -> bool:
    """Symbolic comparison, after what it would get wrong or never finish has been taken out."""
    gold, answer = split_unit(gold)[0] or gold, split_unit(answer)[0] or answer
    if squash(gold) == squash(answer):
        return True
    if _INFINITY.fullmatch(gold) or _INFINITY.fullmatch(answer):
        return squash(gold).lstrip("+") == squash(answer).lstrip("+")
    if is_words(answer) or (_huge(answer) and not _huge(gold)):
        return False
    return how.symbolic(gold, answer)


def _huge(text: str) -> bool:
    """True when a power or factorial in the text has too many digits to be worked out."""
    if _HUGE.search(text):
        return True
    for match in re.finditer(r"\^\s*(?:(\d+)|\{)", text):
        end = None if match[1] else matching(text, match.end() - 1)
        exponent = match[1] or text[match.end() : end]
        try:
            value = evaluate(exponent)
        except TooLarge:
            return True
        if value is not None and abs(value.value) > MAX_EXPONENT:
            return True
    return False
