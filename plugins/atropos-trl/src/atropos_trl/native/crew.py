"""The processes of one run: they agree, share work out, and add numbers up. Alone, every method is a plain call.

Each method is a collective operation: all processes call the same ones in the same order. An error that one of them
has reached inside is raised by all, so that none waits for another that has ended.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from atropos_cli.sdk import AtroposError

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
R = TypeVar("R")

WAIT = datetime.timedelta(days=1)
"""How long a process waits for another: for slow rollouts, or for the first one's evaluation."""
_BUCKET = 1 << 25
"""Numbers of gradient that are added up at a time."""


@dataclass(frozen=True)
class Crew:
    """group: for small things, on the CPU; tensors go where they are."""

    rank: int = 0
    size: int = 1
    group: Any = None

    @classmethod
    def join(cls, device: torch.device) -> Crew:
        """Meet the others, as RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls()
        import torch
        from torch import distributed

        if device.type == "cuda":
            torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        distributed.init_process_group(backend, timeout=WAIT)
        return cls(distributed.get_rank(), size, distributed.new_group(backend="gloo", timeout=WAIT))

    def leave(self) -> None:
        """Let go of the others."""
        if self.size > 1:
            from torch import distributed

            distributed.destroy_process_group()

    @property
    def first(self) -> bool:
        """Is this the process that writes?"""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """The value of each process, in their order."""
        if self.size == 1:
            return [value]
        from torch import distributed

        found: list[Any] = [None] * self.size
        distributed.all_gather_object(found, value, group=self.group)
        return found

    def any(self, flag: bool) -> bool:
        """Is it so for any of them?"""
        return any(self.gather(flag)) if self.size > 1 else flag

    def once(self, work: Callable[[], R]) -> R:
        """Done by the first process; all get the result, or raise its AtroposError."""
        if self.size == 1:
            return work()
        from torch import distributed

        told: list[Any] = [_tried(work) if self.first else None]
        distributed.broadcast_object_list(told, src=0, group=self.group)
        result: R = _untried(told[0])
        return result

    def share(self, items: Sequence[T], work: Callable[[Sequence[T]], Sequence[R]]) -> list[R]:
        """Each process works on its part of the items; all get all results, in the order of the items."""
        if self.size == 1:
            return list(work(items))
        parts = self.gather(_tried(lambda: list(work(items[self.rank :: self.size]))))
        lists: list[list[R]] = [_untried(part) for part in parts]
        return [lists[place % self.size][place // self.size] for place in range(len(items))]

    def total(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sums by name; a name may be missing in some processes."""
        found: dict[str, float] = {}
        for part in self.gather(dict(values)):
            for name, value in part.items():
                found[name] = found.get(name, 0.0) + value
        return found

    def add_gradients(self, parameters: Sequence[torch.Tensor]) -> None:
        """Every gradient becomes the sum over the processes; one that none of them has stays None."""
        if self.size == 1:
            return
        import torch
        from torch import distributed

        there = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32)
        distributed.all_reduce(there, distributed.ReduceOp.MAX, group=self.group)
        wanted = [parameter for parameter, flag in zip(parameters, there.tolist(), strict=True) if flag]
        for parameter in wanted:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        while wanted:
            bucket, count = [wanted.pop()], 0
            while wanted and (count := count + bucket[-1].numel()) < _BUCKET:
                bucket.append(wanted.pop())
            gradients = [parameter.grad for parameter in bucket if parameter.grad is not None]
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            distributed.all_reduce(flat)
            for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(part.view_as(gradient))


@dataclass(frozen=True)
class _Failed:
    error: AtroposError


def _tried(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except AtroposError as error:
        return _Failed(error)


def _untried(result: Any) -> Any:
    if isinstance(result, _Failed):
        raise result.error
    return result
