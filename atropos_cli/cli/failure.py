"""How failures look and which exit code they end with.

    error: what went wrong, with the value
    hint: a command or an edit to try

Tracebacks are shown with --debug, and for defects (exit code 70). A reader that closes our standard
output early (`atropos ... | head`) is no failure: the exit code is 0 and nothing is said.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from typing import TYPE_CHECKING, Any

from atropos_cli.console.session import Session
from atropos_cli.errors import AtroposError, ExitCode, PluginError
from atropos_cli.streams import data_stream

if TYPE_CHECKING:
    from pydantic import ValidationError

_DATA_ERRNOS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOENT,
    errno.EEXIST,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
    errno.EIO,
}


def report(error: BaseException, session: Session) -> int:
    """Say what went wrong on stderr and return the exit code."""
    out = session.out
    if isinstance(error, BrokenPipeError):
        return silence_stdout()
    if isinstance(error, (KeyboardInterrupt, EOFError)) or type(error).__name__ == "Abort":
        out.note("interrupted")
        return ExitCode.INTERRUPTED
    code, message, hint = _explain(error)
    if code == ExitCode.USAGE and not hint:
        hint = f"{session.command} --help"
    out.error(message, hint)
    if session.debug or code == ExitCode.BUG:
        out.trace("".join(traceback.format_exception(error)))
    if code == ExitCode.BUG:
        out.note("This is a defect in atropos or in a plugin. Please report it with the lines above.")
    return code


def quit_in_component(error: SystemExit) -> PluginError:
    """The error that a sys.exit() of a component is: it would end a run in silence, with a code that means otherwise.

    Raises it again where a plugin's command ends itself.
    """
    frames = [
        (frame.f_globals.get("__name__", ""), frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    ours = [name for name, _, _ in frames if name.startswith("atropos_cli.")]
    if ours[-1:] in ([], ["atropos_cli.cli.app"], ["atropos_cli.cli.lazy"]):
        raise error
    _, file, line = frames[-1]
    return PluginError(
        f"{file}:{line} called sys.exit({error.code!r})", hint="raise an exception instead, which names the fault"
    )


def explained(error: BaseException) -> tuple[str, str | None]:
    """(message, hint) of an error, for commands that report it as part of another."""
    return _explain(error)[1:]


def _explain(error: BaseException) -> tuple[int, str, str | None]:
    """(exit code, message, hint)."""
    if isinstance(error, AtroposError):
        return error.exit_code, error.message, error.hint
    if (usage := _usage(error)) is not None:
        return usage
    if (invalid := _as_validation(error)) is not None:
        from atropos_cli.config.explain import validation_text

        text = validation_text(invalid)
        named = text.startswith(invalid.title)
        return ExitCode.CONFIG, text if named else f"{invalid.title}.{text}", _first_hint(invalid)
    if isinstance(error, OSError) and error.errno in _DATA_ERRNOS:
        where = f"{error.filename}: " if error.filename else ""
        return ExitCode.DATA, f"{where}{error.strerror or error}", None
    if isinstance(error, RecursionError | MemoryError):
        return ExitCode.BUG, f"{type(error).__name__}: {error}".rstrip(": "), None
    return ExitCode.BUG, f"unexpected {type(error).__name__}: {error}".rstrip(": "), None


def _usage(error: BaseException) -> tuple[int, str, str | None] | None:
    """The parser's own errors: their text in our form, with the closest option as the hint."""
    import typer

    # The parser's base class is public by its child only: BadParameter <- UsageError <- base, in every version.
    if not isinstance(error, typer.BadParameter.__mro__[2]):
        return None
    found: Any = error
    context = getattr(found, "ctx", None)
    wanted = str(getattr(found, "option_name", "")).lstrip("-")
    close = [name for name in getattr(found, "possibilities", None) or () if _alike(wanted, name.lstrip("-"))]
    # --env.x is only the long name of --x
    close = [name for name in close if "." not in name or f"--{name.partition('.')[2]}" not in close]
    message = str(found.message if wanted else found.format_message()).rstrip(".")
    hint = None if context is None else _extra(context.command_path, message) or f"{context.command_path} --help"
    if close:
        hint = f"did you mean {' or '.join(close[:2])}?"
    return ExitCode.USAGE, message[:1].lower() + message[1:], hint


def _extra(path: str, message: str) -> str | None:
    """What was probably meant by words that stand where the command takes none."""
    found = re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", message, re.DOTALL)
    word = found[1].split(" ")[0] if found is not None else ""
    if dashes := re.match(r"-?[\u2010-\u2015\u2212]+-?", word):  # copied from a page that prints dashes
        rest = word[dashes.end() :]
        return f"did you mean {'-' if len(rest) == 1 else '--'}{rest}? It was given a longer dash"
    if re.match(r"[A-Za-z][\w.-]*=", word):
        return f"did you mean --{word}?"
    if word and path == "atropos train grpo":
        return f"{path} --env NAME, or {path} --data FILE"
    if word and path in ("atropos train sft", "atropos train dpo"):
        return f"{path} --data FILE"
    return None


def _alike(one: str, two: str) -> bool:
    """Alike without their dashes, which all options share."""
    from difflib import SequenceMatcher

    return SequenceMatcher(None, one, two).ratio() >= 0.6


def _as_validation(error: BaseException) -> ValidationError | None:
    pydantic = sys.modules.get("pydantic")  # an error of a module that was never imported cannot be there
    found: ValidationError | None = error if pydantic and isinstance(error, pydantic.ValidationError) else None
    return found


_HINTS = {
    ("Task", "id"): 'an id is text: Task(id="1", ...) or id=str(number)',
    ("Task", "prompt"): 'a prompt is a tuple of messages: prompt=(user("..."),)',
    ("Task", "answer"): "an answer is a JSON value: text, number, list, dict",
    ("Task", "info"): "info is a dict of JSON values",
    ("Message", "content"): 'text: user("...")',
}
"""What to write instead in the models that plugins make, by model and field."""


def _first_hint(error: ValidationError) -> str | None:
    places = ((error.title, str(item["loc"][0])) for item in error.errors(include_url=False) if item["loc"])
    return next((_HINTS[place] for place in places if place in _HINTS), None)


def silence_stdout() -> int:
    """The reader is gone: let what is still buffered go nowhere, so that the interpreter's exit is quiet too."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, data_stream().fileno())
        os.close(null)
    except (OSError, ValueError, AttributeError):
        pass
    return ExitCode.OK
