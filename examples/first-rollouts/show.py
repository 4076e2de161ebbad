"""Show in a terminal what examples/first-rollouts/run.sh has made. Standard library only.

python examples/first-rollouts/show.py runs/first-rollouts
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path


def read_lines(path: Path) -> list[dict]:
    """One JSON document a line: groups.jsonl has the scored groups of a run, metrics.jsonl the steps of a training."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def text(number: float | None) -> str:
    return "failed" if number is None else f"{number:+.2f}"


def trained_tokens(rollout: dict) -> int:
    """How many tokens of a rollout a trainer would learn from: those that the model chose."""
    spans = [message["tokens"] for message in rollout["messages"] if "tokens" in message]
    return sum(len(span["ids"]) if span["mask"] is True else sum(span["mask"] or ()) for span in spans)


def differ(group: dict) -> bool:
    """Are there rewards to compare? A group of equal ones teaches nothing."""
    return len({rollout["reward"] for rollout in group["rollouts"] if rollout.get("reward") is not None}) > 1


def show_groups(groups: list[dict]) -> None:
    print(f"{'task':<28}{'rewards':<26}{'advantages':<26}tokens")
    for group in groups:
        rewards = " ".join(text(rollout.get("reward")) for rollout in group["rollouts"])
        advantages = " ".join(text(value) for value in group.get("advantages", []))
        tokens = sum(trained_tokens(rollout) for rollout in group["rollouts"])
        print(f"{group['task']['id']:<28}{rewards:<26}{advantages:<26}{tokens}")


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


def show_play(run: Path) -> None:
    groups = read_lines(run / "groups.jsonl")
    pairs = [(group, rollout) for group in groups for rollout in group["rollouts"] if rollout.get("reward") is not None]
    if pairs:
        show_transcript(*max(pairs, key=lambda pair: pair[1]["reward"]))
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    print(
        f"\nPlayed: {summary['groups_done']} groups, {summary['rollouts']} rollouts by {summary['model']}, "
        f"mean reward {summary['reward_mean']:.3f}; in {sum(map(differ, groups))} of {len(groups)} groups the rewards "
        "differ\n"
    )
    show_groups(groups)


def show_training(run: Path) -> None:
    rows = read_lines(run / "metrics.jsonl")
    judged = [row for row in rows if "eval/arithmetic/accuracy" in row]
    before, after = (row["eval/arithmetic/accuracy"] for row in (judged[0], judged[-1]))
    steps = sum(row["kind"] == "train" for row in rows)
    print(f"\nLearnt: accuracy {before:.3f} -> {after:.3f} in {steps} steps, on 40 sums that were not trained on")


def main() -> None:
    out = Path(sys.argv[1])
    show_play(out / "play")
    show_training(out / "train")
    print(f"The curves of the training are in {out / 'train' / 'curves.html'},")
    print(f"the trained model is {out / 'train' / 'model'}")
    print("\nNext, after `. .venv/bin/activate`:")
    print(f"  atropos view {out / 'play'}   # every game in a local page")
    print("  atropos gen textworld --pick-from-admissible --help   # other games, other models")


if __name__ == "__main__":
    main()
