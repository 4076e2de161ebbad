"""LeRobot's Python: one that `atropos env add lerobot` made, or a path. Its packages do not fit beside ours."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from atropos_cli.sdk import ConfigError, PluginError, UsageError
from atropos_cli.sdk.data import home
from atropos_cli.sdk.foreign import DEFAULT, Added, Dialect, Family, added
from atropos_cli.sdk.foreign import find as find_added

SIDE = Path(__file__).with_name("side.py")
RELEASE = "0.6.1"
N15_RELEASE = "0.5.1"
_OLDEST = (0, 4)
_GROOT_N15 = ("peft>=0.13,<1", "dm-tree>=0.1.8,<1", "timm>=1,<1.1", "decord>=0.6,<1", "ninja>=1.11,<2")
"""What the extra `groot` of releases before 0.6 asks for, without flash-attn, which only builds beside torch."""
_RELEASE = re.compile(r"(\d+)\.(\d+)(\.\d+)*\Z")
_ASK_S = 900.0
_START_S = 120.0
_LAST = 6


def release_of(text: str) -> tuple[int, int]:
    """(0, 6) of 0.6.1. Raises UsageError."""
    match = _RELEASE.match(text)
    if match is None:
        raise UsageError(f"{text!r} is not a release of LeRobot", hint=f"{RELEASE}, or {N15_RELEASE} for GR00T N1.5")
    return int(match[1]), int(match[2])


def requirements_of(release: str) -> tuple[str, ...]:
    """What a release is installed by. Raises UsageError for one that reads no datasets of format v3.0."""
    number = release_of(release)
    if number < _OLDEST:
        raise UsageError(f"LeRobot {release} reads no datasets of format v3.0", hint=f"{N15_RELEASE}, or {RELEASE}")
    if number < (0, 6):
        return (f"lerobot[smolvla]=={release}", *_GROOT_N15)
    return (f"lerobot[training,groot,smolvla,diffusion]=={release}",)


def check_release(source: str) -> str:
    """The source of `env add lerobot NAME`: a release."""
    requirements_of(source)
    return source


def imported(name: str) -> Any:
    """Can the LeRobot that was added under this name be imported? Raises PluginError."""
    record = find_added("lerobot", name)
    if record is None:
        raise ConfigError(f"LeRobot {name} was not added", hint=f"atropos env add lerobot {name}")
    done = subprocess.run(  # noqa: S603 - the Python that was made for it
        [record.python, "-c", "import lerobot.scripts.lerobot_train"],
        capture_output=True, text=True, timeout=_ASK_S, check=False,
    )  # fmt: skip
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise PluginError(f"LeRobot cannot be imported: {said[-1] if said else f'exit code {done.returncode}'}")
    return None


FAMILY = Family(
    dialect=Dialect("lerobot", SIDE, ("lerobot", "torch")),
    requirements=requirements_of(RELEASE),
    make=imported,
    check_source=check_release,
    installs=requirements_of,
    named=True,
    least=(3, 12),
)


def python_of(chosen: str | None) -> str:
    """The Python to run. chosen: a release or a name that was added, or a path. Raises ConfigError."""
    known = {item.name: item for item in added("lerobot")}
    if chosen is not None and chosen not in known:
        path = shutil.which(os.path.expanduser(chosen)) if "/" in chosen else None  # noqa: PTH111
        if path is not None:
            return os.path.abspath(path)  # noqa: PTH100 - a link to the interpreter is the environment
        hint = f"atropos env add lerobot {chosen}" if _RELEASE.match(chosen) else "atropos env add lerobot"
        raise ConfigError(f"there is no LeRobot {chosen}", hint=f"{hint}, or --lerobot /path/to/python")
    record = known.get(chosen or DEFAULT) or (next(iter(known.values())) if len(known) == 1 else None)
    if record is None:
        found = f"; added: {', '.join(known)}" if known else ""
        raise ConfigError(
            f"no Python with LeRobot is known{found}",
            hint="atropos env add lerobot makes one; --lerobot /path/to/python names one that has it",
        )
    return _there(record)


def _there(record: Added) -> str:
    if record.health != "ok":
        raise ConfigError(f"{record.full_name}: {record.health}", hint=f"atropos env add lerobot {record.source or ''}")
    return record.python


def installed_release(python: str) -> str:
    """The release of LeRobot in a Python, by its metadata alone. Raises ConfigError."""
    code = "from importlib.metadata import version; print(version('lerobot'))"
    try:
        done = subprocess.run(  # noqa: S603 - the Python that the user named
            [home(python), "-c", code], capture_output=True, text=True, errors="replace", timeout=_START_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"{python} did not say within {_START_S:g} s which LeRobot it has", hint="--lerobot /path/to/python"
        ) from error
    except OSError as error:
        raise ConfigError(f"{python} cannot be started: {error.strerror}", hint="--lerobot /path/to/python") from error
    if done.returncode:
        raise ConfigError(f"{python} has no LeRobot", hint="atropos env add lerobot, or --lerobot /path/to/python")
    release = done.stdout.strip()
    match = re.match(r"(\d+)\.(\d+)", release)
    if match is None:
        raise ConfigError(f"{python} is not a Python with LeRobot: it said {release[:80]!r}", hint="--lerobot PYTHON")
    if (int(match[1]), int(match[2])) < _OLDEST:
        raise ConfigError(
            f"{python} has LeRobot {release}, which reads no datasets of format v3.0",
            hint="atropos env add lerobot",
        )
    return release


def ask(python: str, arguments: list[str]) -> dict[str, Any]:
    """What LeRobot makes of the arguments: see `side`. Raises PluginError where it cannot answer."""
    command = [python, str(SIDE), "check", json.dumps({"arguments": arguments})]
    try:
        done = subprocess.run(  # noqa: S603 - LeRobot's Python, and a file of ours
            command, capture_output=True, text=True, errors="replace", timeout=_ASK_S, check=False, env=environment()
        )
        found: Any = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise PluginError(f"LeRobot did not answer within {_ASK_S:g} s") from error
    except (OSError, ValueError) as error:
        said = done.stderr.strip().splitlines()[-_LAST:] if isinstance(error, ValueError) else [str(error)]
        raise PluginError("LeRobot's Python did not answer: " + "\n".join(said), hint=f"try it: {python}") from error
    if not isinstance(found, dict):
        raise PluginError(f"LeRobot's Python did not answer, but said {done.stdout[:80]!r}", hint=f"try it: {python}")
    if broken := found.get("broken"):
        raise PluginError(f"LeRobot cannot be imported: {broken[0]}", hint=f"in the environment of {python}: pip check")
    return found


def environment() -> dict[str, str]:
    """Ours, without what belongs to our Python alone."""
    without = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
    quiet = {"TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}
    return {**{name: value for name, value in os.environ.items() if name not in without}, **quiet}
