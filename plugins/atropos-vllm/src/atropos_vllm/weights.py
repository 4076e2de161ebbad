"""A trainer's weights under the names of a checkpoint, layer by layer, adapters merged.

vLLM loads what `save_pretrained` writes. The module in memory differs from that in three ways: adapters lie
beside the weights that they change, wrappers put words into names, and transformers may hold tensors in
another shape than files do (experts in one tensor).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk.backends import FatalBackendError

if TYPE_CHECKING:
    from torch import Tensor

_LAYER = re.compile(r".*?\.\d+\.")
_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")
_BASE = "base_layer."
_SAVED = re.compile(r"modules_to_save\.([^.]+)\.")


def clean_name(name: str) -> str:
    """A parameter's name without what adapters and wrappers put into it."""
    for word in (*_WRAPPERS, _BASE):
        name = name.replace(word, "")
    return _SAVED.sub("", name)


def named_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Name and value of each tensor of the checkpoint; values are the module's own storage where nothing is merged.

    The module is the same afterwards, to the bit. Raises FatalBackendError for quantised weights.
    """
    for group in _layers(_named(model)):
        yield from _as_in_files(model, group).items()


def _layers(tensors: Iterable[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
    """Neighbours that belong to one layer, together: what is split or joined for a file never crosses layers."""
    group: dict[str, Tensor] = {}
    current = None
    for name, tensor in tensors:
        found = _LAYER.match(name)
        layer = found.group() if found else name
        if group and layer != current:
            yield group
            group = {}
        current = layer
        group[name] = tensor
    if group:
        yield group


def _as_in_files(model: Any, group: dict[str, Tensor]) -> dict[str, Tensor]:
    from transformers.core_model_loading import revert_weight_conversion

    converted: dict[str, Tensor] = revert_weight_conversion(unwrapped(model), group)
    return converted


def unwrapped(model: Any) -> Any:
    """The transformers module, with adapter layers in place but without the adapters' own wrapper."""
    base = getattr(model, "get_base_model", None)
    return model if base is None else base()


def _named(model: Any) -> Iterator[tuple[str, Tensor]]:
    base = unwrapped(model)
    adapters = _adapter_layers(base)
    kept = set(base.state_dict())
    parameters = dict(base.named_parameters())
    own: dict[str, dict[str, Tensor]] = {}
    for name, tensor in (*parameters.items(), *base.named_buffers()):
        if name not in kept or "original_module." in name:
            continue
        if (saved := _SAVED.search(name)) is not None and not _active(base, name[: saved.start()], saved.group(1)):
            continue
        owner = next((prefix for prefix in adapters if name.startswith(prefix)), None)
        value = tensor.detach()
        if owner is not None:
            inner = name.removeprefix(owner)
            if not inner.startswith(_BASE):
                continue
            if owner not in own:
                own = {owner: _merged(adapters[owner])}  # of one layer at a time
            value = own[owner].get(inner.removeprefix(_BASE), value)
        if name in parameters and not value.is_floating_point():
            raise FatalBackendError(
                f"weight {name!r} is quantised ({value.dtype}): vLLM cannot take it from the trainer",
                hint="train without quantisation, or leave out --backend vllm",
            )
        yield clean_name(name), value


def _active(base: Any, wrapper: str, adapter: str) -> bool:
    """Is this the copy of a trained module that counts?"""
    found: Any = base.get_submodule(wrapper.rstrip("."))
    active: Any = found.active_adapters
    return adapter in active


def _adapter_layers(base: Any) -> dict[str, Any]:
    """Layers with adapters, by the beginning of their parameters' names."""
    import sys

    if "peft" not in sys.modules:
        return {}
    from peft.tuners.tuners_utils import BaseTunerLayer

    return {f"{name}.": module for name, module in base.named_modules() if isinstance(module, BaseTunerLayer)}


def _merged(layer: Any) -> dict[str, Tensor]:
    """The weights of a layer with its active adapters added; the layer keeps its own storage and values.

    Adding and taking away again would change them by rounding, so it is done on a copy.
    """
    import torch

    base = layer.get_base_layer()
    if layer.merged or layer.disable_adapters:
        return {}
    kept = {name: parameter.data for name, parameter in base.named_parameters(recurse=False)}
    result: dict[str, Tensor] = {}
    with torch.no_grad():
        try:
            for name, parameter in base.named_parameters(recurse=False):
                parameter.data = kept[name].clone()
            layer.merge()
            for name, parameter in base.named_parameters(recurse=False):
                result[name] = parameter.data
                parameter.data = kept[name].clone()  # what unmerging works on, and spoils
            if layer.merged:
                layer.unmerge()
        finally:
            for name, parameter in base.named_parameters(recurse=False):
                parameter.data = kept[name]
    return result
