"""The last lines of every command: its one number, and a next step that is right for what came out."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.cli.app import COMMANDS
from atropos_cli.console.ending import again, command_name, no_spread, reward_headline, shell
from atropos_cli.domain.run import RunSummary

SCRIPTED = ("--backend", "scripted", "--group-size", "2", "--count", "4")
MIXED = ("--backend.replies", "0", "--backend.replies", "2")
WRONG = ("--backend.replies", "never")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the run of all tests is kept."""
    return tmp_path_factory.mktemp("made") / "run"


@pytest.fixture
def runs(cli: Any, sums: str, made: Path) -> str:
    """`my run`: replies "0" and "2" in turn, so that the groups of two tasks have spread."""
    if not made.exists():
        done = cli("gen", sums, *SCRIPTED, *MIXED, "-o", "my run")
        assert done.code == 0, done.stderr
        shutil.copytree("my run", made)
    shutil.copytree(made, "my run", dirs_exist_ok=True)
    return sums


# command line -> (the last line that is no next step, the next step); ... stands for anything.
ENDS: list[tuple[str, tuple[str, ...], str, str]] = [
    ("gen", ("gen", "ENV", *SCRIPTED, *MIXED, "-o", "r1"), "reward 0.250 (std ..., groups with spread 2/4", "view r1"),
    (
        "gen equal",
        ("gen", "ENV", *SCRIPTED, *WRONG, "-o", "r 2"),
        "reward 0.000 ..., groups with spread 0/4",
        "view 'r 2'",
    ),
    ("gen one", ("gen", "ENV", *SCRIPTED[:2], *MIXED, "--group-size", "1", "-o", "r3"), "reward ...", "view r3"),
    ("gen -o -", ("gen", "ENV", *SCRIPTED, *MIXED, "-o", "-"), "reward 0.250 ...", ""),
    ("eval", ("eval", "ENV", *SCRIPTED[:2], *MIXED, "-o", "e1"), "accuracy ... over 5 tasks (...)", "view e1"),
    (
        "eval models",
        ("eval", "ENV", *SCRIPTED[:2], *MIXED, "-o", "e2", "--models", "a", "--models", "b"),
        "accuracy a: ...; b: ... over 5 tasks (...)",
        "view e2/a",
    ),
    ("run", ("run", "my run"), "reward 0.250 ...", "view 'my run'"),
    (
        "analyze",
        ("analyze", "my run"),
        "reward 0.250, groups with spread 2/4",
        "filter 'my run' --min-spread 0.01 -o kept.jsonl",
    ),
    ("score", ("score", "my run", "-o", "s.jsonl"), "mean score 0.25 (before: 0.25)", "analyze s.jsonl"),
    (
        "filter",
        ("filter", "my run", "--min-score", "0.5", "-o", "-k.jsonl"),
        "kept 2 of 8 (25.0 %) rollouts, ...",
        "sft-gen ./-k.jsonl -o sft.jsonl",
    ),
    (
        "filter dry",
        ("filter", "my run", "--min-score", "0.5", "--dry-run"),
        "kept 2 of 8 ...",
        "filter 'my run' --min-score 0.5 -o kept.jsonl",
    ),
    ("merge", ("merge", "my run", "-o", "m.jsonl"), "merged 4 groups or rows of 1 input", "analyze m.jsonl"),
    (
        "sft-gen",
        ("sft-gen", "my run", "-o", "x y.jsonl"),
        "... from 8 rollouts",
        "train sft --data 'x y.jsonl' --model MODEL",
    ),
    (
        "dpo-gen",
        ("dpo-gen", "my run", "-o", "d.jsonl"),
        "2 pairs from 4 groups",
        "train dpo --data d.jsonl --model MODEL",
    ),
    (
        "dpo-gen kto",
        ("dpo-gen", "my run", "--kto", "-o", "t.jsonl"),
        "... rows from 4 groups",
        "train kto --data t.jsonl --model MODEL",
    ),
    ("view", ("view", "my run", "--export", "v.html"), "wrote v.html: 4 groups, ... MB", "open it in a browser"),
    ("runs", ("runs", "."), "... reward 0.250 ... finished ... my run", "view 'my run'"),
    ("prompt-gen", ("prompt-gen", "my run", "-o", "p.jsonl"), "... rows", "view p.jsonl"),
    ("journal", ("journal", "."), "no training or evaluation runs below .", "train grpo --help"),
    ("env", ("env", "list"), "... environments", "env info ENV"),
    ("env info", ("env", "info", "ENV"), "10 options, 1 reward", "gen ENV"),
    ("env check", ("env", "check", "ENV"), "result: ok, 5 tasks", "gen ENV"),
    ("env import", ("env", "import", "."), "no environment class of atroposlib below .", "env list"),
    (
        "export",
        ("export", "verifiers", "arithmetic", "-o", "my sums"),
        "wrote my sums",
        "cd 'my sums' && pip install . && vf-eval arithmetic-atropos --env.agent.harness.id null",
    ),
    ("reward", ("reward", "list"), "... rewards", "score RUN --reward NAME -o scored.jsonl"),
    ("trainer", ("trainer", "list"), "... trainer...", "train grpo --help"),
    ("plugins", ("plugins", "check", "arithmetic"), "4 ok, 0 broken", "env list"),
    ("new", ("new", "environment", "my-sums"), "made ... files", "cd atropos-my-sums && pip install -e . && pytest"),
    (
        "config",
        ("config", "show"),
        "... settings, 0 not at the default",
        "set one in atropos.toml, by a flag or a variable",
    ),
    ("doctor", ("doctor",), "... checks: 0 failed, ...", "env list"),
    ("tmux", ("tmux", "list", "--socket", "nobody-uses-this"), "no jobs", "tmux run --help"),
    ("slurm", ("slurm", "list"), "no jobs", "slurm submit --help"),
    ("launch-vllm", ("launch-vllm", "--status"), "no servers", "launch-vllm MODEL"),
    ("launch-sglang", ("launch-sglang", "--status"), "no servers", "launch-vllm MODEL"),
    ("launch-skyrl", ("launch-skyrl", "--status"), "no servers", "launch-vllm MODEL"),
]
ODD = """
from atropos_cli.sdk import Environment, Task, reward, user

@reward
def fails(task, rollout):
    if task.id == 'train-0':
        raise ValueError("odd")
    return 1.0

class Odd(Environment):
    name = "odd"
    rewards = (fails,)
    def tasks(self, split):
        return [Task(id=f"{split}-{i}", prompt=(user("q"),)) for i in range(3)]
"""
ELSEWHERE = {"train", "reevaluate", "prefetch", "pipeline", "push", "job", "serve", "serve-env"}
"""Commands whose ends are tested below, or where what they need is set up."""


