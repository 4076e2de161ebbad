"""Virtual environments for foreign environments: made with uv where it is installed, else with venv and pip.

uv is looked for on PATH, and beside our own Python.
"""

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
_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*(?:$|[=<>!~;@])")
_BARE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
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
_NEWEST = 14


def make(
    venv: Path,
    requirements: Sequence[str],
    *,
    python: str | None,
    say: Callable[[str], object],
    bare: Sequence[str] = (),
) -> str:
    """Make the environment and install into it; the path of its Python. A part of one is deleted after an error.

    One that was there is kept as `set_aside` names it, until the caller drops or restores it.

    python: the interpreter to make it with, ours by default. bare: requirements installed without their dependencies.
    Raises ConfigError.
    """
    base = python or sys.executable
    fresh = venv.with_name(f"{venv.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.parent.mkdir(parents=True, exist_ok=True)
    uv = shutil.which("uv") or shutil.which("uv", path=os.path.dirname(sys.executable))  # noqa: PTH120
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
        found = versions(inside, named(wanted))
        check_pins(wanted, found)
        check_newest(inside, wanted, found, uv)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    _move_scripts(fresh, venv)
    if venv.exists():
        drop(set_aside(venv))
        venv.rename(set_aside(venv))
    fresh.rename(venv)
    return str(venv / "bin" / "python")


def set_aside(venv: Path) -> Path:
    """Where an environment is in whose place another one was made."""
    return venv.with_name(f"{venv.name}.old")


def drop(venv: Path) -> None:
    """Delete an environment, if it is there."""
    shutil.rmtree(venv, ignore_errors=True)


def restore(venv: Path) -> None:
    """Put back the one that was set aside, if there is one."""
    if set_aside(venv).exists():
        drop(venv)
        set_aside(venv).rename(venv)


def python_since(least: tuple[int, int] | None) -> str | None:
    """The command of an installed Python of that version or a newer one; None: ours will do. Raises ConfigError."""
    if least is None or sys.version_info >= least:
        return None
    names = [f"python{least[0]}.{minor}" for minor in range(least[1], _NEWEST + 1)]
    found = next((path for name in names if (path := shutil.which(name)) is not None and _runs(path)), None)
    if found is None:
        raise ConfigError(
            f"it needs Python {least[0]}.{least[1]} or newer: none of {', '.join(names)} is on PATH",
            hint="install one, or name one that has all it needs with --python PATH",
        )
    return found


def _runs(path: str) -> bool:
    """A version manager's command may be there for a version that is not."""
    try:
        return subprocess.run([path, "--version"], capture_output=True, timeout=_ASK_S, check=False).returncode == 0  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return False


def _move_scripts(fresh: Path, venv: Path) -> None:
    """Write the later place of an environment into its scripts, whose first lines name their Python."""
    for script in (fresh / "bin").iterdir():
        if script.is_symlink() or not script.is_file():
            continue
        data = script.read_bytes()
        if bytes(fresh) in data and b"\0" not in data:
            script.write_bytes(data.replace(bytes(fresh), bytes(venv)))


def is_virtual(python: str) -> bool:
    """Is it the Python of a virtual environment?"""
    return (Path(python).parent.parent / "pyvenv.cfg").is_file()


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


def named(requirements: Sequence[str]) -> list[str]:
    """The names of the distributions that are asked for by name, in order."""
    return [found[1] for item in requirements if (found := _NAMED.match(item.strip()))]


def check_newest(python: str, requirements: Sequence[str], found: Mapping[str, str], uv: str | None) -> None:
    """Raises PluginError where the resolver fell back to an older version of a package that was asked for without one.

    It does so silently where the newest one conflicts with something else, even if that takes it back for years.
    """
    for name in (item.strip() for item in requirements if _BARE.match(item.strip())):
        newest = _newest(python, name, uv)
        if newest is not None and found.get(name) not in (None, newest):
            raise PluginError(
                f"{name} {found[name]} would be installed, and {newest} is the newest: its requirements cannot be met",
                hint=f"name the version, {name}=={found[name]}, or another --python",
            )


def _newest(python: str, name: str, uv: str | None) -> str | None:
    """The newest release of a distribution, whatever it requires; None where the index does not say it."""
    if uv is None:
        command = [python, "-m", "pip", "index", "versions", name, "--ignore-requires-python"]
        pattern = re.compile(rf"{re.escape(name)} \(([^)]+)\)", re.IGNORECASE)
    else:
        command = [uv, "pip", "compile", "-q", "--no-deps", "--no-header", "--python", python, "-"]
        pattern = re.compile(rf"^{re.escape(name)}==(\S+)", re.IGNORECASE | re.MULTILINE)
    try:
        asked = subprocess.run(  # noqa: S603 - no shell; the name was checked
            command, input=name, capture_output=True, text=True, timeout=_ASK_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    said = pattern.search(asked.stdout)
    return None if said is None else said[1]


def _run(command: Sequence[str], say: Callable[[str], object]) -> None:
    say(" ".join(os.path.basename(word) if word.startswith("/") else word for word in command))  # noqa: PTH119
    done = subprocess.run(  # noqa: S603 - no shell; requirements are the user's own
        command, capture_output=True, text=True, check=False,
        env={**os.environ, "UV_PYTHON_DOWNLOADS": "never"},
    )  # fmt: skip
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()[-_LAST:]
        raise ConfigError(f"{Path(command[0]).name} failed: " + "\n".join(lines), hint="atropos env add --help")
