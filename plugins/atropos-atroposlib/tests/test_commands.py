"""Options of the environment's config, its evaluation, and the commands around its Python."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FILE = HERE / "envs" / "questions.py"
Cli = Callable[..., Any]


def test_fields_of_its_config_are_options(cli: Cli, standin: str) -> None:
    listed = json.loads(cli("env", "info", standin, "--json").stdout)
    options = {option["name"]: option for option in listed["options"]}
    assert options["way"]["type"] == "chat|turns|managed|completion|edited|several|none|number|ragged"
    assert options["raise_at"]["description"] == "Item that raises."
    assert options["tokenizer_name"]["default"] == "bytes"
    assert "use_wandb" not in options
    assert "group_size" not in options
    assert listed["doc"] == "Questions with numbers."


def test_an_unknown_option_is_named(cli: Cli, standin: str) -> None:
    ended = cli("gen", standin, "--raise-att", 3, "--backend", "scripted")
    assert ended.code == 2
    assert "--raise-at" in ended.stderr


def test_evaluate_is_the_split_test(cli: Cli, standin: str, tmp_path: Path) -> None:
    ended = cli(
        "eval", standin, "--backend", "scripted", "--backend.replies", "yes", "--backend.replies", "no",
        "-o", tmp_path / "run", "-q",
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    group = json.loads((tmp_path / "run" / "groups.jsonl").read_text())
    assert [rollout["reward"] for rollout in group["rollouts"]] == [1.0, 0.0]
    assert group["rollouts"][0]["metrics"] == {"eval/percent_correct": 0.5}
    assert group["rollouts"][0]["messages"][0]["content"] == "held out"


def test_a_tokenizer_that_cannot_be_loaded_is_named(cli: Cli, standin: str) -> None:
    ended = cli("gen", standin, "--tokenizer-name", "some/model", "--backend", "scripted", "--backend.replies", "x")
    assert ended.code == 4
    assert "tokenizer 'some/model' cannot be loaded" in ended.stderr
    assert "--tokenizer-name bytes" in ended.stderr


def test_the_prefix_alone_and_a_missing_file(cli: Cli, standin: str) -> None:
    alone = cli("gen", "atroposlib", "--backend", "scripted", "--backend.replies", "x")
    assert (alone.code, "atroposlib:FILE.py:CLASS" in alone.stderr) == (3, True)
    missing = cli("gen", "atroposlib:nowhere.py:X", "--backend", "scripted")
    assert (missing.code, "there is no such file" in missing.stderr or "cannot read" in missing.stderr) == (4, True)


def test_without_a_python_the_command_that_makes_one_is_named(cli: Cli, atropos_clean: Path) -> None:
    ended = cli("env", "info", f"atroposlib:{FILE}:QuestionsEnv")
    assert (ended.code, "atropos env add atroposlib" in ended.stderr) == (3, True)


def test_environments_are_added_listed_used_and_removed(cli: Cli, standin: str) -> None:
    added = cli("env", "add", "atroposlib", "quiz", "--from", f"{FILE}:QuestionsEnv")
    assert added.code == 0, added.stderr
    rows = {row["name"]: row for row in json.loads(cli("env", "list", "--json").stdout)}
    assert rows["atroposlib:quiz"]["source"] == f"{FILE}:QuestionsEnv"
    assert rows["atroposlib:quiz"]["health"] == "ok"
    assert json.loads(cli("env", "info", "atroposlib:quiz", "--json").stdout)["doc"] == "Questions with numbers."
    assert cli("env", "remove", "atroposlib", "quiz").code == 0
    assert "atroposlib:quiz" not in cli("env", "list").stdout
    assert cli("env", "remove", "atroposlib", "quiz").code == 2


def test_a_python_without_the_package_is_refused(cli: Cli, atropos_clean: Path) -> None:
    ended = cli("env", "add", "atroposlib", "--python", sys.executable)
    assert ended.code == 2
    assert "lacks atroposlib" in ended.stderr
    assert cli("env", "add", "arithmetic", "--python", sys.executable).code in (2, 4)


@pytest.mark.parametrize(("source", "said"), [("nothing.py:X", "there is no file"), ("some.module", "FILE.py:CLASS")])
def test_a_source_is_checked(cli: Cli, standin: str, source: str, said: str) -> None:
    ended = cli("env", "add", "atroposlib", "quiz", "--from", source)
    assert (ended.code, said in ended.stderr) == (2, True)


def test_a_checkout_is_listed_without_importing_it(cli: Cli, standin: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "env.py").write_text(
        "import no_such_module_here\nimport helper\nfrom atroposlib.envs.base import BaseEnv, BaseEnvConfig\n"
        "class C(BaseEnvConfig):\n    depth: int = 3\n"
        "class Base(BaseEnv):\n    env_config_cls = C\nclass Deep(Base):\n    'One line.'\n"
        "raise SystemExit('imported')\n"
    )
    (tmp_path / "a" / "helper.py").write_text("")
    (tmp_path / "a" / "broken.py").write_text("class Odd(BaseEnv:\n")
    found = json.loads(cli("env", "import", tmp_path, "--json").stdout)
    assert [item["source"].rpartition(":")[2] for item in found] == ["Base", "Deep"]
    assert found[0]["options"] == ["depth"]
    assert found[0]["missing"] == ["no_such_module_here"]
    assert found[1]["summary"] == "One line."
    assert "next: atropos gen atroposlib:" in cli("env", "import", FILE).stderr
