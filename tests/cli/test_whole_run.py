"""One run, told by `gen`, `eval`, `analyze`, `view` and `merge`: the same numbers, over all sessions of the run."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from atropos_cli.cli.view.library import Library
from atropos_cli.cli.view.runs import Run
from atropos_cli.io.sources import find_sources

from .view_support import Exported

ENVIRONMENT = '''
import os
from atropos_cli.sdk import Environment, Rollout, Score, Task, reward, user

def listed(name):
    return set(os.environ.get(name, "").split(","))

@reward
def exact(task, rollout):
    if f"{task.id}!" in listed("BROKEN") or (f"{task.id}?" in listed("BROKEN") and rollout.text == "no"):
        raise ZeroDivisionError(task.id)
    return Score(float(rollout.text == task.answer), {"length": float(len(rollout.text))})

class Sums(Environment):
    name = "sums"
    rewards = (exact,)
    def tasks(self, split):
        return [Task(id=f"t{i}", prompt=(user(f"{i}+1"),), answer=str(i + 1)) for i in range(12)]

class Opened(Sums):
    """Cannot begin some tasks."""
    name = "opened"
    def tasks(self, split):
        tasks = super().tasks(split)
        class Some(list):
            def __getitem__(self, index):
                if tasks[index].id in listed("BROKEN"):
                    raise LookupError(f"no file for {tasks[index].id}")
                return tasks[index]
        return Some(tasks)

class Turns(Sums):
    """Two turns of group_size alternatives; the one that was played tells how the episode ended."""
    name = "turns"
    verdict = True
    async def roll_group(self, task, context):
        for turn in range(2):
            replies = await context.generate(task.prompt, n=context.group_size)
            rollouts = [
                Rollout(
                    id=f"{context.group_id}.{turn}/{i}", task_id=task.id, messages=(*task.prompt, reply.message),
                    info={"won": int(task.id[1:]) % 3 == 0} if self.verdict and turn and not i else {},
                )
                for i, reply in enumerate(replies)
            ]
            scored = await context.score(task, rollouts)
            yield context.group(task, scored, episode_id=context.group_id, turn=turn, last=turn == 1)

class Mute(Turns):
    name = "mute"
    verdict = False

def answer(messages, request):
    from atropos_cli.sdk import RequestRejected
    number = int(messages[0].text.split("+")[0])
    if f"t{number}" in listed("BROKEN"):
        raise RequestRejected(f"400: t{number}")
    return [str(number + 1) if (number + i) % 3 else "no" for i in range(request.n)]
'''

SIZE = 2


class Bench:
    """Runs commands on one environment. broken: tasks that fail ("!": in scoring, "?": only their wrong replies do)."""

    def __init__(self, cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cli, self.folder, self.patch = cli, folder, monkeypatch
        (folder / "sums.py").write_text(ENVIRONMENT)

    def __call__(self, command: str, env: str, *options: str, broken: str = "", code: int | None = 0) -> Any:
        self.patch.setenv("BROKEN", broken)
        size = "--samples" if command == "eval" else "--group-size"
        done = self.cli(
            *(command, f"{self.folder}/sums.py:{env}", "--backend", "scripted", size, str(SIZE), "--json"),
            *("--backend.function", f"{self.folder}/sums.py:answer", "-o", "run", "--workers", "2", *options),
        )
        assert code is None or done.code == code, done.stderr
        return done

    def analyze(self, *options: str) -> dict[str, Any]:
        done = self.cli("analyze", "run", "--json", *options)
        assert done.code == 0, done.stderr
        [data] = done.json["environments"].values()
        return dict(data)


@pytest.fixture
def bench(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(cli, tmp_path, monkeypatch)


def stored(name: str) -> Any:
    return json.loads(Path("run", name).read_text())


def by_hand() -> dict[str, Any]:
    """The numbers of a run as its groups file holds them, counted in another way."""
    [path] = [path for path in Path("run").glob("groups.jsonl*") if path.suffix != ".idx"]
    data = path.read_bytes()
    if path.suffix == ".zst":
        import zstandard

        data = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    rollouts = [rollout for line in data.splitlines() for rollout in json.loads(line)["rollouts"]]
    rewards = [rollout["reward"] for rollout in rollouts if rollout.get("reward") is not None]
    failed = [rollout["failure"] for rollout in rollouts if rollout.get("failure")]
    return {
        "rollouts": len(rollouts),
        "failures": Counter(f"{failure['stage']}:{failure['type']}" for failure in failed),
        "stop_reasons": dict(Counter(r["stop_reason"] for r in rollouts if r.get("stop_reason"))),
        "reward_mean": pytest.approx(fmean(rewards)),
        "reward_std": pytest.approx(stdev(rewards)),
        "completion_tokens": sum(rollout["usage"].get("completion_tokens") or 0 for rollout in rollouts),
        "length": pytest.approx(fmean(r["metrics"]["length"] for r in rollouts if "length" in r.get("metrics", {}))),
    }


def check_agreement(bench: Bench, lost: dict[str, int], *, evaluated: bool = True) -> None:
    """summary.json, `analyze` and eval.json tell what the groups file and the lost tasks (kind: rollouts) hold."""
    want, summary, data = by_hand(), stored("summary.json"), bench.analyze()
    failures = dict(want["failures"] + Counter(lost))
    total = want["rollouts"] + sum(lost.values())
    assert (summary["rollouts"], summary["rollouts_failed"]) == (total, sum(failures.values()))
    assert (data["rollouts"]["total"], data["rollouts"]["failed"]) == (total, sum(failures.values()))
    assert data["groups_lost"] == summary["groups_failed"] == sum(lost.values()) // SIZE
    assert data["tasks"]["count"] == summary["groups_total"] == 12
    told = [summary, data] + ([stored("eval.json")] if evaluated else [])
    for found in told:
        assert found["failures"] == failures
        assert found["stop_reasons"] == want["stop_reasons"]
    for found in [summary, *told[2:]]:
        assert found["completion_tokens"] == want["completion_tokens"]
        assert found["metrics"]["length"] == want["length"]
        assert found["rewards"]["exact"] == want["reward_mean"]
    assert (summary["reward_mean"], summary["reward_std"]) == (want["reward_mean"], want["reward_std"])
    assert (data["reward"]["mean"], data["reward"]["std"]) == (want["reward_mean"], want["reward_std"])
    assert data["metrics"]["length"]["mean"] == want["length"]
    if evaluated:
        found, counted = told[-1], bench.analyze("--count-failed")
        assert (found["tasks"], found["errors"]) == (12, sum(failures.values()))
        assert found["accuracy"]["value"] == pytest.approx(counted["pass_at_k"]["1"]["mean"])
        assert found["pass_at"]["2"]["value"] == pytest.approx(counted["pass_at_k"]["2"]["mean"])
        assert found["reward"]["value"] == pytest.approx(data["reward"]["mean_over_tasks"])


@pytest.mark.parametrize(
    ("env", "first", "second", "lost"),
    [
        ("Sums", "", "", {}),
        ("Sums", "t2,t5", "", {}),
        ("Sums", "t2,t5", "t5", {"generate:RequestRejected": 2}),
        ("Sums", "t1!", "t1!,t9!", {"score:ZeroDivisionError": 4}),
        ("Sums", "t1!,t3", "t1!,t3,t11", {"score:ZeroDivisionError": 2, "generate:RequestRejected": 4}),
        ("Opened", "t0,t4", "t4", {"environment:LookupError": 2}),
        ("Sums", "t0?,t2?,t4", "t4,t8?", {"generate:RequestRejected": 2}),
    ],
)
def test_a_resumed_run_is_told_as_a_whole(
    bench: Bench, env: str, first: str, second: str, lost: dict[str, int]
) -> None:
    bench("eval", env, "--limit", "6", broken=first, code=1 if first else 0)
    done = bench("eval", env, "--limit", "12", "--resume", "--max-failure-rate", "0.5", broken=second)
    assert "finished: " in done.stderr
    check_agreement(bench, lost)
    strict = bench("eval", env, "--limit", "12", "--resume", broken=second, code=1 if lost else 0)
    assert ("rollouts failed" in strict.stderr) == bool(lost)
    check_agreement(bench, lost)
    names = {task["task_id"] for task in stored("eval.json")["per_task"]}
    known = names - {"(failed 4)"} if env == "Opened" else names  # that task was never there
    assert known == {f"t{i}" for i in range(12)} - ({"t4"} if env == "Opened" else set())


@pytest.mark.parametrize("writer", ["jsonl", "jsonl.zst"])
@pytest.mark.parametrize("harm", ["gone", "torn", "behind", "another count", "another tail", "beyond", "not ours"])
def test_counts_that_do_not_fit_the_groups_are_made_anew(bench: Bench, writer: str, harm: str) -> None:
    options = ("--writer", writer, "--max-failure-rate", "1")
    bench("gen", "Sums", "--limit", "3", *options, broken="t1")
    totals = Path("run/totals.json")
    early = totals.read_text()
    bench("gen", "Sums", "--limit", "8", "--resume", *options, broken="t1")
    data = stored("totals.json")
    match harm:
        case "gone":
            totals.unlink()
        case "torn":
            totals.write_text(totals.read_text()[:50])
        case "behind":  # as a kill leaves it: groups came after it
            totals.write_text(early)
        case "another count":
            totals.write_text(json.dumps({**data, "tasks": 5, "groups": {**data["groups"], "tasks": 5}}))
        case "another tail":
            totals.write_text(json.dumps({**data, "tail": "0" * 32}))
        case "beyond":
            totals.write_text(json.dumps({**data, "bytes": data["bytes"] + 1}))
        case _:
            totals.write_text(json.dumps({**data, "groups": {**data["groups"], "rewards": [1]}}))
    bench("gen", "Sums", "--resume", *options, broken="t1")
    check_agreement(bench, {"generate:RequestRejected": 2}, evaluated=False)


def test_nothing_is_read_again_while_the_counts_fit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench("gen", "Sums", "--limit", "6")
    before = stored("summary.json")

    def never(line: bytes, name: str) -> None:
        raise AssertionError("a group was read")

    with monkeypatch.context() as patch:
        patch.setattr("atropos_cli.rollout.sessions.read_group", never)
        bench("gen", "Sums", "--resume")
    check_agreement(bench, {}, evaluated=False)
    after = stored("summary.json")
    assert (before["requests"], after["requests"]) == (6, 12)
    assert after["seconds"] >= before["seconds"]


@pytest.mark.parametrize("broken", ["t2,t5", "t0!,t7!", "t11"])
def test_a_run_with_broken_tasks_is_not_failed_for_ever(bench: Bench, broken: str) -> None:
    assert "rollouts failed" in bench("gen", "Sums", broken=broken, code=1).stderr
    assert bench("gen", "Sums", "--resume", broken=broken, code=1).json["state"] == "failed"
    enough = bench("gen", "Sums", "--resume", "--max-failure-rate", "0.2", broken=broken)
    assert enough.json["state"] == stored("summary.json")["state"] == "finished"
    assert enough.json["rollouts"] == 24
    assert bench("gen", "Sums", "--resume").json["groups_failed"] == 0, "made after all"
    check_agreement(bench, {}, evaluated=False)


def test_a_run_in_which_everything_failed_is_told(bench: Bench) -> None:
    everything = ",".join(f"t{i}!" for i in range(12))
    bench("gen", "Sums", "--max-failure-rate", "1", broken=everything, code=1)
    data = bench.analyze("--count-failed")
    assert (data["groups"], data["groups_lost"], data["tasks"]["all_failed"]) == (0, 12, 12)
    assert (data["success"]["count"], data["success"]["of"], data["pass_at_k"]["2"]["tasks"]) == (0, 24, 12)
    text = bench.cli("analyze", "run").stdout
    assert "0 scored, 24 failed, 0 without a reward, of 24" in text
    assert "tasks of which nothing succeeded (12)" in text
    assert len(view().groups({})["items"]) == 12


def view(*names: str) -> Library:
    return Library([Run(name, find_sources([name])) for name in names or ("run",)])


@pytest.mark.parametrize(
    ("env", "broken", "kind"),
    [
        ("Sums", "t3", "generate:RequestRejected"),
        ("Sums", "t3!", "score:ZeroDivisionError"),
        ("Turns", "t3", "environment:RequestRejected"),
        ("Turns", "t3!", "score:ZeroDivisionError"),
    ],
)
def test_a_task_that_failed_as_a_whole_is_shown(bench: Bench, env: str, broken: str, kind: str) -> None:
    bench("gen", env, "--max-failure-rate", "1", broken=broken)
    library = view()
    items = library.groups({})["items"]
    assert len(items) == library.run({})["runs"][0]["groups"] == len(by_lines()) + 1
    [failed] = library.groups({"failed": "1"})["items"]
    assert (failed["task"] in ("t3", failed["id"]), len(failed["failed"]) >= SIZE, failed["mean"]) == (True, True, None)
    shown = library.group({"n": str(failed["n"])})
    assert {f"{one['failure']['stage']}:{one['failure']['type']}" for one in shown["rollouts"]} == {kind}
    assert [item["id"] for item in library.groups({"q": "t3"})["items"]].count(failed["id"]) == 1
    assert bench.cli("view", "run", "--export", "page.html").code == 0
    assert failed["id"] in json.dumps(Exported(Path("page.html")).all("g"))
    shutil.copytree("run", "other")
    bench("gen", env, "--resume")
    diff = view("other", "run").diff
    assert diff is not None
    diff.compare()
    assert diff.counts()["both"] == 12, "a task that failed in one run is compared too"


def by_lines() -> list[Any]:
    return [json.loads(line) for line in Path("run/groups.jsonl").read_text().splitlines()]


def test_success_of_turn_groups_belongs_to_the_episode(bench: Bench) -> None:
    bench("eval", "Turns", "--max-failure-rate", "1", broken="t3,t4", code=None)
    data, counted, found = bench.analyze(), bench.analyze("--count-failed"), stored("eval.json")
    assert data["success"] | {"rule": ""} == {
        "rule": "", "count": 3, "of": 10, "rate": 0.3, "failed_rollouts": "left out",
    }  # fmt: skip
    assert "own verdict (won)" in data["success"]["rule"]
    assert (counted["success"]["count"], counted["success"]["of"]) == (3, 12)
    assert list(data["pass_at_k"]) == list(counted["pass_at_k"]) == ["1"]
    assert (data["tasks"]["count"], data["groups"], data["groups_lost"]) == (12, 20, 2)
    assert found["accuracy"]["value"] == pytest.approx(counted["pass_at_k"]["1"]["mean"]) == pytest.approx(0.25)
    assert (found["rollouts"], found["errors"], found["success_rule"]) == (12, 2, "info.won")
    assert "2" not in found["pass_at"]
    assert found["left_out"]["2"] == "1 rollout of a task is fewer than 2"
    assert found["completion_tokens"] == stored("summary.json")["completion_tokens"]
    bench("eval", "Turns", "--resume", "--errors", "leave-out", "--max-failure-rate", "1", broken="t3,t4")
    assert stored("eval.json")["accuracy"]["value"] == pytest.approx(0.3)
    by_reward = bench.analyze("--success", ">=0.5")
    assert (by_reward["success"]["of"], by_reward["pass_at_k"]) == (0, {})


@pytest.mark.parametrize("broken", ["", "t5", "t1,t2"])
def test_turn_groups_without_a_verdict_have_no_pass_at_k(bench: Bench, broken: str) -> None:
    done = bench("eval", "Mute", "--max-failure-rate", "1", broken=broken)
    found, data = stored("eval.json"), bench.analyze("--count-failed")
    assert found["accuracy"] is None
    assert (found["pass_at"], data["pass_at_k"], data["success"]["of"]) == ({}, {}, 0)
    for rule in (found["success_rule"], data["success"]["rule"], done.json["evaluations"][0]["success_rule"]):
        assert rule.startswith("none: the groups are turns of episodes")
    assert "none: the groups are turns" in bench.cli("analyze", "run").stdout
    assert "none: the groups are turns" in Path("run/eval.md").read_text()
    assert found["reward"]["value"] == pytest.approx(data["reward"]["mean_over_tasks"])


@pytest.mark.parametrize("env", ["Sums", "Turns", "Opened"])
def test_shards_that_were_merged_are_told_as_the_whole_run(bench: Bench, env: str) -> None:
    options = ("--max-failure-rate", "1")
    broken = "t3,t4,t8?"
    bench("gen", env, *options, broken=broken)
    Path("run").rename("whole")
    for shard in range(3):
        bench("gen", env, *options, "--shard", f"{shard}/3", broken=broken)
        Path("run").rename(f"part{shard}")
    assert bench.cli("merge", "part0", "part1", "part2", "-o", "run").code == 0
    whole, merged = json.loads(Path("whole/summary.json").read_text()), stored("summary.json")
    for key in ("groups_done", "groups_failed", "rollouts", "rollouts_failed", "failures", "stop_reasons", "requests"):
        assert merged[key] == whole[key], key
    for key in ("rewards", "metrics", "reward_mean", "reward_std"):
        assert merged[key] == pytest.approx(whole[key]), key
    again = bench("gen", env, *options, "--resume", broken=broken).json
    assert (again["rollouts"], again["failures"]) == (whole["rollouts"], whole["failures"])
