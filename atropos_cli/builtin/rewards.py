"""Rewards that suit many environments. All compare the last assistant message with `task.answer`.

    exact_match       the whole reply is the answer
    contains_answer   the reply contains the answer
    numeric_match     the last number of the reply equals the answer
    length            completion tokens (weight 0: reported, not trained on)

A task whose answer the reward cannot use (none, or of another type) is an error: the rollout fails
at stage "score", because a 0.0 would be learnt from.
"""

from __future__ import annotations

from fractions import Fraction

from atropos_cli.sdk import Rollout, Task, reward, split_thinking

_DIGITS = frozenset("0123456789")
_NUMBER = _DIGITS | frozenset(".,/")
_MINUS = frozenset("-\N{MINUS SIGN}")
_CURRENCY = frozenset("$€£¥")
_LONGEST = 400  # characters of one number; longer ones are not numbers to us


@reward(extract=lambda task, rollout: _visible(rollout).strip())
def exact_match(task: Task, rollout: Rollout) -> float:
    """1.0 when the reply is the task's answer, else 0.0.

    White space around both is ignored; everything else counts, upper and lower case too.
    """
    return float(_visible(rollout).strip() == _answer_text(task).strip())


@reward
def contains_answer(task: Task, rollout: Rollout) -> float:
    """1.0 when the reply contains the task's answer as whole words, else 0.0.

    Upper and lower case are the same. No letter or digit may continue the answer (in scripts that
    have upper and lower case; others write words without spaces), and a number must not be part of
    a longer one: 4 is in "4." but not in "42", "4.5" or "1,400".
    """
    wanted = _answer_text(task).strip().casefold()
    if not wanted:
        raise ValueError(f"task {task.id}: the answer is empty, so every reply contains it")
    text = _visible(rollout).casefold()
    start = text.find(wanted)
    while start >= 0:
        if _stands_alone(text, start, start + len(wanted)):
            return 1.0
        start = text.find(wanted, start + 1)
    return 0.0


@reward(extract=lambda task, rollout: _last_number(_visible(rollout))[0])
def numeric_match(task: Task, rollout: Rollout) -> float:
    """1.0 when the last number of the reply equals the task's answer, else 0.0.

    Numbers: 72, -3, 1,000, 0.50, .5, 1/2, 6e23, $18; compared exactly (0.5 equals 1/2, 0.33 does
    not equal 1/3). Units and signs after a number are ignored: 72kg and 72% are 72.
    """
    text = _answer_text(task).strip()
    wanted = _number(text)
    if wanted is None:
        raise ValueError(f"task {task.id}: the answer {text[:80]!r} is not a number")
    return float(last_number(_visible(rollout)) == wanted)


@reward(weight=0.0)
def length(task: Task, rollout: Rollout) -> float:
    """Number of completion tokens; weight 0 unless one is given.

    The server's own count, else the number of sampled tokens that came with the messages. Without
    both the rollout fails at stage "score": characters do not replace tokens.
    """
    if rollout.usage.completion_tokens is not None:
        return float(rollout.usage.completion_tokens)
    replies = [message for message in rollout.messages if message.role == "assistant"]
    if not replies or any(message.tokens is None for message in replies):
        raise ValueError("the backend gave neither a count of completion tokens nor the tokens")
    return float(sum(_sampled(message.tokens.mask, len(message.tokens.ids)) for message in replies if message.tokens))


def _visible(rollout: Rollout) -> str:
    """The reply without its thinking; empty when the thinking never ended."""
    return split_thinking(rollout.text)[1] or ""


def last_number(text: str) -> Fraction | None:
    """The last number in a text, or None. Runs in time linear in the text.

    A run of digits and `.,/` that is not a number (1.2.3, 12/05/2024) and one that continues a word
    (x2, GPT4) are ignored.
    """
    return _last_number(text)[1]


