from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from pydantic import BaseModel

from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from atroposlib.envs.server_handling.server_manager import ServerManager

__all__ = ["APIServerConfig", "BaseEnv", "BaseEnvConfig", "ScoredDataGroup"]
ScoredDataGroup = dict


class AutoTokenizer:
    @classmethod
    def from_pretrained(cls, name: str) -> Any:
        raise OSError(f"{name} is not a local folder")


class BaseEnvConfig(BaseModel):
    group_size: int = 4
    max_token_length: int = 2048
    tokenizer_name: str = "bytes"
    use_wandb: bool = True
    include_messages: bool = False
    ensure_scores_are_not_same: bool = True
    data_path_to_save_groups: str | None = None
    data_dir_to_save_evals: str | None = None


class BaseEnv(ABC):
    name: str | None = None
    env_config_cls: Any = BaseEnvConfig
    server_cls: Any = None

    def __init__(self, config: Any, server_configs: Any, slurm: bool = False, testing: bool = False) -> None:
        self.config = config
        self.server = ServerManager(server_configs, self.server_cls)
        self.tokenizer = AutoTokenizer.from_pretrained(config.tokenizer_name)

    async def collect_trajectory(self, item: Any) -> Any:
        raise AssertionError("a subclass has it")

    async def collect_trajectories(self, item: Any) -> Any:
        made = await asyncio.gather(*(self.collect_trajectory(item) for _ in range(self.config.group_size)))
        keys = ("tokens", "masks", "scores", "messages")
        return {key: [one[key] for one, _ in made] for key in keys} | {"overrides": [], "advantages": []}, []

    async def postprocess_histories(self, trajectories: Any) -> Any:
        return trajectories

    async def wandb_log(self, wandb_metrics: Any = None) -> None: ...

    async def evaluate_log(self, metrics: Any, **options: Any) -> None: ...

    @abstractmethod
    async def get_next_item(self) -> Any: ...

    @abstractmethod
    async def evaluate(self, *args: Any, **kwargs: Any) -> Any: ...

    async def setup(self) -> None:
        raise AssertionError("a subclass has it")
