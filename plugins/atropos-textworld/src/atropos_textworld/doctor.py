"""Checks for `atropos doctor`."""

from __future__ import annotations

import os
from importlib import metadata, util
from pathlib import Path

from atropos_textworld.engine.cache import default_root

Check = tuple[str, str, str]


def checks() -> list[Check]:
    """TextWorld, its compilers and the game cache. TextWorld is found, not imported."""
    return [_textworld(), _cache(default_root())]


def _textworld() -> Check:
    name = "engine"
    spec = util.find_spec("textworld")
    if spec is None or spec.origin is None:
        return name, "fail", "not installed: pip install textworld"
    compilers = Path(spec.origin).parent / "thirdparty" / "inform7-6M62" / "share" / "inform7" / "Compilers"
    missing = [tool for tool in ("ni", "inform6") if not os.access(compilers / tool, os.X_OK)]
    if missing:
        return name, "fail", f"{compilers} lacks {' and '.join(missing)}: pip install --force-reinstall textworld"
    return name, "ok", f"textworld {metadata.version('textworld')} with its compilers"


def _cache(root: Path) -> Check:
    name = "game cache"
    there = next(folder for folder in (root, *root.parents) if folder.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return name, "fail", f"{there} cannot be written: set XDG_CACHE_HOME"
    games = list((root / "games").glob("*.z8")) if root.exists() else []
    size = sum(path.stat().st_size for path in games)
    return name, "ok", f"{len(games)} games, {size / 2**20:.0f} MB in {root}"
