"""JSON values from untrusted lines, and strict JSON lines out of them.

Reading takes what other tools write: NaN and Infinity tokens, escaped halves of surrogate pairs. What is
written is strict JSON in UTF-8: non-finite numbers become null, a lone half becomes U+FFFD.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, from_json, to_json

from atropos_cli.domain.base import clean_text


class NotJson(ValueError):
    """A line that holds no JSON value; the text says where it breaks."""


def parse(line: bytes) -> tuple[Any, bool]:
    """(value, strict): strict is False when the line itself may not be copied into an output.

    Raises NotJson.
    """
    try:
        return from_json(line, allow_inf_nan=False), True
    except ValueError as error:
        first = error
    if b"NaN" in line or b"Infinity" in line:
        try:
            return from_json(line), False
        except ValueError as error:
            first = error
    if b"\\u" not in line:
        raise NotJson(_reason(line, first)) from first
    return _parse_surrogates(line), False


def open_file(path: Path) -> IO[bytes]:
    """A file to read. Raises OSError for what is none: a pipe would be waited for, a device has no end."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a file", str(path))
    return os.fdopen(fd, "rb")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a small file of a run. Raises OSError, or NotJson for any other content."""
    with open_file(path) as file:
        value, _ = parse(file.read())
    if not isinstance(value, dict):
        raise NotJson(f"expected an object, found {kind_of(value)}")
    return value


def _parse_surrogates(line: bytes) -> Any:
    """The standard reader accepts lone halves of pairs; they are replaced here, keys included."""
    try:
        return clean_tree(json.loads(line))
    except (ValueError, RecursionError) as error:
        raise NotJson(_reason(line, error)) from error


def _reason(line: bytes, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as bad:
        return f"not UTF-8 at byte {bad.start}"
    return str(error).replace(" at line 1 column", " at column")


def clean_tree(value: Any) -> Any:
    """The same value with every text cleaned of lone surrogates."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [clean_tree(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): clean_tree(item) for key, item in value.items()}
    return value


def encode(record: BaseModel) -> bytes:
    """A record as one line of strict JSON, without the newline and without fields that are None.

    Its texts may come from an environment, a reward or an exception, so they may hold lone surrogates.
    """
    try:
        return record.__pydantic_serializer__.to_json(record, exclude_none=True)
    except PydanticSerializationError:
        return to_json(clean_tree(record.model_dump(mode="json", exclude_none=True)))


def dump(value: Any) -> bytes:
    """One line of strict JSON, without the newline. The value must come from `parse` or hold clean text."""
    return to_json(value, inf_nan_mode="null")


def kind_of(value: Any) -> str:
    """What a JSON value is, for messages to people."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value if len(value) <= 30 else value[:27] + '...'!r}"
    return "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else type(value).__name__
