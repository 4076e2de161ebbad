"""`atropos config show`, and configuration that users get wrong (field cases H08, H10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def test_show_without_an_environment(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("atropos.toml").write_text("seed = 5\n")
    monkeypatch.setenv("ATROPOS_WORKERS", "3")
    got = cli("config", "show")
    assert got.code == 0
    rows = {line.split()[0]: line.split()[1:] for line in got.stdout.splitlines()}
    assert rows["setting"] == ["value", "source"]
    assert rows["seed"] == ["5", "atropos.toml:1"]
    assert rows["execution.workers"] == ["3", "ATROPOS_WORKERS"]
    assert rows["group_size"] == ["8", "default"]
    assert "backend_options.base_url" in rows
    assert "config.toml: not there" in got.stderr


def test_show_for_an_environment_takes_its_flags(cli: Any, sums: str) -> None:
    Path("c.yaml").write_text("env:\n  level: hard\n")
    got = cli("config", "show", "gen", sums, "--count", "9", "--config", "c.yaml", "--json")
    assert got.code == 0, got.stderr
    rows = {row["key"]: row for row in got.json}
    assert rows["env.count"] == {"key": "env.count", "value": 9, "source": {"kind": "flag", "name": "--count"}}
    assert rows["env.level"]["source"] == {"kind": "file", "name": "c.yaml", "line": 2}
    assert rows["env.token"]["value"] is None


def test_config_of_the_show_command_itself(cli: Any) -> None:
    Path("c.toml").write_text("seed = 6\n")
    rows = {row["key"]: row for row in cli("config", "show", "--config", "c.toml", "--json").json}
    assert rows["seed"]["value"] == 6
    assert cli("config", "show", "gne").code == 2


def test_help_works_although_the_configuration_is_broken(cli: Any, sums: str) -> None:
    Path("atropos.toml").write_text("x = \n")
    assert cli("gen", sums, "--help").code == 0
    got = cli("gen", sums, "--dry-run")
    assert got.code == 3
    assert got.stderr.startswith("error: atropos.toml:1: not valid TOML")


def test_field_case_h08(cli: Any, sums: str, field_cases: dict[str, Any]) -> None:
    """A misspelt key must not pass in silence. (The file is one for training; gen knows none of its own keys.)"""
    Path("c.yaml").write_text(field_cases["H08"]["input"]["files"]["c.yaml"] + "max_tokns: 5\n")
    got = cli("gen", sums, "--config", "c.yaml", "-o", "r")
    assert got.code == 3
    assert not Path("r").exists()
    lines = [line.strip() for line in got.stderr.splitlines()]
    assert lines[0] == "error: 5 problems in the configuration"
    assert lines[1].startswith("c.yaml:1: unknown key 'method'")
    assert lines[2].startswith("c.yaml:2: unknown key 'learning_rat'")
    assert lines[3] == "c.yaml:4: unknown key 'sampling.top-p' (did you mean 'sampling.top_p'?)"
    assert lines[4].startswith("c.yaml:5: unknown key 'sampling.group_size' (it belongs at the top")
    assert lines[5].startswith("c.yaml:6: unknown key 'max_tokns'")


def test_field_case_h10(cli: Any, sums: str, field_cases: dict[str, Any]) -> None:
    files = field_cases["H10"]["input"]["files"]

    def run(text: str) -> Any:
        Path("c.yaml").write_text(text)
        return cli("gen", sums, "--config", "c.yaml", "--dry-run", "--json", "--backend", "scripted")

    a = run(files["a.yaml"])
    assert a.code == 3
    assert "c.yaml:4" in a.stderr
    assert "line 4, column 1" in a.stderr
    b = run(files["b.yaml"])
    assert b.code == 3
    assert "the configuration is empty" in b.stderr
    c = run(files["c.yaml"])
    assert c.code == 3
    assert "'lr' was already given in line 1" in c.stderr
    d = run(files["d.yaml"].replace("lr:", "sampling:\n  temperature:"))
    assert d.code == 3
    assert "c.yaml:2: sampling.temperature: expected a number, got 'fast'" in d.stderr
    e = run("sampling:\n  temperature: 1e-6\nenv:\n  note: no\n")
    assert e.code == 0, e.stderr
    assert e.json["sampling"]["temperature"] == 1e-6
    assert e.json["environment"]["config"]["note"] == "no"


@pytest.mark.parametrize("text", ["yes", "on", "true", "True", "1"])
def test_a_boolean_option_understands_the_usual_words(cli: Any, sums: str, text: str) -> None:
    Path("c.yaml").write_text(f"env:\n  wrong: {text}\n")
    got = cli("gen", sums, "--config", "c.yaml", "--dry-run", "--json", "--backend", "scripted")
    assert got.code == 0, got.stderr
    assert got.json["environment"]["config"]["wrong"] is True


def test_a_bad_variable_is_a_configuration_error(cli: Any, sums: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATROPOS_WROKERS", "3")
    got = cli("gen", sums, "--dry-run")
    assert got.code == 3
    assert got.stderr.splitlines() == [
        "error: ATROPOS_WROKERS: unknown variable",
        "hint: did you mean ATROPOS_WORKERS?",
    ]
