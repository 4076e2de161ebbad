"""Secrets: values that must not reach files, logs and messages."""

from __future__ import annotations

from atropos_cli.redaction import (
    learn as learn_secret,
)
from atropos_cli.redaction import (
    learn_url as learn_url_secret,
)
from atropos_cli.redaction import (
    looks_secret,
    names_a_secret,
    redacted,
    redacted_bytes,
    redacted_json,
)

__all__ = [
    "learn_secret",
    "learn_url_secret",
    "looks_secret",
    "names_a_secret",
    "redacted",
    "redacted_bytes",
    "redacted_json",
]
