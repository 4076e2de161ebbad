"""Mixtures: whose turn it is, members with rewards and group sizes of their own, and what cannot be mixed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from support import Adding, Bench, exact, right

from atropos_cli.config.environmenttext import nested, read_environment_text, write_environment_text
from atropos_cli.config.settings import GenSettings
from atropos_cli.domain.plan import Execution, Plan
from atropos_cli.errors import AtroposError, ConfigError, PluginError, UsageError
from atropos_cli.rollout.mixture import MixConfig, Mixture, Shares, default_label
from atropos_cli.rollout.planner import build_plan
from atropos_cli.sdk import Environment, Rollout, Task, reward, user
from atropos_cli.sdk.backends import GenerateRequest, Generation


@reward
def half(task: Task, rollout: Rollout) -> float:
    """Always 0.5."""
    return 0.5


class Five(Environment):
    """Tasks that are walked, not indexed."""

    name = "five"
    rewards = (half,)

    def tasks(self, split: str) -> Iterator[Task]:
        for number in range(5):
            yield Task(id=f"{number}", prompt=(user(f"{number}+1"),))


class Closed(Adding):
    name = "closed"

    async def open(self, *, workers: int = 1, seed: int = 0) -> None:
        raise RuntimeError("no port is free")


@pytest.fixture
def mixing(bench: Bench) -> Bench:
    for environment in (Five, Closed, Mixture):
        bench.registry.components["environment", environment.name] = environment
    return bench


def plan_of(bench: Bench, *of: str, limit: int | None = 12, **settings: Any) -> Plan:
    wanted = GenSettings(backend="fake", limit=limit, group_size=2, **settings)
    return build_plan(wanted, "mix", {"of": list(of)}, bench.registry)  # type: ignore[arg-type]


@pytest.mark.parametrize("weights", [[1.0, 1.0], [2.0, 1.0, 1.0], [0.1, 5.0], [1.0, 1 / 3, 7.0]])
def test_after_any_number_of_turns_each_has_had_its_share(weights: list[float]) -> None:
    shares, counts = Shares(weights, 7), Counter[int]()
    for turn in range(1, 400):
        counts[shares.next(range(len(weights)))] += 1
        for number, weight in enumerate(weights):
            assert abs(counts[number] - turn * weight / sum(weights)) < len(weights)


def test_the_order_depends_on_the_seed_alone() -> None:
    def order(seed: int) -> tuple[int, ...]:
        shares = Shares([3.0, 2.0, 1.0], seed)
        return tuple(shares.next((0, 1, 2)) for _ in range(60))

    assert order(1) == order(1)
    assert len({order(seed) for seed in range(10)}) > 2


def test_members_have_rewards_and_group_sizes_of_their_own(mixing: Bench) -> None:
    plan = plan_of(mixing, "adding:weight=2", "five:group_size=3,weight=1", limit=9)
    summary = mixing.run(plan)
    rows = mixing.groups()
    assert Counter(row["env"] for row in rows) == {"adding": 6, "five": 3}
    for row in rows:
        own = row["env"] == "adding"
        assert len(row["rollouts"]) == (2 if own else 3)
        assert all(one["task_id"] == row["task"]["id"] for one in row["rollouts"])
        assert row["task"]["id"].startswith(f"{row['env']}/")
        assert set(row["rollouts"][0]["rewards"]) == {"exact" if own else "half"}
    assert summary.environments["five"]["tasks"] == 3
    assert summary.environments["five"]["reward_mean"] == 0.5
    assert summary.environments["adding"]["rollouts"] == 12


def test_all_workers_are_busy(mixing: Bench) -> None:
    async def slow(request: GenerateRequest) -> Generation:
        await asyncio.sleep(0.01)
        return right(request)

    mixing.answer(slow)
    plan = plan_of(mixing, "adding", "more=adding:group_size=8", limit=60, execution=Execution(workers=12))
    assert mixing.run(plan).max_in_flight == 12


def test_a_member_without_further_tasks_leaves(mixing: Bench) -> None:
    mixing.run(plan_of(mixing, "adding", "five:weight=3", limit=20))
    names = [row["env"] for row in sorted(mixing.groups(), key=lambda row: int(row["group_id"].rpartition("-")[2]))]
    assert Counter(names) == {"adding": 15, "five": 5}
    assert set(names[8:]) == {"adding"}


def test_a_resumed_mixture_has_the_tasks_of_a_whole_one(mixing: Bench) -> None:
    mixing.run(plan_of(mixing, "adding:weight=2", "more=adding", limit=7))
    mixing.run(plan_of(mixing, "adding:weight=2", "more=adding", limit=30), resume=True)
    ids = [row["task"]["id"] for row in mixing.groups()]
    assert len(set(ids)) == 30
    assert Counter(one.partition("/")[0] for one in ids) == {"adding": 20, "more": 10}
    with pytest.raises(AtroposError, match="started with another plan"):
        mixing.run(plan_of(mixing, "adding:weight=3", "more=adding", limit=30), resume=True)


def test_rewards_for_all_and_for_one(mixing: Bench) -> None:
    mixing.registry.components["reward", "exact"] = exact  # type: ignore[assignment]
    plan = plan_of(mixing, "adding", "five:rewards=half=2", rewards=("exact",))
    assert [[(ref.name, ref.weight) for ref in member.rewards] for member in plan.mixture] == [
        [("exact", 1.0)],
        [("half", 2.0)],
    ]


@pytest.mark.parametrize(
    ("of", "message"),
    [
        (["adding:weight=0"], "greater than 0"),
        (["adding:weight=-1"], "greater than 0"),
        (["adding:weight=NaN"], "finite"),
        (["adding:weight=Infinity"], "finite"),
        (["adding:weight=true"], "a weight is a number"),
        (["adding", "adding"], "two members of the mixture are called 'adding'"),
        (["adding", "Adding=adding"], "two members of the mixture are called"),
        (["mix"], "no mixtures in it"),
        (["a/b=adding"], "cannot name a member"),
        (["adding:weight"], "is not option=value"),
        (["adding:weight=1,weight=2"], "given twice"),
        (["x="], "names no environment"),
        (["adding:group_size=0"], "group_size"),
        (["adding:split=nosuch"], "no split 'nosuch'"),
    ],
)
def test_what_cannot_be_mixed(mixing: Bench, of: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan_of(mixing, *of)


def test_an_unknown_option_names_the_member(mixing: Bench) -> None:
    with pytest.raises(ConfigError, match=r"--of 'a=adding:nosuch=1'.*no option 'nosuch'"):
        plan_of(mixing, "a=adding:nosuch=1")


def test_a_member_that_cannot_be_opened_is_named(mixing: Bench) -> None:
    with pytest.raises(PluginError, match=r"'closed' of the mixture cannot be opened: .*no port is free"):
        mixing.run(plan_of(mixing, "adding", "closed"))


def test_held_out_tasks_are_of_a_split_that_each_member_has(mixing: Bench) -> None:
    assert [member.split for member in plan_of(mixing, "adding", split="valid").mixture] == ["test"]
    with pytest.raises(UsageError, match="'five' has no split 'test'"):
        plan_of(mixing, "adding", "five", split="test")


def test_tables_of_a_file_are_members_too() -> None:
    table = {"hard": {"env": "adding", "weight": 2, "text": "a, b"}, "five": {}}
    of = MixConfig.model_validate({"of": table}).of
    assert of == ('hard=adding:weight=2,text="a, b"', "five")
    assert read_environment_text(of[0], "--of").options == {"weight": 2, "text": "a, b"}
    with pytest.raises(ValueError, match="needs the key env"):
        MixConfig.model_validate({"of": [{"weight": 1}]})


@pytest.mark.parametrize(
    "options", [{}, {"a": 1}, {"a": [1, {"b": "x,y"}], "c.d": None}, {"q": 'say "a, b"', "z": "}"}, {"e": "\\"}]
)
def test_texts_of_environments_read_as_they_were_written(options: dict[str, Any]) -> None:
    said = read_environment_text(write_environment_text("name", "./file.py:Class", options), "--of")
    assert (said.label, said.name, said.options) == ("name", "./file.py:Class", options)


@pytest.mark.parametrize(
    ("text", "label", "name", "options"),
    [
        ("far:sums", "", "far:sums", {}),
        ("far:sums:size=3,weight=2", "", "far:sums", {"size": 3, "weight": 2}),
        ("x=far:http://127.0.0.1:8000", "x", "far:http://127.0.0.1:8000", {}),
        ("far:http://h:80/p:data=a.jsonl", "", "far:http://h:80/p", {"data": "a.jsonl"}),
        ("far:./quiz.py@quiz:n=3", "", "far:./quiz.py@quiz", {"n": 3}),
        ("far:./quiz.py:Quiz", "", "far:./quiz.py:Quiz", {}),
        ("far:size=3", "", "far:size=3", {}),
        ("far", "", "far", {}),
    ],
)
def test_names_of_families_have_colons(text: str, label: str, name: str, options: dict[str, Any]) -> None:
    said = read_environment_text(text, "--of", {"far"})
    assert (said.label, said.name, said.options) == (label, name, options)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("far:sums", "sums"),
        ("far:http://h:80", "far"),
        ("far:pkg/task", "task"),
        ("far:./a.py@quiz", "quiz"),
        ("a", "a"),
    ],
)
def test_a_member_of_a_family_is_called_by_the_end_of_its_name(name: str, label: str) -> None:
    assert default_label(name) == label


def test_dots_make_tables() -> None:
    assert nested({"a.b": 1, "a.c": 2, "d": 3}, "--of") == {"a": {"b": 1, "c": 2}, "d": 3}
    with pytest.raises(UsageError, match="has a value already"):
        nested({"a": 1, "a.b": 2}, "--of")
