"""The reward of a reply: the bootcamp's verdict, a bonus for the form, thinking where it is required."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atropos_cli.sdk import DataError, Rollout, Task, reward, split_thinking, thought_text
from atropos_cli.sdk.isolation import IsolatedWorker, WorkerError, WorkerSpec, shared_worker, stored_isolation

MOST_CHARACTERS = 200_000
FORMAT_MARK = 0.125
"""What verify_score() is to give for the form alone: told apart from right (1) and wrong (0) exactly."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """correct: the bootcamp verified the reply. formed: it found an answer, right or wrong. thinking: as required.

    refused: why a text in the reply was not evaluated, which the bootcamp would have done; None where all was.
    """

    reward: float
    correct: bool
    formed: bool
    thinking: bool
    refused: str | None = None


def worker_for(package: str, folder: str, isolation: str) -> IsolatedWorker:
    """The process that holds a package with bootcamps, found in a folder."""
    settings = json.dumps({"package": package, "folder": folder}, sort_keys=True)
    module = str(Path(__file__).with_name("worker.py"))
    return shared_worker(
        WorkerSpec("intern-bootcamp", module, settings, show=(folder,), isolation=isolation, memory_mb=1024)  # type: ignore[arg-type]
    )


async def judge(task: Task, text: str) -> Verdict:
    """The verdict on a reply.

    Raises WorkerError when the bootcamp fails, hangs or grows, DataError on a task of another environment.
    """
    scoring = task.info.get("scoring")
    if not isinstance(scoring, dict) or "identity" not in task.info:
        raise DataError(f"task {task.id} is none of a bootcamp", hint="use tasks of env intern-bootcamp")
    rules: dict[str, Any] = scoring
    thoughts, visible = split_thinking(text)
    thought = thought_text(thoughts)
    thinking = not rules["require_thinking"] or len(thought) >= max(1, rules["min_thinking"])
    if visible is None or not visible.strip():
        return Verdict(rules["incorrect_reward"], False, False, thinking and visible is not None)
    request = {
        "do": "verify",
        "name": task.info["bootcamp"],
        "identity": task.info["identity"],
        # Answers in thoughts are no answers; the tags stay for bootcamps that look for them.
        "text": f"<think></think>\n{visible}"[:MOST_CHARACTERS],
        "format_score": FORMAT_MARK,
    }
    worker = worker_for(rules["package"], rules["folder"], stored_isolation(rules["isolation"]))
    refused: list[str] = []
    try:
        score = float(await worker.ask(request, seconds=rules["timeout_s"], refused=refused))
    except WorkerError as error:
        if error.type != "Refused":
            raise
        score = 0.0
    reason = refused[0] if refused else None
    formed = score > 0
    if score >= 1.0 and thinking:
        return Verdict(rules["correct_reward"], True, True, True, reason)
    bonus = rules["format_bonus"] if formed else 0.0
    return Verdict(rules["incorrect_reward"] + bonus, False, formed, thinking, reason)


@reward
async def intern_bootcamp(task: Task, rollout: Rollout) -> float:
    """1 when the bootcamp verifies the reply, -0.5 when not, plus 0.2 for a wrong one in the right form."""
    return (await judge(task, rollout.text)).reward
