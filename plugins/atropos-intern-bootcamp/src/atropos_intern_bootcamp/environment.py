"""The environment `intern-bootcamp`: tasks of the bootcamps of InternBootcamp, one, some or all.

    git clone https://github.com/InternLM/InternBootcamp && pip install -e InternBootcamp
    atropos gen intern-bootcamp                                    all bootcamps (RandomTask)
    atropos gen intern-bootcamp --tasks Maze --tasks Sudoku
    atropos gen intern-bootcamp --package my_camps --package-path . --tasks Sums

Everything of the package runs in an isolated worker: it is third-party code, some of it evaluates replies.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from atropos_cli.sdk import (
    ConfigError,
    DataError,
    Environment,
    Episode,
    JsonDict,
    Message,
    Task,
    TaskStream,
    system,
    user,
)
from atropos_cli.sdk.isolation import IsolatedWorker, WorkerError, accept_isolation
from atropos_cli.sdk.prompts import packaged_prompt
from atropos_intern_bootcamp.config import BootcampConfig
from atropos_intern_bootcamp.scoring import Verdict, intern_bootcamp, judge, worker_for

ALL = "RandomTask"
DRAWS = 10
"""Bootcamps that are tried for a task of RandomTask."""


class BootcampEpisode(Episode):
    """One reply. Its verdict becomes info and metrics, by bootcamp too."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._verdict: Verdict | None = None

    def reset(self) -> Sequence[Message]:
        _made(self.task)
        return self.task.prompt

    async def step(self, reply: Message) -> None:
        try:
            self._verdict = await judge(self.task, reply.text)
        except WorkerError:
            # The reward meets the same error and says so; without a verdict there are no metrics.
            self._verdict = None

    def result(self) -> JsonDict:
        info: JsonDict = {"bootcamp": self.task.info["bootcamp"]}
        if self._verdict is not None:
            info["success"] = self._verdict.correct
            if self._verdict.refused is not None:
                info["refused"] = self._verdict.refused
        return info

    def metrics(self) -> dict[str, float]:
        verdict = self._verdict
        redrawn = self.task.info.get("redrawn")
        # Zero where nothing failed, so that the mean over a run is the number of failures for each rollout.
        drawn = {"redrawn": float(len(redrawn))} if isinstance(redrawn, list) else {}
        if verdict is None:
            return drawn
        return {
            **drawn,
            f"correct_{self.task.info['bootcamp']}": float(verdict.correct),
            "formed": float(verdict.formed),
            "thinking": float(verdict.thinking),
            "refused": float(verdict.refused is not None),
        }


