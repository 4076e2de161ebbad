"""The score of a reply: the text in its last <answer> tags, judged by reasoning-gym in an isolated worker."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atropos_cli.sdk import DataError, PluginError, Rollout, Task, reward, split_thinking
from atropos_cli.sdk.isolation import IsolatedWorker, WorkerError, WorkerSpec, shared_worker, stored_isolation
from atropos_reasoning_gym.families import EXECUTING
from atropos_reasoning_gym.sieve import why_refused

DEADLINE_S = 10.0
SET_UP_S = 60.0
MOST_CHARACTERS = 100_000
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def worker_for(isolation: str = "auto") -> IsolatedWorker:
    """The process that holds the package. Raises PluginError when the package is missing."""
    module = str(Path(__file__).with_name("worker.py"))
    return shared_worker(WorkerSpec("reasoning-gym", module, isolation=isolation, memory_mb=1024))  # type: ignore[arg-type]


def started(isolation: str = "auto") -> IsolatedWorker:
    """worker_for(), running. Raises PluginError with a hint when the package is missing."""
    worker = worker_for(isolation)
    try:
        worker.start()
    except WorkerError as error:
        if error.type == "ModuleNotFoundError":
            raise PluginError(str(error), hint="pip install reasoning-gym") from None
        raise PluginError(str(error), hint=error.hint) from None
    return worker


def describe_isolation() -> tuple[str, str, str]:
    """The doctor's line on how far scorers are shut in."""
    worker = worker_for()
    try:
        worker.start()
    except WorkerError as error:
        return ("reasoning-gym scorers", "error", str(error))
    finally:
        worker.close()
    if worker.level == "bubblewrap":
        return ("reasoning-gym scorers", "ok", "isolated by bubblewrap: no network, read-only view of the system")
    return ("reasoning-gym scorers", "warn", "isolated by limits and what the kernel has: apt-get install bubblewrap")


@dataclass(frozen=True, slots=True)
class Verdict:
    """score: the package's, 0 without an answer. answer: None when there is none.

    refused: why the answer was not executed; None where it was, or need not be.
    """

    score: float
    answer: str | None
    refused: str | None = None


def extract(text: str) -> str | None:
    """The text in the last <answer> tags, outside thinking; None when there are none or thinking is not closed."""
    _, visible = split_thinking(text)
    found = _TAGGED.findall(visible or "")
    return found[-1].strip()[:MOST_CHARACTERS] if found else None


_set_up: set[str] = set()


def set_up_request(request: dict[str, Any]) -> dict[str, Any] | None:
    """What to ask the worker before the first request of a kind: to make the data set, and to keep it.

    To be asked twice: first in a process that can be ended, then where it is kept. None when that was done.
    """
    first = {"level": None, "mode": "inclusive", **request, "do": "set up"}
    first = {key: first[key] for key in ("do", "family", "seed", "config", "level", "mode")}
    key = json.dumps(first, sort_keys=True)
    if key in _set_up:
        return None
    _set_up.add(key)
    return first


async def judge(task: Task, text: str) -> Verdict:
    """The verdict on a reply. Raises WorkerError when the scorer fails, hangs or grows, DataError on a foreign task."""
    return await judge_answer(task, extract(text))


async def judge_answer(task: Task, answer: str | None) -> Verdict:
    """The verdict on an answer alone."""
    entry, family = task.info.get("entry"), task.info.get("family")
    if not isinstance(entry, dict) or not isinstance(family, str):
        raise DataError(
            f"task {task.id} is none of reasoning-gym: info has no entry", hint="use tasks of env reasoning-gym"
        )
    if not answer:
        return Verdict(0.0, None)
    reason = why_refused(EXECUTING[family], answer) if family in EXECUTING else None
    if reason is not None:
        # What equals the gold answer has full marks in each of these families before anything is executed.
        return Verdict(float(answer == task.answer), answer, reason)
    request: dict[str, Any] = {
        "do": "score",
        "family": family,
        "seed": task.info.get("seed", 0),
        "config": task.info.get("config") or {},
        "answer": answer,
        "entry": entry,
    }
    options = task.info.get("scorer")
    limits: dict[str, Any] = options if isinstance(options, dict) else {}
    seconds = float(limits.get("timeout_s", DEADLINE_S))
    worker = worker_for(stored_isolation(limits.get("isolation")))
    first = set_up_request(request)
    refused: list[str] = []
    if first is not None:
        await worker.ask(first, seconds=SET_UP_S, refused=refused)
        if refused:
            raise DataError(f"task {task.id}: its options are not those of a family: {refused[0]}")
        await worker.ask(first, seconds=SET_UP_S, fork=False)
    score = float(await worker.ask(request, seconds=seconds, refused=refused))
    return Verdict(score, answer, refused[0] if refused else None)


@reward(extract=lambda task, rollout: extract(rollout.text))
async def reasoning_gym(task: Task, rollout: Rollout) -> float:
    """The score that reasoning-gym gives to the text in <answer> tags, 0 to 1."""
    return (await judge(task, rollout.text)).score


@reward(weight=0.0)
def answer_tags(task: Task, rollout: Rollout) -> float:
    """1 for exactly one pair of <answer> tags outside thinking."""
    _, visible = split_thinking(rollout.text)
    text = visible or ""
    return float(text.count("<answer>") == text.count("</answer>") == len(_TAGGED.findall(text)) == 1)
