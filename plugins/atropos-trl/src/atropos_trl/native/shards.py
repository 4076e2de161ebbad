"""Weights spread over the processes by FSDP2 (torch's `fully_shard`), and whole again where somebody needs them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .loss import token_logps

if TYPE_CHECKING:
    import torch


def scorer(model: Any) -> Any:
    """A module whose forward pass is token_logps(model, ...): split weights have their hooks on a module's call."""
    import torch

    class Scorer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
            return token_logps(self.model, *arguments)

    return Scorer()


def split(model: Any, device: torch.device, *, processes: int, half: Any, offload: bool) -> Any:
    """The model's scorer, with each layer and the rest spread over the processes. The model's parameters change place.

    half: the format of computing, None for fp32. offload: weights, gradients and optimiser are in the CPU's memory.
    """
    from torch import float32
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard

    options: dict[str, Any] = {"mesh": init_device_mesh(device.type, (processes,))}
    if half is not None:
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=float32, cast_forward_inputs=False)
    if offload:
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=device.type == "cuda")
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    kinds = set(getattr(base, "_no_split_modules", None) or ())
    for part in base.modules():
        if type(part).__name__ in kinds:
            fully_shard(part, **options)
    whole = scorer(model)
    # The rest (embeddings, norm, output layer) stays whole from the forward pass to the backward pass, which computes
    # the output layer once more.
    fully_shard(whole, reshard_after_forward=False, **options)
    for part in whole.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)  # a row's weight is that of the whole step: gradients are added up
            part.set_force_sum_reduction_for_comms(True)
    return whole


def is_split(tensor: Any) -> bool:
    """Is only a part of it here?"""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Any) -> Any:
    """All of a tensor that may be split. A collective operation then."""
    return tensor.full_tensor() if is_split(tensor) else tensor


def local(tensor: Any) -> Any:
    """The part of a tensor that is here."""
    return tensor.to_local() if is_split(tensor) else tensor


def take_part(target: Any, value: torch.Tensor) -> None:
    """Copy a whole tensor into one that may be split: each process takes its own part."""
    if is_split(target):
        part = target.to_local()
        pieces = value.chunk(target.device_mesh.size(), 0)
        place = target.device_mesh.get_local_rank()
        value = pieces[place] if place < len(pieces) else value[:0]
        target = part
    if target.numel():
        target.copy_(value)


def finite(parameters: Iterable[Any]) -> bool:
    """Are all numbers of the parts that are here finite?"""
    import torch

    with torch.no_grad():
        return all(bool(torch.isfinite(local(parameter)).all()) for parameter in parameters)
