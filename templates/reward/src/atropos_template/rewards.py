"""How much of the answer a reply contains."""

from __future__ import annotations

from atropos_cli.sdk import Rollout, Task, reward


@reward
def template_name(task: Task, rollout: Rollout) -> float:
    """Share of the answer's words that the reply contains."""
    wanted = set(str(task.answer).lower().split())
    if not wanted:
        raise ValueError(f"task {task.id} has no answer")
    return len(wanted & set(rollout.text.lower().split())) / len(wanted)
