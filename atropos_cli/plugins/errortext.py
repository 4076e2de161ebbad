"""What is said of an exception that a plugin's code raised: its own class may be broken, and its text of any length."""

from __future__ import annotations

import inspect
import traceback
from typing import Any

_LONGEST = 1000  # characters of a message
_LONGEST_TRACE = 20_000


def describe_error(error: BaseException) -> str:
    """The error as "Type: message", on one line."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - a plugin's own exception class may be broken too
        text = ""
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}... ({len(text)} characters)"
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def trace_of(error: BaseException) -> str:
    """The traceback's text, for --debug: its end, where the message is very long."""
    return "".join(traceback.format_exception(error))[-_LONGEST_TRACE:]


def found(value: Any) -> str:
    """A short description of a value for messages: its type and, where it has one, its name."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"class {value.__name__}"
    name = getattr(value, "__name__", None)
    if isinstance(name, str):
        return f"{type(value).__name__} {name}"
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the value is a plugin's and may do anything
        text = "?"
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def bare_signature(function: Any) -> str:
    """(self, job_id, *, follow=False): without types."""
    signature = inspect.signature(function)
    bare = [item.replace(annotation=inspect.Parameter.empty) for item in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
