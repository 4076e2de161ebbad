"""The old name of `atropos_authoring`, which has the contract suites, helpers and the mock server now."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

try:
    _now = importlib.import_module("atropos_authoring")
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "atropos_cli.testing is now atropos_authoring: pip install atropos-authoring", name="atropos_authoring"
    ) from error
warnings.warn("atropos_cli.testing is now atropos_authoring", DeprecationWarning, stacklevel=2)
__path__ = list(_now.__path__)  # for atropos_cli.testing.mock_server and the like


def __getattr__(name: str) -> Any:
    return getattr(_now, name)
