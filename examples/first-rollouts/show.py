"""Show a run in a terminal: a line per group, then one rollout as a transcript. Standard library only.

python examples/first-rollouts/show.py runs/first-rollouts
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path


def read_groups(run: Path) -> list[dict]:
    """The scored groups of a run folder: one JSON document a line."""
    with (run / "groups.jsonl").open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def text(number: float | None) -> str:
    return "failed" if number is None else f"{number:+.2f}"


def trained_tokens(rollout: dict) -> int:
    """How many tokens of a rollout a trainer would learn from: those the model sampled."""
    spans = [message["tokens"] for message in rollout["messages"] if "tokens" in message]
    return sum(len(span["ids"]) for span in spans if span["mask"] is True)


def understood(rollout: dict) -> float:
    """How many of a game's commands the game understood; 0 for other environments."""
    return len(rollout["info"].get("commands", ())) - rollout["metrics"].get("invalid_commands", 0)


def show_groups(groups: list[dict]) -> None:
    print(f"{'task':<32}{'rewards':<32}{'advantages':<32}tokens")
    for group in groups:
        rewards = " ".join(text(rollout.get("reward")) for rollout in group["rollouts"])
        advantages = " ".join(text(value) for value in group.get("advantages", []))
        tokens = sum(trained_tokens(rollout) for rollout in group["rollouts"])
        print(f"{group['task']['id']:<32}{rewards:<32}{advantages:<32}{tokens}")


def show_transcript(group: dict, rollout: dict) -> None:
    print(f"\nThe best rollout, {rollout['id']}, ended with stop reason {rollout.get('stop_reason')!r}:")
    for message in rollout["messages"]:
        if message["role"] == "system":
            continue
        who = "model" if message["role"] == "assistant" else "game"
        lines = [
            part
            for line in (message.get("content") or "").strip().splitlines()
            for part in textwrap.wrap(line, 100) or [""]
        ]
        for number, line in enumerate(lines or ["(nothing)"]):
            print(f"{who if number == 0 else '':>7} | {line}")
    rewards = ", ".join(f"{name} {value + 0.0:g}" for name, value in rollout["rewards"].items())
    print(f"{'':>7} = reward {text(rollout.get('reward'))} ({rewards}) by {group['model']}")


def main() -> None:
    run = Path(sys.argv[1])
    groups = read_groups(run)
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    print(
        f"\n{run}: {summary['groups_done']} groups, {summary['rollouts']} rollouts by {summary['model']}, "
        f"{summary['completion_tokens']} tokens sampled, mean reward {summary['reward_mean']:.3f}\n"
    )
    show_groups(groups)
    pairs = [(group, rollout) for group in groups for rollout in group["rollouts"] if "reward" in rollout]
    if pairs:
        show_transcript(*max(pairs, key=lambda pair: (pair[1]["reward"], understood(pair[1]))))
    print(f"\nEverything is in {run}: plan.json, groups.jsonl, summary.json, log.jsonl")


if __name__ == "__main__":
    main()
