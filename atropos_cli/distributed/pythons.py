"""The Python of another trainer's package, and what a script of ours finds out in it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from atropos_cli.domain.base import clean_text
from atropos_cli.errors import ConfigError
from atropos_cli.io.answers import environment_stamps, kept_answer, stamp
from atropos_cli.models.sources import find_model
from atropos_cli.serving.platforms import detect

_ASK_S = 600.0
_ANSWER = "atropos-answer "


def check_python(path: str | None, trainer: str, how: str) -> str:
    """The path of an interpreter. how: the commands that make one. Raises ConfigError."""
    if path is None:
        raise ConfigError(
            f"--trainer {trainer} needs a Python with the package {trainer}", hint=f"--python PATH: {how}"
        )
    found = Path(path).expanduser()
    if found.is_dir():
        found = found / "bin" / "python"
    if not os.access(found, os.X_OK) or not found.is_file():
        raise ConfigError(f"no Python at {path}", hint=f"--python PATH: {how}")
    return str(found.absolute())


def check_model(name: str, trainer: str) -> str:
    """The model as that package is given it: a folder's path, or a name on the hub. Raises ConfigError."""
    found = find_model(name)
    if found.kind == "gguf":
        raise ConfigError(
            f"{trainer} cannot train {name!r}, a GGUF file",
            hint="--model FOLDER, as transformers saves it, or OWNER/NAME",
        )
    return str(Path(found.location).absolute()) if found.kind == "folder" else found.location


def gpus_here() -> int:
    """The NVIDIA GPUs that programs see on this machine."""
    return len(detect().gpus)


def ask(python: str, script: Path, question: dict[str, Any], *, trainer: str, how: str) -> dict[str, Any]:
    """The answer of a script under that Python, kept in the user's cache while neither changes. Raises ConfigError.

    The script reads the question from standard input and writes one line with the answer: "atropos-answer JSON".
    """
    key = [python, environment_stamps(python), stamp(script), question]
    return kept_answer("trainers", key, lambda: _asked(python, script, question, trainer, how))


def _answer(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _asked(python: str, script: Path, question: dict[str, Any], trainer: str, how: str) -> dict[str, Any]:
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run(  # noqa: S603 - no shell; the Python that the user named
            [python, str(script)],
            input=json.dumps(question), env=env, capture_output=True, encoding="utf-8", errors="replace",
            timeout=_ASK_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{python} does not run: {error}", hint="--python PATH") from error
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(_ANSWER) and (answer := _answer(line.removeprefix(_ANSWER))) is not None:
            if (refused := answer.get("error")) is not None:
                raise ConfigError(clean_text(f"{trainer} refuses the settings: {refused}"), hint=answer.get("hint"))
            return answer
    said = clean_text(done.stderr).strip().splitlines() or [f"exit code {done.returncode}"]
    if any("ModuleNotFoundError" in line for line in said[-1:]):
        raise ConfigError(f"{python} lacks a package of {trainer}: {said[-1]}", hint=how)
    raise ConfigError(f"{python} cannot check the settings of {trainer}: {said[-1]}", hint=how)
