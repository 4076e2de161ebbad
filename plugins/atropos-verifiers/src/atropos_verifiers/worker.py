"""On the side of verifiers: one environment, its rollouts at once, its model requests to the engine.

Run by path under the environment's own Python; it imports nothing of atropos. Settings: {"module", "folder", "args",
"config", "harness", "mode"}, mode being "describe" or "run". Requests:

    {"do": "rollouts", "index": I, "split": S, "count": N}   -> {"task": {...}, "rollouts": [entry, ...]}

N is 1, or the size of the group where rollouts are scored beside each other. An entry is {"branches", "reward",
"rewards", "metrics", "info", "role", "stop", "error"}; branches are conversations in OpenAI's shape.

Which of the two APIs an environment is written for, its module says: `before04` calls its load_environment(), `from04`
takes its Taskset.
"""

from __future__ import annotations

import importlib
import logging
import os
import random
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

side: Any = None


async def start(settings: dict[str, Any]) -> dict[str, Any]:
    """Import the environment; describe it, and in mode run make it."""
    global side
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    logging.getLogger("verifiers").setLevel(logging.ERROR)
    if settings["folder"]:
        sys.path.insert(0, settings["folder"])
        # Servers of tools are processes of their own, which import it too.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (settings["folder"], os.environ.get("PYTHONPATH"))))
    module = importlib.import_module(settings["module"])
    side = sys.modules["__main__"].load_module("verifiers_side", str(Path(__file__).with_name(_file(module))))
    about: dict[str, Any] = side.describe(module)
    about["doc"] = (module.__doc__ or "").strip()
    if settings["mode"] == "run":
        random.seed(settings["seed"])
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(settings["seed"] % 2**32)
        about |= await side.make(settings)
    return about


def _file(module: Any) -> str:
    """Which of the two sides runs the module. Raises RuntimeError where the other verifiers is installed."""
    version = metadata.version("verifiers")
    new = tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) >= (0, 4)
    if hasattr(module, "load_environment"):
        if not new:
            return "before04.py"
        wanted = "<0.4"
        said = f"{module.__name__} has load_environment(), which verifiers {version} no longer calls"
    elif new:
        return "from04.py"
    else:
        wanted = ">=0.4"
        said = f"{module.__name__} has no load_environment(), and verifiers {version} runs no other environments here"
    failed = RuntimeError(said)
    failed.hint = f"atropos env add verifiers NAME --from SOURCE --with 'verifiers{wanted}'"  # type: ignore[attr-defined]
    raise failed


async def answer(call: Any, request: dict[str, Any]) -> Any:
    """One request of the engine."""
    return await side.rollouts(call, request)


async def stop() -> None:
    """End what the environment started."""
    if side is not None:
        await side.stop()
