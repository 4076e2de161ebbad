"""Names that do not exist, and options given twice: errors with words, never a silent no or the last one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def sharegpt(number: int) -> dict[str, Any]:
    turns = [{"from": "human", "value": f"q{number // 2}"}, {"from": "gpt", "value": f"answer {number}"}]
    kind = {"task_name": ("sum", "sort")[number % 2]} if number < 7 else {}
    return {"id": str(number), "conversations": turns, "score": number / 10, "level": number, "metadata": kind}


@pytest.fixture
def file(isolation: Path) -> Path:
    path = isolation / "rows.jsonl"
    path.write_text("".join(json.dumps(sharegpt(number)) + "\n" for number in range(8)))
    return path


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("filter", "--min-words", "3", "--min-words=4"), "--min-words is given twice"),
        (("filter", "-o", "a.jsonl", "--output", "b.jsonl"), "--output is given twice"),
        (("sft-gen", "--select", "all", "--select", "best"), "--select is given twice"),
        (("analyze", "--top", "3", "--top", "4"), "--top is given twice"),
        (("view", "--group", "--no-group"), "--group / --no-group is given twice"),
        (("score", "--max-failure-rate", "0", "--max-failure-rate", "1"), "--max-failure-rate is given twice"),
    ],
)
def test_an_option_given_twice_is_an_error(command: tuple[str, ...], words: str, cli: Any, file: Path) -> None:
    got = cli(command[0], file, *command[1:])
    assert (got.code, words in got.stderr) == (2, True), got.stderr
    assert not list(Path().glob("[ab].jsonl"))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("gen", "arithmetic", "--limit", "3", "--limit", "4"), "--limit is given twice"),
        (("gen", "arithmetic", "--kind", "add", "--env.kind", "mul"), "--kind is given twice"),
        (("eval", "arithmetic", "--samples", "1", "--samples", "2"), "--samples is given twice"),
        (("env", "check", "arithmetic", "--limit", "1", "--limit", "1"), "--limit is given twice"),
        (("gen", "arithmetic", "--dry-run", "--no-dry-run"), "--dry-run / --no-dry-run is given twice"),
        (("gen", "intern-bootcamp", "--params", '{"Sums": {"a": 1, "a": 2}}'), "a is given twice"),
        (
            (
                "train",
                "grpo",
                "--model",
                "m",
                "--env",
                "arithmetic",
                "--eval",
                "arithmetic:limit=2,limit=3",
                "--dry-run",
            ),
            "limit is given twice",
        ),
        (("train", "grpo", "--env", "arithmetic", "--env", "arithmetic_eval"), "--env is given twice"),
        (
            ("slurm", "submit", "--dry-run", "--env", "A=1", "--env", "A=2", "--", "gen", "arithmetic"),
            "A is given twice",
        ),
        (
            ("slurm", "submit", "--dry-run", "--", "gen", "arithmetic", "-o", "a", "--output=b"),
            "--output is given twice",
        ),
        (("tmux", "run", "--env", "A=1", "--env", "A=2", "--", "gen", "arithmetic"), "A is given twice"),
    ],
)
def test_an_option_of_a_run_given_twice_is_an_error(command: tuple[str, ...], words: str, cli: Any) -> None:
    got = cli(*command)
    assert (got.code, words in got.stderr) == (2, True), got.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("gen", "arithmetic", "--split", "nonsense", "--dry-run"),
        ("eval", "code-exec", "--split", "valid", "--dry-run"),
        ("train", "grpo", "--model", "m", "--env", "arithmetic", "--split", "tset", "--dry-run"),
        ("train", "grpo", "--model", "m", "--env", "arithmetic", "--eval", "arithmetic:split=dev", "--dry-run"),
    ],
)
def test_a_split_that_does_not_exist_is_an_error_before_a_run(command: tuple[str, ...], cli: Any) -> None:
    got = cli(*command)
    assert (got.code, "has no split" in got.stderr) == (2, True), got.stderr


def test_an_option_of_a_plugin_command_given_twice_is_an_error(cli: Any, install: Any) -> None:
    code = "import typer\napp = typer.Typer()\n@app.command()\ndef hello(name: str = 'x') -> None:\n    print(name)\n"
    install("greeter", {"greeter.py": code}, {"atropos.commands": {"hello": "greeter:app"}})
    assert cli("hello", "--name", "a").stdout == "a\n"
    got = cli("hello", "--name", "a", "--name", "b")
    assert (got.code, got.stdout) == (2, "")
    assert "--name is given twice" in got.stderr


def test_what_may_be_repeated_may_be_repeated(cli: Any, file: Path) -> None:
    words = ("--where", "score > 0", "--where", "score < 0.5", "--dry-run", "--dry-run")
    got = cli("filter", file, *words)
    assert got.code == 0, got.stderr
    assert "kept 4 of 8" in got.stdout


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("filter", "--where", "info.nonsense == 3"), "none of the 8 rollouts has info.nonsense"),
        (("filter", "--where", "score > 0.1 and info.levle > 3"), "did you mean level?"),
        (("filter", "--where", "rewards['math'] > 0.5"), "none of the 8 rollouts has rewards['math']"),
        (("filter", "--where", "not raw.nope.deep"), "none of the 8 rollouts has raw.nope.deep"),
        (("filter", "--where", "env == 'x' or score > 0"), "none of the 8 rollouts has env"),
        (("filter", "--balance", "env"), "--balance env: none of the 8 rollouts has env"),
        (("filter", "--normalize", "env", "--min-score", "0.5"), "--normalize env: none of the 8 rows has env"),
        (("filter", "--finish-reason", "lenght"), "none of the 8 rollouts has lenght"),
        (("sft-gen", "--select", "all", "--field", "nonsense"), "--field: none of the 8 rows has nonsense"),
        (("dpo-gen", "--group", "--field", "levle"), "did you mean level?"),
        (("analyze", "--env", "sum", "--env", "nope"), "no rollouts of nope"),
        (("analyze", "--success", "field:won"), "none of the 8 rollouts has a won"),
    ],
)
def test_a_name_that_no_row_has_is_an_error(command: tuple[str, ...], words: str, cli: Any, file: Path) -> None:
    output = () if command[0] == "analyze" else ("-o", "out.jsonl")
    got = cli(command[0], file, *command[1:], *output)
    assert (got.code, words in got.stderr) == (6, True), got.stderr
    assert not Path("out.jsonl").exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("filter", "--where", "task_name == 'sum'"), "1 of 8 rollouts have no task_name"),
        (("filter", "--balance", "task_name"), "1 of 8 rollouts have no task_name: they are balanced as one kind"),
        (("sft-gen", "--select", "all", "--field", "note"), "7 of 8 rows have no note"),
    ],
)
def test_rows_that_lack_a_name_are_counted(command: tuple[str, ...], words: str, cli: Any, file: Path) -> None:
    rows = file.read_text().splitlines(keepends=True)
    file.write_text("".join([json.dumps({**json.loads(rows[0]), "note": "n"}) + "\n", *rows[1:]]))
    got = cli(command[0], file, *command[1:], "-o", "out.jsonl")
    assert got.code == 0, got.stderr
    assert words in got.stderr


@pytest.mark.parametrize("where", ["info.nonsense == None", "raw.nope is None", "env is none or score > 2"])
def test_asking_for_what_is_missing_is_no_mistake(where: str, cli: Any, file: Path) -> None:
    got = cli("filter", file, "--where", where, "--dry-run")
    assert (got.code, "kept 8 of 8" in got.stdout) == (0, True), got.stderr


def test_kinds_of_tasks_reach_every_place(cli: Any, file: Path) -> None:
    """Read from ShareGPT rows, reported, balanced, carried along by sft-gen, and told apart by analyze."""
    got = cli("filter", file, "--balance", "task_name", "-o", "even.jsonl", "--where", "task_name != None", "--json")
    assert got.json["tasks"]["sum"]["rollouts_kept"] == got.json["tasks"]["sort"]["rollouts_kept"] == 3
    assert cli("sft-gen", file, "--select", "all", "-o", "sft.parquet").code == 0
    again = cli("filter", "sft.parquet", "--where", "task_name in ['sort']", "--dry-run", "--json").json
    assert (again["rollouts_kept"], again["tasks"]["sum"]["rollouts_kept"]) == (3, 0)
    assert cli("dpo-gen", file, "--group", "-o", "pairs.jsonl").code == 0
    assert {json.loads(line)["task_name"] for line in Path("pairs.jsonl").read_text().splitlines()} <= {"sum", "sort"}
    made = cli("gen", "arithmetic", "-o", "run", "--limit", "8", "--backend", "scripted", "--backend.replies", "7")
    assert made.code == 0, made.stderr
    names = cli("analyze", "run", "--json").json["environments"]["arithmetic"]["task_names"]
    assert len(names) > 1
    assert set(cli("filter", "run", "--dry-run", "--json").json["tasks"]) == set(names)


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"task_name": "a"}, "a"),
        ({"bootcamp_names": ["b", "b"]}, "b"),
        ({"ability": "c", "data_source": "x"}, "c"),
        ({"info": {"family": "d"}}, "d"),
        ({"extra_info": {"task_type": "e"}}, "e"),
        ({"metadata": {"task_name": "", "bootcamp": "f"}}, "f"),
        ({"kind": "no name of a task", "task_name": 7}, "-"),
    ],
)
def test_one_place_decides_the_kind_of_a_task(more: dict[str, Any], name: str, cli: Any, isolation: Path) -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    rows = [{"messages": messages}, {"conversations": turns}, {"prompt": "q", "completion": "a"}]
    rows += [{"prompt": "q", "chosen": "a", "rejected": "b"}, {"messages": [messages], "scores": [1]}]
    text = "".join(json.dumps({**row, **more}) + "\n" for row in rows)
    Path("rows.jsonl").write_text(text)
    got = cli("filter", "rows.jsonl", "--dry-run", "--json").json["tasks"]
    assert {kind if kind != more.get("data_source") else "-": tally["groups"] for kind, tally in got.items()} == {
        name: 5
    }
