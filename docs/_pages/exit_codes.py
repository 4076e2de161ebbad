"""Exit codes and the tree of errors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from _pages.markdown import code, page, table


def pages() -> Iterator[tuple[str, str]]:
    """reference/exit-codes.md."""
    from atropos_cli import errors

    rows = [(str(int(code)), code.name, errors.EXIT_MEANINGS[code]) for code in errors.ExitCode]
    tree = inspect.cleandoc("\n" + (errors.__doc__ or "").split("\n\n")[1])
    yield (
        "exit-codes.md",
        page(
            "Exit codes",
            "An error is one line on stderr, `error: what, with the value`, and mostly a second one, "
            "`hint: a command or an edit to try`. Tracebacks are shown for code 70 and with `--debug`.",
            table(("code", "name", "meaning"), rows),
            "## Errors\n\nEvery error the product raises on purpose is an `AtroposError`; its class decides the code.",
            code(tree),
            "A plugin may raise any of those in [the SDK](sdk.md). What else a plugin raises while it plays or "
            "scores a rollout fails that rollout, not the run: see "
            "[failures and resume](../explanation/failures-and-resume.md).",
        ),
    )
