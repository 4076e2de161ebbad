"""`atropos gen`: flags made from the environment, where values come from, dry runs, real runs with scripted replies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SCRIPTED = ("--backend", "scripted", "--backend.replies", "4", "--group-size", "2")


def plan_of(cli: Any, *args: str) -> Any:
    got = cli("gen", *args, "--dry-run", "--json")
    assert got.code == 0, got.stderr
    return got.json


def test_help_shows_the_environments_options_in_a_section_of_their_own(cli: Any, sums: str) -> None:
    got = cli("gen", sums, "--help")
    assert got.code == 0
    text = got.stdout
    section = text.split("Options of environment 'sums':")[1].split("Run options:")[0]
    for part in (
        "--count INTEGER",
        "Number of sums.  [default: 5; >= 1]",
        "--level easy|hard",
        "--sizes INTEGER",
        "repeatable",
        "--env.workers INTEGER",
        "--inner.depth INTEGER",
        "1 to 9",
        "--inner.fast / --inner.no-fast",
        "--extra JSON",
    ):
        assert part in section
    assert "--token" not in text
    assert "--env.count" not in text
    for title in ("Output:", "Run options:", "Sampling:", "Execution:", "Options of backend 'openai':"):
        assert title in text
    assert "only so when a run option has its name" in " ".join(text.split())
    assert "Options of backend 'scripted'" in cli("gen", sums, "--backend", "scripted", "--help").stdout


def test_every_kind_of_option_reaches_the_plan(cli: Any, sums: str) -> None:
    args = (*SCRIPTED, "--count", "3", "--level=hard", "--sizes", "4", "--sizes", "5", "--env.workers", "6")
    args += ("--inner.depth", "7", "--inner.fast", "--extra", '{"a": 1}', "--note", "x", "--wrong", "--workers", "9")
    args += ("--max-tokens", "10", "--top-p", "0.5", "--stop", "a", "--stop", "b", "--seed", "3", "--limit", "2")
    plan = plan_of(cli, sums, *args)
    config = plan["environment"]["config"]
    assert config == {
        "count": 3,
        "level": "hard",
        "sizes": [4, 5],
        "workers": 6,
        "inner": {"depth": 7, "fast": True},
        "extra": {"a": 1},
        "note": "x",
        "wrong": True,
    }
    assert plan["execution"]["workers"] == 9
    assert plan["sampling"]["stop"] == ["a", "b"]
    assert (plan["sampling"]["top_p"], plan["sampling"]["max_tokens"]) == (0.5, 10)
    assert (plan["seed"], plan["limit"], plan["group_size"]) == (3, 2, 2)
    assert plan["backend"]["config"]["replies"] == ["4"]


def test_long_names_negations_and_underscores(cli: Any, sums: str) -> None:
    write("atropos.toml", "[env]\nwrong = true\n[env.inner]\nfast = true\n[sampling]\ntop_p = 0.5\n")
    args = (*SCRIPTED, "--env.count", "2", "--no-wrong", "--inner.no-fast", "--max_tokens", "5", "--top-p", "none")
    plan = plan_of(cli, sums, *args)
    config = plan["environment"]["config"]
    assert (config["count"], config["wrong"], config["inner"]["fast"]) == (2, False, False)
    assert plan["sampling"]["max_tokens"] == 5
    assert plan["sampling"]["top_p"] is None


def write(name: str, text: str) -> None:
    Path(name).write_text(text)


def test_files_and_variables_reach_the_plan(cli: Any, sums: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        "atropos.toml", "backend = 'scripted'\n[environments.sums]\ncount = 7\n[backends.scripted]\nreplies = ['1']\n"
    )
    monkeypatch.setenv("ATROPOS_ENV__LEVEL", "hard")
    monkeypatch.setenv("ATROPOS_WORKERS", "3")
    plan = plan_of(cli, sums)
    assert plan["environment"]["config"]["count"] == 7
    assert plan["environment"]["config"]["level"] == "hard"
    assert plan["backend"]["name"] == "scripted"
    assert plan["backend"]["config"]["replies"] == ["1"]
    assert plan["execution"]["workers"] == 3


def test_backend_flags(cli: Any, sums: str) -> None:
    plan = plan_of(cli, sums, "--base-url", "http://a/v1", "--base-url", "http://b/v1", "--endpoint", "completions")
    assert plan["backend"]["config"]["base_url"] == ["http://a/v1", "http://b/v1"]
    assert plan["backend"]["config"]["endpoint"] == "completions"
    got = cli("gen", sums, *SCRIPTED, "--base-url", "http://a/v1")
    assert got.code == 2
    assert "backend 'scripted' has no option --base-url" in got.stderr
    got = cli("gen", sums, "--backend", "scripted", "--backend.replis", "x")
    assert got.code == 2
    assert "did you mean --backend.replies" in got.stderr
    got = cli("gen", sums, "--backend", "scriptd")
    assert got.code == 4
    assert "did you mean scripted?" in got.stderr


@pytest.mark.parametrize(
    ("args", "lines"),
    [
        (("--cuont", "3"), ["error: no such option: --cuont", "hint: did you mean --count"]),
        (("--qqseed", "3"), ["error: no such option: --qqseed", "hint: did you mean --seed?"]),
        (("--zzz", "3"), ["error: no such option: --zzz", "hint: atropos gen ./sums.py:Sums --help"]),
        (("--count", "many"), ["error: --count: expected an integer, got 'many'"]),
        (("--count", "0"), ["error: --count: expected at least 1, got 0"]),
        (("--level", "eazy"), ["error: --level: expected one of 'easy' or 'hard', got 'eazy'"]),
        (("--sizes", "1", "--sizes", "x"), ["error: --sizes: value 2: expected an integer, got 'x'"]),
        (("--extra", "{"), ["error: --extra: expected JSON"]),
        (("--top-p", "3"), ["error: --top-p: expected at most 1, got 3"]),
        (
            ("--advantage", "grp"),
            ["error: --advantage: expected one of 'grpo', 'dr_grpo', 'rloo', 'role_mean', 'rae' or 'none', got 'grp'"],
        ),
        (("--count",), ["error: option '--count' requires an argument"]),
        (("stray",), ["error: got unexpected extra argument(s) (stray)"]),
        (("--resume",), ["error: --resume needs the run folder to go on with"]),
        (("-o", "-", "--json"), ["error: --json and -o - would both write to stdout"]),
        (
            ("-o", "-", "--to", "http://h:1"),
            ["error: groups for http://h:1 are kept in a run folder, and -o - has none"],
        ),
        (("-o", "r", "--resume", "--overwrite"), ["error: --resume and --overwrite exclude each other"]),
        (("--split", "validation"), ["error: environment 'sums' has no split 'validation'"]),
    ],
)
def test_what_is_wrong_with_flags(cli: Any, sums: str, args: tuple[str, ...], lines: list[str]) -> None:
    got = cli("gen", sums, *SCRIPTED, *args)
    assert got.code == 2
    assert got.stdout == ""
    found = [line for line in got.stderr.splitlines() if line.startswith(("error:", "hint:"))]
    assert "Traceback" not in got.stderr
    for line, expected in zip(found, lines, strict=False):
        assert line.startswith(expected)
    assert len(found) >= len(lines)


def test_an_unknown_environment(cli: Any, sums: str) -> None:
    got = cli("gen", "no-such-env")
    assert got.code == 4
    assert got.stderr.startswith("error: there is no environment 'no-such-env'")
    assert cli("gen", "./sums.py:Sumz").code == 4
    assert cli("gen", "./missing.py:X").code == 4


def test_a_dry_run_touches_nothing(cli: Any, sums: str, isolation: Path) -> None:
    before = sorted(path.name for path in isolation.iterdir())
    got = cli("gen", sums, "--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--dry-run")
    assert got.code == 0
    assert "environment.config.count:" in got.stdout
    assert "model:" in got.stdout
    assert sorted(path.name for path in isolation.iterdir() if path.name != "__pycache__") == before


def test_a_run_writes_a_folder_and_reports_on_stderr(cli: Any, sums: str) -> None:
    got = cli("gen", sums, *SCRIPTED, "-o", "out/run")
    assert got.code == 0, got.stderr
    assert got.stdout == ""
    assert "5 tasks, 2 rollouts each, 8 workers -> out/run" in got.stderr
    assert "finished: 5 of 5 groups, 10 rollouts" in got.stderr
    assert len(Path("out/run/groups.jsonl").read_text().splitlines()) == 5
    again = cli("gen", sums, *SCRIPTED, "-o", "out/run")
    assert again.code == 6
    assert "--resume continues it" in again.stderr
    more = cli("gen", sums, *SCRIPTED, "-o", "out/run", "--resume", "--json")
    assert more.code == 0
    assert more.json["groups_resumed"] == 5
    assert more.json["run"] == "out/run"
    anew = cli("gen", sums, *SCRIPTED, "--limit", "2", "-o", "out/run", "--overwrite", "--json")
    assert anew.json["groups_done"] == 2
    assert len(Path("out/run/groups.jsonl").read_text().splitlines()) == 2


def test_groups_on_stdout_are_the_only_thing_there(cli: Any, sums: str) -> None:
    got = cli("gen", sums, *SCRIPTED, "-o", "-")
    assert got.code == 0
    groups = [json.loads(line) for line in got.stdout.splitlines()]
    assert len(groups) == 5
    assert all(group["env"] == "sums" for group in groups)
    assert "\x1b" not in got.stderr
    assert "\r" not in got.stderr


def test_the_default_folder_is_named_after_environment_and_time(cli: Any, sums: str) -> None:
    assert cli("gen", sums, *SCRIPTED).code == 0
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("sums-2")
    assert (folder / "groups.jsonl").exists()


def test_a_run_that_fails_ends_with_one(cli: Any, sums: str) -> None:
    failing = Path("sums.py").read_text().replace("return float(", "raise ValueError('no score')\n    return float(")
    write("failing.py", failing)
    got = cli("gen", "./failing.py:Sums", *SCRIPTED, "-o", "r")
    assert got.code == 1, got.stderr
    assert "error: the run failed: 10 of 10 rollouts failed" in got.stderr
    assert "hint: see r/failures.jsonl" in got.stderr


def test_run_carries_out_a_plan_in_its_folder(cli: Any, sums: str) -> None:
    plan = plan_of(cli, sums, *SCRIPTED)
    Path("job").mkdir()
    write("job/plan.json", json.dumps(plan))
    got = cli("run", "job/plan.json", "--json")
    assert got.code == 0, got.stderr
    assert got.json["groups_done"] == 5
    again = cli("run", "job", "--json")
    assert again.json["groups_resumed"] == 5
    assert cli("run", "job", "--dry-run", "--json").json["digest"] == got.json["plan_digest"]


def test_run_refuses_what_is_no_plan(cli: Any) -> None:
    got = cli("run", "nowhere/plan.json")
    assert got.code == 6
    assert "nowhere/plan.json does not exist" in got.stderr
    write("plan.json", "{}")
    assert cli("run", "plan.json").code == 6


def test_run_warns_when_the_environment_has_changed(cli: Any, sums: str) -> None:
    plan = plan_of(cli, sums, *SCRIPTED)
    Path("job").mkdir()
    write("job/plan.json", json.dumps(plan))
    with Path("sums.py").open("a") as file:
        file.write("# changed\n")
    got = cli("run", "job")
    assert "the plan was made with sha256-" in got.stderr


def test_secrets_are_in_no_plan_and_no_output(cli: Any, sums: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write("atropos.toml", "[environments.sums]\ntoken = 'sk-from-file'\n")
    monkeypatch.setenv("ATROPOS_ENV__TOKEN", "")  # so that what the file sets is undone after the test
    monkeypatch.setenv("ATROPOS_API_KEY", "sk-api")
    for args in (("--dry-run",), ("--dry-run", "--json"), ("-o", "r"), ("-o", "-")):
        got = cli("gen", sums, *SCRIPTED, *args)
        assert got.code == 0, got.stderr
        assert "sk-" not in got.stdout + got.stderr
    assert all(b"sk-" not in path.read_bytes() for path in Path("r").iterdir())
    shown = cli("config", "show", "gen", sums, *SCRIPTED)
    assert "env.token" in shown.stdout
    assert "sk-" not in shown.stdout + shown.stderr
    assert cli("gen", sums, "--token", "sk-flag").code == 2
