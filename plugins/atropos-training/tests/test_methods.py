"""Methods of training: those that all know, and those that a trainer's plugin adds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.domain.training import TrainPlan
from atropos_cli.plugins.registry import Registry
from atropos_cli.sdk import METHODS, ComponentSpec, Method
from atropos_cli.sdk.training import Trainer, TrainResult

RANK = Method("rank", "Train on pairs by their rank.", "pairs")
COUNT = Method("count", "Count, without data.", "own")


class Ranking(Trainer):
    """Writes how many pairs it was given."""

    name = "ranking"
    methods = ("rank", "count")

    def train(self, plan: TrainPlan, context: Any) -> TrainResult:
        model = context.folder / "model"
        model.mkdir()
        if plan.method == "count":
            context.report(1, {"loss": 0.5})
            return TrainResult(output=str(model), steps=1)
        (model / "pairs").write_text(f"{plan.method} {len(list(context.rows()))}")
        context.report(1, {"loss": 0.5})
        return TrainResult(output=str(model), steps=1)


@pytest.fixture
def ranking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin with a trainer that has a method of its own is installed."""
    of_kind, find = Registry.registrations, Registry.find

    def registrations(self: Registry, kind: Any) -> Any:
        from atropos_cli.plugins.records import Registration

        spec = ComponentSpec("trainer", "ranking", Ranking, "Ranks.", methods=(RANK, COUNT))
        mine = Registration(spec, "someones-ranking", "1.0", "ranking")
        return [*of_kind(self, kind), mine] if kind == "trainer" else of_kind(self, kind)

    def one(self: Registry, kind: Any, name: str) -> Any:
        wanted = [item for item in self.registrations(kind) if name in (item.name, item.qualified)]
        return wanted[0] if wanted else find(self, kind, name)

    monkeypatch.setattr(Registry, "registrations", registrations)
    monkeypatch.setattr(Registry, "find", one)


PAIRS = '{"prompt": "a", "chosen": "b", "rejected": "c"}\n' * 3


@pytest.mark.usefixtures("ranking")
def test_a_plugin_adds_a_method(cli: Callable[..., Any], tmp_path: Path) -> None:
    data = tmp_path / "pairs.jsonl"
    data.write_text(PAIRS)
    listed = cli("train", "--help").stdout
    assert [name for name in (*METHODS, "rank") if f"  {name} " in listed] == [*METHODS, "rank"]
    assert "Train on pairs by their rank." in cli("train", "rank", "--help").stdout
    run = tmp_path / "run"
    done = cli("train", "rank", "--model", "m", "--data", data, "--steps", "1", "-o", run)
    assert done.code == 0, done.stderr
    assert (run / "model" / "pairs").read_text() == "rank 3"
    shown = cli("train", "rank", "--model", "m", "--data", data, "--steps", "1", "--dry-run", "--json").json
    assert (shown["method"], shown["learns"], shown["trainer"]["name"]) == ("rank", "pairs", "ranking")


@pytest.mark.usefixtures("ranking")
def test_what_a_method_of_rows_cannot_take(cli: Callable[..., Any]) -> None:
    assert "no such option: --env" in cli("train", "rank", "--env", "arithmetic", "--model", "m").stderr
    done = cli("train", "rank", "--trainer", "trl", "--model", "m", "--data", "x.jsonl")
    assert (done.code, "trainer 'trl' does not do rank" in done.stderr) == (2, True)


@pytest.mark.usefixtures("ranking")
def test_a_method_with_data_of_its_own(cli: Callable[..., Any], tmp_path: Path) -> None:
    done = cli("train", "count", "-o", tmp_path / "run")
    assert (done.code, "atropos view" in done.stderr) == (0, True), done.stderr
    shown = cli("train", "count", "--help").stdout
    assert all(f"{name} " in shown for name in ("--steps", "--model", "--seed", "--track"))
    for name in ("--env", "--data", "--eval", "--temperature", "--backend", "--prompts-per-step"):
        assert f"{name} " not in shown


def test_a_method_nobody_has(cli: Callable[..., Any]) -> None:
    done = cli("train", "rank", "--model", "m")
    assert done.code == 2
    assert "rank" in done.stderr


def test_plans_of_0_1_0_say_what_they_learn_from() -> None:
    old = {"atropos_version": "0.1.0", "method": "dpo", "trainer": {"name": "trl"}, "model": "m"}
    plan = TrainPlan.model_validate(old)
    assert plan.learns == "pairs"
    assert "learns" not in plan.identity()
