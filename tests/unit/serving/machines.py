"""Machines for tests: a nvidia-smi that prints what real ones print."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

# Lines of `nvidia-smi --query-gpu=index,name,memory.total,memory.used,driver_version,uuid,mig.mode.current,compute_cap
# --format=csv,noheader,nounits`, one GPU each; the number is filled in.
REAL = {
    "v100": "{}, Tesla V100-SXM2-32GB, 32768, 3, 535.161.08, GPU-5a6fb1e2-0000-0000-0000-00000000000{}, [N/A], 7.0",
    "a100": "{}, NVIDIA A100-SXM4-80GB, 81920, 4, 550.54.15, GPU-6b7fb1e2-0000-0000-0000-00000000000{}, Disabled, 8.0",
    "h100": "{}, NVIDIA H100 80GB HBM3, 81559, 1, 580.159.04, GPU-7c8fb1e2-0000-0000-0000-00000000000{}, Disabled, 9.0",
    "h200": "{}, NVIDIA H200, 143771, 1, 580.159.03, GPU-8d9fb1e2-0000-0000-0000-00000000000{}, Disabled, 9.0",
    "b200": "{}, NVIDIA B200, 183359, 0, 580.95.05, GPU-9eafb1e2-0000-0000-0000-00000000000{}, Disabled, 10.0",
    "gpu": "{}, NVIDIA GeForce RTX 4090, 24564, 512, 550.54.15, GPU-afbfb1e2-0000-0000-0000-00000000000{}, [N/A], 8.9",
}
OLD_DRIVER = 'Field "compute_cap" is not a valid field to query.\n\n'
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n"
)
NO_DEVICES = "No devices were found\n"


def gpu_lines(kind: str, count: int) -> str:
    """What nvidia-smi prints for `count` GPUs of a kind."""
    return "".join(REAL[kind].format(number, number) + "\n" for number in range(count))


def fake_smi(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    output: str,
    *,
    code: int = 0,
    without: str | None = None,
    listed: str = "",
) -> None:
    """Put a nvidia-smi on PATH. without: a field that this driver does not know; it then fails as a real one does.

    listed: what it prints for -L.
    """
    folder.mkdir(exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, sys\n"
        f"if sys.argv[1:] == ['-L']:\n    print({listed!r}, end=''); sys.exit()\n"
        f"output, code, without = json.loads({json.dumps(json.dumps([output, code, without]))})\n"
        "fields = next(word for word in sys.argv if word.startswith('--query-gpu=')).partition('=')[2].split(',')\n"
        "assert '--format=csv,noheader,nounits' in sys.argv\n"
        "if without in fields:\n"
        f"    print({OLD_DRIVER!r}, end=''); sys.exit(2)\n"
        "lines = [line.split(', ')[:len(fields)] for line in output.splitlines()] if not code else []\n"
        "print('\\n'.join(', '.join(line) for line in lines) if lines else output)\n"
        "sys.exit(code)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
