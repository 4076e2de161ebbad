"""A question put to plugins one after the other, until one of them answers it."""

from __future__ import annotations

from typing import Any, TypeVar

from atropos_cli.errors import AtroposError, PluginError
from atropos_cli.plugins.errortext import describe_error
from atropos_cli.plugins.registry import Registry
from atropos_cli.streams import stdout_to_stderr

T = TypeVar("T")


def first_answer(
    registry: Registry, hook: str, asked: dict[str, Any], kind: type[T], task: str, own: type[AtroposError]
) -> T | None:
    """What the first plugin answers through a hook that may answer None; None when all do.

    kind: type of an answer. task: of the message when a plugin fails, "open 'a.gguf'". own: errors that mean the
    user's mistake, let through; whatever else a plugin raises becomes PluginError.
    """
    for plugin, implementation in registry.hooks(hook):
        try:
            with stdout_to_stderr():
                answer = implementation.call(asked)
            if answer is not None and not isinstance(answer, kind):
                raise TypeError(f"{hook} gave {type(answer).__name__}, not a {kind.__name__}")
        except own:
            raise
        except (Exception, SystemExit) as error:
            raise PluginError(
                f"plugin {plugin.entry_point!r} ({plugin.dist}) cannot {task}: {describe_error(error)}"
            ) from error
        if answer is not None:
            return answer
    return None
