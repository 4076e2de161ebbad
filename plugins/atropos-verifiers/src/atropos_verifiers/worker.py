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
    try:
        module = importlib.import_module(settings["module"])
    except (AttributeError, ImportError) as error:
        if "'verifiers" not in str(error) and "verifiers." not in str(error):
            raise
        raise other_api(f"{settings['module']} cannot be imported: {error}") from error
    side = sys.modules["__main__"].load_module("verifiers_side", str(Path(__file__).with_name(_file(module))))
    about: dict[str, Any] = side.describe(module)
    about["doc"] = (module.__doc__ or "").strip()
    if settings["mode"] == "run":
        random.seed(settings["seed"])
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(settings["seed"] % 2**32)
        about |= await side.make(settings)
    return about


def is_new() -> bool:
    """Is verifiers 0.4 or later installed?"""
    return tuple(int(part) for part in metadata.version("verifiers").split(".")[:2] if part.isdigit()) >= (0, 4)


def other_api(said: str) -> RuntimeError:
    """The error of an environment that is written for the other API, with the command that installs that one."""
    failed = RuntimeError(f"{said}; verifiers {metadata.version('verifiers')} is installed")
    wanted = "<0.4" if is_new() else ">=0.4"
    failed.hint = f"atropos env add verifiers NAME --from SOURCE --with 'verifiers{wanted}'"  # type: ignore[attr-defined]
    return failed


def _file(module: Any) -> str:
    """Which of the two sides runs the module. Raises RuntimeError where the other verifiers is installed."""
    if hasattr(module, "load_environment") is is_new():
        has = "has" if is_new() else "has not"
        raise other_api(f"{module.__name__} {has} a load_environment()")
    return "from04.py" if is_new() else "before04.py"


async def answer(call: Any, request: dict[str, Any]) -> Any:
    """One request of the engine."""
    return await side.rollouts(call, request)


async def stop() -> None:
    """End what the environment started."""
    if side is not None:
        await side.stop()
