"""Rewards for answers that are text: multiple choice, exact text, regular expressions, JSON."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any, NoReturn

from atropos_cli.sdk import ConfigError, Reward, Rollout, Task
from atropos_verify.choices import choice_letter
from atropos_verify.errors import GoldError
from atropos_verify.extract import visible
from atropos_verify.pool import shared_pool
from atropos_verify.wording import plain_text, stated_text

MAX_TEXT = 200_000
_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}
_FENCE = re.compile(r"```(?:json)?[ \t]*\r?\n(.*?)\n?[ \t]*```", re.DOTALL)


def _gold_letter(task: Task) -> str:
    gold, choices = task.answer, task.info.get("choices")
    if isinstance(gold, str) and re.fullmatch(r"\(?[A-Z]\)?\.?", gold.strip()):
        return gold.strip("(). ")
    if isinstance(choices, list):
        if isinstance(gold, int) and not isinstance(gold, bool) and 0 <= gold < min(26, len(choices)):
            return chr(ord("A") + gold)
        if gold in choices[:26]:
            return chr(ord("A") + choices.index(gold))
    raise GoldError(
        f"the gold answer {gold!r} is no letter, nor an index or member of task.info['choices']",
        hint="give the letter, or put the list of choices into task.info['choices']",
    )


def choice_reward(*, strict: bool = False, name: str = "choice") -> Reward:
    """1.0 when the chosen letter is the gold one. Gold: a letter, or with info["choices"] an index from 0 or a text.

    A reply that gives the text of one of the choices instead of a letter chooses it.
    """

    def chosen(task: Task, rollout: Rollout) -> str | None:
        choices = task.info.get("choices")
        options = [str(option) for option in choices] if isinstance(choices, list) else []
        return choice_letter(rollout.text, strict=strict, options=options)

    def score(task: Task, rollout: Rollout) -> float:
        gold = _gold_letter(task)
        return float(chosen(task, rollout) == gold)

    score.__doc__ = "1 if the chosen letter is right"
    return Reward(score, name=name, extract=chosen)


def exact_reward(*, ignore_case: bool = True, whole: bool = False, name: str = "exact") -> Reward:
    """1.0 when the answer is the gold text; case, white space, markup and a final full stop aside.

    The answer is what the last place of the reply states: a box, an answer tag, what follows "answer is" or the like;
    without any of them, and always with whole=True, the whole reply.
    """

    def plain(text: str) -> str:
        return plain_text(text, ignore_case=ignore_case)

    def given(task: Task, rollout: Rollout) -> str | None:
        return stated_text(rollout.text, whole=whole)

    def score(task: Task, rollout: Rollout) -> float:
        answer = given(task, rollout)
        golds = task.answer if isinstance(task.answer, list) else [task.answer]
        if not golds or any(not isinstance(gold, str | int | float) for gold in golds):
            raise GoldError(f"the task's answer {task.answer!r} is not text")
        if answer is None:
            return 0.0
        return float(plain(answer) in {plain(str(gold)) for gold in golds})

    score.__doc__ = "1 if the answer is the gold text"
    return Reward(score, name=name, extract=given)


def regex_reward(
    pattern: str | None = None, *, flags: str = "", full: bool = False, deadline: float = 2.0, name: str = "regex"
) -> Reward:
    """1.0 when the reply, thinking left out, matches. The pattern is given here or in task.info["pattern"].

    flags: letters of "imsx". full: the whole reply must match. It runs in a worker process: a pattern
    that backtracks without end fails the rollout after `deadline` seconds.
    """
    if set(flags) - set(_FLAGS):
        raise ConfigError(f"flags={flags!r}: use letters of {''.join(_FLAGS)!r}")
    bits = sum(_FLAGS[flag] for flag in set(flags))
    if pattern is not None:
        try:
            re.compile(pattern, bits)
        except re.error as error:
            raise ConfigError(f"pattern {pattern!r} is not a regular expression: {error}") from None

    async def score(task: Task, rollout: Rollout) -> float:
        wanted = pattern if pattern is not None else task.info.get("pattern")
        if not isinstance(wanted, str):
            raise GoldError("there is no pattern", hint="give regex_reward(pattern) or task.info['pattern']")
        text = visible(rollout.text)
        if text is None:
            return 0.0
        request = {"kind": "regex", "pattern": wanted, "flags": bits, "text": text.strip()[:MAX_TEXT], "full": full}
        pool = shared_pool()
        return float(await pool.run(lambda: pool.ask(request, deadline)))

    score.__doc__ = "1 if the reply matches the pattern"
    return Reward(score, name=name)


def find_json(text: str, *, anywhere: bool = False) -> Any:
    """The JSON value of a reply: the whole of it, or its only fenced block. Raises ValueError.

    anywhere: else the first object or list in the text. NaN, Infinity and what overflows are not JSON.
    """
    stripped = text.strip()
    fences = _FENCE.findall(stripped)
    try:
        return _JSON.decode(fences[0] if len(fences) == 1 else stripped)
    except (ValueError, RecursionError):
        if not anywhere:
            raise ValueError("the reply is not JSON") from None
    for match in list(re.finditer(r"[{\[]", stripped))[:16]:
        try:
            return _JSON.raw_decode(stripped, match.start())[0]
        except (ValueError, RecursionError):
            continue
    raise ValueError("the reply holds no JSON")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    return value if abs(value) != float("inf") else _refuse(digits)


_JSON = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def json_schema_reward(
    schema: dict[str, Any] | bool | None = None,
    *,
    anywhere: bool = False,
    deadline: float = 2.0,
    name: str = "json_schema",
) -> Reward:
    """1.0 when the reply is JSON and satisfies the schema given here or in task.info["schema"].

    References outside the schema are not fetched. Validation runs in a worker process (patterns in a
    schema may backtrack without end) and needs the extra `schema`.
    """

    def parsed(rollout: Rollout) -> Any:
        return find_json((visible(rollout.text) or "")[:MAX_TEXT], anywhere=anywhere)

    def extracted(task: Task, rollout: Rollout) -> Any:
        with contextlib.suppress(ValueError):
            return parsed(rollout)
        return None

    async def score(task: Task, rollout: Rollout) -> float:
        wanted = schema if schema is not None else task.info.get("schema")
        if not isinstance(wanted, dict | bool):
            raise GoldError("there is no schema", hint="give json_schema_reward(schema) or task.info['schema']")
        try:
            value = parsed(rollout)
        except ValueError:
            return 0.0
        pool = shared_pool()
        return float(await pool.run(lambda: pool.ask({"kind": "schema", "schema": wanted, "value": value}, deadline)))

    score.__doc__ = "1 if the reply is JSON that satisfies the schema"
    return Reward(score, name=name, extract=extracted)


choice = choice_reward()
exact = exact_reward()
regex = regex_reward()
json_schema = json_schema_reward()
