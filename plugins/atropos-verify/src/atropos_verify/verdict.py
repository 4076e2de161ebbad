"""Verdicts on completions: extract the answer, compare it with the gold answer."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from pydantic import JsonValue

from atropos_verify.arithmetic import TooLarge
from atropos_verify.compare import Symbolic, same_answer
from atropos_verify.errors import GoldError, VerifierTimeout
from atropos_verify.extract import Extraction, extract, extract_strict
from atropos_verify.latex import clean
from atropos_verify.numerals import unify
from atropos_verify.pool import WorkerPool
from atropos_verify.quantity import Quantity, quantity
from atropos_verify.statements import boxes

_PLAIN_NUMBER = re.compile(r"[-+−]?\s*(?:\\?[$€£])?\s*(?:\d[\d,]*(?:\.\d+)?|\.\d+)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """correct, and how it came about: the extracted answer (None when there is none) and the rule that found it."""

    correct: bool
    extracted: str | None
    rule: str


class NeedsWorker(Exception):
    """The verdict takes symbolic work, which is done in a worker process only."""


def defer(gold: str, answer: str) -> bool:
    """A symbolic comparison that asks for a worker; for the first, cheap attempt at a verdict."""
    raise NeedsWorker


def in_worker(pool: WorkerPool, deadline: float) -> Symbolic:
    """Symbolic comparison by math-verify in the pool, all calls for one verdict under one deadline."""
    end: list[float] = []

    def symbolic(gold: str, answer: str) -> bool:
        if not end:
            pool.warm("math")
            end.append(time.monotonic() + deadline)
        request = {"kind": "math", "gold": gold, "answer": answer}
        try:
            return pool.ask(request, max(0.0, end[0] - time.monotonic()))
        except VerifierTimeout:
            raise VerifierTimeout(f"no verdict within {deadline:g} s on {answer[:200]!r}") from None

    return symbolic


def gold_answers(answer: JsonValue) -> tuple[str, ...]:
    r"""The gold answers of a task, as text; a list means that any of them is right. Raises GoldError.

    A solution is cut to its answer: what follows its last "####", or its last box.
    """
    given = answer if isinstance(answer, list) else [answer]
    golds = []
    for item in given:
        if item is None or isinstance(item, dict | list) or (isinstance(item, str) and not item.strip()):
            raise GoldError(f"the task's answer {item!r} is not text or a number")
        golds.append(_gold_text(str(item)))
    if not golds:
        raise GoldError("the task has an empty list of answers")
    return tuple(golds)


def _gold_text(text: str) -> str:
    marked = text.rpartition("####")[2].strip() if "####" in text else ""
    found = boxes(text)
    return marked.split("\n")[0].strip() or (found[-1].content if found else "") or text.strip()


def is_plain_number(gold: str) -> bool:
    """True for a gold answer such as 72, -5, 1,000 or $3.50: compared as a number, found by the number rules."""
    return _PLAIN_NUMBER.fullmatch(gold.strip()) is not None


def judge_number(gold: str, text: str, *, strict: bool = False, tolerance: float = 0.0) -> Verdict:
    """Exact comparison of numbers; a unit, a percent sign and a currency do not matter. Raises GoldError.

    strict: GSM8K's format ("#### 72") is required. tolerance: times max(1, |gold|).
    """
    target = _gold_number(gold)
    found = find_number(text, strict=strict)
    correct = found.value is not None and _close(target, found.value, tolerance)
    return Verdict(correct, found.text, found.rule)


def find_number(text: str, *, strict: bool = False) -> Extraction:
    """The number that a completion gives as its answer, by the strict rule or by all of them."""
    return extract_strict(text) if strict else extract(text, "number")


def _gold_number(gold: str) -> Fraction:
    try:
        whole: Quantity | None = quantity(clean(unify(gold))) if len(gold) <= 500 else None
    except TooLarge:
        whole = None
    if whole is None or whole.base:
        raise GoldError(f"the gold answer {gold[:200]!r} is not a number")
    return whole.value


def _close(target: Fraction, value: Fraction, tolerance: float) -> bool:
    if not tolerance:
        return target == value
    return abs(target - value) <= Fraction(tolerance) * max(Fraction(1), abs(target))


def judge_math(gold: str, text: str, symbolic: Symbolic, *, tolerance: float = 0.0) -> Verdict:
    """Comparison of mathematical answers of any kind. Raises what `symbolic` raises, and GoldError."""
    found = extract(text, "math")
    correct = found.text is not None and same_answer(gold, found.text, symbolic, tolerance)
    return Verdict(correct, found.text, found.rule)


def judge_any(golds: tuple[str, ...], judge: Callable[[str], Verdict]) -> Verdict:
    """The verdict against several gold answers: the first right one, else the last."""
    verdict = judge(golds[0])
    for gold in golds[1:]:
        if verdict.correct:
            break
        verdict = judge(gold)
    return verdict
