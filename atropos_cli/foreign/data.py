"""The JSON objects that a foreign process sends and gets: anything may be in them."""

from __future__ import annotations

from typing import Any, TypeAlias

Data: TypeAlias = dict[str, Any]
