"""How much of the answer a reply contains."""

from __future__ import annotations

from atropos_cli.sdk import Rollout, Task, normal_text, reward, words


@reward
def template_name(task: Task, rollout: Rollout) -> float:
    """Share of the answer's words that the reply contains."""
    wanted = set(words(normal_text(str(task.answer))))
    if not wanted:
        raise ValueError(f"task {task.id} has no answer")
    return len(wanted & set(words(normal_text(rollout.text)))) / len(wanted)
