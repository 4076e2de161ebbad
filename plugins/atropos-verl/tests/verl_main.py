"""In the place of `python -m verl.trainer.main_ppo`, on a CPU: all is verl's but the servers and the optimiser.

Hydra composes the settings and verl validates them; verl's data set, worker of agent loops, tokens, padding and logger
are used. Replies come from `reply_rule`, in the folder RULE, with made-up log-probabilities.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_module
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.utils.tracking import Tracking
from verl.workers.rollout.replica import TokenOutput

sys.path.append(os.environ["RULE"])
import reply_rule

CHECKED = os.environ["CHECKED"]
SLOW = float(os.environ.get("SLOW", "0"))


class Servers:
    """What `generate` of verl's client gives."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.asked: dict[str, list[Any]] = {}

    async def generate(self, *, request_id: str, prompt_ids: list[int], sampling_params: Any, **more: Any) -> Any:
        await asyncio.sleep(0)
        turns = self.asked.setdefault(request_id, [])
        text = reply_rule.reply(self.tokenizer.decode(prompt_ids, skip_special_tokens=False))
        ids = [*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id]
        ids = ids[: sampling_params["max_tokens"]]
        logprobs = reply_rule.logprobs(ids)
        turns.append((list(prompt_ids), ids, logprobs))
        return TokenOutput(token_ids=ids, log_probs=logprobs, stop_reason="completed")


def check(out: DataProto, servers: Servers, length: int) -> dict[str, Any]:
    """Each row has the sampled tokens, and no others, under its mask, with their log-probabilities."""
    batch = out.batch
    turned, rows = [], []
    rewards = batch["rm_scores"].sum(dim=1).tolist()
    for row in range(len(batch)):
        mask, ids = batch["response_mask"][row].bool(), batch["responses"][row]
        whole = batch["input_ids"][row][batch["attention_mask"][row].bool()].tolist()
        sampled = ids[mask].tolist()
        # The requests of this row: each was a beginning of the final sequence, and its reply follows.
        found = [
            turns
            for turns in servers.asked.values()
            if [i for turn in turns for i in turn[1]] == sampled
            and all(whole[: len(prompt) + len(reply)] == prompt + reply for prompt, reply, _ in turns)
        ]
        assert found, f"row {row}: no episode's requests and replies are in it"
        given = batch["rollout_log_probs"][row][mask].tolist()
        assert np.allclose(given, [v for turn in found[0] for v in turn[2]]), "log-probabilities"
        assert float(batch["rollout_log_probs"][row][~mask].abs().sum()) == 0.0
        assert batch["responses"].shape[1] == length
        turned.append(len(found[0]))
        last = batch["attention_mask"][row].bool()[-length:]
        masks, values = mask[last].int().tolist(), batch["rollout_log_probs"][row][last].tolist()
        before = [0] * (len(whole) - len(masks))
        rows.append((whole, [*before, *masks], [*map(float, before), *values], rewards[row]))
    return {"rows": rows, "turns": turned}


def rows_of(data: Any, places: range, n: int, step: int) -> DataProto:
    rows = [data[place % len(data)] for place in places for _ in range(n)]
    batch = DataProto.from_single_dict(collate_fn(rows))
    batch.non_tensor_batch["global_steps"] = np.array([step] * len(rows), dtype=object)
    return batch


def main(overrides: list[str]) -> None:
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=overrides)
    validate_config(config, need_reference_policy(config), need_critic(config))
    worker = AgentLoopWorker(config, llm_client=None)
    servers = worker.llm_client = Servers(worker.tokenizer)
    train, val = (
        RLHFDataset([path], worker.tokenizer, config.data) for path in (config.data.train_files, config.data.val_files)
    )
    root = Path(config.trainer.default_local_dir)
    latest = root / "latest_checkpointed_iteration.txt"
    begin = int(latest.read_text()) if latest.exists() else 0
    logger = Tracking(config.trainer.project_name, config.trainer.experiment_name, ["file"], None)
    size, n, length = config.data.train_batch_size, config.actor_rollout_ref.rollout.n, config.data.max_response_length
    found = []

    def validate(step: int) -> dict[str, float]:
        batch = rows_of(val, range(len(val)), config.actor_rollout_ref.rollout.val_kwargs.n, step)
        batch.meta_info["validate"] = True
        out = asyncio.run(played(worker, batch))
        return {"val-core/x/reward/mean@1": float(out.batch["rm_scores"].sum(dim=1).mean())}

    if config.trainer.val_before_train:
        logger.log(validate(begin), step=begin)
    for step in range(begin + 1, config.trainer.total_training_steps + 1):
        out = asyncio.run(played(worker, rows_of(train, range((step - 1) * size, step * size), n, step)))
        found.append({"step": step, **check(out, servers, length)})
        Path(CHECKED).write_text(json.dumps(found))
        time.sleep(SLOW)
        score = float(out.batch["rm_scores"].sum(dim=1).mean())
        metrics: dict[str, Any] = {"actor/pg_loss": 1 / step, "critic/score/mean": score, "perf/odd": np.float32(3)}
        last = step == config.trainer.total_training_steps
        if last or step % config.trainer.save_freq == 0:
            save(config, root, step)
        if config.trainer.test_freq > 0 and (last or step % config.trainer.test_freq == 0):
            metrics |= validate(step)
        logger.log(metrics, step=step)


async def played(worker: Any, batch: DataProto) -> DataProto:
    worker.loop = asyncio.get_running_loop()
    return await worker.generate_sequences(batch)


def save(config: Any, root: Path, step: int) -> None:
    """As verl's FSDP checkpoints are laid out."""
    actor = root / f"global_step_{step}" / "actor"
    shutil.copytree(config.actor_rollout_ref.model.path, actor / "huggingface", dirs_exist_ok=True)
    torch.save({}, actor / "model_world_size_1_rank_0.pt")
    (root / "latest_checkpointed_iteration.txt").write_text(str(step))


if __name__ == "__main__":
    main(sys.argv[1:])
