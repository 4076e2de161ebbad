"""`atropos analyze` as a user calls it: numbers, files it writes, errors, and the cases of the field."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CLI = Callable[..., Any]


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def group(ident: str, scores: list[Any], **more: Any) -> dict[str, Any]:
    messages = [
        [{"role": "user", "content": ident}, {"role": "assistant", "content": f"r{i}"}] for i in range(len(scores))
    ]
    return {"item_id": ident, "messages": messages, "scores": scores, **more}


def case(field_cases: dict[str, Any], ident: str) -> Path:
    (text,) = field_cases[ident]["input"]["files"].values()
    path = Path("r.jsonl")
    path.write_bytes(text.encode())
    return path


def environment(report: dict[str, Any]) -> dict[str, Any]:
    (found,) = report["environments"].values()
    return dict(found)


def test_more_samples_asked_for_than_there_are(cli: CLI, field_cases: dict[str, Any]) -> None:
    done = cli("analyze", case(field_cases, "J01"), "--k", "1,5,10", "--json")
    data = environment(done.json)
    assert {k: point["mean"] for k, point in data["pass_at_k"].items()} == {"1": 0.0, "5": 0.0}
    assert any(note.startswith("pass@10") for note in data["left_out"])


def test_pass_at_k_is_the_mean_of_each_tasks_estimate(cli: CLI, field_cases: dict[str, Any]) -> None:
    data = environment(cli("analyze", case(field_cases, "J02"), "--json").json)
    assert {k: point["mean"] for k, point in data["pass_at_k"].items()} == {"1": 0.125, "2": 0.25, "4": 0.5}
    assert all(point["tasks"] == 2 for point in data["pass_at_k"].values())


def test_all_succeed_is_not_one_succeeds(cli: CLI, field_cases: dict[str, Any]) -> None:
    path = case(field_cases, "J13")
    data = environment(cli("analyze", path, "--k", "2", "--json").json)
    assert data["pass_hat_k"]["2"]["mean"] == 0.75
    assert data["pass_at_k"]["2"]["mean"] == 1.0
    text = cli("analyze", path, "--k", "2").stdout
    assert re.search(r"pass@k \(one of k succeeds\) +1\.000", text)
    assert re.search(r"pass\^k \(all k succeed\) +0\.750", text)


def test_a_small_reward_is_no_success(cli: CLI, field_cases: dict[str, Any]) -> None:
    path = case(field_cases, "J18")
    data = environment(cli("analyze", path, "--json").json)
    assert (data["success"]["count"], data["success"]["of"]) == (1, 3)
    assert data["reward"]["mean"] == pytest.approx(1.1 / 3)
    assert data["success"]["rule"] == "reward 1, the highest seen"
    loose = environment(cli("analyze", path, "--success", ">0", "--json").json)
    assert loose["success"]["count"] == 2
    assert loose["success"]["rule"] == "reward >0"
    text = cli("analyze", path).stdout
    assert "1 of 3 (33.3 %), by reward 1, the highest seen" in text


def test_scales_of_two_environments_are_not_mixed(cli: CLI, field_cases: dict[str, Any]) -> None:
    report = cli("analyze", case(field_cases, "E26"), "--json").json
    assert {name: env["reward"]["max"] for name, env in report["environments"].items()} == {"math": 1, "game": 4200}


def test_groups_that_failed_as_a_whole_are_in_the_denominator(cli: CLI) -> None:
    run = Path("run")
    run.mkdir()
    (run / "plan.json").write_text(json.dumps({"environment": {"name": "sums"}, "group_size": 2}))
    rollouts = [{"id": "x", "messages": [], "reward": 1.0}]
    write(
        run / "groups.jsonl",
        *(
            {"group_id": f"abc-{i}", "env": "sums", "task": {"id": str(i)}, "rollouts": rollouts * 2, "model": "m"}
            for i in range(3)
        ),
    )
    failures = [
        {"group_id": "abc-1", "stage": "generate", "type": "Timeout", "message": "was made later"},
        {"group_id": "abc-7", "stage": "generate", "type": "ServerUnavailable", "message": "x"},
        {"group_id": "abc-7", "stage": "generate", "type": "ServerUnavailable", "message": "again"},
        {"group_id": "abc-2", "rollout": "abc-2/0", "stage": "score", "type": "Odd", "message": "one rollout"},
    ]
    write(run / "failures.jsonl", *failures)
    with (run / "failures.jsonl").open("a") as file:
        file.write('{"group_id": "abc-8", "sta')
    data = environment(cli("analyze", run, "--json").json)
    assert data["rollouts"] == {"total": 8, "scored": 6, "failed": 2, "unscored": 0, "non_finite": 0}
    assert data["failures"] == {"generate:ServerUnavailable": 2}
    counted = environment(cli("analyze", run, "--count-failed", "--json").json)
    assert counted["success"]["rate"] == pytest.approx(6 / 8)
    assert "6 scored, 2 failed, 0 without a reward, of 8" in cli("analyze", run).stdout


def test_one_environment_of_several(cli: CLI) -> None:
    path = write(Path("r.jsonl"), group("a", [1.0], env="math"), group("b", [5.0], env="game"))
    assert list(cli("analyze", path, "--env", "game", "--json").json["environments"]) == ["game"]
    none = cli("analyze", path, "--env", "chess")
    assert none.code == 6
    assert "no rollouts of chess" in none.stderr
    assert "there are: math, game" in none.stderr


def test_the_page_loads_nothing_and_runs_nothing(cli: CLI) -> None:
    evil = "</title><script>alert(1)</script>\u202e"
    rows = [group(evil, [0.0, 1.0], env=evil, finish_reasons=[evil, evil]) for _ in range(3)]
    path = write(Path("r.jsonl"), *rows)
    assert cli("analyze", path, "--html", "out/page.html").code == 0
    text = Path("out/page.html").read_text()
    assert "<script" not in text
    assert "\u202e" not in text
    assert "default-src 'none'" in html.unescape(text)
    assert not re.search(r"(?:src|href)\s*=", text)
    again = cli("analyze", path, "--html", "out/page.html")
    assert again.code == 6
    assert "--overwrite" in again.stderr
    assert cli("analyze", path, "--html", "out/page.html", "--overwrite").code == 0


def test_pictures(cli: CLI) -> None:
    pytest.importorskip("matplotlib")
    path = write(Path("r.jsonl"), *(group(f"$\\frac{{{i}", [0.0, i / 10], env="a/b $x") for i in range(20)))
    done = cli("analyze", path, "--png", "pictures", "--json")
    assert done.code == 0
    names = [Path(name) for name in done.json["files"]]
    assert len(names) >= 3
    for name in names:
        assert name.parent == Path("pictures")
        assert name.read_bytes().startswith(b"\x89PNG")


def test_pictures_without_matplotlib(cli: CLI, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = cli("analyze", write(Path("r.jsonl"), group("a", [1.0])), "--png", "pictures")
    assert done.code == 3
    assert "pip install 'atropos-view[plots]'" in done.stderr
    assert not Path("pictures").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--success", "0.5"], 2, "none of auto, max"),
        (["--keep", "0.5"], 2, "not a threshold"),
        (["--k", "1,x"], 2, "whole numbers"),
        (["--k", "0"], 2, "at least 1"),
        (["--format", "atropo"], 2, "did you mean atropos"),
        (["--tolerant", "--strict"], 2, "exclude"),
    ],
)
def test_bad_options(cli: CLI, arguments: list[str], code: int, text: str) -> None:
    done = cli("analyze", write(Path("r.jsonl"), group("a", [1.0])), *arguments)
    assert done.code == code
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_usable(cli: CLI) -> None:
    assert cli("analyze", "missing.jsonl").code == 6
    done = cli("analyze", write(Path("r.jsonl"), {"a": 1}))
    assert done.code == 6
    assert "r.jsonl:1" in done.stderr


def test_standard_input(cli: CLI, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    class Stdin:
        buffer = io.BytesIO(json.dumps(group("a", [1.0, 0.0])).encode())

    monkeypatch.setattr("sys.stdin", Stdin())
    assert environment(cli("analyze", "-", "--json").json)["rollouts"]["scored"] == 2


def test_unscored_rollouts_are_described_too(cli: CLI) -> None:
    rows = [{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "answer"}]} for _ in range(3)]
    done = cli("analyze", write(Path("r.jsonl"), *rows))
    assert done.code == 0
    assert "0 scored, 0 failed, 3 without a reward, of 3" in done.stdout
    assert "constant: characters 6, turns 1" in done.stdout
    assert "success" not in done.stdout


def test_numbers_that_no_float_can_hold(cli: CLI) -> None:
    long = 10**400
    rollouts = [
        {"messages": [{"role": "assistant", "content": "a"}], "reward": reward, "metrics": {"m": long, "n": 1.5}}
        for reward in (long, 0.5, 1e308, -1e308)
    ]
    for rollout in rollouts:
        rollout.update(rewards={"r": long}, usage={"completion_tokens": long})
    Path("a.jsonl").write_text(json.dumps({"group_id": "g", "env": "e", "task": {"id": "t"}, "rollouts": rollouts}))
    told = cli("analyze", "a.jsonl", "--html", "a.html", "--json").json["environments"]["e"]
    assert (told["rollouts"]["scored"], told["rollouts"]["non_finite"]) == (3, 1)
    assert list(told["metrics"]) == ["n"]


def test_a_format_that_the_rows_are_not_in(cli: CLI) -> None:
    path = write(Path("r.jsonl"), group("a", [1.0]))
    for name in ("sharegpt", "preference", "completion", "taubench", "text", "native"):
        for command in (["analyze", path], ["view", path, "--export", "p.html"]):
            done = cli(*command, "--format", name)
            assert done.code == 6, done.stderr
            assert "Traceback" not in done.stderr
