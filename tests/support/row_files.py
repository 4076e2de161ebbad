"""Files of stored groups that are made up."""

from __future__ import annotations

import json
import random
from pathlib import Path

WORDS = [f"w{number}" for number in range(60)]


def make_groups(path: Path, count: int, seed: int = 0, *, tasks: int = 8) -> Path:
    """Groups of tasks that come again, with equal, similar and other replies of very different sizes."""
    draw = random.Random(seed)
    base = {task: draw.choices(WORDS, k=30) for task in range(tasks)}
    rows = []
    for number in range(count):
        task, replies = draw.randrange(tasks), []
        for _ in range(draw.randrange(1, 5)):
            words = list(base[task]) if draw.random() < 0.6 else draw.choices(WORDS, k=30)
            for _ in range(draw.choice([0, 0, 1])):
                words[draw.randrange(30)] = draw.choice(WORDS)
            replies.append(" ".join(words) + " é" * draw.choice([0, 0, 0, 400]))
        chats = [
            [{"role": "user", "content": f"question {task}"}, {"role": "assistant", "content": text}]
            for text in replies
        ]
        scores = [None if draw.random() < 0.05 else draw.randrange(5) / 4 for _ in replies]
        row = {"item_id": f"t{task}", "messages": chats, "scores": scores, "env": f"e{number % 3}"}
        rows.append(json.dumps(row, ensure_ascii=False) + ("\n\n" if draw.random() < 0.1 else "\n"))
    path.write_text("".join(rows))
    return path
