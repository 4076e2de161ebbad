"""The hooks of plugins."""

from __future__ import annotations

from collections.abc import Iterator

from _pages.markdown import code, doc_of, page, signature

INTRO = """\
A plugin is a distribution with an entry point in the group `atropos` that names a module. The module implements
any of these hooks with `@hookimpl`:

```toml
[project.entry-points.atropos]
maze = "atropos_maze"
```

The `atropos_register_*` hooks return [ComponentSpec](sdk.md#componentspec) objects, whose target is imported on
first use, or the components themselves. A hook with a misspelt name is reported by `atropos plugins list`. So is a
plugin that cannot be imported; the others go on working.

A distribution can also add a command, by an entry point in the group `atropos.commands` that names a
`typer.Typer` or a function:

```toml
[project.entry-points."atropos.commands"]
maze = "atropos_maze.cli:app"
```

A dot puts the command into a group: `"env.draw"` is `atropos env draw`."""


def pages() -> Iterator[tuple[str, str]]:
    """reference/hooks.md."""
    from atropos_cli.plugins import hookspecs

    parts = []
    for name, function in vars(hookspecs).items():
        if name.startswith("atropos_"):
            head = code(f"def {name}{signature(function)}", "python")
            parts.append(f"## {name}\n\n{head}\n\n{doc_of(function)}")
    yield "hooks.md", page("Hooks", INTRO, *parts)
