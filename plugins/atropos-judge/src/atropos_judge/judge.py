"""The reward `judge`: what a language model makes of a reply, on a scale, as a number from 0 to 1.

fill the prompt -> look for the verdict in the cache -> ask `votes` times, each until it can be read
-> the median is the verdict -> keep it

helpful = make_judge("helpful", prompt="helpful.md", scale="1-5")     # a judge of one's own, for rewards = (...)
"""

from __future__ import annotations

import asyncio
import logging
import re
import statistics
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, create_model
from pydantic.fields import FieldInfo

from atropos_cli.sdk import (
    ConfigError,
    JsonDict,
    Message,
    Reward,
    RoleModel,
    Rollout,
    Score,
    Task,
    assistant,
    cut_by,
    user,
)
from atropos_cli.sdk.backends import Completion, role_models
from atropos_judge.asking import Asker
from atropos_judge.cache import VerdictCache, Votes, digest
from atropos_judge.config import ACCESS, JudgeConfig
from atropos_judge.errors import NoVerdict
from atropos_judge.prompts import digest as prompt_digest
from atropos_judge.prompts import fill
from atropos_judge.scale import Scale
from atropos_judge.verdict import read_verdict, shown

log = logging.getLogger("atropos.judge")
_REMINDER = "Your reply holds no verdict that can be read. {format} Write nothing else."
_QUOTED = 4000


class Judge(Reward):
    """A language model's score of the reply.

    Without a configuration it only says which options it has; `configured` gives one that can judge.
    """

    access: ClassVar[frozenset[str]] = ACCESS

    def __init__(
        self, name: str = "judge", *, weight: float = 1.0, config: JudgeConfig | None = None, options: Any = JudgeConfig
    ) -> None:
        super().__init__(self.score, name=name, weight=weight)
        self.summary = "A language model's score of the reply, 0 to 1."
        self.Config: type[BaseModel] = options  # type: ignore[misc]
        self.state = None if config is None else _State(name, config)

    def configured(self, config: BaseModel) -> Reward:
        """See Reward."""
        assert isinstance(config, JudgeConfig)
        return Judge(self.name, weight=self.weight, config=config, options=self.Config)

    async def score(self, task: Task, rollout: Rollout) -> Score:
        """The verdict as a number from 0 to 1. Raises NoVerdict (or a subclass) and BackendError."""
        return await self._ready().score(task, rollout)

    def roles(self) -> dict[str, JsonDict]:
        """See Reward. The role that judges, where the judge has no model by its own options."""
        if self.state is None or self.state.config.model is not None:
            return {}
        config = self.state.config
        return {self.state.role: {"temperature": config.temperature, "max_tokens": config.max_tokens}}

    def describe(self) -> JsonDict:
        """See Reward."""
        return {} if self.state is None else self.state.about

    def counts(self) -> dict[str, int]:
        """See Reward. judged: rollouts with a verdict; requests: answers asked for; cached: verdicts that cost none;

        unread: rollouts without a verdict; split: votes that were not unanimous; flipped: verdicts that are not
        the ones that were cached.
        """
        return {} if self.state is None else self.state.counted()

    async def open(self) -> None:
        """See Reward."""
        if (state := self.state) is None:
            return
        if state.config.model is not None:
            if role_models() is not None:
                log.warning("--%s.model is the older way: --role.%s.model has limits of its own", self.name, state.role)
            await state.asker.open()
        elif role_models() is None:
            raise state.without_model()

    async def close(self) -> None:
        """See Reward."""
        if self.state is not None:
            await self.state.asker.close()

    def _ready(self) -> _State:
        if self.state is None:
            raise ConfigError(
                f"reward {self.name!r} has no model to ask", hint=f"give the flag --{self.name}.model NAME"
            )
        return self.state


