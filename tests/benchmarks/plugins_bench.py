"""CPU time of finding and loading plugins, with 0, 10 and 50 of them installed.

    python tests/benchmarks/plugins_bench.py

Each figure is the least of several new processes, in CPU milliseconds. Baseline: importing
importlib.metadata, and pydantic, without which no environment can be defined.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

REPEATS = 7
MANIFEST = """
from atropos_cli.sdk import ComponentSpec, hookimpl

@hookimpl
def atropos_register_environments():
    for index in range(5):
        yield ComponentSpec("environment", f"{number}-{{index}}", "bench_{number}.env:Env", summary="An environment.")
"""
STEPS = {
    "import importlib.metadata": ("", "import importlib.metadata"),
    "import pydantic": ("", "import pydantic"),
    "import atropos_cli.plugins.commands": ("", "import atropos_cli.plugins.commands"),
    "command_entry_points()": (
        "from atropos_cli.plugins.commands import command_entry_points",
        "command_entry_points()",
    ),
    "import atropos_cli.plugins.discovery": ("", "import atropos_cli.plugins.discovery"),
    "load_registry(), new process": ("from atropos_cli.plugins.discovery import load_registry", "load_registry()"),
    "load_registry(), sdk imported before": (
        "from atropos_cli.plugins.discovery import load_registry\nimport atropos_cli.sdk",
        "load_registry()",
    ),
}


def install(folder: Path, count: int) -> None:
    """Lay out `count` plugins of five environments each, as pip would."""
    for number in range(count):
        (folder / f"bench_{number}").mkdir(parents=True)
        (folder / f"bench_{number}" / "__init__.py").write_text(MANIFEST.format(number=number))
        info = folder / f"bench_{number}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: bench-{number}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[atropos]\nbench{number} = bench_{number}\n")


def milliseconds(folder: Path, before: str, step: str) -> float:
    """The least CPU time of a step over several processes."""
    code = (
        f"import sys, time\nsys.path.append({str(folder)!r})\n{before}\n"
        f"began = time.process_time()\n{step}\nprint((time.process_time() - began) * 1000)"
    )
    times = []
    for _ in range(REPEATS):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        times.append(float(done.stdout.split()[-1]))
    return min(times)


def main() -> None:
    counts = (0, 10, 50)
    print(f"{'CPU ms':40}" + "".join(f"{count:>5} plugins" for count in counts))
    with tempfile.TemporaryDirectory() as name:
        folders = []
        for count in counts:
            folder = Path(name) / str(count)
            folder.mkdir()
            install(folder, count)
            folders.append(folder)
        for title, (before, step) in STEPS.items():
            print(f"{title:40}" + "".join(f"{milliseconds(folder, before, step):13.1f}" for folder in folders))


if __name__ == "__main__":
    main()
