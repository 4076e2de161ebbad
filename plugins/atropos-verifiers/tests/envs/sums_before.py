"""Sums for verifiers before 0.4: one turn, several, tools, or scored beside each other; and what can go wrong."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import verifiers as vf


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b


def right(completion: Any, answer: str) -> float:
    """Is the answer the last word?"""
    words = (completion[-1]["content"] or "").split()
    return float(bool(words) and words[-1].strip(".") == answer)


def brief(completion: Any) -> float:
    """Reported, not trained on."""
    return float(len(completion[-1]["content"] or "") < 20)


def shortest(completions: Any, **rest: Any) -> list[float]:
    """Is it the shortest of its group?"""
    sizes = [len(item[-1]["content"]) for item in completions]
    return [float(size == min(sizes)) for size in sizes]


def odd(completion: Any) -> float:
    """Breaks where the reply is no number, and has no value for 0."""
    number = int(completion[-1]["content"])
    return None if number == 0 else float(number)  # type: ignore[return-value]


class Twice(vf.MultiTurnEnv):
    """Asks back once."""

    async def setup_state(self, state: Any) -> None:
        trouble(state)

    async def env_response(self, messages: Any, state: Any, **rest: Any) -> Any:
        return [{"role": "user", "content": "Are you sure?"}]


class Forgetful(Twice):
    """Shows the second request nothing of the first."""

    async def get_prompt_messages(self, state: Any) -> Any:
        if not state["trajectory"]:
            return state["prompt"]
        return [{"role": "user", "content": "Say it again."}]


class Once(vf.SingleTurnEnv):
    """One turn."""

    async def setup_state(self, state: Any) -> None:
        trouble(state)


def trouble(state: Any) -> None:
    """What the task is to do to its process."""
    what, once = state["info"]["trouble"], state["info"]["once"]
    if not what or (once and Path(once).exists()):
        return
    if once:
        Path(once).touch()
    print("not data", flush=True)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "exit":
        os._exit(3)
    if what == "raise":
        raise ValueError("this task raises")
    time.sleep(3600)


def load_environment(
    kind: str = "once", size: int = 6, trouble_at: int = -1, trouble: str = "", once: str = "", **rest: Any
) -> vf.Environment:
    """Sums up to `size`."""
    from datasets import Dataset

    rows = [
        {
            "question": f"{n} + 1?",
            "answer": str(n + 1),
            "info": {"trouble": trouble if n == trouble_at else "", "once": once},
        }
        for n in range(size)
    ]
    funcs: list[Any] = [shortest] if kind == "together" else [right, brief]
    rubric = vf.Rubric(funcs=funcs, weights=[1.0, 0.0][: len(funcs)])
    if kind in ("odd", "odd and right"):
        rubric = vf.Rubric(funcs=[odd, right], weights=[float(kind == "odd"), 1.0])
    if kind == "several":
        given = [{"dataset": Dataset.from_list(rows), "rubric": vf.RubricGroup([vf.Rubric(funcs=[odd])])} for _ in "ab"]
        envs = [Once(**given[0]), Twice(max_turns=2, **given[1])]
        return vf.EnvGroup(envs, env_names=["once", "twice"])
    made = {"dataset": Dataset.from_list(rows), "rubric": rubric, "system_prompt": rest.get("system")}
    if kind == "tools":
        return vf.ToolEnv(tools=[add], max_turns=4, **made)
    if kind in ("twice", "forgetful"):
        return (Twice if kind == "twice" else Forgetful)(max_turns=2, **made)
    return Once(**made)
