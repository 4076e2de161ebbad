"""How the installed engine is started: which commands its version has, and by which Python.

SGLang, by what is installed:

    it has `sglang serve`       sglang serve
    an older one                PYTHON -m sglang.launch_server
    not to be seen from here    the first where it is on PATH there, the second with --engine-python: all have it
    a key in SGLANG_API_KEY     PYTHON sglang_with_key.py, which hands the key on
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atropos_cli.sdk.launchers import LaunchError
from atropos_cli.sdk.serving import Engine
from atropos_serving.probe import KEYS

PROGRAMS: dict[Engine, tuple[str, ...]] = {"sglang": ("sglang", "serve"), "vllm": ("vllm", "serve")}
MODULES: dict[Engine, tuple[str, ...]] = {
    "sglang": ("-m", "sglang.launch_server"),
    "vllm": ("-m", "vllm.entrypoints.cli.main", "serve"),
}
_INSTALL: dict[Engine, str] = {
    "sglang": "pip install sglang, or run it in the container lmsysorg/sglang; "
    "--engine-python names another environment's Python",
    "vllm": "pip install vllm, or run it in the container vllm/vllm-openai; "
    "--engine-python names another environment's Python",
}
_SERVE = "from sglang.cli.main import main; main()"
_KEYED = Path(__file__).with_name("sglang_with_key.py")
_LOOK = """
import importlib.util, json, os, sys, sysconfig
def places(name):
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    return list(spec.submodule_search_locations or []) if spec else []
def has(*parts):
    return any(os.path.exists(os.path.join(place, *parts)) for place in places("sglang"))
print(json.dumps({
    "there": bool(places("sglang")), "serve": has("cli", "serve.py"), "module": has("launch_server.py"),
    "router": bool(places("sglang_router")), "script": os.path.join(sysconfig.get_path("scripts"), "sglang"),
}))
"""
"""Looks without importing the engine, which takes ten seconds."""
_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Program:
    """words: before the options. python: that has the engine, where known. router: it has sglang_router too.

    old: SGLang from before `sglang serve`, some of whose options had other names.
    """

    words: tuple[str, ...]
    python: str | None = None
    router: bool = False
    old: bool = False


def find_program(engine: Engine, python: str | None = None) -> Program:
    """By a given Python, by the engine's command on PATH, or by this Python.

    Raises LaunchError when it is not installed.
    """
    if python is not None:
        found = shutil.which(str(Path(python).expanduser()))
        if found is None:
            raise LaunchError(f"--engine-python {python}: there is no such program", hint="give a Python interpreter")
        found = str(Path.cwd() / found)  # links stay: one is what makes a virtual environment
        program = _of_python(engine, found)
        if program is None:
            raise LaunchError(f"{engine} is not installed for --engine-python {python}", hint=_INSTALL[engine])
        return program
    command = shutil.which(PROGRAMS[engine][0])
    if command is not None:
        return _of_command(engine, command)
    program = _of_python(engine, sys.executable)
    if program is None:
        raise LaunchError(f"{engine} is not installed here", hint=_INSTALL[engine])
    return program


def unseen(engine: Engine, python: str | None = None) -> Program:
    """By a Python, or a command on PATH, that cannot be looked at from here. Raises LaunchError, see _keyed."""
    if python is None:
        return _keyed(engine, Program(PROGRAMS[engine]), serve=True)
    return _keyed(engine, Program((python, *MODULES[engine]), python), serve=False)


def _of_command(engine: Engine, command: str) -> Program:
    words = (command, *PROGRAMS[engine][1:])
    python = _interpreter(command) if engine == "sglang" else None
    look = _look(python) if python is not None else {}
    if python is None or not look.get("there"):
        return _keyed(engine, Program(words), serve=True)
    if look["module"] and not look["serve"]:
        words = (python, *MODULES[engine])
    return _keyed(engine, Program(words, python, look["router"], not look["serve"]), serve=look["serve"])


def _of_python(engine: Engine, python: str) -> Program | None:
    """None where it lacks the engine. vLLM of another Python is not looked for: its start names the error."""
    if engine == "vllm":
        import importlib.util

        there = python != sys.executable or importlib.util.find_spec(engine) is not None
        return Program((python, *MODULES[engine]), python) if there else None
    look = _look(python)
    if not look:
        return unseen(engine, python)
    if not (look["serve"] or look["module"]):
        return None
    words: tuple[str, ...] = (python, *MODULES[engine])
    if look["serve"]:
        script = look["script"]
        words = (script, "serve") if os.access(script, os.X_OK) else (python, "-c", _SERVE, "serve")
    return _keyed(engine, Program(words, python, look["router"], not look["serve"]), serve=look["serve"])


def _keyed(engine: Engine, program: Program, *, serve: bool) -> Program:
    """The same, with the key that is in the environment. Raises LaunchError where its Python is not known."""
    variable = KEYS[engine]
    if engine == "vllm" or not os.environ.get(variable, "").strip():
        return program
    if program.python is None:
        raise LaunchError(
            f"{variable} is set, and the Python of {program.words[0]} is not known, which would read it",
            hint=f"name it with --engine-python, or unset {variable}",
        )
    words = (program.python, str(_KEYED), "serve" if serve else "module")
    return Program(words, program.python, program.router, program.old)


def _interpreter(command: str) -> str | None:
    """The Python of an installed command, by its first line; None for another kind of program."""
    try:
        with Path(command).open("rb") as file:
            first = file.readline(4096).decode("utf-8", "replace")
    except OSError:
        return None
    try:
        words = shlex.split(first[2:]) if first.startswith("#!") else []
    except ValueError:
        return None
    if words and Path(words[0]).name == "env":
        words = words[1:]
    found = shutil.which(words[0]) if words and Path(words[0]).name.startswith("python") else None
    return found


def _look(python: str) -> dict[str, Any]:
    """What an environment has; empty when it does not say."""
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter the user named, or that of an installed command
            [python, "-c", _LOOK], capture_output=True, text=True, timeout=_PATIENCE, cwd="/", check=True
        )
        found = json.loads(done.stdout.strip().rpartition("\n")[2])
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
    return found if isinstance(found, dict) else {}