class _State:
    """A configured judge; shared by copies of the reward under other names and weights."""

    def __init__(self, name: str, config: JudgeConfig) -> None:
        self.name = name
        self.config = config
        self.scale = Scale.of(config.scale)
        self.role = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "judge"
        self.asker = Asker(config)
        options = ("model", "backend", "temperature", "max_tokens")
        asked = {"role": self.role} if config.model is None else {key: getattr(config, key) for key in options}
        self.about: JsonDict = {
            **asked,
            "prompt_sha256": prompt_digest(config.prompt),
            "scale": config.scale,
            "votes": config.votes,
        }
        self._counts: Counter[str] = Counter()
        self._caches: dict[str, VerdictCache] = {}
        self._renewed: dict[str, bool | None] = {}
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def counted(self) -> dict[str, int]:
        names = ["judged", "requests", "cached", "unread", "split", *(["flipped"] if self.config.refresh else [])]
        counts = {**self._counts, "requests": self._counts["requests"] + self.asker.requests}
        return {name: counts.get(name, 0) for name in names}

    def without_model(self) -> ConfigError:
        """There is no judge."""
        hint = f"give the flag --{self.name}.model NAME; in gen, eval and train: --role.{self.role}.model NAME"
        return ConfigError(f"reward {self.name!r} has no model to ask", hint=hint)

    def model(self) -> RoleModel | None:
        """The role's model; None where the judge has one by its own options. Raises ConfigError without any."""
        if self.config.model is not None:
            return None
        models = role_models()
        if not models or self.role not in tuple(models):
            raise self.without_model()
        return models[self.role]

    def cache(self, model: RoleModel | None) -> VerdictCache:
        """The verdicts of the model as it is now."""
        identity = self.config.identity() if model is None else self.config.identity_of(model.describe())
        key = digest(identity)
        if key not in self._caches:
            self._caches[key] = VerdictCache(self.config.cache_folder(), identity, self.about)
        return self._caches[key]

    async def score(self, task: Task, rollout: Rollout) -> Score:
        model = self.model()
        question = fill(self.config.prompt, task, rollout, self.scale)
        key = digest(question)
        if self.config.cache_folder() is None:
            votes, flipped = await self._ask(question, range(self.config.votes), model), None
        else:
            # Equal replies of a group are judged once: the others wait for it.
            lock = self._locks.setdefault(key, asyncio.Lock())
            async with lock:
                votes, flipped = await self._votes(key, question, model)
        verdict = statistics.median(votes.values())
        agreement = sum(score == verdict for score in votes.values()) / len(votes)
        self._counts["judged"] += 1
        self._counts["split"] += agreement < 1
        metrics = {"score": verdict, "agreement": agreement}
        if flipped is not None:
            self._counts["flipped"] += flipped
            metrics["flipped"] = float(flipped)
        value = self.scale.value(verdict)
        return Score(value, {f"{self.name}_{name}": number for name, number in metrics.items()})

    async def _votes(self, key: str, question: str, model: RoleModel | None) -> tuple[Votes, bool | None]:
        """The votes that count, and whether the verdict flipped (None where it was not asked for again)."""
        cache = self.cache(model)
        wanted = range(self.config.votes)
        known = {vote: score for vote, score in cache.votes(key).items() if vote in wanted}
        renew = self.config.refresh and key not in self._renewed
        missing = [vote for vote in wanted if renew or vote not in known]
        if not missing:
            self._counts["cached"] += 1
            return known, self._renewed.get(key)
        new = await self._ask(question, missing, model)
        stored = cache.add(key, new, again=renew)
        votes = {vote: stored[vote] for vote in wanted}
        if not renew:
            return votes, self._renewed.get(key)
        before = statistics.median(known.values()) if len(known) == len(wanted) else None
        flipped = None if before is None else before != statistics.median(votes.values())
        self._renewed[key] = flipped
        return votes, flipped

    async def _ask(self, question: str, wanted: Any, model: RoleModel | None) -> Votes:
        wanted = list(wanted)
        asked = [asyncio.ensure_future(self._vote(question, vote, model)) for vote in wanted]
        try:
            return dict(zip(wanted, await asyncio.gather(*asked), strict=True))
        except NoVerdict:
            self._counts["unread"] += 1
            raise
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _vote(self, question: str, vote: int, model: RoleModel | None) -> float:
        """One vote: asked, and asked again with a reminder until it can be read."""
        messages: list[Message] = [user(question)]
        attempts = self.config.attempts
        for attempt in range(1, attempts + 1):
            completion = await self._reply(messages, vote, model)
            text = completion.message.text
            try:
                return read_verdict(text, self.scale)
            except NoVerdict as error:
                if attempt == attempts:
                    cut = " (cut off by max_tokens)" if cut_by(completion.finish_reason) == "length" else ""
                    times = f" after asking {attempts} times" if attempts > 1 else ""
                    raise type(error)(f"{error}{cut}{times}") from None
                reminder = _REMINDER.format(format=self.scale.answer_format)
                messages = [user(question), assistant(text[-_QUOTED:] or "(empty)"), user(reminder)]
        raise NoVerdict(f"no verdict: {shown(question)}")

    async def _reply(self, messages: Sequence[Message], vote: int, model: RoleModel | None) -> Completion:
        if model is None:
            return await self.asker.ask(messages, seed=vote)
        self._counts["requests"] += 1
        return (await model.generate(messages))[0]


def make_judge(name: str, *, weight: float = 1.0, **defaults: Any) -> Judge:
    """A judge under another name, with other defaults for its options (see JudgeConfig). Raises ConfigError."""
    fields: dict[str, Any] = {}
    for option, value in defaults.items():
        known = JudgeConfig.model_fields.get(option)
        if known is None:
            raise ConfigError(
                f"a judge has no option {option!r}", hint=f"it has: {', '.join(JudgeConfig.model_fields)}"
            )
        fields[option] = (known.annotation, FieldInfo.merge_field_infos(known, default=value, validate_default=True))
    return Judge(name, weight=weight, options=create_model("JudgeConfig", __base__=JudgeConfig, **fields))


judge = Judge()
