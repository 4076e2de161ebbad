"""In the place of `atropos_skyrl_main`, without SkyRL: it plays the episodes, writes numbers and exports as that does.

What the run folder looks like to it is real: the rows, the code on PYTHONPATH, the settings, the resumed step. The file
SCRIPT may say "die 2" (step).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import atropos_chat  # noqa: F401 - it is there
import pyarrow.parquet as pq
from atropos_episodes import Engine

settings = {key: json.loads(value) for key, _, value in (word.partition("=") for word in sys.argv[1:])}
rows, val = (pq.read_table(settings[f"data.{kind}_data"][0]).to_pylist() for kind in ("train", "val"))
exports = Path(settings["trainer.export_path"])
folder = exports.parent
assert json.loads((folder / "atropos.json").read_text()) == {"env_workers": 8}
engine = Engine.of(folder)
size, n = settings["trainer.train_batch_size"], settings["generator.n_samples_per_prompt"]
every = settings["trainer.hf_save_interval"]
script = Path(os.environ["SCRIPT"])
what, at = script.read_text().split() if script.exists() else ("", "0")
saved = Path(settings["trainer.ckpt_path"]) / "latest_ckpt_global_step.txt"
saved.parent.mkdir(exist_ok=True)
begin = int(saved.read_text()) if saved.exists() else 0
steps = len(rows) // size


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


def export(step: int) -> None:
    weights = exports / f"global_step_{step}" / "policy"
    weights.mkdir(parents=True)
    (weights / "model.safetensors").write_text(str(step))
    (exports / "latest").write_text(str(step))


with open(os.environ["ATROPOS_SKYRL_METRICS"], "a", buffering=1) as log:

    def write(step: int, data: dict[str, float | None]) -> None:
        log.write(json.dumps({"step": step, "data": data}) + "\n")

    if settings["trainer.eval_before_train"]:
        play(val, 1, begin)
        write(begin, {"eval/all/avg_score": 0.0})
    for step in range(begin + 1, steps + 1):
        rewards = play(rows[(step - 1) * size : step * size], n, step)
        data = {"policy/policy_loss": 1 / step, "reward/avg_raw_reward": sum(rewards) / len(rewards)}
        data |= {"trainer/epoch": 0, "trainer/global_step": step, "timing/generate": 2.0}
        if step == steps or step % every == 0:
            saved.write_text(str(step))
            if what == "die" and at == str(step):  # between SkyRL's own checkpoint and the export
                script.unlink()
                os._exit(7)
            export(step)
        if settings["trainer.eval_interval"] > 0 and step == steps:
            play(val, 1, step)
            data["eval/all/avg_score"] = 0.0
        write(step, data)
if begin == steps:
    export(steps)
engine.close()
