"""Find the template folders that ship with the product, in a wheel or in a checkout. Standard library only."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """A folder of the product, "templates". Raises FileNotFoundError when the installation lacks it."""
    for candidate in (_PACKAGE / f"_{name}", _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"this installation of atropos-cli has no {name} folder")