class BootcampEnvironment(Environment):
    """Endless tasks of InternBootcamp, each with the name of its bootcamp."""

    name = "intern-bootcamp"
    Config = BootcampConfig
    rewards = (intern_bootcamp,)
    splits: ClassVar[Sequence[str]] = ("train", "test")
    prompt = packaged_prompt(__file__)
    config: BootcampConfig

    def __init__(self, config: BootcampConfig) -> None:
        super().__init__(config)
        self._folder = _folder(config)
        self._names: list[str] = []
        self._params: dict[str, JsonDict] = {}
        accept_isolation(config.isolation)

    async def open(self, *, workers: int = 1, seed: int = 0) -> None:
        """Start the worker and check the names before the first task."""
        await asyncio.to_thread(self._chosen)

    def _worker(self) -> IsolatedWorker:
        return worker_for(self.config.package, self._folder, self.config.isolation)

    def _chosen(self) -> list[str]:
        """The bootcamps to draw from. Raises ConfigError."""
        if self._names:
            return self._names
        try:
            known: list[str] = self._worker().ask_now({"do": "list"}, seconds=60.0, fork=False)
        except WorkerError as error:
            hints = {
                "ModuleNotFoundError": "pip install what it needs, or name another: --package, --package-path",
                "PermissionError": f"nobody inside is root: chmod -R o+rX {self._folder}",
            }
            raise ConfigError(
                f"package {self.config.package!r} in {self._folder} cannot be loaded: {error}",
                hint=hints.get(str(error.type), error.hint),
            ) from None
        if not known:
            raise ConfigError(
                f"package {self.config.package!r} in {self._folder} exports no bootcamps",
                hint="install InternBootcamp with pip install -e (a plain install ships an empty package)",
            )
        wanted: list[str] = []
        for text in self.config.tasks:
            wanted += known if text == ALL else [_named(text, known)]
        usual = type(self.config).model_fields["exclude"].default
        excluded = {_named(text, known) for text in self.config.exclude if text not in usual or _matches(text, known)}
        self._params = _by_class(self.config.params, known)
        self._names = [name for name in dict.fromkeys(wanted) if name not in excluded]
        if not self._names:
            raise ConfigError("no bootcamp is left", hint="leave out fewer: --exclude")
        return self._names

    def tasks(self, split: str) -> TaskStream:
        """Endless. Task i is decided by split, --data-seed and i."""
        names = self._chosen()
        return TaskStream(lambda index: self._task(names, split, index))

    def _task(self, names: list[str], split: str, index: int) -> Task:
        # In turn, in an order that is shuffled anew in each round: every bootcamp comes up equally often.
        round_number, place = divmod(index, len(names))
        order = list(names)
        Random(f"{self.config.data_seed}/{split}/{round_number}").shuffle(order)
        name = order[place]
        if ALL not in self.config.tasks:
            return self._made(split, index, name)
        return self._drawn(names, split, index, name)

    def _drawn(self, names: list[str], split: str, index: int, first: str) -> Task:
        """A task of a bootcamp that was not asked for by name: one that fails is replaced by another, and told."""
        others = [name for name in names if name != first]
        Random(f"{self.config.data_seed}/{split}/{index}/again").shuffle(others)
        failed: list[Any] = []
        for name in (first, *others[: DRAWS - 1]):
            task = self._made(split, index, name)
            if "error" not in task.info:
                break
            failed.append({"bootcamp": name, "error": task.info["error"]})
        return task.model_copy(update={"info": {**task.info, "redrawn": failed}})

    def _made(self, split: str, index: int, name: str) -> Task:
        """The task that a bootcamp makes at this place, or one with the error that it makes."""
        seed = Random(f"{self.config.data_seed}/{split}/{index}").getrandbits(32)
        task_id = f"{split}-{index}-{name}"
        request = {"do": "make", "name": name, "params": self._params.get(name, {}), "seed": seed}
        try:
            made = self._worker().ask_now(request, seconds=self.config.timeout_s, trusted=True)
        except WorkerError as error:
            # Some bootcamps need data or packages that are not there.
            return Task(id=task_id, info={"task_name": name, "bootcamp": name, "seed": seed, "error": str(error)})
        info: JsonDict = {
            "task_name": name,
            "bootcamp": name,
            "seed": seed,
            "identity": made["identity"],
            "scoring": self._scoring(),
        }
        prompt = (*self._system(), user(made["prompt"]))
        return Task(id=task_id, prompt=prompt, answer=made["gold"], info=info)

    def _scoring(self) -> JsonDict:
        """What a reward must know to score the task elsewhere."""
        fields = ("package", "isolation", "timeout_s", "require_thinking", "min_thinking")
        fields += ("correct_reward", "incorrect_reward", "format_bonus")  # type: ignore[assignment]
        return {"folder": self._folder, **{name: getattr(self.config, name) for name in fields}}

    def _system(self) -> tuple[Message, ...]:
        asked = self.config.thinking or self.config.require_thinking
        told = self.prompt.text("thinking") if asked else ""
        return (*((system(told),) if told else ()), *self.prompt.examples())

    def episode(self, task: Task) -> Episode:
        return BootcampEpisode(task)

    async def validate(self, task: Task) -> bool | None:
        """Does the bootcamp verify its own gold answer? None where it gives none: InternBootcamp's classes do not.

        A class may have gold_answer(identity) -> the text of a reply that must be verified.
        """
        _made(task)
        if not isinstance(task.answer, str):
            return None
        thought = "x" * self.config.min_thinking
        return (await judge(task, f"<think>{thought}</think>\n{task.answer}")).correct


def _folder(config: BootcampConfig) -> str:
    """The folder that holds the package. Raises ConfigError where there is none."""
    top = config.package.partition(".")[0]
    if config.package_path is not None:
        folder = Path(config.package_path).expanduser().resolve()
        if (folder / top).is_dir() or (folder / f"{top}.py").is_file():
            return str(folder)
        raise ConfigError(f"{folder} holds no package {top!r}", hint="--package-path is the folder that contains it")
    try:
        spec: Any = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if spec is not None and not places and spec.origin:
        places = [spec.origin]
    if not places:
        raise ConfigError(
            f"package {top!r} is not installed",
            hint="git clone https://github.com/InternLM/InternBootcamp && pip install -e InternBootcamp"
            if top == "internbootcamp"
            else "--package-path FOLDER names the folder that contains it",
        )
    return str(Path(places[0]).resolve().parent)


def _matches(text: str, known: Sequence[str]) -> list[str]:
    plain = text.lower().removesuffix("bootcamp")
    return [name for name in known if name.lower().removesuffix("bootcamp") == plain]


def _named(text: str, known: Sequence[str]) -> str:
    """The class that a name on the command line means, whatever its case and ending. Raises ConfigError."""
    found = [text] if text in known else _matches(text, known)
    if len(found) == 1:
        return found[0]
    close = get_close_matches(text, known, n=3, cutoff=0.4)
    raise ConfigError(
        f"there is no bootcamp {text!r}" if not found else f"{text!r} is ambiguous: {', '.join(found)}",
        hint=f"did you mean {', '.join(close)}?" if close else f"{len(known)} bootcamps, or {ALL} for all",
    )


def _by_class(params: Mapping[str, JsonDict], known: Sequence[str]) -> dict[str, JsonDict]:
    """Arguments by the class that each name means. Raises ConfigError for no such class, or one named twice."""
    found: dict[str, JsonDict] = {}
    for text, given in params.items():
        name = _named(text, known)
        if name in found:
            raise ConfigError(f"--params has two entries for {name}", hint="give it once")
        found[name] = given
    return found


def _made(task: Task) -> None:
    if "error" in task.info:
        redrawn = task.info.get("redrawn")
        more = f" (nor did {len(redrawn) - 1} others)" if isinstance(redrawn, list) and len(redrawn) > 1 else ""
        raise DataError(f"bootcamp {task.info['bootcamp']} did not make this task{more}: {task.info['error']}")