def matches(pattern: str, text: str) -> bool:
    return re.fullmatch(".*?".join(map(re.escape, pattern.split("..."))), text) is not None


@pytest.mark.parametrize(("args", "headline", "following"), [row[1:] for row in ENDS], ids=[row[0] for row in ENDS])
def test_the_last_lines(
    cli: Any, runs: str, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], headline: str, following: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(Path.cwd() / "state"))
    done = cli(*(runs if word == "ENV" else word for word in args))
    assert done.code == 0, done.stderr
    following = following.replace("ENV", runs) if "gen ENV" in following else following
    assert not any(line.startswith("next:") for line in done.stdout.splitlines())
    lines = done.stderr.splitlines()
    if following:
        words = following if following.startswith(("cd ", "open ", "set ")) else f"atropos {following}"
        assert lines.pop() == f"next: {words}"
    last = [text.splitlines()[-1] for text in (done.stdout, "\n".join(lines)) if text]
    assert any(matches(headline, line) for line in last), (headline, last)


def test_every_command_has_a_row() -> None:
    ended = {name for row in ENDS for name in (row[1][0], " ".join(row[1][:2]))}
    assert set(COMMANDS) <= ended | ELSEWHERE
    assert not ELSEWHERE - set(COMMANDS)


@pytest.mark.parametrize(
    "args",
    [
        ("gen", "ENV", *SCRIPTED, *MIXED, "-o", "r1"),
        ("eval", "ENV", *SCRIPTED[:2], *MIXED, "-o", "e1"),
        ("analyze", "my run"),
        ("merge", "my run", "-o", "m.jsonl"),
        ("sft-gen", "my run", "-o", "s.jsonl"),
        ("env", "list"),
        ("env", "check", "ENV"),
        ("config", "show"),
    ],
    ids=lambda args: "-".join(args[:2]),
)
def test_json_is_all_of_it(cli: Any, runs: str, args: tuple[str, ...]) -> None:
    done = cli(*(runs if word == "ENV" else word for word in args), "--json")
    assert done.code == 0, done.stderr
    json.loads(done.stdout)
    if args[0] not in ("gen", "eval"):  # these say on stderr how they go on
        assert "next:" not in done.stderr


def test_the_next_steps_can_be_typed(cli: Any, runs: str) -> None:
    """From a run to training data by nothing but what the commands say."""
    done = cli("analyze", "my run")
    for _ in range(2):
        words = shlex.split(done.stderr.splitlines()[-1].removeprefix("next: atropos "))
        done = cli(*words)
        assert done.code == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "next: atropos train sft --data sft.jsonl --model MODEL"


def test_the_state_decides_the_next_step(cli: Any, runs: str) -> None:
    done = cli("gen", runs, *SCRIPTED, *WRONG, "-o", "equal")
    assert "note: all rewards within a group are equal" in done.stderr
    assert "take easier tasks, or a larger model" in done.stderr
    done = cli("env", "check", runs, "--wrong")
    assert done.code == 1
    assert done.stdout.splitlines()[-1] == "result: 5 problems"
    assert done.stderr.splitlines()[-1] == f"next: correct the environment, then atropos env check {runs}"
    done = cli("analyze", "equal")
    assert done.stderr.splitlines()[-1] == "next: atropos view equal"
    done = cli("new", "environment", "thing", "--dry-run")
    assert done.stderr.splitlines()[-1] == "next: atropos new environment thing"


