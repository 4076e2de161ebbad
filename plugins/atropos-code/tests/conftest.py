"""One sandbox for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from atropos_code.errors import SandboxError
from atropos_code.isolation import detect
from atropos_code.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as box:
        yield box


@pytest.fixture(scope="session")
def usable() -> Callable[[str], str]:
    """A function from a level to what to ask for to get it here; it skips the test where that does not exist.

    Root has no level "process" with a Python that nobody else may read. Its tests run unprotected then.
    """
    found: dict[str, str] = {}

    def ask(level: str) -> str:
        if level not in found:
            try:
                found[level] = detect(level) and level
            except SandboxError as error:
                found[level] = "unprotected" if level == "process" else f"! {error}"
        if found[level].startswith("!"):
            pytest.skip(f"level {level} does not work here: {found[level]}")
        return found[level]

    return ask
