"""`atropos filter` on the command line: outputs, exit codes, reports."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAM = [sys.executable, "-c", "from atropos_cli.cli.app import main; main()"]


def group(ident: str, *scores: Any, **more: Any) -> dict[str, Any]:
    chats = [
        [{"role": "user", "content": "p"}, {"role": "assistant", "content": f"reply {i}"}] for i in range(len(scores))
    ]
    return {"item_id": ident, "messages": chats, "scores": list(scores), **more}


@pytest.fixture
def file(isolation: Path) -> Path:
    path = isolation / "r.jsonl"
    path.write_text("".join(json.dumps(group(str(i), 0, 1, 0.5, env="math")) + "\n" for i in range(3)))
    return path


def lines(path: str | Path) -> list[Any]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_filter_writes_file_card_and_report(cli: Any, file: Path) -> None:
    got = cli("filter", file, "-o", "out.jsonl", "--min-score", "0.5")
    assert got.code == 0, got.stderr
    assert [row["scores"] for row in lines("out.jsonl")] == [[1, 0.5]] * 3
    assert "rules: score >= 0.5" in got.stdout
    assert "kept 6 of 9 (66.7 %) rollouts, 3 of 3 (100.0 %) groups" in got.stdout
    card = json.loads(Path("out.jsonl.card.json").read_text())
    assert card["options"] == {"min_score": 0.5}
    assert card["steps"] == [{"rule": "score >= 0.5"}]
    assert "score >= 0.5" in Path("out.jsonl.card.md").read_text()


def test_json_report_is_alone_on_stdout(cli: Any, file: Path) -> None:
    got = cli("filter", file, "-o", "out.jsonl", "--best-of-n", "--json")
    assert got.json["rollouts_kept"] == 3
    assert got.json["dropped"] == {"best of the group": 6}
    assert got.json["files"] == ["out.jsonl"]
    assert got.json["read"]["formats"] == {"atropos": 3}


def test_rows_on_stdout_and_the_report_on_stderr(cli: Any, file: Path) -> None:
    got = cli("filter", file, "-o", "-", "--above", "0.5")
    assert [json.loads(line)["scores"] for line in got.stdout.splitlines()] == [[1]] * 3
    assert "kept 3 of 9" in got.stderr
    assert cli("filter", file, "-o", "-", "--json").code == 2


def test_existing_outputs_and_inputs_are_safe(cli: Any, file: Path) -> None:
    before = file.read_bytes()
    assert cli("filter", file, "-o", "out.jsonl").code == 0
    got = cli("filter", file, "-o", "out.jsonl")
    assert (got.code, "already there" in got.stderr) == (6, True)
    assert cli("filter", file, "-o", "out.jsonl", "--overwrite").code == 0
    got = cli("filter", file, "-o", file, "--overwrite")
    assert (got.code, "is an input" in got.stderr) == (2, True)
    assert file.read_bytes() == before
    assert cli("filter", file).code == 2


def test_nothing_left_makes_no_file_and_exit_code_1(cli: Any, file: Path) -> None:
    got = cli("filter", file, "-o", "out.jsonl", "--above", "1")
    assert got.code == 1
    assert "nothing is left of 9 rollouts; most were dropped by: score > 1" in got.stderr
    assert not Path("out.jsonl").exists()
    assert list(Path().iterdir()) == [Path(file.name)]


def test_broken_lines_stop_or_go_to_a_rejects_file(cli: Any, file: Path) -> None:
    with file.open("a") as more:
        more.write('{"item_id": "x", "sc{"\nnull\n' + json.dumps(group("last", 1)) + "\n")
    got = cli("filter", file, "-o", "out.jsonl")
    assert got.code == 6
    assert "broken lines 4, 5" in got.stderr
    assert "Traceback" not in got.stderr
    assert not Path("out.jsonl").exists()
    got = cli("filter", file, "-o", "out.jsonl", "--tolerant")
    assert got.code == 0
    assert len(lines("out.jsonl")) == 4
    assert [row["line"] for row in lines("out.jsonl.rejects.jsonl")] == [4, 5]
    assert "left out 2 rows (2 broken)" in got.stdout


def test_torn_tail_is_one_warning(cli: Any, file: Path) -> None:
    with file.open("a") as more:
        more.write('{"item_id": "x", "messages": [[{"ro')
    got = cli("filter", file, "-o", "out.jsonl")
    assert got.code == 0
    assert got.stderr.count("warning") == 1
    assert f"{file}:4" in got.stderr
    assert cli("filter", file, "-o", "strict.jsonl", "--strict").code == 6


def test_files_without_usable_rows_are_an_error(cli: Any, isolation: Path) -> None:
    (isolation / "tasks.jsonl").write_text('{"problem": "1+1", "subject": "sums"}\n')
    got = cli("filter", "tasks.jsonl", "-o", "out.jsonl")
    assert got.code == 6
    assert "tasks.jsonl:1" in got.stderr
    assert "problem, subject" in got.stderr
    (isolation / "empty.jsonl").write_text("")
    assert cli("filter", "empty.jsonl", "-o", "out.jsonl").code == 6
    assert not Path("out.jsonl").exists()


def test_dry_run_reports_and_writes_nothing(cli: Any, file: Path) -> None:
    got = cli("filter", file, "--dry-run", "--min-score", "1")
    assert got.code == 0
    assert "kept 3 of 9" in got.stdout
    assert list(Path().iterdir()) == [Path(file.name)]


def test_an_evaluation_run_is_evaluation_data(cli: Any) -> None:
    """The tasks of `atropos eval` are left out of a run that was made on the same split."""
    player = ("arithmetic", "--backend", "scripted", "--backend.replies", "Answer: 7", "--split", "test")
    assert cli("gen", *player, "--limit", "6", "--output", "made").code == 0
    assert cli("eval", *player, "--limit", "4", "--output", "judged").code == 0
    assert cli("filter", "made", "--decontaminate", "judged", "-o", "clean.jsonl").code == 0
    left = [json.loads(line)["task"]["id"] for line in Path("clean.jsonl").read_text().splitlines()]
    assert [name.rpartition("-")[2] for name in left] == ["4", "5"]


def test_bad_options_are_told_before_reading(cli: Any, file: Path) -> None:
    for words, text in (
        (("--where", "scor > 1"), "did you mean score?"),
        (("--match", "("), "not a regular expression"),
        (("--balance", "task_nam"), "not one of"),
        (("--format", "trl"), "unknown format"),
        (("--decontaminate", "nothing.jsonl"), "does not exist"),
        (("--write", "csv"), "unknown kind of output"),
    ):
        got = cli("filter", file, "-o", "out.jsonl", *words)
        assert got.code in (2, 6)
        assert text in got.stderr
    assert not Path("out.jsonl").exists()


def test_fields_lists_the_language(cli: Any) -> None:
    got = cli("filter", "--fields")
    assert got.code == 0
    assert "group_spread" in got.stdout
    assert "match()" in got.stdout


def test_run_folder_zst_and_splits(cli: Any, isolation: Path, file: Path) -> None:
    run = isolation / "run"
    run.mkdir()
    file.rename(run / "groups.jsonl")
    got = cli("filter", "run", "-o", "out.jsonl", "--validation", "0.5")
    assert got.code == 0
    total = sum(len(lines(path)) for path in isolation.glob("out-*.jsonl"))
    assert total == 3


def test_h13_piped_into_head(file: Path) -> None:
    with file.open("a") as more:
        for i in range(5000):
            more.write(json.dumps(group(f"m{i}", 1, 1)) + "\n")
    process = subprocess.Popen(
        [*PROGRAM, "filter", str(file), "-o", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read().decode()
    assert process.wait() == 0
    assert json.loads(first)["item_id"] == "0"
    assert "Traceback" not in errors
    assert "Broken" not in errors


def test_sigterm_leaves_nothing_unfinished(isolation: Path) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "filter", "-", "-o", "out.jsonl"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    for i in range(3000):
        process.stdin.write(json.dumps(group(str(i), 1, 1)).encode() + b"\n")
    process.stdin.flush()
    for _ in range(500):
        if list(isolation.glob(".out.jsonl.*")):
            break
        time.sleep(0.02)
    process.terminate()
    assert process.wait(timeout=30) == 130
    process.stdin.close()
    assert process.stderr is not None
    process.stderr.close()
    assert list(isolation.iterdir()) == []
