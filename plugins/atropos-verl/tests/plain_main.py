"""In the place of verl's main, without verl: it plays the episodes, and writes metrics and checkpoints as verl does.

What the run folder looks like to verl is real: the rows, the code on PYTHONPATH, the settings, the resumed step. The
file SCRIPT may say "die 2" or "sleep 2" (step).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from atropos_episodes import Engine

settings = {key: value.strip("'") for key, _, value in (word.partition("=") for word in sys.argv[1:])}
rows = pq.read_table(settings["data.train_files"]).to_pylist()
val = pq.read_table(settings["data.val_files"]).to_pylist()
(loop,) = json.loads(Path(settings["actor_rollout_ref.rollout.agent.agent_loop_config_path"]).read_text())
engine = Engine.of(loop["folder"])
root = Path(settings["trainer.default_local_dir"])
size, n = int(settings["data.train_batch_size"]), int(settings["actor_rollout_ref.rollout.n"])
steps, every = int(settings["trainer.total_training_steps"]), int(settings["trainer.save_freq"])
script = Path(os.environ["SCRIPT"])
what, at = script.read_text().split() if script.exists() else ("", "0")
latest = root / "latest_checkpointed_iteration.txt"
begin = int(latest.read_text()) if latest.exists() else 0


def play(chosen: list[dict[str, Any]], times: int, step: int) -> list[float]:
    episodes = [engine.begin(json.loads(row["atropos"]), step=step) for row in chosen for _ in range(times)]
    rewards = []
    for number, episode in enumerate(episodes):
        said = episode.next.result(300)
        while "ask" in said:
            reply = {"text": str(number % 10), "ids": [number], "logprobs": [-0.5], "prompt_ids": [1, 2]}
            said = episode.reply(**reply).result(300)
        rewards.append(said["done"]["reward"])
    return rewards


with open(os.environ["VERL_FILE_LOGGER_PATH"], "w", buffering=1) as log:

    def write(step: int, data: dict[str, float]) -> None:
        log.write(json.dumps({"step": step, "data": data}) + "\n")

    if settings["trainer.val_before_train"] == "True":
        play(val, 1, begin)
        write(begin, {"val-core/x/reward/mean@1": 0.0})
    for step in range(begin + 1, steps + 1):
        if at == str(step):
            script.unlink()
            (os._exit if what == "die" else time.sleep)(7 if what == "die" else 600)
        rewards = play(rows[(step - 1) * size : step * size], n, step)
        data = {"actor/pg_loss": 1 / step, "critic/score/mean": sum(rewards) / len(rewards), "training/epoch": 0}
        if step == steps or step % every == 0:
            weights = root / f"global_step_{step}" / "actor" / "huggingface"
            weights.mkdir(parents=True)
            (weights / "model.safetensors").write_text(str(step))
            latest.write_text(str(step))
        if int(settings["trainer.test_freq"]) > 0 and step == steps:
            play(val, 1, step)
            data["val-core/x/reward/mean@1"] = 0.0
        write(step, data)
engine.close()
