"""Instances of GPUs that are divided (MIG), from the text of `nvidia-smi -L`. Standard library only.

CUDA names an instance by its UUID alone, MIG-<uuid>, or MIG-GPU-<uuid>/3/0 with older drivers; its size is
only in the name of its profile, such as 3g.40gb.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_GPU = re.compile(r"GPU (\d+):")
_INSTANCE = re.compile(r"\s+MIG (\S+)\s+Device\s+\d+:\s+\(UUID:\s*(MIG-[^)\s]+)\)")
_PROFILE = re.compile(r"(?:\d+c\.)?\d+g\.(\d+)gb")
_USABLE = 0.95
"""Of the size in a profile's name a little less is there: 1g.10gb has 9728 MiB, 3g.40gb 40192."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance. gpu: the index of the GPU it is a part of."""

    gpu: int
    profile: str
    uuid: str

    @property
    def memory_mib(self) -> int:
        """0 where the profile's name does not say it."""
        match = _PROFILE.match(self.profile)
        return int(int(match[1]) * 1024 * _USABLE) if match else 0


def instances(text: str) -> list[Instance]:
    """The instances that `nvidia-smi -L` lists, in its order."""
    found: list[Instance] = []
    gpu = -1
    for line in text.splitlines():
        if match := _GPU.match(line):
            gpu = int(match[1])
        elif (match := _INSTANCE.match(line)) and gpu >= 0:
            found.append(Instance(gpu, match[1], match[2]))
    return found
