"""The two sides of a test run, as functions for the boxes of `atropos_cli.sdk.isolation`."""

from __future__ import annotations

import json
import types
from typing import Any

from atropos_code.inside import judge, remote
from atropos_code.inside.wire import Channel


def tests(payload: bytes, files: dict[str, int], channel: Any) -> None:
    """Run the tests of a suite against the program at the other end; trusted."""
    judge.run(json.loads(payload), Channel(channel), files["verdict"])


def solution(code: types.CodeType, namespace: dict[str, Any], channel: Any) -> None:
    """Run a program and answer the calls of the tests."""
    remote.serve(code, namespace, Channel(channel))
