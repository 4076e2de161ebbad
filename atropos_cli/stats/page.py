"""A page of tables and charts: no scripts, nothing loaded from anywhere."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from atropos_cli.stats.svg import escape


def page(title: str, header: str, body: str) -> str:
    """The whole page. header, body: markup, whose texts are escaped already."""
    style = files("atropos_cli.stats").joinpath("page.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"<header>{header}</header>\n{body}\n</body>\n</html>\n"
    )
