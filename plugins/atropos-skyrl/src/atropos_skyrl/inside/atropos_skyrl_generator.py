"""The generator of SkyRL that plays our episodes: SkyRL's servers, our engine's environments and rewards.

It is copied into the run beside `atropos_episodes`, and runs in SkyRL's driver. Sampled ids stay as they were sampled,
and the tokens of the environment are masked. A request that does not extend the one before it begins a sequence of its
own: a step of the trajectory, in SkyRL's words.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from atropos_chat import Chat, NoPrompt
from atropos_episodes import Engine, EngineLost, EpisodeFailed, Fatal, Play, Sequence, end_all, tried
from skyrl.train.generators.base import GeneratorInterface
from skyrl.train.generators.utils import get_rollout_metrics

FAILED = "error"
"""Why a rollout without a reward stopped."""


@dataclass(frozen=True)
class Lengths:
    """Most tokens of the first request of an episode, and of all behind it."""

    prompt: int
    response: int


@dataclass
class Played:
    """A rollout: its sequences, and what the engine says of it."""

    sequences: list[Any]
    done: dict[str, Any]
    cut: bool
    seconds: float


class AtroposGenerator(GeneratorInterface):  # type: ignore[misc]
    """folder: what `atropos train --trainer skyrl` has prepared. model: the name of the policy at SkyRL's servers."""

    def __init__(self, folder: str | Path, tokenizer: Any, client: Any, model: str | None, lengths: Lengths) -> None:
        self.folder, self.client, self.model, self.lengths = Path(folder), client, model, lengths
        self.chat = Chat(tokenizer)
        options = json.loads((self.folder / "atropos.json").read_text(encoding="utf-8"))
        self._engines = itertools.cycle([Engine(folder) for _ in range(options["env_workers"])])

    async def generate(self, input_batch: Any, disable_tqdm: bool = False) -> Any:
        """See GeneratorInterface. Raises EpisodeFailed where no group of the batch is whole."""
        extras, names = input_batch["env_extras"], input_batch["trajectory_ids"]
        about, sampling = input_batch["batch_metadata"], input_batch["sampling_params"] or {}
        step = int(about.global_step or 0)
        items = [json.loads(extra["atropos"]) for extra in extras]
        playing = [asyncio.create_task(self._play(item, step, sampling)) for item in items]
        try:
            found = await asyncio.gather(*playing)
        finally:
            for task in playing:
                task.cancel()
        broken = {name.instance_id for name, one in zip(names, found, strict=True) if isinstance(one, Exception)}
        failures = [one for one in found if isinstance(one, Exception)]
        if failures and len(broken) == len({name.instance_id for name in names}) and about.training_phase == "train":
            raise EpisodeFailed(f"no group of step {step} is whole: {failures[-1]}")
        return self._output(names, found, broken)

    async def _play(self, item: dict[str, Any], step: int, sampling: dict[str, Any]) -> Played | Exception:
        engine = next(self._engines)

        async def once() -> Played:
            play = SkyrlPlay(self, engine, sampling)
            try:
                done = await play.run(item, step)
            finally:
                await self.client.finish_session(play.session)
            return Played(play.sequences, done, play.cut, play.seconds)

        played: Played | Exception
        try:
            played = await tried(once)
        except (EpisodeFailed, EngineLost) as error:
            played = error
        except NoPrompt as error:
            end_all(self.folder, str(error))
            raise Fatal(str(error)) from error
        return played

    def _output(self, names: list[Any], found: list[Played | Exception], broken: set[str]) -> Any:
        """One row a sequence. Of a group with a failed rollout, nothing is trained on."""
        rows = []
        for name, one in zip(names, found, strict=True):
            if isinstance(one, Exception):
                rows.append((name, self._nothing(), 0.0, FAILED, True))
                continue
            reason = "length" if one.cut else "stop"
            for place, sequence in enumerate(one.sequences, 1):
                rows.append((name, sequence, float(one.done["reward"]), reason, place == len(one.sequences)))
        masks = [[0] * len(one.mask) if name.instance_id in broken else one.mask for name, one, *_ in rows]
        responses, rewards = [one.response for _, one, *_ in rows], [row[2] for row in rows]
        known = all(one.logprobs is not None for _, one, *_ in rows)
        times = [one.seconds for one in found if isinstance(one, Played)]
        metrics = get_rollout_metrics(responses, rewards, loss_masks=masks, trajectory_completion_times=times)
        return {
            "prompt_token_ids": [one.prompt for _, one, *_ in rows],
            "response_ids": responses,
            "rewards": rewards,
            "loss_masks": masks,
            "stop_reasons": [row[3] for row in rows],
            "rollout_metrics": metrics | _counts(found),
            "rollout_logprobs": [one.logprobs for _, one, *_ in rows] if known else None,
            "trajectory_ids": [row[0] for row in rows],
            "is_last_step": [row[4] for row in rows],
        }

    def _nothing(self) -> Sequence:
        """A row in the place of a failed rollout."""
        end = min(self.chat.ends)
        sequence = Sequence([end])
        sequence.sampled([end], [0.0])
        return sequence


class SkyrlPlay(Play):  # type: ignore[misc]
    """One episode."""

    def __init__(self, generator: AtroposGenerator, engine: Engine, sampling: dict[str, Any]) -> None:
        super().__init__(engine, generator.lengths.prompt, generator.lengths.response)
        self._generator, self._sampling = generator, sampling
        self.session = uuid4().hex

    async def ready(self, messages: list[dict[str, Any]], tools: Any) -> Sequence:
        """See Play: by the model's chat template, as the engine's own backends do."""
        now: Sequence | None = self._now
        known = [] if now is None else now.ids
        ids, extends = await asyncio.to_thread(self._generator.chat.request, messages, tools, known)
        if now is not None and extends:
            now.given(ids[len(known) :])
            return now
        return self._begin(Sequence(ids))

    async def sample(self, prompt: list[int], most: int) -> tuple[list[int], list[float] | None]:
        """By SkyRL's servers."""
        request = {
            "prompt_token_ids": [prompt],
            "session_ids": [self.session],
            "sampling_params": {**self._sampling, "max_tokens": most},
        }
        output = await self._generator.client.generate(request, model=self._generator.model)
        logprobs = output.get("response_logprobs")
        return list(output["response_ids"][0]), None if logprobs is None else list(logprobs[0])

    def took(self, now: Sequence, messages: list[dict[str, Any]], ids: list[int], logprobs: list[float] | None) -> str:
        """See Play."""
        now.sampled(ids, logprobs)
        return str(self._generator.chat.text(ids))

    def ended(self, ids: list[int]) -> bool:
        """See Play."""
        return ids[-1] in self._generator.chat.ends


def _counts(found: list[Played | Exception]) -> dict[str, float]:
    """More numbers of a batch; SkyRL joins those of several batches by their names."""
    done = [one for one in found if isinstance(one, Played)]
    counts: dict[str, float] = {"generate/failed": len(found) - len(done)}
    if done:
        counts["generate/avg_num_turns"] = sum(one.done["turns"] for one in done) / len(done)
        counts["generate/avg_cut"] = sum(one.cut for one in done) / len(done)
    return counts
