"""Commands over stored rows in shards: what one process makes, whatever the shards are, and after any stop."""

from __future__ import annotations

import gzip
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from row_files import make_groups

LAUNCHER = str(Path(__file__).parents[1] / "support" / "here_launcher.py") + ":Here"
REWARD = """
from atropos_cli.sdk import reward

@reward
def length(task, rollout):
    if "broken" in rollout.text:
        raise ValueError("broken")
    return len(rollout.text) % 7 / 7
"""


def on(shards: int) -> tuple[str, ...]:
    return ("--on", LAUNCHER, "--shards", str(shards))


def same(one: Any, other: Any) -> bool:
    """Equal up to the rounding of sums that were added in another order."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=1e-9, abs=1e-12)
    return bool(one == other)


def outputs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if "card" not in path.name}


COMMANDS = {
    "filter": ("filter", "--min-score", "0.5", "--top-k", "2"),
    "filter exact": ("filter", "--dedup", "exact", "--validation", "0.3"),
    "filter exact all": ("filter", "--dedup", "exact", "--dedup-scope", "all", "--min-score", "0.25"),
    "filter near": ("filter", "--dedup", "near", "--near-threshold", "0.6", "--shard-size", "5"),
    "sft-gen": ("sft-gen", "--select", "all", "--validation", "0.3", "--field", "env"),
    "sft-gen cap": ("sft-gen", "--select", "all", "--max-per-task", "3"),
    "dpo-gen": ("dpo-gen", "--policy", "best-random", "--seed", "3"),
    "score": ("score", "--reward", "./marks.py:length", "--max-failure-rate", "1"),
    "analyze": ("analyze",),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_shards_make_what_one_process_makes(cli: Any, isolation: Path, name: str) -> None:
    """Random numbers of shards over several files: plain, compressed, of one row, and empty."""
    seed = sum(map(ord, name))
    draw = random.Random(seed)
    make_groups(isolation / "a.jsonl", 40, seed)
    make_groups(isolation / "c.jsonl", 1, seed + 1)
    (isolation / "b.jsonl.gz").write_bytes(gzip.compress(make_groups(isolation / "x", 10, seed + 2).read_bytes()))
    (isolation / "d.jsonl").write_text("")
    (isolation / "marks.py").write_text(REWARD)
    command = (COMMANDS[name][0], "*.jsonl", "b.jsonl.gz", *COMMANDS[name][1:])
    whole = run_into(cli, isolation / "one", *command)
    for shards in {1, draw.randrange(2, 9), draw.randrange(9, 60)} if name != "score" else {3}:
        parts = run_into(cli, isolation / f"in{shards}", *command, *on(shards))
        assert same(parts[0], whole[0]), shards
        assert parts[1] == whole[1]
        assert not list(isolation.glob("**/*.shards"))


def run_into(cli: Any, folder: Path, *command: str) -> tuple[Any, dict[str, bytes]]:
    """(the report, the files) of a command whose output is in a folder of its own."""
    folder.mkdir()
    where = () if command[0] == "analyze" else ("-o", str(folder / "out.jsonl"))
    done = cli(*command, *where, "--json")
    assert done.code == 0, done.stderr
    return {**done.json, "files": len(done.json["files"])} if "files" in done.json else done.json, outputs(folder)


def test_rows_that_cannot_be_used_are_named_like_those_of_the_whole_file(cli: Any, isolation: Path) -> None:
    file = make_groups(isolation / "a.jsonl", 30, 5)
    lines = file.read_text().splitlines()
    lines[3], lines[20], lines[27] = '{"torn', '{"item_id": "x", "messages": 3, "scores": []}', "[1]"
    file.write_text("\n".join(lines) + "\n")
    for folder, more in (("one", ()), ("two", on(4))):
        Path(folder).mkdir()
        assert cli("filter", file, "-o", f"{folder}/out.jsonl", "--tolerant", *more).code == 0
    assert outputs(Path("one")) == outputs(Path("two"))
    assert "out.jsonl.rejects.jsonl" in outputs(Path("one"))
    stopped = cli("filter", file, "-o", "three.jsonl", *on(4))
    assert stopped.code == cli("filter", file, "-o", "three.jsonl").code
    assert not Path("three.jsonl").exists()


def test_a_shard_that_failed_is_made_alone(cli: Any, isolation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make_groups(isolation / "a.jsonl", 40, 7)
    command = ("filter", file, "--min-score", "0.5", "-o", "out.jsonl", *on(5))
    assert cli(*command[:-4], "--overwrite").code == 0
    wanted = Path("out.jsonl").read_bytes()
    Path("out.jsonl").unlink()
    monkeypatch.setenv("ATROPOS_TEST_FAIL", "1,3")
    failed = cli(*command)
    assert failed.code == 1
    assert "shards 1, 3 of 5 on here are not done" in failed.stderr
    assert "--resume" in failed.stderr
    assert not Path("out.jsonl").exists()
    made = {path: path.stat().st_mtime_ns for path in Path("out.jsonl.shards").glob("shards/*/rows.jsonl")}
    assert len(made) == 3
    monkeypatch.delenv("ATROPOS_TEST_FAIL")
    assert cli(*command).code == 6  # a stopped command is there
    other = cli(*command[:3], "0.25", *command[4:], "--resume")
    assert (other.code, "other options" in other.stderr) == (6, True)
    # The folder as it is when everything is killed now, before a shard has a result, and while one is written.
    shutil.copytree("out.jsonl.shards", "copy")
    Path("out.jsonl.shards/shards/3/rows.jsonl").write_bytes(b"thalf a ro")
    again = cli(*command, "--resume")
    assert again.code == 0, again.stderr
    assert Path("out.jsonl").read_bytes() == wanted
    assert not Path("out.jsonl.shards").exists()
    Path("copy").rename("out.jsonl.shards")
    damaged = Path("out.jsonl.shards/shards/0/rows.jsonl")
    damaged.write_bytes(damaged.read_bytes()[:-5])
    Path("out.jsonl").unlink()
    healed = cli(*command, "--resume")
    assert healed.code == 0, healed.stderr
    assert Path("out.jsonl").read_bytes() == wanted


def test_other_input_than_it_was_cut_for_is_refused(cli: Any, isolation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make_groups(isolation / "a.jsonl", 20, 9)
    monkeypatch.setenv("ATROPOS_TEST_FAIL", "1")
    command = ("sft-gen", file, "-o", "out.jsonl", *on(3))
    assert cli(*command).code == 1
    monkeypatch.delenv("ATROPOS_TEST_FAIL")
    with file.open("a") as more:
        more.write("\n")
    assert cli(*command, "--resume").code == 6
    assert cli(*command, "--overwrite").code == 0


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("filter", "--group"), "--group"),
        (("filter", "--dedup", "near", "--dedup-scope", "all"), "--dedup near --dedup-scope all"),
        (("filter", "--max-per-task", "2"), "--max-per-task"),
        (("filter", "--balance", "env"), "--balance"),
        (("filter", "--normalize", "env", "--min-score", "0.5"), "--normalize env"),
        (("sft-gen", "--group"), "--group"),
        (("dpo-gen", "--group"), "--group"),
        (("score", "--group", "--reward", "exact_match"), "--group"),
    ],
)
def test_what_compares_rows_of_the_whole_is_refused(
    cli: Any, isolation: Path, command: tuple[str, ...], option: str
) -> None:
    make_groups(isolation / "a.jsonl", 5, 1)
    done = cli(command[0], "a.jsonl", *command[1:], "-o", "out.jsonl", *on(2))
    assert done.code == 2, done.stderr
    assert f"{option} compares rows of all shards" in done.stderr
    assert not list(isolation.glob("out*"))


def test_inputs_that_shards_cannot_read(cli: Any, isolation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_groups(isolation / "a.jsonl", 5, 1)
    assert "cannot be read by the shards" in cli("filter", "-", "-o", "out.jsonl", *on(2)).stderr
    assert cli("filter", "a.jsonl", "-o", "out.jsonl", "--resume").code == 2


def test_an_input_without_rows_leaves_nothing(cli: Any, isolation: Path) -> None:
    """Empty, or all blank: as in one process. Blank stretches as long as a shard are no error."""
    for text in ("", "\n" * 5000):
        Path("a.jsonl").write_text(text)
        for command in (("filter", "a.jsonl", "-o", "out.jsonl"), ("sft-gen", "a.jsonl", "-o", "out.jsonl")):
            whole, parts = cli(*command), cli(*command, *on(3))
            assert (parts.code, "a.jsonl: no rows" in parts.stderr) == (whole.code, True) == (6, True)
            assert [path.name for path in isolation.iterdir()] == ["a.jsonl"]
    (isolation / "marks.py").write_text(REWARD)
    make_groups(isolation / "a.jsonl", 6, 3)
    Path("a.jsonl").write_text(Path("a.jsonl").read_text() + "\n" * 60_000)
    command = ("score", "a.jsonl", "--reward", "./marks.py:length")
    assert run_into(cli, isolation / "one", *command)[1] == run_into(cli, isolation / "two", *command, *on(3))[1]


def test_rewards_that_fail_in_one_shard(cli: Any, isolation: Path) -> None:
    """The limit holds for each shard, and may be another one when the command is resumed: the scores are kept."""
    (isolation / "marks.py").write_text(REWARD)
    lines = make_groups(isolation / "a.jsonl", 90, 3).read_text().splitlines()
    broken = [line.replace('"assistant", "content": "', '"assistant", "content": "broken ') for line in lines[60:]]
    Path("a.jsonl").write_text("\n".join([*lines[:60], *broken]))
    command = ("score", "a.jsonl", "--reward", "./marks.py:length", "--max-failure-rate", "1")
    assert cli(*command, "-o", "one.jsonl").code == 0
    stopped = cli(*command, "-o", "two.jsonl", *on(3))
    assert (stopped.code, "--max-error-rate" in stopped.stderr) == (1, True)
    resumed = cli(*command, "-o", "two.jsonl", *on(3), "--resume", "--max-error-rate", "1", "--workers", "1")
    assert resumed.code == 0, resumed.stderr
    assert Path("two.jsonl").read_bytes() == Path("one.jsonl").read_bytes()
    refused = cli(*command, "-o", "three.jsonl", *on(3))
    assert refused.code == 1
    assert cli(*command, "-o", "three.jsonl", *on(3), "--resume", "--deadline", "9").code == 6


def test_an_evaluation_in_shards(cli: Any, sums: str) -> None:
    command = ("eval", sums, "--backend", "scripted", "--backend.replies", "2", "--limit", "5", "--json")
    (Path.cwd() / "plain.py").write_text(
        Path(LAUNCHER.rpartition(":")[0])
        .read_text()
        .replace(
            'make_part(folder / "plan.json", Session())',
            '__import__("atropos_cli.cli.app", fromlist=["run"]).run(["run", str(folder)])',
        )
    )
    whole = cli(*command, "-o", "one")
    parts = cli(*command, "-o", "two", "--on", "./plain.py:Here", "--shards", "3")
    assert parts.code == 0, parts.stderr
    left = ("run", "created", "folder", "duration_s", "reward_details")
    one, two = ({k: v for k, v in got.json["evaluations"][0].items() if k not in left} for got in (whole, parts))
    assert same(one, two)
