"""What a training does on a kind of GPU where its user sets nothing: training.toml, read for a machine or for one GPU.

Nothing of it is in the plan of a run: a training that is resumed on another kind of GPU, or submitted on a machine
without one, goes by the GPU that it has then.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from atropos_cli.serving.platforms import Gpu, Platform

_FILE = Path(__file__).with_name("training.toml")
_MIB_IN_GIB = 1024
_SLACK = 0.93
"""Of the size by which a GPU is sold, less is there: an "80 GB" H100 has 81 559 MiB, a MIG 1g.10gb 9728."""


@dataclass(frozen=True, slots=True)
class TrainingProfile:
    """precision: auto where the compute capability is not known. attention: as transformers and PyTorch choose it.

    rows, tokens: the most that are computed at a time, by a trainer that counts rows or one that counts tokens.
    checkpointing: compute activations again in the backward pass.
    """

    name: str
    precision: Literal["auto", "fp32", "bf16"]
    attention: str
    rows: int
    tokens: int
    checkpointing: bool
    reason: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def describe(self) -> str:
        """For people, in one line."""
        again = "gradient checkpointing" if self.checkpointing else "no gradient checkpointing"
        batch = f"up to {self.rows} rows or {self.tokens} tokens at a time"
        return f"{self.name}: {self.precision}, attention {self.attention}, {batch}, {again} ({self.reason})"


def training_profile(machine: Platform) -> TrainingProfile:
    """That of the GPUs which this process may use; of several the smallest decides."""
    memory = machine.gpu_memory_mib
    return _made(machine.profile, memory or None, machine.bf16, instance=_instance(machine.gpus))


def gpu_profile(name: str, memory_bytes: int, capability: tuple[int, int] | None) -> TrainingProfile:
    """That of one GPU, or instance, as PyTorch names it (torch.cuda.get_device_properties)."""
    memory = memory_bytes >> 20
    gpu = Gpu(0, name, memory, None, capability, "", "")
    return _made(gpu.profile, memory or None, gpu.bf16, instance=" MIG" in name)


def cpu_profile() -> TrainingProfile:
    """Without a GPU."""
    return _made("cpu", None, None, instance=False)


def _made(kind: str, memory_mib: int | None, bf16: bool | None, *, instance: bool) -> TrainingProfile:
    table = _table()
    facts: dict[str, Any] = table["kinds"][kind]
    size = {} if kind in ("cpu", "rocm") else _by_memory(table["memory"], memory_mib)
    values = {**size, **facts}
    reason, name = str(facts["reason"]), kind
    if kind not in ("cpu", "rocm"):
        if bf16 is False:
            values["tokens"], values["rows"] = values["tokens"] // 2, max(1, values["rows"] // 2)
        known = "memory not known" if memory_mib is None else f"{memory_mib / _MIB_IN_GIB:.0f} GiB"
        name = f"{kind} ({'MIG instance, ' if instance else ''}{known})"
    precision: Literal["auto", "fp32", "bf16"] = (
        "fp32" if kind == "cpu" or bf16 is False else "bf16" if bf16 else "auto"
    )
    return TrainingProfile(
        name, precision, "sdpa", int(values["rows"]), int(values["tokens"]), bool(values["checkpointing"]), reason
    )


def _by_memory(rows: list[dict[str, Any]], memory_mib: int | None) -> dict[str, Any]:
    """The first row whose size is there; the smallest one where nothing is known."""
    have = (memory_mib or 0) / _MIB_IN_GIB
    return next(row for row in rows if have >= row["gib"] * _SLACK)


def _instance(gpus: tuple[Gpu, ...]) -> bool:
    return any(" MIG" in gpu.name for gpu in gpus)


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))
