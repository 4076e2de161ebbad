"""The weights that are trained, on the server: steps, samples, checkpoints.

`refresh` makes the sampler that of the weights as they are. It is called between the optimiser's step and the next
rollouts: servers keep one copy of an adapter, and an older one must not be asked for in between.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atropos_cli.sdk import AtroposError

from .config import TinkerConfig
from .rows import Datum
from .service import Service


@dataclass(frozen=True, slots=True)
class Saved:
    """Where the server keeps a checkpoint. state: weights and optimiser; sampler: the adapter alone."""

    state: str
    sampler: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one step. logprobs: by datum, under the weights before the step. metrics: what the server says."""

    logprobs: list[list[float]]
    metrics: Mapping[str, float]


class Policy:
    """One adapter that is trained."""

    def __init__(self, service: Service, client: Any, base_model: str) -> None:
        self.service = service
        self.base_model = base_model
        self.sampler: Any = None
        self._client = client
        self._stale = True

    @classmethod
    def create(cls, service: Service, base_model: str, *, rank: int, seed: int) -> Policy:
        """A new adapter. The output layer has none: transformers cannot merge one where it shares the embedding."""
        client = service.wait(
            lambda: service.client.create_lora_training_client(
                base_model=base_model, rank=rank, seed=seed % 2**31, train_unembed=False
            )
        )
        return cls(service, client, base_model)

    @classmethod
    def restore(cls, service: Service, base_model: str, state: str) -> Policy:
        """The adapter of a checkpoint, with its optimiser."""
        client = service.wait(lambda: service.client.create_training_client_from_state_with_optimizer(state))
        return cls(service, client, base_model)

    def refresh(self) -> None:
        """Sample from the weights as they are."""
        if self._stale:
            self.sampler = self.service.wait(self._client.save_weights_and_get_sampling_client)
            self._stale = False

    def step(self, data: Sequence[Datum], loss: str, numbers: dict[str, float] | None, adam: Any) -> Outcome:
        """One optimiser step over all data."""
        items = [datum.as_tinker() for datum in data]

        def work() -> tuple[Any, Any]:
            # Both are sent before either is awaited: the server does one after the other without a pause.
            passed = self._client.forward_backward(items, loss, loss_fn_config=numbers)
            stepped = self._client.optim_step(adam)
            return passed.result(), stepped.result()

        passed, stepped = self.service.wait(work)
        self._stale = True
        logprobs = [[float(value) for value in one["logprobs"].tolist()] for one in passed.loss_fn_outputs]
        return Outcome(logprobs, {**passed.metrics, **(stepped.metrics or {})})

    def save(self, name: str) -> Saved:
        """Keep weights and optimiser on the server under this name."""
        state = self.service.wait(lambda: self._client.save_state(name).result())
        sampler = self.service.wait(lambda: self._client.save_weights_for_sampler(name).result())
        return Saved(_path(state.path, "weights"), _path(sampler.path, "sampler_weights"))

    def forget(self, paths: Sequence[str]) -> None:
        """Have the server remove checkpoints. One that cannot keeps them."""
        if not paths:
            return
        rest = self.service.client.create_rest_client()
        for path in paths:
            with contextlib.suppress(AtroposError):
                self.service.wait(functools.partial(_delete, rest, path))


def _path(path: str, kind: str) -> str:
    """tinker://RUN/KIND/NAME, which the client asks for; SkyRL leaves out the kind."""
    run, _, name = str(path).removeprefix("tinker://").partition("/")
    return str(path) if "/" in name else f"tinker://{run}/{kind}/{name}"


def _delete(rest: Any, path: str) -> None:
    rest.delete_checkpoint_from_tinker_path(path).result()


def adam_params(config: TinkerConfig, learning_rate: float) -> Any:
    """The optimiser's numbers for one step."""
    import tinker

    return tinker.AdamParams(
        learning_rate=learning_rate,
        beta1=config.adam_beta1,
        beta2=config.adam_beta2,
        eps=config.adam_epsilon,
        weight_decay=config.weight_decay,
        grad_clip_norm=config.max_grad_norm,
    )
