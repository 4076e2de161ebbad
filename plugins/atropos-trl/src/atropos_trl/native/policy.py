"""The model that is trained, on one process or several: log-probabilities, gradients, optimiser steps, state."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk.training import TrainPlan

from . import shards
from .config import NativeConfig
from .crew import Crew
from .precision import Format, Scale, half
from .rows import Row, pack
from .spread import spread

if TYPE_CHECKING:
    import torch

NOTHING = Row(ids=(0, 0), trained=(False, False), logprobs=None, owner=(-1, -1))
"""The row of a process that has none left, while others with their parts of the weights still compute."""


@dataclass(frozen=True)
class Place:
    """Where and how a policy is computed."""

    crew: Crew
    device: Any
    number: Format
    split: bool = False
    offload: bool = False


class Policy:
    """model: with the weights it begins with. reference: a model of its own, None where there is none or with LoRA."""

    def __init__(self, model: Any, reference: Any, place: Place, config: NativeConfig, plan: TrainPlan) -> None:
        import torch

        self.place, self._config = place, config
        self.scale = Scale(place.number)
        self.half = half(place.number)
        self.sampled = self.model = model
        self._copy: Any = None
        self._stale = False
        if place.split:
            self._copy = self._sampling_copy(model, plan)
            options = {"processes": place.crew.size, "half": self.half, "offload": place.offload}
            self._scorer = shards.split(model, place.device, **options)
            self._reference = None if reference is None else shards.split(reference.eval(), place.device, **options)
            if self._copy is not None:
                self.sampled = self._copy
        else:
            self.sampled = self.model = model if config.lora_4bit else model.to(place.device)
            self._scorer = shards.scorer(self.model)
            self._reference = None if reference is None else shards.scorer(reference.to(place.device).eval())
        self.trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.rate = config.learning_rate or (1e-5 if config.lora_r else 1e-6)
        self.optimizer = torch.optim.AdamW(self.trained, lr=self.rate, weight_decay=config.weight_decay)

    # Sampling ---------------------------------------------------------------------------------------------------------

    def _sampling_copy(self, model: Any, plan: TrainPlan) -> Any:
        """A whole model to sample with, in each process; for servers in the first one only, which saves it."""
        sources = [plan.rollouts, *(suite.plan for suite in plan.suites)]
        backends = [source.backend for source in sources if source is not None]
        if not backends:
            return None
        served = all("base_url" in backend.config for backend in backends)
        if served and not self.place.crew.first:
            return None
        made = copy.deepcopy(model).requires_grad_(False)
        if served:
            return made
        return made.to(self.place.device) if self.half is None else made.to(self.place.device, self.half)

    def refresh(self) -> None:
        """Before rollouts: the copy that is sampled from gets the weights as they are. A collective operation."""
        if not (self.place.split and self._stale):
            return
        import torch

        self._stale = False
        mine = dict(self._copy.named_parameters()) if self._copy is not None else {}
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if parameter.requires_grad:
                    value = shards.whole(parameter.detach().to(self.place.device))
                    if name in mine:
                        mine[name].copy_(value)

    # Computing --------------------------------------------------------------------------------------------------------

    def autocast(self) -> Any:
        import torch

        kind = self.half or torch.bfloat16
        return torch.autocast(self.place.device.type, kind, enabled=self.half is not None)

    def parts(self, rows: Sequence[Row], most: int) -> list[list[list[int]]]:
        """The rows of each process, in micro-batches."""
        return spread([len(row.ids) for row in rows], most, self.place.crew.size)

    def batches(self, rows: Sequence[Row], parts: Sequence[Sequence[list[int]]]) -> Iterator[list[int]]:
        """The micro-batches of this process; empty ones at the end where others have more and need its weights."""
        mine = parts[self.place.crew.rank]
        yield from mine
        if self.place.split:
            yield from ([] for _ in range(max(map(len, parts)) - len(mine)))

    def packed(self, rows: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See pack; something to compute where there are no rows."""
        return pack(rows or [NOTHING], self.place.device)

    def logps(self, batch: Any, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
        """token_logps of a packed batch."""
        with self.autocast():
            found: tuple[torch.Tensor, torch.Tensor] = self._scorer(*batch, temperature)
        return found

    def score(self, rows: Sequence[Row], most: int, temperature: float, *, reference: bool) -> list[torch.Tensor]:
        """Log-probabilities of all rows' trained tokens under the weights as they are, or under the reference's."""
        import torch

        adapters: Any = contextlib.nullcontext()
        used = self._scorer
        if reference and self._reference is not None:
            used = self._reference
        elif reference:
            adapters = self.model.disable_adapter()
        mine: dict[int, Any] = {}
        training = used.training
        with torch.no_grad(), adapters, self.autocast():
            used.eval()
            for batch in self.batches(rows, self.parts(rows, most)):
                logp, _ = used(*self.packed([rows[i] for i in batch]), temperature)
                for place, index in enumerate(batch):
                    mine[index] = logp[place, : len(rows[index].ids)].cpu()
            used.train(training)
        self._close(used)
        found: dict[int, Any] = {}
        for part in self.place.crew.gather(mine):
            found |= part
        return [found[index] for index in range(len(rows))]

    def _close(self, used: Any) -> None:
        """Without a backward pass gathered weights stay gathered, and would miss the optimiser's step."""
        if self.place.split:
            used.reshard()

    def begin(self) -> None:
        """No gradient."""
        self.optimizer.zero_grad(set_to_none=False)

    def backward(self, loss: torch.Tensor) -> None:
        (loss * self.scale.value).backward()

    def norm(self) -> float:
        """Add the processes' gradients up, undo the loss's scale, clip. Returns the norm before clipping."""
        import torch

        if not self.place.split:
            self.place.crew.add_gradients(self.trained)
        if self.scale.value != 1.0:
            gradients = [parameter.grad for parameter in self.trained if parameter.grad is not None]
            for gradient in gradients:
                gradient.mul_(1 / self.scale.value)
        total: Any = torch.nn.utils.clip_grad_norm_(self.trained, self._config.max_grad_norm)
        return float(shards.whole(total))

    def step(self, rate: float) -> None:
        """One of the optimiser."""
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()
        self._stale = True

    def finite(self) -> bool:
        """Are all trained weights finite numbers? A collective operation."""
        return not self.place.crew.any(not shards.finite(self.trained))

    # State ------------------------------------------------------------------------------------------------------------

    def weights(self) -> dict[str, Any] | None:
        """All weights on the CPU of the first process, where they are split; None where they are in the model.

        A collective operation. With LoRA the adapters alone.
        """
        if not self.place.split:
            return None
        found = {}
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad or not self._config.lora_r:
                value = shards.whole(parameter.detach().to(self.place.device))
                if self.place.crew.first:
                    found[name] = value.cpu()
        return found

    def optimizer_state(self) -> dict[str, Any]:
        """The optimiser's state as one process has it; empty in others than the first. A collective operation."""
        state = self.optimizer.state_dict()
        if not self.place.split:
            return state if self.place.crew.first else {}
        found: dict[int, dict[str, Any]] = {}
        for index, entry in state["state"].items():
            found[index] = {}
            for name, value in entry.items():
                one = shards.whole(value.to(self.place.device)) if shards.is_split(value) else value
                if self.place.crew.first:
                    found[index][name] = one.cpu()
        return {**state, "state": found} if self.place.crew.first else {}

    def load_optimizer(self, state: dict[str, Any]) -> None:
        """From any number of processes, split or not, to these."""
        import torch

        if not self.place.split:
            self.optimizer.load_state_dict(state)
        for index, parameter in enumerate(self.trained):
            if index in state["state"]:
                # As after a step: one without a single advantage moves these weights by the moments they have.
                parameter.grad = torch.zeros_like(parameter)
                if self.place.split:
                    self._take_state(parameter, state["state"][index])

    def _take_state(self, parameter: Any, state: dict[str, Any]) -> None:
        import torch

        mine = self.optimizer.state[parameter] = {}
        for name, value in state.items():
            if value.dim():
                mine[name] = torch.zeros_like(parameter)
                shards.take_part(mine[name], value)
            else:
                mine[name] = value
