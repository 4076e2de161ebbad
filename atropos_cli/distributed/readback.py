"""The metrics, checkpoints and rollouts of another trainer, brought into the run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from atropos_cli.distributed.episodes import TRAIN, plan_of_suite
from atropos_cli.distributed.host import ROLLOUTS
from atropos_cli.distributed.inside import FATAL
from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.group import ScoredGroup, make_group_id
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.training import TrainPlan
from atropos_cli.errors import TrainerError
from atropos_cli.rollout.advantages import advantages

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


class Lines:
    """The complete lines of a file that grows, as JSON objects; others are left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def new(self) -> Iterator[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except OSError:
            return
        whole = data.rfind(b"\n") + 1
        self._at += whole
        for line in data[:whole].splitlines():
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                yield found


class Played:
    """The rollouts that the engine's processes finish, by plan, step and place."""

    def __init__(self, folder: Path, plan: TrainPlan) -> None:
        self._folder = folder / ROLLOUTS
        self._plan = plan
        self._suites = {plan_of_suite(number): suite for number, suite in enumerate(plan.suites)}
        self._files: dict[Path, Lines] = {}
        self._found: dict[tuple[str, int], dict[int, list[ScoredGroup]]] = {}
        self.look()
        self._found.clear()  # those of earlier sessions

    def look(self) -> None:
        """Read the new lines."""
        for path in sorted(self._folder.glob("*.jsonl")):
            for line in self._files.setdefault(path, Lines(path)).new():
                try:
                    group = ScoredGroup.model_validate(line["group"])
                    key = str(line["plan"]), int(line["step"])
                    self._found.setdefault(key, {}).setdefault(int(line["place"]), []).append(group)
                except (ValueError, KeyError, TypeError):
                    continue

    def trained(self, step: int) -> dict[int, list[ScoredGroup]]:
        """The groups of a step by place; those of earlier steps are forgotten."""
        assert self._plan.rollouts is not None
        found = self._taken(TRAIN, step)
        return {place: [merged(self._plan.rollouts, place, one)] for place, one in sorted(found.items())}

    def evaluated(self, step: int) -> dict[str, dict[int, list[ScoredGroup]]]:
        """The groups of the evaluations with the weights of a step, by suite and place."""
        return {
            suite.name: {
                place: [merged(suite.plan, place, one)] for place, one in sorted(self._taken(name, step).items())
            }
            for name, suite in self._suites.items()
        }

    def _taken(self, plan: str, step: int) -> dict[int, list[ScoredGroup]]:
        found = self._found.get((plan, step), {})
        for key in [key for key in self._found if key[0] == plan and key[1] <= step]:
            del self._found[key]
        return found


def merged(plan: Plan, place: int, parts: Sequence[ScoredGroup]) -> ScoredGroup:
    """One group of rollouts that were played alone, with the advantages of the plan."""
    name = make_group_id(plan.digest, place)
    rollouts = tuple(
        part.rollouts[0].model_copy(update={"id": f"{name}/{number}"}) for number, part in enumerate(parts)
    )
    rewards = [rollout.reward for rollout in rollouts]
    found = advantages(plan.advantage, rewards)
    changes = {"group_id": name, "rollouts": rollouts, "advantages": found}
    return parts[0].model_copy(update=changes)


def raise_fatal(folder: Path) -> None:
    """Raises TrainerError where the engine has said that no episode can work."""
    try:
        said: JsonDict = json.loads((folder / FATAL).read_bytes())
    except (OSError, ValueError):
        return
    raise TrainerError(f"no episode can be played: {said.get('message')}", hint="atropos gen plays the same tasks")


def publish(source: Path, target: Path) -> None:
    """Put a folder of the other trainer at its place in the run, whole or not at all; files are shared, not copied.

    Raises TrainerError where it holds no weights.
    """
    if not any(found for pattern in WEIGHTS for found in source.glob(pattern)):
        raise TrainerError(f"{source} holds no weights that transformers can load")
    writing, old = (target.with_name(f".{word}-{target.name}") for word in ("writing", "old"))
    try:
        for left in (writing, old):
            shutil.rmtree(left, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, writing, copy_function=_link)
        if target.exists():
            target.rename(old)
        writing.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(writing, ignore_errors=True)
        raise TrainerError(f"{target} cannot be written: {error}", hint="make room there, then --resume") from error


def prune(folder: Path, keep: int, best: int | None) -> None:
    """Keep the newest checkpoints of the run and the best one."""
    found = sorted(
        (int(path.name.removeprefix("step-")), path)
        for path in (folder / "checkpoints").glob("step-*")
        if path.name.removeprefix("step-").isdecimal()
    )
    for step, path in found[:-keep]:
        if step != best:
            shutil.rmtree(path, ignore_errors=True)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
