"""In the place of `python -m atropos_skyrl_main`, on a CPU: all is SkyRL's but servers and workers.

Its classes read and validate the settings, its driver runs as a task of a real Ray, its trainer makes batches and
advantages, evaluates, logs and saves. Replies come from `reply_rule`, in the folder RULE. What the workers would be
given is written to the file CHECKED.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import types
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), os.environ["RULE"]]
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ["RULE"], os.environ["PYTHONPATH"]])

import reply_rule  # noqa: E402
import torch  # noqa: E402
from atropos_skyrl_main import Experiment, Ordered, main  # noqa: E402


class Servers:
    """What SkyRL's client of its servers gives."""

    model_name = "policy"

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.open: set[str] = set()

    async def generate(self, input_batch: Any, model: str | None = None) -> Any:
        assert model
        (prompt,), (session,) = input_batch["prompt_token_ids"], input_batch["session_ids"]
        self.open.add(session)
        text = reply_rule.reply(self.tokenizer.decode(prompt, skip_special_tokens=False))
        ids = [*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id]
        ids = ids[: input_batch["sampling_params"]["max_tokens"]]
        return {
            "responses": [text], "response_ids": [ids], "stop_reasons": ["stop"],
            "response_logprobs": [reply_rule.logprobs(ids)],
        }  # fmt: skip

    async def finish_session(self, session_id: str) -> None:
        self.open.remove(session_id)

    async def sleep(self, *args: Any, **kwargs: Any) -> None: ...


class Workers:
    """In the place of SkyRL's WorkerDispatch: takes batches, gives made-up numbers, saves the model as it was."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.batches: list[Any] = []

    def stage_data(self, model: str, data: Any, boundaries: list[tuple[int, int]]) -> list[Any]:
        return [data[start:end] for start, end in boundaries]

    def forward_from_staged(self, model: str, data: Any) -> Any:
        length = data["sequences"].shape[1] if "response_mask" not in data else data["response_mask"].shape[1]
        length = data.metadata["response_length"] if data.metadata else length
        rows = [{"logprobs": [-0.5] * length} for _ in range(len(data["sequences"]))]
        return types.SimpleNamespace(loss_fn_outputs=rows)

    def forward_backward_from_staged(self, model: str, data: Any) -> Any:
        self.batches.append(data)
        return types.SimpleNamespace(metrics={"policy_loss": 0.25, "policy_lr": 1e-6, "policy_entropy": 1.5})

    def optim_step(self, model: str) -> float:
        return 0.5

    def save_checkpoint(self, model: str, folder: str, tokenizer: Any) -> None:
        Path(folder).mkdir(parents=True)
        torch.save({}, Path(folder) / "model_world_size_1_rank_0.pt")

    def load_checkpoint(self, model: str, folder: str, **what: bool) -> None:
        assert (Path(folder) / "model_world_size_1_rank_0.pt").is_file()

    def save_hf_model(self, model: str, folder: str, tokenizer: Any) -> None:
        shutil.copytree(self.trainer.cfg.trainer.policy.model.path, folder)

    async def save_weights_for_sampler(self) -> None: ...

    def get_lcm_dp_size(self) -> int:
        return 1

    def get_node_ids(self) -> list[str]:
        return []

    def get_timing_metrics(self) -> dict[str, float]:
        return {}

    def init_weight_sync_state(self, client: Any) -> None: ...

    def empty_cache(self, model: str | None = None) -> None: ...

    def finalize_pending_saves(self, model: str) -> None: ...


class OnCpu(Ordered):
    """Keeps what each step was made of."""

    found: list[Any]

    def build_models(self, *workers: Any) -> None:
        self.dispatch, self.found = Workers(self), []

    async def generate(self, input_batch: Any) -> Any:
        output = await super().generate(input_batch)
        assert not self.inference_engine_client.open
        places = {
            name.instance_id: json.loads(extra["atropos"])["place"]
            for name, extra in zip(input_batch["trajectory_ids"], input_batch["env_extras"], strict=True)
        }
        keys = ("prompt_token_ids", "response_ids", "loss_masks", "rewards", "rollout_logprobs", "is_last_step")
        step = {key: list(output[key]) for key in keys}
        step["places"] = [places[name.instance_id] for name in output["trajectory_ids"]]
        self.found.append(step)
        return output

    def train_critic_and_policy(self, data: Any) -> Any:
        die = Path(os.environ["CHECKED"]).with_name("die")
        if die.exists() and die.read_text() == str(self.global_step):
            die.unlink()
            raise MemoryError("CUDA out of memory")
        status = super().train_critic_and_policy(data)
        batch = self.dispatch.batches[-1]
        masks = batch["loss_mask"]
        self.found[-1] |= {
            "sequences": [
                row[seen.bool()].tolist() for row, seen in zip(batch["sequences"], batch["attention_mask"], strict=True)
            ],
            "trained": [int(mask.sum()) for mask in masks],
            "advantages": [float(row.abs().max()) for row in data["advantages"]],
        }
        Path(os.environ["CHECKED"]).write_text(json.dumps(self.found))
        return status


class CpuExperiment(Experiment):
    """Without GPUs."""

    def _setup_trainer(self) -> Any:
        # The workers with the weights import kernels that exist for GPUs alone; none is started here.
        workers = types.ModuleType("fsdp_worker")
        for name in ("CriticWorker", "PolicyWorker", "RefWorker"):
            setattr(workers, name, None)
        sys.modules["skyrl.backends.skyrl_train.workers.fsdp.fsdp_worker"] = workers
        return super()._setup_trainer()

    def get_colocate_pg(self, *args: Any, **kwargs: Any) -> None:
        return None

    def get_inference_client(self) -> Any:
        return Servers(self.tokenizer)

    def get_trainer(self, **given: Any) -> Any:
        given["cfg"].trainer.enable_ray_gpu_monitor = False
        given["cfg"].generator.inference_engine.enable_ray_prometheus_stats = False
        return OnCpu(**given)


if __name__ == "__main__":
    import skyrl_main  # Ray's workers find by name what they are sent

    main(sys.argv[1:], skyrl_main.CpuExperiment)
