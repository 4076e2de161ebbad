"""`atropos merge`: shards of a run, and files of one format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.run import RunSummary

SCRIPTED = ("--backend", "scripted", "--backend.replies", "4", "--group-size", "2")


def write(path: str, *rows: Any) -> str:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: str | Path) -> list[Any]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def group(ident: str, *scores: float) -> dict[str, Any]:
    chats = [[{"role": "user", "content": "p"}, {"role": "assistant", "content": f"{i}"}] for i in range(len(scores))]
    return {"item_id": ident, "messages": chats, "scores": list(scores)}


@pytest.fixture
def shards(cli: Any, sums: str) -> list[str]:
    """One run of six tasks, and two shards of the same plan: tasks 0 to 3, and 2 to 5."""
    assert cli("gen", sums, *SCRIPTED, "--count", "6", "--limit", "6", "-o", "whole").code == 0
    lines = Path("whole/groups.jsonl").read_text().splitlines(keepends=True)
    for name, part in (("a", lines[:4]), ("b", lines[2:])):
        Path(name).mkdir()
        Path(name, "plan.json").write_bytes(Path("whole/plan.json").read_bytes())
        Path(name, "summary.json").write_bytes(Path("whole/summary.json").read_bytes())
        Path(name, "groups.jsonl").write_text("".join(part))
    return ["a", "b"]


def test_shards_become_the_run(cli: Any, shards: list[str], sums: str) -> None:
    got = cli("merge", *shards, "-o", "merged")
    assert got.code == 0, got.stderr
    assert Path("merged/groups.jsonl").read_bytes() == Path("whole/groups.jsonl").read_bytes()
    assert "dropped 2 doubles" in got.stdout
    assert "warning" not in got.stderr
    merged = RunSummary.model_validate_json(Path("merged/summary.json").read_text())
    whole = RunSummary.model_validate_json(Path("whole/summary.json").read_text())
    for name in (
        "state",
        "env",
        "model",
        "groups_done",
        "rollouts",
        "reward_mean",
        "reward_std",
        "zero_std_groups",
        "rewards",
        "stop_reasons",
    ):
        wanted = getattr(whole, name)
        assert getattr(merged, name) == (pytest.approx(wanted) if isinstance(wanted, float | dict) else wanted), name
    # The merged run is a run: it can be gone on with.
    again = cli("gen", sums, *SCRIPTED, "--count", "6", "--limit", "6", "-o", "merged", "--resume", "--json")
    assert again.code == 0, again.stderr
    assert (again.json["groups_resumed"], again.json["groups_done"]) == (6, 6)


def test_differing_content_is_reported_and_the_first_is_kept(cli: Any, shards: list[str]) -> None:
    path = Path("b/groups.jsonl")
    path.write_text(path.read_text().replace('"content":"4"', '"content":"5"', 1))
    got = cli("merge", *shards, "-o", "merged", "--json")
    assert got.code == 0
    assert got.json["conflicts"] == 1
    assert "other content" in got.stderr
    assert Path("merged/groups.jsonl").read_bytes() == Path("whole/groups.jsonl").read_bytes()
    got = cli("merge", *shards, "-o", "strict", "--strict")
    assert got.code == 6
    assert not Path("strict").exists()


def test_torn_and_missing_tasks(cli: Any, shards: list[str]) -> None:
    path = Path("b/groups.jsonl")
    path.write_text(path.read_text()[:-40])
    got = cli("merge", *shards, "-o", "merged")
    assert got.code == 0
    assert "left out 1 torn tails" in got.stdout
    assert "1 tasks of the plan are missing" in got.stdout
    assert RunSummary.model_validate_json(Path("merged/summary.json").read_text()).state == "interrupted"
    assert len([ScoredGroup.model_validate(row) for row in read("merged/groups.jsonl")]) == 5


def test_broken_lines_stop(cli: Any, shards: list[str]) -> None:
    path = Path("b/groups.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1][:50] + "\n" + lines[2])
    got = cli("merge", *shards, "-o", "merged")
    assert got.code == 6
    assert "b/groups.jsonl:2: broken line" in got.stderr
    assert not Path("merged").exists()


def test_runs_of_different_plans_are_refused(cli: Any, shards: list[str], sums: str) -> None:
    assert cli("gen", sums, *SCRIPTED, "--count", "6", "--limit", "2", "--seed", "7", "-o", "other").code == 0
    got = cli("merge", "a", "other", "-o", "merged")
    assert got.code == 6
    assert "seed: 0 in the run, 7 now" in got.stderr
    assert not Path("merged").exists()
    write("x.jsonl", group("1", 1))
    assert cli("merge", "a", "x.jsonl", "-o", "merged").code == 2
    assert cli("merge", "a", "b", "-o", "a").code in (2, 6)


def test_existing_runs_are_replaced_only_by_a_whole_merge(cli: Any, shards: list[str]) -> None:
    assert cli("merge", "a", "-o", "merged").code == 0
    assert cli("merge", *shards, "-o", "merged").code == 6
    assert len(read("merged/groups.jsonl")) == 4
    assert cli("merge", *shards, "-o", "merged", "--overwrite").code == 0
    assert len(read("merged/groups.jsonl")) == 6
    assert not Path("merged.new").exists()


def test_runs_can_become_a_file(cli: Any, shards: list[str]) -> None:
    assert cli("merge", *shards, "-o", "all.jsonl").code == 0
    assert len(read("all.jsonl")) == 6
    assert Path("all.jsonl.card.json").exists()


def test_files_of_one_format(cli: Any) -> None:
    write("a.jsonl", group("1", 0, 1), group("2", 1))
    write("b.jsonl", group("2", 1), group("1", 1, 1), group("3", 0))
    got = cli("merge", "a.jsonl", "b.jsonl", "-o", "out.jsonl", "--json")
    assert got.code == 0
    assert [(row["item_id"], row["scores"]) for row in read("out.jsonl")] == [
        ("1", [0, 1]),
        ("2", [1]),
        ("1", [1, 1]),
        ("3", [0]),
    ]
    assert (got.json["kept"], got.json["doubles"], got.json["conflicts"]) == (4, 1, 1)
    assert "b.jsonl:2: id '1' was there before with other content" in got.stderr
    assert cli("merge", "a.jsonl", "b.jsonl", "-o", "strict.jsonl", "--strict").code == 6
    assert not Path("strict.jsonl").exists()


def test_rows_without_ids_are_all_kept(cli: Any) -> None:
    row = {"prompt": "p", "completion": "c"}
    write("a.jsonl", row, row)
    assert cli("merge", "a.jsonl", "a.jsonl", "-o", "out.jsonl").code == 0
    assert read("out.jsonl") == [row] * 4


def test_files_of_different_formats_are_refused(cli: Any) -> None:
    write("a.jsonl", group("1", 1))
    write("b.jsonl", {"prompt": "p", "completion": "c"})
    got = cli("merge", "a.jsonl", "b.jsonl", "-o", "out.jsonl")
    assert got.code == 6
    assert "a.jsonl holds atropos rows, b.jsonl:1 is a completion row" in got.stderr
