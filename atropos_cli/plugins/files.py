"""Components that are not packaged: `./my_env.py:MyEnv` names an attribute of a Python file."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from atropos_cli.errors import ComponentNotFound, PluginError
from atropos_cli.plugins.checks import is_component
from atropos_cli.plugins.errortext import describe_error
from atropos_cli.plugins.spec import ComponentSpec, Kind
from atropos_cli.streams import stdout_to_stderr

_MARK = ".py:"
_loading = threading.Lock()


def names_a_file(name: str) -> bool:
    """True when a component name means a file rather than something installed."""
    return _MARK in name or name.endswith(".py")


def file_component(kind: Kind, name: str) -> tuple[ComponentSpec, Path, str]:
    """The spec, the file and the file's digest. Imports nothing. Raises ComponentNotFound."""
    head, mark, attr = name.rpartition(_MARK)
    if not mark or not attr:
        example = name.rstrip(":")
        file = Path(example).expanduser()
        if not file.is_file():
            raise ComponentNotFound(f"{kind} {name!r}: there is no such file", hint=_file_hint(file))
        raise ComponentNotFound(
            f"{kind} {name!r} does not say which object of the file is meant", hint=f"write {example}:NAME"
        )
    file = Path(head + ".py").expanduser().resolve()
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ComponentNotFound(
            f"{kind} {name!r}: cannot read {file}: {error.strerror or error}", hint=_file_hint(file)
        ) from error
    version = "sha256-" + _digest(content)
    return ComponentSpec(kind, f"{file}:{attr}", f"{file.stem}:{attr}"), file, version


def load_from_file(kind: Kind, file: Path, attr: str) -> Any:
    """Import the file and return the attribute. Raises PluginError with the line that failed."""
    module = _import_file(file)
    try:
        return getattr(module, attr)
    except AttributeError as error:
        offered = sorted(name for name, value in vars(module).items() if is_component(kind, value) and not _ours(value))
        close = difflib.get_close_matches(attr, offered, n=1)
        if close:
            hint: str | None = f"did you mean {file.name}:{close[0]}?"
        else:
            hint = f"{kind}s in it: {', '.join(offered)}" if offered else f"the file defines no {kind}"
        raise ComponentNotFound(f"{file} has no {attr!r}", hint=hint) from error


def _ours(value: Any) -> bool:
    """Is it a base class of the sdk, which the file imports?"""
    return isinstance(value, type) and value.__module__.startswith("atropos_cli.")


def _import_file(file: Path) -> ModuleType:
    # The path is part of the module's name: two files called env.py are two modules, and all
    # components of one file share one module.
    name = f"atropos_file_{_digest(str(file).encode())}_{file.stem}"
    with _loading:
        known = sys.modules.get(name)
        if known is not None:
            return known
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise PluginError(f"{file} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            with _on_path(file.parent), stdout_to_stderr():
                spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise PluginError(
                f"cannot import {file}{_where(error, file)}: {describe_error(error)}", hint=_import_hint(error)
            ) from error
        except BaseException:
            del sys.modules[name]
            raise
        return module


def _digest(data: bytes) -> str:
    import hashlib  # loads OpenSSL: not at start-up

    return hashlib.sha256(data).hexdigest()[:16]


@contextlib.contextmanager
def _on_path(folder: Path) -> Iterator[None]:
    """Let the file import its neighbours, while it is imported and no longer."""
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(entry)


def _where(error: BaseException, file: Path) -> str:
    if isinstance(error, SyntaxError):
        return ""  # its message has the line already
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == str(file):
            return f", line {frame.lineno}"
    return ""


def _import_hint(error: BaseException) -> str | None:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"pip install {error.name.partition('.')[0]}"
    return None


def _file_hint(file: Path) -> str | None:
    if not file.parent.is_dir():
        return None
    close = difflib.get_close_matches(file.name, [path.name for path in file.parent.glob("*.py")], n=1)
    return f"did you mean {close[0]}?" if close else None
