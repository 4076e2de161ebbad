"""The contract suites pass for components that keep the contract, and fail for those that do not."""

from __future__ import annotations

import inspect
import math
import random
from typing import ClassVar

import pytest
from atropos_authoring import BackendContract, EnvironmentContract, RewardContract
from pydantic import ConfigDict

from atropos_cli.builtin.rewards import contains_answer, exact_match, numeric_match
from atropos_cli.builtin.scripted import ScriptedBackend, ScriptedConfig
from atropos_cli.sdk import (
    Config,
    Environment,
    Episode,
    Field,
    Game,
    GameEnvironment,
    Reward,
    Task,
    TaskStream,
    TokenSpan,
    assistant,
    group_reward,
    reward,
    user,
)
from atropos_cli.sdk.backends import Completion, Generation, InferenceBackend


class CountdownEpisode(Episode):
    """Two turns: a word, then another."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.left = 2

    def reset(self):
        return [user(str(self.task.answer))]

    async def step(self, reply):
        self.left -= 1
        return [user(f"{self.left} left")] if self.left else None

    def metrics(self):
        return {"left": float(self.left)}


class CountdownConfig(Config):
    words: int = Field(default=4, description="Number of words.")


class Countdown(Environment):
    """Several turns, a reward by name, tasks by index."""

    name = "countdown"
    Config = CountdownConfig
    rewards = ("exact_match", "length")

    def tasks(self, split):
        return TaskStream(lambda index: Task(id=f"w{index}", answer="done"), self.config.words)

    def episode(self, task):
        return CountdownEpisode(task)


class TestSeveralTurns(EnvironmentContract):
    environment = Countdown
    replies = ("done", "soon")


class TestAPlayerFunction(EnvironmentContract):
    environment = Countdown
    config: ClassVar = {"words": 1}

    def player(self):
        return lambda messages: "done" if len(messages) > 1 else "soon"


class TurnGroups(Countdown):
    """Rolls its own groups: one for each of two turns."""

    async def roll_group(self, task, context):
        for turn in range(2):
            rollouts = []
            async for group in context.roll_independent(self, task):
                rollouts = group.rollouts
            yield context.group(task, rollouts, episode_id=task.id, turn=turn, last=turn == 1)


class TestOwnGroups(EnvironmentContract):
    environment = TurnGroups
    replies = ("done",)


class TestExactMatch(RewardContract):
    reward = exact_match
    cases = ((Task(id="a", answer="yes"), " yes\n", 1.0), (Task(id="a", answer="yes"), "Yes", 0.0))


@group_reward
async def longest(task, rollouts):
    """1.0 for the longest reply of the group."""
    most = max(len(rollout.text) for rollout in rollouts)
    return [float(len(rollout.text) == most) for rollout in rollouts]


class TestAnAsyncGroupReward(RewardContract):
    reward = longest
    cases = ((Task(id="a"), ["long", "s", "most"], [1.0, 0.0, 1.0]),)


class TestScripted(BackendContract):
    obeys_max_tokens = False

    def make(self):
        return ScriptedBackend(ScriptedConfig(replies=("hello", "hi"), token_ids=True))


class TestScriptedWithoutTokens(BackendContract):
    obeys_max_tokens = False

    def make(self):
        return ScriptedBackend(ScriptedConfig(replies=("hello", "hi")))


# -- the suites notice what is wrong


def run(suite, test: str, request: pytest.FixtureRequest) -> None:
    """Run one test of a suite as pytest would."""
    method = getattr(suite(), test)
    arguments = {name: request.getfixturevalue(name) for name in inspect.signature(method).parameters}
    if "tmp_path" in arguments:
        arguments["tmp_path"] = request.getfixturevalue("tmp_path_factory").mktemp("suite")
    method(**arguments)


def tasks_of(*tasks: Task):
    return lambda self, split: list(tasks)


ONE = Task(id="one", prompt=(user("1"),), answer="1")


class RandomTasks(Countdown):
    def tasks(self, split):
        return [Task(id=str(random.random()))]


class WrongIndex(Countdown):
    def tasks(self, split):
        made = iter(range(10**6))
        return TaskStream(lambda index: Task(id=f"{index}-{next(made)}"))


class SharedEpisode(Countdown):
    def __init__(self, config):
        super().__init__(config)
        self.shared = CountdownEpisode(ONE)

    def episode(self, task):
        return self.shared


class Silent(Countdown):
    def episode(self, task):
        episode = CountdownEpisode(task)
        episode.reset = list
        return episode


class NeedsReset(Countdown):
    def episode(self, task):
        episode = CountdownEpisode(task)
        episode.close = lambda: episode.process.kill()
        return episode


class Printing(Countdown):
    def episode(self, task):
        print("playing")
        return super().episode(task)


class Strict(Countdown):
    def episode(self, task):
        episode = CountdownEpisode(task)

        def step(reply):
            if not reply.text.isalpha():
                raise ValueError("not a word")

        episode.step = step
        return episode


class WrongAnswers(Countdown):
    def validate(self, task):
        return False


class Undescribed(Countdown):
    class Config(Config):
        words: int = 3


class Lenient(Countdown):
    class Config(CountdownConfig):
        model_config = ConfigDict(extra="ignore")


class TwoEnds(Countdown):
    async def roll_group(self, task, context):
        for turn in range(2):
            async for group in context.roll_independent(self, task):
                yield context.group(task, group.rollouts, turn=turn)


class NotFinite(Countdown):
    rewards = (Reward(lambda task, rollout: math.nan, name="nan"),)


@pytest.mark.parametrize(
    ("environment", "test"),
    [
        (type("NoTasks", (Countdown,), {"tasks": tasks_of()}), "test_tasks_are_tasks_with_ids_of_their_own"),
        (type("Twice", (Countdown,), {"tasks": tasks_of(ONE, ONE)}), "test_tasks_are_tasks_with_ids_of_their_own"),
        (type("Dicts", (Countdown,), {"tasks": tasks_of({"id": 1})}), "test_tasks_are_tasks_with_ids_of_their_own"),
        (RandomTasks, "test_tasks_are_the_same_every_time"),
        (WrongIndex, "test_tasks_by_index_are_those_in_order"),
        (WrongAnswers, "test_gold_answers_earn_full_marks"),
        (SharedEpisode, "test_episodes_of_one_task_begin_alike_and_do_not_share_state"),
        (Silent, "test_an_episode_begins_with_messages_for_the_model"),
        (NeedsReset, "test_an_episode_can_be_closed_before_it_began"),
        (Printing, "test_a_run_writes_whole_groups"),
        (TwoEnds, "test_a_run_writes_whole_groups"),
        (NotFinite, "test_a_run_writes_whole_groups"),
        (Strict, "test_strange_replies_are_answers_not_errors"),
        (Undescribed, "test_every_option_is_described"),
        (Lenient, "test_unknown_options_are_refused"),
        (type("Unsplit", (Countdown,), {"splits": ()}), "test_the_class_is_complete"),
    ],
)
def test_a_broken_environment_is_noticed(environment, test, request):
    suite = type("Suite", (EnvironmentContract,), {"environment": environment, "replies": ("done",)})
    good = type("Suite", (EnvironmentContract,), {"environment": Countdown, "replies": ("done",)})
    with pytest.raises((AssertionError, AttributeError, pytest.fail.Exception)):
        run(suite, test, request)
    if test != "test_gold_answers_earn_full_marks":  # the good one has nothing to check there
        run(good, test, request)


@reward
def fragile(task, rollout):
    """Needs a reply."""
    return float(rollout.text[0] == "a")


@reward
def moody(task, rollout):
    """Different every time."""
    return random.random()


@reward
def loud(task, rollout):
    """Prints."""
    print("scoring")
    return 1.0


@group_reward
def miscounting(task, rollouts):
    """One number too many."""
    return [1.0] * (len(rollouts) + 1)


@reward
def bare(task, rollout):
    return 1.0


CASES = ((Task(id="a"), "a", 1.0), (Task(id="a"), "b", 0.0))


@pytest.mark.parametrize(
    ("attributes", "test"),
    [
        ({"reward": fragile, "cases": CASES}, "test_strange_replies_have_a_finite_value"),
        ({"reward": fragile, "cases": ((Task(id="a"), "a", 0.5),)}, "test_cases_have_the_expected_values"),
        ({"reward": fragile, "cases": CASES[:1]}, "test_it_tells_good_from_bad"),
        ({"reward": moody, "cases": CASES}, "test_the_same_rollout_has_the_same_value"),
        ({"reward": loud, "cases": CASES}, "test_nothing_is_printed"),
        ({"reward": bare, "cases": CASES}, "test_it_is_a_reward_with_a_name_and_a_summary"),
        ({"reward": fragile.fn, "cases": CASES}, "test_it_is_a_reward_with_a_name_and_a_summary"),
        (
            {"reward": miscounting, "cases": ((Task(id="a"), ["a"], [1.0]),)},
            "test_cases_have_the_expected_values",
        ),
    ],
)
def test_a_broken_reward_is_noticed(attributes, test, request):
    with pytest.raises((AssertionError, IndexError)):
        run(type("Suite", (RewardContract,), attributes), test, request)


class Backend(InferenceBackend):
    name = "mine"
    reply: object = assistant("hello")

    def __init__(self) -> None:
        super().__init__(None, model="m")

    def completions(self, request):
        return (Completion(message=self.reply, finish_reason="stop"),) * request.n

    async def generate(self, request):
        return Generation(completions=self.completions(request))


class Nameless(Backend):
    def __init__(self) -> None:
        super().__init__()
        self.model = None


class Generous(Backend):
    def completions(self, request):
        return super().completions(request) * 2


class Talkative(Backend):
    def completions(self, request):
        return (Completion(message=self.reply, finish_reason="stop", completion_tokens=9),)


class Untrained(Backend):
    reply = assistant("x").replace(tokens=TokenSpan(ids=(1,), mask=False))


class Forgetful(Backend):
    """Ignores that logprobs are required."""


class Boastful(Backend):
    async def score(self, prefix_ids, continuation_ids):
        return [0.5 for _ in continuation_ids]


class Leaking(Backend):
    def describe(self):
        return {"key": "hunter2"}


class Nervous(Backend):
    async def probe(self):
        raise OSError("no server")


@pytest.mark.parametrize(
    ("backend", "test"),
    [
        (Nameless, "test_opening_tells_the_models_name"),
        (Generous, "test_several_samples_of_one_prompt"),
        (Talkative, "test_a_reply_is_well_formed"),
        (Untrained, "test_a_reply_is_well_formed"),
        (Forgetful, "test_required_logprobs_are_given_or_refused"),
        (Boastful, "test_given_tokens_are_scored_or_refused"),
        (Leaking, "test_the_description_is_json_without_secrets"),
        (Nervous, "test_probing_never_raises"),
    ],
)
def test_a_broken_backend_is_noticed(backend, test, request):
    suite = type("Suite", (BackendContract,), {"make": lambda self: backend(), "secret": "hunter2"})
    with pytest.raises((AssertionError, OSError)):
        run(suite, test, request)
    if test != "test_required_logprobs_are_given_or_refused":
        run(type("Suite", (BackendContract,), {"make": lambda self: Backend()}), test, request)


def test_the_rewards_that_ship_keep_the_contract(request):
    for component, answer in ((contains_answer, "cat"), (numeric_match, "9")):
        cases = ((Task(id="a", answer=answer), answer, 1.0), (Task(id="a", answer=answer), "no", 0.0))
        suite = type("Suite", (RewardContract,), {"reward": component, "cases": cases})
        for test in [name for name in dir(suite) if name.startswith("test_")]:
            run(suite, test, request)


class Count(Game):
    """Two players count in turn, after a question of the host."""

    players = ("odd", "even")

    def __init__(self):
        self.said = 0

    def reset(self):
        return {"odd": [user("begin")], "even": []}

    def turn(self):
        return self.players[self.said % 2]

    def step(self, player, reply):
        self.said += 1
        return None if self.said == 3 else {self.turn(): [user(str(self.said))]}


class Counting(GameEnvironment):
    name = "counting"
    rewards = ("length",)

    def tasks(self, split):
        return [Task(id=str(number)) for number in range(3)]

    def game(self, task):
        return Count()


class TestGames(EnvironmentContract):
    environment = Counting


class Asked(Episode):
    """The prompt is a model's word."""

    async def reset(self):
        return [user((await self.models["host"].reply([user("ask")])).text)]

    def step(self, reply):
        return None


class Hosted(Environment):
    name = "hosted"
    roles = ("host",)
    rewards = ("length",)

    def tasks(self, split):
        return [Task(id=str(number)) for number in range(3)]

    def episode(self, task):
        return Asked()


class TestRoles(EnvironmentContract):
    environment = Hosted
