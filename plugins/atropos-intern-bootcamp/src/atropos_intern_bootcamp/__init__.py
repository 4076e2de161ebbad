"""InternBootcamp as an environment of atropos.

This module is the plugin's manifest. It imports nothing heavy.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_environments() -> Iterable[ComponentSpec]:
    """intern-bootcamp."""
    yield ComponentSpec(
        "environment",
        "intern-bootcamp",
        "atropos_intern_bootcamp.environment:BootcampEnvironment",
        "Endless tasks of InternBootcamp (to be installed from its repository): all bootcamps or chosen ones.",
    )


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """The bootcamp's verdict, also by name."""
    yield ComponentSpec(
        "reward",
        "intern_bootcamp",
        "atropos_intern_bootcamp.scoring:intern_bootcamp",
        "1 when the bootcamp verifies the reply, -0.5 when not, plus 0.2 for a wrong one in the right form.",
    )


@hookimpl
def atropos_doctor() -> Iterable[tuple[str, str, str]]:
    """Whether the package can be imported; it is not needed for anything else."""
    if importlib.util.find_spec("internbootcamp") is None:
        yield ("internbootcamp", "info", "not installed: clone InternLM/InternBootcamp, then pip install -e it")
    else:
        yield ("internbootcamp", "ok", "can be imported")
