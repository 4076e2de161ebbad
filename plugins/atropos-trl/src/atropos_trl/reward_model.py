"""The reward `reward-model`: the number that a trained reward model gives a conversation.

    atropos train reward --data pairs.jsonl --model smollm2 --output runs/judge
    atropos score runs/mine --reward reward-model --reward-model.model runs/judge/model

The conversation is rendered as `train reward` renders its rows, so a text of the training data gets the number it had
there.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from atropos_cli.sdk import Config, ConfigError, DataError, Field, JsonDict, Reward, Rollout, Task
from atropos_cli.sdk.models import find_model, template_turn
from atropos_cli.sdk.training import render_dialogue

from .common import models
from .common.machine import pick_device

_MOST_ROWS = 16
"""Computed at a time."""


class RewardModelConfig(Config):
    """Options of the reward `reward-model`."""

    model: str = Field(default="", description="The reward model: what `train reward` wrote, or a classifier's folder.")


class RewardModel(Reward):
    """See the module. Without a configuration it only says which options it has."""

    Config = RewardModelConfig

    def __init__(self, *, name: str = "reward-model", weight: float = 1.0, model: str = "") -> None:
        super().__init__(self.score, name=name, weight=weight)
        self.summary = "The number that a trained reward model gives the conversation."
        self.model = model
        self._loaded: tuple[Any, Any] | None = None
        self._lock = threading.Lock()
        self._waiting: list[_Row] = []

    def configured(self, config: BaseModel) -> Reward:
        """See Reward. Raises ConfigError for a model that gives no number per text."""
        assert isinstance(config, RewardModelConfig)
        if not config.model:
            raise ConfigError("--reward reward-model needs a model", hint=f"--{self.name}.model runs/reward/model")
        if not models.is_reward_model(config.model):
            raise ConfigError(
                f"{config.model!r} is not a reward model: it has no head with one number per text",
                hint="atropos train reward trains one; it is in the run's folder model/",
            )
        return RewardModel(name=self.name, weight=self.weight, model=config.model)

    def describe(self) -> JsonDict:
        """The model, and a digest of its weights' sizes and times: other weights are another reward."""
        folder = Path(find_model(self.model).location)
        files = sorted(folder.glob("*.safetensors"))
        facts = [f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files]
        return {"model": self.model, "weights": hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]}

    async def open(self) -> None:
        """Load the model, so that a damaged one ends the run before its first rollout."""
        await asyncio.to_thread(self._load)

    async def score(self, task: Task, rollout: Rollout) -> float:
        """The model's number for the whole conversation. Raises DataError where it is longer than the context."""
        row = _Row([template_turn(message) for message in rollout.messages], task.info.get("tools"))
        self._waiting.append(row)
        await asyncio.to_thread(self._settle, row)
        if row.error is not None:
            raise row.error
        assert row.value is not None
        return row.value

    def _settle(self, row: _Row) -> None:
        """Score the waiting rows together, unless another thread has scored this row by now."""
        with self._lock:
            while row.value is None and row.error is None:
                batch = self._waiting[:_MOST_ROWS]
                del self._waiting[: len(batch)]
                self._try(batch)

    def _try(self, batch: Sequence[_Row]) -> None:
        """Score rows; where that fails, each alone, since one of them must not take the others with it."""
        try:
            self._score(batch)
        except Exception as error:  # noqa: BLE001 - the failure of this rollout
            if len(batch) == 1:
                batch[0].error = error
                return
            for row in batch:
                if row.error is None:
                    self._try([row])

    def _score(self, batch: Sequence[_Row]) -> None:
        import torch

        model, tokenizer = self._load()
        rows = []
        for row in batch:
            try:
                row.ids = _ids(row, tokenizer, model)
                rows.append(row)
            except DataError as error:
                row.error = error
        if not rows:
            return
        longest = max(len(row.ids) for row in rows)
        pad = 0  # any token does: padding on the right is not looked at
        ids = torch.tensor([row.ids + [pad] * (longest - len(row.ids)) for row in rows], device=model.device)
        mask = torch.tensor([[1] * len(row.ids) + [0] * (longest - len(row.ids)) for row in rows], device=model.device)
        with torch.no_grad():
            hidden = model.base_model(input_ids=ids, attention_mask=mask).last_hidden_state
            last = hidden[torch.arange(len(rows)), mask.sum(1) - 1]
            values = model.score(last).float()[:, 0].tolist()
        for row, value in zip(rows, values, strict=True):
            row.value = value

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is None:
            tokenizer = models.load_tokenizer(self.model)
            model = models.load_reward_model(self.model).eval().to(pick_device())
            models.check_pair(model, tokenizer, self.model)
            if getattr(model, "score", None) is None:
                raise ConfigError(
                    f"{self.model!r} is a {type(model).__name__}: its number is not one of the last token's",
                    hint="a reward model made of a causal language model, as `atropos train reward` makes one",
                )
            self._loaded = model, tokenizer
        return self._loaded


@dataclass(eq=False)
class _Row:
    """A conversation that is waiting for its number."""

    messages: list[JsonDict]
    tools: Any
    ids: list[int] = field(default_factory=list)
    value: float | None = None
    error: Exception | None = None


def _ids(row: _Row, tokenizer: Any, model: Any) -> list[int]:
    """The tokens of the conversation, as TRL makes them of a row. Raises DataError when there are too many."""
    if tokenizer.chat_template is None:
        text = "".join(str(message["content"]) for message in row.messages)
        ids = list(tokenizer(text + tokenizer.eos_token)["input_ids"])
    else:
        try:
            text = render_dialogue(row.messages, tokenizer, tools=row.tools)
        except ValueError as error:
            raise DataError(str(error)) from error
        ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if isinstance(most, int) and len(ids) > most:
        raise DataError(f"the conversation has {len(ids)} tokens, the reward model's context {most}")
    return ids


reward_model = RewardModel()
