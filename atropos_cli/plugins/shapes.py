"""What a class must be like beside deriving from its port: attributes of the right kind, methods that can be called.

Each mistake here is one that a first plugin makes; the message names the class and the attribute, the hint the fix.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from atropos_cli.plugins.errortext import found

_CALLS = {"tasks": ("split",), "episode": ("task",), "validate": ("task",), "step": ("reply",), "reset": ()}

Problem = tuple[str, str | None]
"""(message, hint)."""


def config_problems(component: type) -> Iterator[Problem]:
    """`Config` must be a pydantic model: its fields are the options."""
    from pydantic import BaseModel

    config: Any = getattr(component, "Config", None)
    if config is None or (isinstance(config, type) and issubclass(config, BaseModel)):
        return
    what = f"class {config.__name__}" if isinstance(config, type) else f"{type(config).__name__} {config!r}"
    yield (
        f"class {component.__name__}: Config is {what}, which is not a model of options",
        "derive it: class Config(atropos_cli.sdk.Config), with a field for each option",
    )


def constructor_problems(component: type) -> Iterator[Problem]:
    """`__init__` is called with the options alone."""
    if not _takes(component.__init__, 2):  # type: ignore[misc]
        yield (
            f"class {component.__name__}: __init__{inspect.signature(component.__init__)} takes no options",  # type: ignore[misc]
            "def __init__(self, config): super().__init__(config)",
        )


def environment_problems(component: Any) -> Iterator[Problem]:
    """Rewards, splits and the signatures of the methods."""
    name = component.__name__
    for field in ("splits", "roles"):
        value = getattr(component, field)
        if isinstance(value, str) or not isinstance(value, Sequence):
            names = [str(item) for item in value] if isinstance(value, Mapping | Set) else [value]
            yield f"class {name}: {field} is {value!r}, not a tuple", f"{field} = {tuple(names)!r}"
    yield from rewards_problems(name, component.rewards)
    if not isinstance(inspect.getattr_static(component, "rewards_for"), classmethod):
        yield (
            f"class {name}: rewards_for is called with the class",
            "write @classmethod above def rewards_for(cls, config)",
        )
    for method, words in _CALLS.items():
        function = inspect.getattr_static(component, method, None)
        if inspect.isfunction(function) and not _takes(function, 1 + len(words)):
            wanted = ", ".join(("self", *words))
            yield (
                f"class {name}: {method}{inspect.signature(function)} is called with ({wanted})",
                f"def {method}({wanted}): ...",
            )


def reward_problems(reward: Any) -> Iterator[Problem]:
    """A reward is called with (task, rollout), one of groups with (task, rollouts)."""
    if inspect.isroutine(reward.fn) and not _takes(reward.fn, 2):
        wanted = "task, rollouts" if reward.kind == "group" else "task, rollout"
        yield (
            f"reward {reward.name!r}: {reward.fn.__name__}{inspect.signature(reward.fn)} is called with ({wanted})",
            f"def {reward.fn.__name__}({wanted}): ...",
        )


def rewards_problems(name: str, rewards: Any, what: str = "rewards") -> Iterator[Problem]:
    """Rewards are Reward objects and names. what: what the class calls them."""
    from atropos_cli.ports.reward import Reward

    if isinstance(rewards, str | Reward) or not isinstance(rewards, Sequence):
        shown = repr(rewards) if isinstance(rewards, str) else getattr(rewards, "__name__", "...")
        shown = f"rewards = ({shown},)" if what == "rewards" else "return a list of rewards"
        yield f"class {name}: {what} is {found(rewards)}, not a tuple of rewards", shown
        return
    for place, item in enumerate(rewards):
        if isinstance(item, Reward):
            yield from reward_problems(item)
        elif not isinstance(item, str):
            hint = (
                f"write @reward above def {item.__name__}" if inspect.isroutine(item) else "use @reward on a function"
            )
            yield f"class {name}: {what}[{place}] is {found(item)}, not a reward", hint


def _takes(function: Any, count: int) -> bool:
    """Can the function be called with this number of positional arguments?"""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a function of C without a signature
        return True
    return True