def _last_number(text: str) -> tuple[str, Fraction] | tuple[None, None]:
    """(as it is written, value) of the last number in a text."""
    end = len(text)
    while end > 0:
        if text[end - 1] not in _DIGITS:
            end -= 1
            continue
        start = end - 1
        while start > 0 and text[start - 1] in _NUMBER:
            start -= 1
        exponent = _mantissa_end(text, start)
        if exponent is not None:
            # text[start:end] is what follows "e" or "e-": the number begins further left.
            mantissa = exponent
            while mantissa > 0 and text[mantissa - 1] in _NUMBER:
                mantissa -= 1
            start = mantissa
        run = text[start:end].lstrip(",/")
        run = run.lstrip(".") if run.startswith("..") else run
        first = end - len(run)
        if first == 0 or not (_in_word(text[first - 1]) or text[first - 1] == "_"):
            value = _number(run)
            if value is not None:
                return (f"-{run}", -value) if _negative(text, first) else (run, value)
        end = start
    return None, None


def _mantissa_end(text: str, start: int) -> int | None:
    """Where the mantissa ends when the digits at `start` are an exponent; None when they are not."""
    at = start
    if at > 0 and (text[at - 1] == "+" or text[at - 1] in _MINUS):
        at -= 1
    if at >= 2 and text[at - 1] in "eE" and text[at - 2] in _DIGITS:
        return at - 1
    return None


def _negative(text: str, start: int) -> bool:
    """Is there a minus sign (not an operator between two operands) before the number?"""
    at = start
    if at > 0 and text[at - 1] in _CURRENCY:
        at -= 1
    if at == 0 or text[at - 1] not in _MINUS:
        return False
    return at == 1 or not (text[at - 2].isalnum() or text[at - 2] in ")]}")


def _number(text: str) -> Fraction | None:
    """The value of a text that is one number and nothing else, or None."""
    text = text.replace("\N{MINUS SIGN}", "-")
    if not text or len(text) > _LONGEST:
        return None
    top, slash, bottom = text.partition("/")
    numerator = _decimal(top)
    if not slash:
        return numerator
    denominator = _decimal(bottom)
    if numerator is None or not denominator:
        return None
    return numerator / denominator


def _decimal(text: str) -> Fraction | None:
    whole, point, rest = text.partition(".")
    if "," in whole:
        head, *groups = whole.lstrip("+-").split(",")
        if not 1 <= len(head) <= 3 or any(len(group) != 3 for group in groups):
            return None
        whole = whole.replace(",", "")
    exponent = rest.lower().partition("e")[2] if point else whole.lower().partition("e")[2]
    if len(exponent) > 5:  # a power of ten with more digits than memory
        return None
    try:
        return Fraction(whole + point + rest) if "_" not in text and "/" not in text else None
    except (ValueError, ZeroDivisionError):
        return None


def _stands_alone(text: str, start: int, end: int) -> bool:
    if start > 0 and _continues(text, start - 1, start, start - 2):
        return False
    return end == len(text) or not _continues(text, end, end - 1, end + 1)


def _continues(text: str, outside: int, inside: int, beyond: int) -> bool:
    """Does the character outside continue the word or the number that the one inside belongs to?"""
    if _in_word(text[outside]):
        return _in_word(text[inside])
    has_beyond = 0 <= beyond < len(text) and text[beyond].isdigit()
    return text[outside] in ".," and text[inside].isdigit() and has_beyond


def _in_word(char: str) -> bool:
    return char.isdigit() or char.lower() != char.upper()


def _answer_text(task: Task) -> str:
    """The task's answer as text. Strings, and numbers as JSON writes them, can be compared; nothing else."""
    answer = task.answer
    if isinstance(answer, str):
        return answer
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        return str(answer)
    raise TypeError(f"task {task.id}: the answer must be text or a number, it is {type(answer).__name__}")


def _sampled(mask: bool | tuple[bool, ...], count: int) -> int:
    return sum(mask) if isinstance(mask, tuple) else count * mask
