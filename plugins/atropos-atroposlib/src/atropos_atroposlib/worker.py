"""On the side of atroposlib: one environment, its items in order, its groups at once, its model requests to the engine.

Run by path under the environment's own Python; it imports nothing of atropos. Settings: {"path", "attr", "config",
"seed", "mode"}, mode being "describe" or "run". Requests:

    {"do": "group", "index": I, "group_size": N}   -> {"groups": [[entry, ...], ...], "item": JSON}
    {"do": "evaluate"}                             -> {"metrics": {...}, "samples": [...]}

An entry is {"score", "messages", "turns" or "tokens" and "masks", "logprobs", "extra"}.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

BACKLOG_MOST = 100
MOST_ITEM = 4000
BYTES = "bytes"
LISTS = ("tokens", "masks", "scores", "messages")
EXTRA = ("advantages", "overrides", "ref_logprobs", "images", "distill_token_ids", "distill_logprobs")

engine: Any = sys.modules["__main__"].load_module(
    "atroposlib_engine", str(Path(__file__).resolve().with_name("engine.py"))
)
State = engine.State


class Items:
    """The items drawn from the environment so far."""

    def __init__(self) -> None:
        self._items: dict[int, Any] = {}
        self._drawn = 0
        self._drawing = asyncio.Lock()

    async def get(self, index: int) -> Any:
        """Item number `index`: they come in order, whoever asks first."""
        async with self._drawing:
            while self._drawn <= index:
                self._items[self._drawn] = await State.env.get_next_item()
                self._drawn += 1
        return self._items.get(index)

    def drop(self, index: int) -> None:
        self._items.pop(index, None)


ITEMS = Items()


async def start(settings: dict[str, Any]) -> dict[str, Any]:
    """Import the environment; describe it, and in mode run make it and set it up."""
    os.environ.setdefault("WANDB_MODE", "disabled")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    cls = load(settings["path"], settings["attr"])
    config, servers = cls.config_init()
    about = {"name": cls.name or cls.__name__, "doc": (cls.__doc__ or "").strip(), **fields_of(config)}
    if settings["mode"] == "run":
        random.seed(settings["seed"])
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(settings["seed"] % 2**32)
        await make(cls, config, servers, settings["config"])
    return about


def load(path: str, attr: str) -> Any:
    """The class in the file, with the file's folder and the checkout's top importable, as when the file is run."""
    file = Path(path).resolve()
    tops = (folder for folder in file.parents if (folder / "environments").is_dir() or (folder / ".git").exists())
    top = next(tops, file.parent.parent)
    sys.path.insert(0, str(file.parent))
    sys.path.append(str(top))
    spec: Any = importlib.util.spec_from_file_location(file.stem, path)
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        if "relative import" not in str(error):
            raise
        del sys.modules[file.stem]  # it is part of a package, as with python -m
        module = importlib.import_module(".".join(file.relative_to(top).with_suffix("").parts))
    return getattr(module, attr)


def fields_of(config: Any) -> dict[str, Any]:
    """The schema of its config, and the values that config_init() gives."""
    return {"schema": type(config).model_json_schema(), "values": config.model_dump(mode="json")}


async def make(cls: Any, config: Any, servers: Any, given: dict[str, Any]) -> None:
    """The environment with the engine in the place of its model servers."""
    import openai.types.chat.chat_completion
    import openai.types.completion  # noqa: F401
    from atroposlib.envs import base
    from atroposlib.envs.server_handling.server_manager import ServerManager

    config = type(config).model_validate({**config.model_dump(), **given, **UNDER_US})
    bytes_only = config.tokenizer_name == BYTES
    if bytes_only:
        base.AutoTokenizer = engine.ByteTokenizer
        if (transformers := sys.modules.get("transformers")) is not None:
            vars(transformers)["AutoTokenizer"] = engine.ByteTokenizer
    cls.server_cls = engine.engine_server()
    ServerManager.managed_server = engine.managed_server
    ServerManager.wait_for_sem = engine.no_wait
    try:
        env = cls(config=config, server_configs=engine_configs(servers), slurm=False, testing=False)
    except OSError as error:
        why = str(error).partition("\n")[0]
        failed = RuntimeError(f"tokenizer {config.tokenizer_name!r} cannot be loaded: {why}")
        failed.hint = "--tokenizer-name FOLDER, or --tokenizer-name bytes where the backend gives token ids"  # type: ignore[attr-defined]
        raise failed from error
    env.server.max_n_completions = sys.maxsize
    State.env, State.bytes_only, State.vocabulary = env, bytes_only, False if bytes_only else None
    await env.setup()
    engine.remember_templates(env)


UNDER_US = {
    "use_wandb": False,
    "include_messages": True,
    "ensure_scores_are_not_same": False,
    "data_path_to_save_groups": None,
    "data_dir_to_save_evals": None,
}
"""What the engine does itself, or needs."""


def engine_configs(servers: Any) -> list[Any]:
    """One for each server of the environment: code may look at them."""
    from atroposlib.envs.server_handling.server_baseline import APIServerConfig

    given = servers if isinstance(servers, list) and servers else [APIServerConfig()]
    changes = {"health_check": False, "api_key": "x", "base_url": "http://engine.invalid/v1"}
    return [item.model_copy(update=changes) for item in given]


async def answer(call: Any, request: dict[str, Any]) -> Any:
    """One request of the engine."""
    replies = engine.Replies()
    engine.CALL.set((call, replies))
    if request["do"] == "evaluate":
        return await evaluate()
    State.env.config.group_size = request["group_size"]
    item = await ITEMS.get(request["index"])
    if item is None:
        raise LookupError("get_next_item() gave None: the environment has no more items")
    made: list[Any] = []
    waiting = [item]
    while waiting and len(made) < BACKLOG_MOST:
        group, more = await State.env.collect_trajectories(waiting.pop(0))
        waiting.extend(more or ())
        if group:
            group = await State.env.postprocess_histories(group)
        made += [one for one in (group if isinstance(group, list) else [group]) if one]
    groups = [entries for one in made if (entries := entries_of(one, replies))]
    ITEMS.drop(request["index"])
    return {"groups": groups, "item": short(item)}


def entries_of(group: dict[str, Any], replies: Any) -> list[dict[str, Any]]:
    """The rollouts of a ScoredDataGroup. Raises TypeError, ValueError for anything else."""
    if not isinstance(group, dict):
        raise TypeError(f"collect_trajectories() gave {type(group).__name__} in the place of a group")
    given = {key: group.get(key) for key in LISTS}
    lengths = {key: len(value) for key, value in given.items() if isinstance(value, (list, tuple)) and value}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the lists of the group differ in length: {lengths}")
    count = len(group.get("scores") or ())
    made = []
    for i in range(count):
        tokens, masks = nth(group, "tokens", i), nth(group, "masks", i)
        entry: dict[str, Any] = {"score": group["scores"][i], "messages": conversation(group, i, count, replies)}
        entry["extra"] = {key: value for key in EXTRA if (value := nth(group, key, i)) is not None}
        stretches = trained(tokens, masks)
        if stretches is not None:
            entry["turns"] = len(stretches)
            if keeps(stretches, replies):
                entry |= {"tokens": tokens, "masks": masks, "logprobs": nth(group, "inference_logprobs", i)}
        made.append(entry)
    return made


def keeps(stretches: list[list[int]], replies: Any) -> bool:
    """Are the environment's own tokens wanted? Where they are the model's and differ from the sampled ones."""
    if State.bytes_only or State.vocabulary is False:
        return False
    sampled = replies.sampled()
    return not sampled or not all(any(same(run, ids) for ids in sampled) for run in stretches)


def same(run: list[int], ids: tuple[int, ...]) -> bool:
    """Is it the reply, give or take what a template writes behind it?"""
    size = min(len(run), len(ids))
    return abs(len(run) - len(ids)) <= 4 and list(ids[:size]) == run[:size]


def trained(tokens: Any, masks: Any) -> list[list[int]] | None:
    """The stretches that are trained on; None where there are no masks."""
    if tokens is None or masks is None:
        return None
    runs: list[list[int]] = []
    inside = False
    for token, mask in zip(tokens, masks, strict=False):
        if mask == -100:
            inside = False
            continue
        if not inside:
            runs.append([])
            inside = True
        runs[-1].append(int(token))
    return runs


def conversation(group: dict[str, Any], i: int, count: int, replies: Any) -> list[dict[str, Any]]:
    """The messages of a rollout: as given, else those of the request that made it, else read from its tokens."""
    given = nth(group, "messages", i)
    if isinstance(given, (list, tuple)) and given and all(engine.is_message(item) for item in given):
        return [engine.plain_message(item) for item in given]
    tokens = list(nth(group, "tokens", i) or ())
    for messages, choice in replies.made:
        if "ids" in choice and tokens[: len(choice["prompt_ids"])] == choice["prompt_ids"]:
            size = len(choice["prompt_ids"])
            if same(tokens[size:], tuple(choice["ids"])):
                return [*messages, {"role": "assistant", "content": choice["content"]}]
    if len(replies.made) == count:
        messages, choice = replies.made[i]
        return [*messages, {"role": "assistant", "content": choice["content"]}]
    masks = nth(group, "masks", i) or [-100] * len(tokens)
    start = next((k for k, mask in enumerate(masks) if mask != -100), len(tokens))
    read = State.env.tokenizer.decode
    return [{"role": "user", "content": read(tokens[:start])}, {"role": "assistant", "content": read(tokens[start:])}]


def nth(group: dict[str, Any], key: str, i: int) -> Any:
    """One rollout's part of a field; None where it is absent, or empty for all."""
    values = group.get(key)
    return values[i] if isinstance(values, (list, tuple)) and len(values) > i else None


