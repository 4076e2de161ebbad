"""The page and its parts, from the package's own files. Nothing is loaded from anywhere else."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

SCRIPTS = ("dom.js", "facts.js", "data.js", "message.js", "group.js", "list.js", "compare.js", "app.js")
STYLE = "style.css"
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}


@cache
def asset(name: str) -> str:
    """One of the page's own files."""
    return files("atropos_view.page").joinpath("assets", name).read_text("utf-8")


def index_page(title: str) -> str:
    """The page that lists runs."""
    styles = "".join(f'<link rel="stylesheet" href="{name}">' for name in (STYLE, "runs.css"))
    scripts = "".join(f'<script src="{name}" defer></script>' for name in ("dom.js", "runs.js"))
    return _filled(title, styles, scripts, template="runs.html")


def served_page(title: str, *, listed: bool = False) -> str:
    """The page that fetches what it shows. listed: it was opened from a list of runs, two levels above."""
    scripts = "".join(f'<script src="{name}" defer></script>' for name in SCRIPTS)
    return _filled(
        title,
        f'<link rel="stylesheet" href="{STYLE}">',
        scripts,
        back='<a id="back" href="../../">Runs</a>' if listed else "",
    )


def exported_page(title: str) -> tuple[str, str]:
    """(what stands before the data, what stands behind) of one file that holds everything it shows.

    A policy inside it lets nothing but its own code run.
    """
    style, script = asset(STYLE), "\n".join(asset(name) for name in SCRIPTS)
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}"><style>{style}</style>'
    page = _filled(title, head, "\0")
    before, _, behind = page.rpartition("\0")
    return before, f"<script>{script}</script>{behind}"


def data_element(name: str, packed: bytes) -> str:
    """Compressed data as an element that is never run: base64 has no character that could end it."""
    return f'<script type="application/octet-stream" id="{name}">{base64.b64encode(packed).decode()}</script>\n'


def script_json(value: Any) -> str:
    """JSON that can stand inside a script element: no character in it can end the element or begin a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _filled(title: str, head: str, scripts: str, *, back: str = "", template: str = "page.html") -> str:
    page = asset(template)
    shown = "".join(char if char.isprintable() else "?" for char in title)
    # One pass over the template, so that nothing in a title is taken for a place to fill.
    parts = {"title": escape(shown), "head": head, "scripts": scripts, "back": back}
    out, rest = [], page
    while "{{" in rest:
        before, _, rest = rest.partition("{{")
        name, _, rest = rest.partition("}}")
        out += [before, parts[name]]
    return "".join([*out, rest])
