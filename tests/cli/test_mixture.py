"""`atropos gen mix`, mixtures in files and in `eval`, and prompts that a file replaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SCRIPTED = ("--backend", "scripted", "--backend.replies", "4", "--group-size", "2")
MEMBERS = ("--of", "arithmetic:weight=2,kind=add", "--of", "hard=arithmetic:difficulty=hard")


def plan_of(cli: Any, *args: str) -> Any:
    got = cli("gen", *args, *SCRIPTED, "--dry-run", "--json")
    assert got.code == 0, got.stderr
    return got.json


def test_a_mixture_by_flags_and_by_a_file_is_the_same_plan(cli: Any) -> None:
    flags = plan_of(cli, "mix", *MEMBERS)
    Path("atropos.toml").write_text(
        '[env.of.arithmetic]\nweight = 2\nkind = "add"\n[env.of.hard]\nenv = "arithmetic"\ndifficulty = "hard"\n'
    )
    assert plan_of(cli, "mix")["digest"] == flags["digest"]
    Path("atropos.toml").write_text(
        '[[environments.mix.of]]\nenv = "arithmetic"\nweight = 2\nkind = "add"\n'
        '[[environments.mix.of]]\nname = "hard"\nenv = "arithmetic"\ndifficulty = "hard"\n'
    )
    assert plan_of(cli, "mix")["digest"] == flags["digest"]
    other = plan_of(cli, "mix", *MEMBERS[:2], "--of", "hard=arithmetic:difficulty=hard,weight=3")
    assert other["digest"] != flags["digest"]


def test_the_end_of_a_run_names_each_member(cli: Any) -> None:
    got = cli("gen", "mix", *MEMBERS, *SCRIPTED, "--limit", "6", "-o", "run")
    assert got.code == 0, got.stderr
    assert "arithmetic: 4 tasks, 8 rollouts" in got.stderr
    assert "hard: 2 tasks, 4 rollouts" in got.stderr
    summary = json.loads(Path("run/summary.json").read_text())
    assert {name: one["tasks"] for name, one in summary["environments"].items()} == {"arithmetic": 4, "hard": 2}
    rescored = cli("score", "run", "-o", "scored.jsonl")
    assert rescored.code != 0
    assert "of a mixture" in rescored.stderr
    assert cli("score", "run", "--reward", "exact_match", "-o", "scored.jsonl").code == 0


def test_an_evaluation_counts_each_member(cli: Any) -> None:
    got = cli("eval", "mix", *MEMBERS, "--backend", "scripted", "--backend.replies", "7", "--limit", "9", "-o", "e")
    assert got.code == 0, got.stderr
    data = json.loads(Path("e/eval.json").read_text())
    assert data["split"] == "test"
    assert {name: one["tasks"] for name, one in data["environments"].items()} == {"arithmetic": 6, "hard": 3}
    assert "accuracy hard" in got.stdout


def test_an_evaluation_takes_every_task_alike(cli: Any) -> None:
    Path("atropos.toml").write_text("[selection]\nadaptive = true\n")
    args = ("eval", "arithmetic", "--backend", "scripted", "--backend.replies", "7", "--limit", "2")
    assert cli(*args, "-o", "e").code == 0  # a file may say it for gen
    got = cli(*args, "--curriculum", "kind", "-o", "e2")
    assert (got.code, "--curriculum is for gen" in got.stderr) == (2, True)


def test_tasks_of_a_mixture_can_be_written_and_checked(cli: Any) -> None:
    got = cli("env", "tasks", "mix", *MEMBERS, "--limit", "3", "-o", "tasks.jsonl")
    assert got.code == 0, got.stderr
    assert len(Path("tasks.jsonl").read_text().splitlines()) == 3
    got = cli("env", "check", "mix", *MEMBERS)
    assert got.code == 0, got.stdout + got.stderr


PROMPT = """
system = "Answer {{ 'in ' ~ 'words' }}."

[[turns]]
user = "1+1?"
assistant = "Answer: 2"
"""


def test_prompts_are_shown_and_replaced(cli: Any) -> None:
    shown = cli("env", "info", "arithmetic")
    assert "--prompt FILE replaces" in shown.stdout
    assert "Solve the problem." in shown.stdout
    assert cli("env", "info", "arithmetic", "--json").json["prompt"]["system"].startswith("Solve")
    Path("mine.toml").write_text(PROMPT)
    run = ("gen", "arithmetic", *SCRIPTED, "--limit", "1", "-o", "run")
    assert cli(*run, "--prompt", "mine.toml").code == 0
    messages = json.loads(Path("run/groups.jsonl").read_text())["task"]["prompt"]
    assert [message["content"] for message in messages[:3]] == ["Answer in words.", "1+1?", "Answer: 2"]
    # The plan holds the texts: it is the plan that another file changes, and no other file is read.
    assert cli("run", "run/plan.json").code == 0
    changed = cli(*run, "--resume")
    assert (changed.code != 0, "prompt.system" in changed.stderr) == (True, True)
    Path("mine.toml").write_text(PROMPT + "\n# a remark changes nothing\n")
    assert cli(*run, "--prompt", "mine.toml", "--resume").code == 0


def test_a_member_has_a_prompt_of_its_own(cli: Any) -> None:
    Path("mine.toml").write_text('system = "Short."')
    plan = plan_of(cli, "mix", "--of", "arithmetic:prompt=mine.toml", "--of", "b=arithmetic")
    assert plan["mixture"][0]["prompt"] == {"system": "Short."}
    assert plan["mixture"][1]["prompt"]["system"].startswith("Solve")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('user = "x"', "has no text 'user'"),
        ("system = 1", "system: Input should be a valid string"),
        ("system", "is not TOML"),
        ('turns = ["x"]', "turns.0"),
        ('system = "{{ 1 +"', "prompt 'system'"),
        ("system = \"{{ ''.__class__.__mro__ }}\"", "prompt 'system': SecurityError"),
        ('system = "{{ nosuch }}"', "'nosuch' is undefined"),
    ],
)
def test_prompts_that_do_not_fit(cli: Any, text: str, message: str) -> None:
    Path("mine.toml").write_text(text)
    got = cli("gen", "arithmetic", *SCRIPTED, "--limit", "1", "-o", "run", "--prompt", "mine.toml")
    assert got.code != 0
    assert message in got.stderr + "".join(path.read_text() for path in Path().glob("run/failures.jsonl"))


def test_an_environment_without_prompts(cli: Any, sums: str) -> None:
    Path("mine.toml").write_text('system = "x"')
    got = cli("gen", sums, *SCRIPTED, "--prompt", "mine.toml", "--dry-run")
    assert (got.code, "has no prompts that a file can replace" in got.stderr) == (2, True)