def short(item: Any) -> Any:
    """An item for the record, as JSON; a long one as text that is cut."""
    text = json.dumps(readable(item), default=str, sort_keys=True)
    return json.loads(text) if len(text) <= MOST_ITEM else text[:MOST_ITEM] + "..."


def readable(item: Any) -> Any:
    """Frozensets of pairs as dictionaries."""
    if isinstance(item, frozenset) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in item):
        return {str(key): readable(value) for key, value in item}
    if isinstance(item, dict):
        return {str(key): readable(value) for key, value in item.items()}
    return [readable(part) for part in item] if isinstance(item, (list, tuple)) else item


async def evaluate() -> dict[str, Any]:
    """Run evaluate(), and keep its log."""
    env = State.env
    logged: dict[str, Any] = {"metrics": {}, "samples": []}

    async def evaluate_log(metrics: Any = None, *given: Any, **options: Any) -> None:
        logged["metrics"].update(metrics or {})
        logged["samples"] += options.get("samples") or []

    async def wandb_log(self: Any, wandb_metrics: Any = None) -> None:
        logged["metrics"].update(wandb_metrics or {})

    from atroposlib.envs.base import BaseEnv

    env.evaluate_log = evaluate_log
    BaseEnv.wandb_log = wandb_log
    await env.evaluate()
    await env.wandb_log({})
    numbers = {str(key): value for key, value in logged["metrics"].items() if is_number(value)}
    return {"metrics": numbers, "samples": logged["samples"]}


def is_number(value: Any) -> bool:
    try:
        return not isinstance(value, (bool, str)) and float(value) == float(value)
    except (TypeError, ValueError):
        return False
