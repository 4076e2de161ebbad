"""Sphinx configuration: MyST Markdown, the furo theme. Build: sphinx-build -W docs docs/_build/html"""

from __future__ import annotations

import tomllib
from pathlib import Path

import atropos_cli

_project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = _project["name"]
author = _project["authors"][0]["name"]
copyright = author  # noqa: A001 (the name Sphinx asks for)
version = release = atropos_cli.__version__
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "_pages"]
html_theme = "furo"
html_title = project
html_show_sphinx = False
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
pygments_style = "friendly"
pygments_dark_style = "monokai"
