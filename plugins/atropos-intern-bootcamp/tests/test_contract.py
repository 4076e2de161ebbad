"""The contract that every environment keeps, with bootcamps of our own."""

from __future__ import annotations

from pathlib import Path

from atropos_authoring import EnvironmentContract
from atropos_intern_bootcamp.environment import BootcampEnvironment


class TestSampleBootcamps(EnvironmentContract):
    environment = BootcampEnvironment
    config = {  # noqa: RUF012
        "package": "sample_bootcamps",
        "package_path": str(Path(__file__).parent / "camps"),
        "tasks": ("Words", "Evalbootcamp"),
        "params": {"Eval": {"largest": 5}},
        "require_thinking": True,
    }
    replies = ("<think>so</think>[answer]7[/answer]", "no idea")
