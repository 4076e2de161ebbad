"""`atropos export`: write environments for other frameworks. Each plugin for one brings its command."""

from __future__ import annotations

from atropos_cli.cli.lazy import new_app

app = new_app(help="Write an environment as a package of another framework.")


@app.callback()
def export() -> None:
    """Write an environment as a package of another framework."""
