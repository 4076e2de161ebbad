"""Virtual environments for foreign environments: made with uv where it is installed, else with venv and pip."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from atropos_cli.errors import ConfigError, PluginError

_PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^,;\s*]+)\Z")
_VERSIONS = """
import json, sys
from importlib import metadata
found = {}
for name in json.loads(sys.argv[1]):
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        found[name] = None
print(json.dumps({"python": "%d.%d.%d" % sys.version_info[:3], **found}))
"""
_ASK_S = 60.0
_LAST = 8


def make(
    venv: Path,
    requirements: Sequence[str],
    *,
    python: str | None,
    say: Callable[[str], object],
    bare: Sequence[str] = (),
) -> str:
    """Make the environment and install into it; the path of its Python. A part of one is deleted after an error.

    python: the interpreter to make it with, ours by default. bare: what is installed without its dependencies.
    Raises ConfigError.
    """
    base = python or sys.executable
    fresh = venv.with_name(f"{venv.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.parent.mkdir(parents=True, exist_ok=True)
    uv = shutil.which("uv")
    inside = str(fresh / "bin" / "python")
    try:
        if uv is not None:
            _run([uv, "venv", "--python", base, str(fresh)], say)
            install = [uv, "pip", "install", "--python", inside]
        else:
            _run([base, "-m", "venv", str(fresh)], say)
            install = [inside, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        if bare:
            _run([*install, "--no-deps", *bare], say)
        if requirements:
            _run([*install, *requirements], say)
        wanted = (*bare, *requirements)
        check_pins(wanted, versions(inside, [name for name, _ in pins(wanted)]))
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    shutil.rmtree(venv, ignore_errors=True)
    fresh.rename(venv)
    return str(venv / "bin" / "python")


def versions(python: str, names: Sequence[str]) -> dict[str, str]:
    """The versions of distributions in another Python, of those that it has, and its own as "python"."""
    try:
        asked = subprocess.run(  # noqa: S603 - a Python that the user named
            [python, "-c", _VERSIONS, json.dumps(list(names))],
            capture_output=True, text=True, timeout=_ASK_S, check=True,
        )  # fmt: skip
        found = json.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ConfigError(f"{python} is not a Python that runs: {error}", hint="--python PATH") from error
    return {name: version for name, version in found.items() if version is not None}


def pins(requirements: Sequence[str]) -> list[tuple[str, str]]:
    """(name, version) of those that name one exactly."""
    return [(found[1], found[2]) for item in requirements if (found := _PINNED.match(item.strip()))]


def check_pins(requirements: Sequence[str], found: Mapping[str, str]) -> None:
    """Raises PluginError where another version was installed than was asked for."""
    for name, version in pins(requirements):
        if found.get(name) != version:
            raise PluginError(
                f"{name} {found.get(name) or 'is not installed'} where {version} is needed",
                hint="--with names other requirements, or a file's; --python another Python",
            )


def _run(command: Sequence[str], say: Callable[[str], object]) -> None:
    say(" ".join(os.path.basename(word) if word.startswith("/") else word for word in command))  # noqa: PTH119
    done = subprocess.run(  # noqa: S603 - no shell; requirements are the user's own
        command, capture_output=True, text=True, check=False,
        env={**os.environ, "UV_PYTHON_DOWNLOADS": "never"},
    )  # fmt: skip
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()[-_LAST:]
        raise ConfigError(f"{Path(command[0]).name} failed: " + "\n".join(lines), hint="atropos env add --help")