def test_a_pipeline_says_how_far_it_is(cli: Any, sums: str) -> None:
    step = ["gen", sums, *SCRIPTED, *MIXED, "-o", "{folder}/run"]
    steps = {
        "make": {"command": step, "output": "run"},
        "look": {"command": ["analyze", "{folder}/nothing"], "after": ["make"]},
    }
    text = "\n".join(
        f"[steps.{name}]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items())
        for name, values in steps.items()
    )
    Path("p.toml").write_text(text)
    done = cli("pipeline", "run", "p.toml", "--output", "pipe")
    assert done.code != 0
    assert done.stderr.splitlines()[-2:] == [
        "1 of 2 steps done",
        f"next: atropos pipeline run p.toml --output {Path('pipe').resolve()} --resume",
    ]
    done = cli("pipeline", "status", "pipe")
    assert done.stderr.splitlines()[-2] == "1 of 2 steps done"


def test_words_are_quoted_for_the_shell() -> None:
    assert shell("view", Path("-a b")) == "atropos view './-a b'"
    assert shell("view", "$(rm x)") == "atropos view '$(rm x)'"
    args = ("gen", "x", "--overwrite", "-o", "old", "--output=old", "-oold", "--note", "a b")
    assert again(args, Path("run.new")) == "atropos gen x --note 'a b' --resume --output run.new"
    assert again(("run", "x", "--overwrite")) == "atropos run x"


def summary(**changes: Any) -> RunSummary:
    return RunSummary(**{"state": "finished", "plan_digest": "d", "env": "e", "model": "m", **changes})


def test_headlines_of_runs() -> None:
    failed = summary(rollouts=8, rollouts_failed=2, reward_mean=0.5, spread_groups=3, zero_std_groups=1)
    assert reward_headline(failed) == "reward 0.500, groups with spread 3/4, 2 of 8 rollouts failed"
    assert reward_headline(summary(rollouts=8)) == "no reward: 8 of 8 rollouts have one"
    assert no_spread(failed, temperature=1.0) is None
    equal = summary(reward_mean=1.0, zero_std_groups=4)
    assert "harder tasks" in str(no_spread(equal, temperature=None))
    assert "--temperature 1" in str(no_spread(equal, temperature=0.0))
    assert no_spread(summary(reward_mean=1.0), temperature=0.0) is None  # groups of one rollout


@pytest.mark.parametrize(
    "word",
    [
        "a b",
        "it's",
        "two\nlines",
        "tab\there",
        "\u202eright to left",
        "漢字",
        "\udcff.jsonl",
        "back\\slash\n",
        "",
        "$HOME `x`",
        "\x07",
    ],
)
def test_what_is_to_be_pasted_is_the_same_word_in_a_shell(word: str) -> None:
    line = shell("gen", word)
    assert line.isprintable()
    got = subprocess.run(["bash", "-c", f"printf %s {line.removeprefix('atropos gen ')}"], capture_output=True).stdout
    assert got == word.encode("utf-8", "surrogateescape")
    assert again(["gen", word, "--resume"]) == line


@pytest.mark.parametrize(
    ("args", "command"),
    [
        (["gen", "-v"], "gen"),
        (["-v", "run", "r"], "run"),
        (["--log-level", "info", "eval"], "eval"),
        (["--log-level=info", "-q", "generate"], "generate"),
        ([], None),
        (["--version"], None),
    ],
)
def test_the_command_is_found_behind_switches(args: list[str], command: str | None) -> None:
    assert command_name(args) == command


def test_a_run_that_failed_names_a_rate_that_lets_it_pass(cli: Any, isolation: Path) -> None:
    Path("odd.py").write_text(ODD)
    got = cli("gen", "odd.py:Odd", *SCRIPTED[:2], *MIXED, "--group-size", "1", "-o", "my run")
    assert got.code == 1
    assert "hint: see 'my run/failures.jsonl', or allow so many with --max-failure-rate 0.34" in got.stderr
    assert (
        cli(
            "gen", "odd.py:Odd", *SCRIPTED[:2], *MIXED, "--group-size", "1", "-o", "r", "--max-failure-rate", "0.34"
        ).code
        == 0
    )
    got = cli("gen", "odd.py:Odd", *SCRIPTED[:2], *MIXED, "--group-size", "1", "--limit", "1", "-o", "none")
    assert got.code == 1
    assert "hint: see none/failures.jsonl\n" in got.stderr  # no rate lets a run pass of which nothing is left


def test_a_closed_stream_is_no_error_and_no_file_takes_its_place(isolation: Path) -> None:
    command = f"{sys.executable} -m atropos_cli gen many.py:Odd --backend scripted --backend.replies x -o r"
    Path("many.py").write_text(ODD.replace("task.id == 'train-0'", "False"))
    done = subprocess.run(["bash", "-c", f"{command} <&- >&- 2>&-"], capture_output=True)
    assert done.returncode == 0
    assert len([json.loads(line) for line in Path("r/groups.jsonl").read_text().splitlines()]) == 3
