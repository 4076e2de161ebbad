"""How many GPUs one server takes (tp) and how many servers there are (dp).

dp counts independent servers, each with an address of its own, on all nodes together: both engines refuse or
mishandle data parallelism over nodes for dense models, and one server that fails leaves the others alone.
A server that needs more GPUs than a node has spans several nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from atropos_cli.sdk import UsageError
from atropos_cli.sdk.launchers import LaunchError
from atropos_serving.modelinfo import ModelInfo

WEIGHTS_SHARE = 0.7
"""Of the memory a server may use; the rest is for the key-value cache and activations."""
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Slice:
    """The GPUs of one server: (node, their indices on it), rank 0 first. A server without GPUs has empty indices."""

    parts: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """tp: GPUs per server (0 without GPUs). notes: what a user should know of the choice."""

    tp: int
    dp: int
    slices: tuple[Slice, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Room:
    """The GPUs there are. memory_mib: of one GPU, None when unknown. fraction: what a server may use of it."""

    nodes: int = 1
    gpus_per_node: int = 0
    memory_mib: int | None = None
    fraction: float = 0.9

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


def plan_layout(room: Room, model: ModelInfo | None, *, tp: int | None = None, dp: int | None = None) -> Layout:
    """Choose the missing sizes. Raises UsageError for impossible sizes, LaunchError for a model that cannot fit."""
    if not room.gpus:
        return _without_gpus(room, tp, dp)
    notes: list[str] = []
    if tp is None:
        tp = _choose(room, model, dp, notes)
    else:
        _check(room, model, tp, notes)
    fits = _servers(room, tp)
    if dp is None:
        dp = fits
    elif dp > fits:
        raise UsageError(
            f"--dp {dp} servers of --tp {tp} GPUs do not fit: "
            f"{room.nodes} x {room.gpus_per_node} GPUs hold {fits} of them",
            hint=f"--dp {fits}" if fits else f"--tp {room.gpus}",
        )
    idle = room.gpus - tp * dp
    if idle:
        notes.append(f"{idle} of {room.gpus} GPUs stay idle")
    return Layout(tp, dp, tuple(_slices(room, tp, dp)), tuple(notes))


def _without_gpus(room: Room, tp: int | None, dp: int | None) -> Layout:
    if tp not in (None, 1):
        raise UsageError(f"--tp {tp} needs {tp} GPUs; none is to be used here")
    servers = dp or room.nodes
    slices = tuple(Slice(((number % room.nodes, ()),)) for number in range(servers))
    return Layout(0, servers, slices)


def _choose(room: Room, model: ModelInfo | None, dp: int | None, notes: list[str]) -> int:
    """The smallest tp that holds the model; the largest possible one where dp says how many servers there are."""
    sizes = list(_sizes(room, model))
    if dp is not None:
        possible = [tp for tp in sizes if _servers(room, tp) >= dp]
        if not possible:
            raise UsageError(f"--dp {dp} servers need at least {dp} GPUs; there are {room.gpus}", hint="fewer servers")
        holding = [tp for tp in possible if _holds(room, model, tp)]
        if model is not None and not holding:
            raise _too_large(room, model, possible[-1])
        return (holding or possible)[-1]
    if model is None or room.memory_mib is None:
        largest = max(tp for tp in sizes if tp <= room.gpus_per_node)
        what = "the model's config.json is not here" if model is None else "the GPUs' memory is not known"
        notes.append(f"{what}: --tp {largest} takes the GPUs of a node; give --tp to choose")
        return largest
    for tp in sizes:
        if _holds(room, model, tp):
            return tp
    raise _too_large(room, model, sizes[-1])


def _sizes(room: Room, model: ModelInfo | None) -> Iterator[int]:
    """Possible tp: powers of two and whole numbers of nodes, by which the heads can be divided."""
    node = room.gpus_per_node
    inside = [size for size in (1 << power for power in range(node.bit_length())) if size <= node]
    if node not in inside:
        inside.append(node)
    across = [node * count for count in range(2, room.nodes + 1)]
    for size in [*inside, *across]:
        if size == 1 or _divisible(model, size):
            yield size


def _divisible(model: ModelInfo | None, tp: int) -> bool:
    """Query heads are split evenly; key-value heads too, or each is kept on several GPUs."""
    if model is None or not model.heads:
        return tp & (tp - 1) == 0
    kv = model.kv_heads
    return model.heads % tp == 0 and (not kv or kv % tp == 0 or tp % kv == 0)


def _holds(room: Room, model: ModelInfo | None, tp: int) -> bool:
    if model is None or room.memory_mib is None:
        return True
    return model.weights / tp <= room.memory_mib * _MIB * room.fraction * WEIGHTS_SHARE


def _too_large(room: Room, model: ModelInfo, tp: int) -> LaunchError:
    assert room.memory_mib is not None
    per_gpu = model.weights / tp / 1e9
    usable = room.memory_mib * _MIB * room.fraction * WEIGHTS_SHARE / 1e9
    kind = "" if model.exact else " (estimated)"
    return LaunchError(
        f"{model.name} does not fit: {model.weights / 1e9:.1f} GB of weights{kind} on {tp} GPUs is {per_gpu:.1f} GB "
        f"each, and {usable:.1f} GB of {room.memory_mib / 1024:.0f} GiB can be used for weights",
        hint="more GPUs or nodes, a quantised model, or --tp N to try it all the same",
    )


def _check(room: Room, model: ModelInfo | None, tp: int, notes: list[str]) -> None:
    if tp > room.gpus:
        raise UsageError(f"--tp {tp} needs {tp} GPUs; there are {room.gpus}", hint=f"--tp {room.gpus}")
    if tp > room.gpus_per_node and tp % room.gpus_per_node:
        raise UsageError(
            f"--tp {tp} over several nodes must be a multiple of the {room.gpus_per_node} GPUs of a node",
            hint=f"--tp {tp // room.gpus_per_node * room.gpus_per_node}",
        )
    if model is not None and model.heads and tp > 1 and not _divisible(model, tp):
        good = ", ".join(str(size) for size in _sizes(room, model))
        raise UsageError(
            f"--tp {tp} does not divide {model.name}: {model.heads} attention heads, {model.kv_heads} key-value heads",
            hint=f"possible here: {good}",
        )
    if model is not None and not _holds(room, model, tp):
        notes.append(f"{model.weights / 1e9:.1f} GB of weights on {tp} GPUs leave little room for the key-value cache")


def _servers(room: Room, tp: int) -> int:
    """How many servers of tp GPUs there is room for."""
    if tp <= room.gpus_per_node:
        return room.nodes * (room.gpus_per_node // tp)
    return room.nodes // (tp // room.gpus_per_node)


def _slices(room: Room, tp: int, dp: int) -> Iterator[Slice]:
    """Servers fill one node after another."""
    node_gpus = room.gpus_per_node
    if tp > node_gpus:
        span = tp // node_gpus
        for server in range(dp):
            yield Slice(tuple((server * span + rank, tuple(range(node_gpus))) for rank in range(span)))
        return
    per_node = node_gpus // tp
    for server in range(dp):
        node, place = divmod(server, per_node)
        yield Slice(((node, tuple(range(place * tp, (place + 1) * tp))),))


def joined(layout: Layout) -> Layout:
    """One server that has the GPUs of all; they are on one node."""
    gpus = tuple(gpu for part in layout.slices for _, indices in part.parts for gpu in indices)
    return replace(layout, slices=(Slice(((layout.slices[0].parts[0][0], gpus),)),))
