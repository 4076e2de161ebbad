"""Does the installed SkyRL take these settings? Run under its Python: its own classes read and validate them."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import json
import re
import sys
import typing
from importlib.metadata import version
from types import UnionType
from typing import Any

_PLAIN: tuple[type, ...] = (bool, int, float, str, list, dict)


def check(overrides: list[str]) -> dict[str, Any]:
    """The versions, or an error."""
    try:
        from omegaconf.errors import OmegaConfBaseException
        from skyrl.train.config import SkyRLTrainConfig
        from skyrl.train.utils import validate_cfg
        from yaml import YAMLError
    except ImportError:
        raise
    except Exception as error:  # noqa: BLE001 - a class of pydantic's: SkyRL 0.3 says that Python 3.11 would do
        python = ".".join(map(str, sys.version_info[:2]))
        return {"error": f"it cannot be imported by Python {python}: {_line(error)}", "hint": "use Python 3.12"}

    try:
        config = SkyRLTrainConfig.from_cli_overrides(overrides)
    except (ValueError, TypeError, AttributeError, AssertionError, OmegaConfBaseException, YAMLError) as error:
        return _unread(_line(error))
    wrong = next(_wrong(config, ""), None)
    if wrong is not None:
        return {"error": wrong, "hint": "see --overrides"}

    try:
        validate_cfg(config)
    except (AssertionError, ValueError, TypeError, NotImplementedError) as error:
        return {"error": _line(error)}
    rows, parts = config.trainer.train_batch_size * config.generator.n_samples_per_prompt, _parts(config)
    if rows % parts:  # SkyRL would leave tasks of each step out, or all of them
        uneven = f"the {rows} rollouts of a step cannot be split evenly over {parts} GPUs"
        return {"error": uneven, "hint": "--prompts-per-step times --group-size must be a multiple of that"}
    return {"skyrl": version("skyrl"), "ray": version("ray"), "engine": _engine()}


def _unread(line: str) -> dict[str, Any]:
    """Settings that cannot be read. For a key that it does not know SkyRL lists all that it knows."""
    if unknown := re.match(r"Invalid fields \{(.+?)\} for (\w+)\. Valid fields are \{(.+)\}", line):
        key, known = unknown[1].split(", ")[0].strip("'"), [name.strip("'") for name in unknown[3].split(", ")]
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(known)[:12])} ..."
        return {"error": f"{unknown[2]} has no field {key!r}", "hint": hint}
    return {"error": line, "hint": "see --overrides"}


def _parts(config: Any) -> int:
    """The GPUs that share out the rows of a step: those of the policy, fewer where several share a row."""
    placement, policy = config.trainer.placement, config.trainer.policy
    gpus = int(placement.policy_num_nodes * placement.policy_num_gpus_per_node)
    if config.trainer.strategy == "megatron":
        mega = policy.megatron_config
        together = mega.tensor_model_parallel_size * mega.pipeline_model_parallel_size * mega.context_parallel_size
    else:
        together = policy.sequence_parallel_size
    return max(1, gpus // int(together))


def _wrong(node: Any, path: str) -> typing.Iterator[str]:
    """Values of another type than their field's: SkyRL reads them without a word."""
    hints = typing.get_type_hints(type(node))
    for field in dataclasses.fields(node):
        value, place = getattr(node, field.name), f"{path}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from _wrong(value, f"{place}.")
        elif not _fits(value, hints[field.name]):
            yield f"{place}: {value!r} is not {_name(hints[field.name])}"


def _name(hint: Any) -> str:
    return str(hint).replace("typing.", "") if typing.get_args(hint) else str(hint.__name__)


def _fits(value: Any, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, UnionType):
        return any(_fits(value, one) for one in typing.get_args(hint))
    if origin is typing.Literal:
        return value in typing.get_args(hint)
    plain = origin or hint
    if dataclasses.is_dataclass(plain):
        return isinstance(value, plain)  # type: ignore[arg-type]
    if plain is type(None):
        return value is None
    if plain is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if plain is int and isinstance(value, bool):
        return False
    return plain not in _PLAIN or isinstance(value, plain)


def _line(error: Exception) -> str:
    lines = f"{error}".strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _engine() -> str | None:
    with contextlib.suppress(Exception):
        return version("vllm")
    return None


if __name__ == "__main__":
    question = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        answer = check(question["overrides"])
    sys.stdout.write("\natropos-answer " + json.dumps(answer) + "\n")
