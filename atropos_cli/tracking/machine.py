"""How busy this machine is: its GPUs, its processors, its memory. What cannot be told is left out.

machine = Machine(); machine.look() -> {"machine/cpu_percent": 71.0, "machine/gpu0_percent": 98.0, ...}
"""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

EVERY = 5.0
"""Seconds between two looks at the GPUs, which a thread of its own takes: a driver may take long to answer."""
_ASKED = "index,uuid,utilization.gpu,memory.used,memory.total,power.draw"
_PATIENCE = 20.0
_MOST_GPUS = 16
_MIB = 1 << 20
_GIB = float(1 << 30)


class Machine:
    """Starts a thread where there are GPUs; close() ends it."""

    def __init__(self, *, every: float = EVERY) -> None:
        self._gpus: dict[str, float] = {}
        self._closed = threading.Event()
        self._ticks = _processor_ticks()
        self._own = (time.monotonic(), time.process_time())
        reader = gpu_reader()
        if reader is not None:
            threading.Thread(target=self._watch, args=(reader, every), name="gpus", daemon=True).start()

    def look(self) -> dict[str, float]:
        """Means since the last look for processors, the newest values for all else. Quick, and never raises."""
        with contextlib.suppress(Exception):  # what an odd system tells is worth no more than this
            return {**self._processors(), **_memory(), **self._gpus}
        return {}

    def close(self) -> None:
        self._closed.set()

    def _watch(self, reader: Callable[[], dict[str, float]], every: float) -> None:
        while not self._closed.is_set():
            try:
                self._gpus = reader()
            except Exception:  # noqa: BLE001 (a driver that went away has nothing to tell any more)
                self._gpus = {}
                return
            self._closed.wait(every)

    def _processors(self) -> dict[str, float]:
        found = {}
        (before, used), now = self._own, (time.monotonic(), time.process_time())
        if now[0] - before > 0.1:
            found["machine/process_cpu_percent"] = 100 * (now[1] - used) / (now[0] - before)
            self._own = now
        ticks = _processor_ticks()
        if ticks is not None and self._ticks is not None and ticks[1] > self._ticks[1]:
            busy, whole = ticks[0] - self._ticks[0], ticks[1] - self._ticks[1]
            found["machine/cpu_percent"] = 100 * busy / whole
        self._ticks = ticks
        return found


def gpu_reader() -> Callable[[], dict[str, float]] | None:
    """What reads the GPUs: NVIDIA's library where its Python package is there, else its program; None without GPUs."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return None
    with contextlib.suppress(Exception):  # not installed, no driver, a driver that does not fit
        import pynvml  # type: ignore[import-not-found, import-untyped, unused-ignore]

        pynvml.nvmlInit()
        if pynvml.nvmlDeviceGetCount():
            return lambda: gpu_values(_rows_of_library(pynvml))
    program = shutil.which("nvidia-smi")
    return None if program is None else lambda: gpu_values(_rows_of_program(program))


def gpu_values(rows: Sequence[Sequence[str]]) -> dict[str, float]:
    """Numbers of the GPUs that this process may use. rows: _ASKED as text, a field that is no number is left out."""
    found: dict[str, float] = {}
    for index, _, *fields in _visible(rows)[:_MOST_GPUS]:
        used, memory, whole, power = (_number(text) for text in fields)
        values = {"percent": used, "memory_gib": memory, "memory_percent": None, "power_watts": power}
        if memory is not None:
            values["memory_gib"] = memory * _MIB / _GIB
            values["memory_percent"] = 100 * memory / whole if whole else None
        found |= {f"machine/gpu{index}_{name}": value for name, value in values.items() if value is not None}
    return found


def _visible(rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Those that CUDA_VISIBLE_DEVICES names by number or by id; all when it names none that is here."""
    wanted = [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    whole = [row for row in rows if len(row) == len(_ASKED.split(","))]
    chosen = [row for row in whole if row[0] in wanted or any(row[1].startswith(word) for word in wanted if word[4:])]
    return chosen or whole


def _rows_of_program(program: str) -> list[list[str]]:
    command = [program, f"--query-gpu={_ASKED}", "--format=csv,noheader,nounits"]
    answer = subprocess.run(  # noqa: S603 (found on the user's path, nothing from outside in it)
        command, capture_output=True, timeout=_PATIENCE, check=True, stdin=subprocess.DEVNULL
    )
    return [[cell.strip() for cell in row] for row in csv.reader(answer.stdout.decode(errors="replace").splitlines())]


def _rows_of_library(pynvml: Any) -> list[list[str]]:
    rows = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        row = [str(index), uuid.decode() if isinstance(uuid, bytes) else str(uuid), "", "", "", ""]
        row[3:5] = [str(memory.used / _MIB), str(memory.total / _MIB)]
        with contextlib.suppress(pynvml.NVMLError):  # slices of a GPU have none
            row[2] = str(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        with contextlib.suppress(pynvml.NVMLError):
            row[5] = str(pynvml.nvmlDeviceGetPowerUsage(handle) / 1000)
        rows.append(row)
    return rows


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # "[N/A]"
        return None


def _processor_ticks() -> tuple[float, float] | None:
    """(busy, all) ticks of all processors since the machine started; None where no file tells them."""
    with contextlib.suppress(OSError, ValueError, IndexError), Path("/proc/stat").open("rb") as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]
        return float(sum(ticks) - ticks[3] - ticks[4]), float(sum(ticks))
    return None


def _memory() -> dict[str, float]:
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        used = sizes["MemTotal"] - sizes["MemAvailable"]
        return {
            "machine/memory_gib": used * 1024 / _GIB,
            "machine/memory_percent": 100 * used / sizes["MemTotal"],
        }
    return {}
