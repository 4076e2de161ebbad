"""Merging: who wins, what is remembered, and how everything that is wrong is told at once."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from atropos_cli.config.buckets import backend_bucket, environment_bucket, settings_bucket
from atropos_cli.config.problems import Origin
from atropos_cli.config.resolve import Resolved, resolve
from atropos_cli.config.show import rows
from atropos_cli.config.sources import Bucket, Entry, collect, user_file
from atropos_cli.errors import ConfigError, UsageError


class Inner(BaseModel):
    depth: int = Field(default=3, ge=1)


class Env(BaseModel):
    model_config = ConfigDict(extra="ignore")  # an author's model may be lax; unknown keys are told all the same
    max_steps: int = Field(default=20, ge=1)
    level: Literal["easy", "hard"] = "easy"
    table: dict[str, int] = Field(default_factory=dict)
    inner: Inner = Field(default_factory=Inner)
    token: SecretStr | None = None


class Backend(BaseModel):
    base_url: tuple[str, ...] = ()
    endpoint: Literal["chat", "completions"] = "chat"


def buckets() -> list[Bucket]:
    return [
        settings_bucket(),
        environment_bucket(Env, ("game", "dist/game"), {"game", "dist/game", "puzzle"}),
        backend_bucket(Backend, ("openai",), {"openai", "scripted"}),
    ]


def settle(*flags: Entry, config: str | None = None, environ: dict[str, str] | None = None) -> Resolved:
    found = buckets()
    return resolve(found, collect(found, config=Path(config) if config else None, environ=environ or {}, flags=flags))


def flag(bucket: str, key: str, value: Any, name: str | None = None) -> Entry:
    path = tuple(key.split("."))
    return Entry(bucket, path, value, Origin("flag", f"--{name or path[-1].replace('_', '-')}"), text=True)


def source(resolved: Resolved, bucket: str, key: str) -> tuple[Any, str]:
    path = tuple(key.split("."))
    return resolved.value(bucket, path), str(resolved.origin(bucket, path))


def write(name: str, text: str) -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return name


def test_flags_beat_variables_beat_files_beat_the_user_file_beat_defaults() -> None:
    write(str(user_file()), "group_size = 1\nlimit = 1\nseed = 1\nmodel = 'u'\nsplit = 'u'\n")
    write("atropos.toml", "group_size = 2\nlimit = 2\nseed = 2\nmodel = 'p'\n")
    environ = {"ATROPOS_GROUP_SIZE": "3", "ATROPOS_LIMIT": "3", "ATROPOS_SEED": "3"}
    got = settle(flag("settings", "group_size", "4"), flag("settings", "limit", "4"), environ=environ)
    assert source(got, "settings", "group_size") == (4, "--group-size")
    assert source(got, "settings", "limit") == (4, "--limit")
    assert source(got, "settings", "seed") == (3, "ATROPOS_SEED")
    assert source(got, "settings", "model") == ("p", "atropos.toml:4")
    assert source(got, "settings", "split")[0] == "u"
    assert source(got, "settings", "split")[1].endswith("config.toml:5")
    assert source(got, "settings", "writer") == ("jsonl", "default")


def test_config_takes_the_place_of_the_project_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write("atropos.toml", "seed = 1\nlimit = 9\n")
    write("other.yaml", "seed: 2\n")
    got = settle(config="other.yaml")
    assert source(got, "settings", "seed") == (2, "other.yaml:1")
    assert source(got, "settings", "limit") == (None, "default")
    monkeypatch.setenv("ATROPOS_CONFIG", "other.yaml")
    assert source(settle(), "settings", "seed") == (2, "other.yaml:1")


def test_sections_merge_by_key_and_the_own_table_of_a_component_wins() -> None:
    write(str(user_file()), "[sampling]\ntop_p = 0.5\ntemperature = 0.1\n[environments.game]\nmax_steps = 1\n")
    write(
        "atropos.toml",
        "[environments.game.inner]\ndepth = 8\n[environments.game]\nlevel = 'hard'\n"
        "[environments.puzzle]\nanything = 1\n"
        "[env]\nlevel = 'easy'\nmax_steps = 2\n[sampling]\ntop_p = 0.9\n[backends.scripted]\nx = 1\n[backends.openai]\n"
        "base_url = ['http://a']\n",
    )
    got = settle()
    assert source(got, "settings", "sampling.top_p")[0] == 0.9
    assert source(got, "settings", "sampling.temperature")[0] == 0.1
    assert source(got, "env", "level") == ("hard", "atropos.toml:4")
    assert source(got, "env", "max_steps") == (2, "atropos.toml:9")
    assert source(got, "env", "inner.depth") == (8, "atropos.toml:2")
    assert got.given["env"] == {"level": "hard", "max_steps": 2, "inner": {"depth": 8}}
    assert source(got, "backend", "base_url")[0] == ("http://a",)


def test_variables_of_components_and_lists() -> None:
    environ = {
        "ATROPOS_ENV__MAX_STEPS": "7",
        "ATROPOS_ENV__INNER__DEPTH": "5",
        "ATROPOS_ENV__TABLE": '{"a": 1}',
        "ATROPOS_BASE_URL": "http://a, http://b",
        "ATROPOS_BACKEND__ENDPOINT": "completions",
        "ATROPOS_STOP": '["a,b", "c"]',
        "ATROPOS_TOP_P": "",
        "ATROPOS_API_KEY": "sk-secret",
        "ATROPOS_TEST_VLLM": "x",
    }
    got = settle(environ=environ)
    assert got.given["env"] == {"max_steps": "7", "inner": {"depth": "5"}, "table": {"a": 1}}
    assert source(got, "backend", "base_url") == (("http://a", "http://b"), "ATROPOS_BASE_URL")
    assert source(got, "backend", "endpoint")[0] == "completions"
    assert source(got, "settings", "sampling.stop")[0] == ("a,b", "c")
    assert source(got, "settings", "sampling.top_p") == (None, "default")


def test_sections_of_other_commands_are_left_alone() -> None:
    write("atropos.toml", "seed = 4\n[train]\nanything = 1\n[trainers.grpo]\nlearning_rate = 1e-6\n[slurm]\nx = 1\n")
    assert source(settle(), "settings", "seed")[0] == 4


def test_everything_wrong_is_told_at_once_with_place_and_advice() -> None:
    write(
        "c.yaml",
        "group_siz: 8\nworkers: 3\nsampling:\n  top-p: 0.9\n  group_size: 8\n  temperature: hot\nseed: true\n"
        "max_steps: 3\nenv:\n  max_step: 1\n  inner: {deep: 1, depth: 0}\n  level: eazy\nexecution: 5\n"
        "environments: {puzle: {}, faraway: {}}\nmodel: 7\n",
    )
    environ = {"ATROPOS_WORKER": "1", "ATROPOS_ENV__LEVLE": "x"}
    with pytest.raises(ConfigError) as caught:
        settle(flag("settings", "limit", "none!"), config="c.yaml", environ=environ)
    lines = [line.strip() for line in caught.value.message.splitlines()]
    assert lines == [
        "17 problems in the configuration",
        "c.yaml:1: unknown key 'group_siz' (did you mean 'group_size'?)",
        "c.yaml:2: unknown key 'workers' (it belongs in section [execution])",
        "c.yaml:4: unknown key 'sampling.top-p' (did you mean 'sampling.top_p'?)",
        "c.yaml:5: unknown key 'sampling.group_size' (it belongs at the top, above any section)",
        "c.yaml:6: sampling.temperature: expected a number, got 'hot'",
        "c.yaml:7: seed: expected an integer, got true",
        "c.yaml:8: unknown key 'max_steps' (it belongs in section [env])",
        "c.yaml:10: unknown key 'env.max_step' for environment 'game' (did you mean 'env.max_steps'?)",
        "c.yaml:11: unknown key 'env.inner.deep' for environment 'game' (did you mean 'env.inner.depth'?)",
        "c.yaml:11: inner.depth of environment 'game': expected at least 1, got 0",
        "c.yaml:12: level of environment 'game': expected one of 'easy' or 'hard', got 'eazy' (did you mean easy?)",
        "c.yaml:13: [execution]: expected a section with keys, got 5",
        "c.yaml:14: [environments.puzle]: there is no 'puzle' installed (did you mean 'puzzle'?)",
        "c.yaml:15: model: expected text, got 7",
        "ATROPOS_ENV__LEVLE: environment 'game' has no such option (did you mean ATROPOS_ENV__LEVEL?)",
        "ATROPOS_WORKER: unknown variable (did you mean ATROPOS_WORKERS?)",
        "--limit: expected an integer, got 'none!'",
    ]


def test_one_problem_stands_alone_and_only_flags_are_a_usage_error() -> None:
    with pytest.raises(UsageError) as caught:
        settle(flag("env", "table", '{"a": "x"}'))
    assert caught.value.message == "--table: a: expected an integer, got 'x'"
    write("c.toml", "group_siz = 1\n")
    with pytest.raises(ConfigError) as problem:
        settle(config="c.toml")
    assert problem.value.message == "c.toml:1: unknown key 'group_siz'"
    assert problem.value.hint == "did you mean 'group_size'?"


def test_a_value_that_lost_is_not_judged() -> None:
    write("c.toml", "limit = 'many'\n")
    assert source(settle(flag("settings", "limit", "3"), config="c.toml"), "settings", "limit")[0] == 3


def test_a_required_option_names_the_ways_to_give_it() -> None:
    class Needs(BaseModel):
        data_file: str

    found = [settings_bucket(), environment_bucket(Needs, ("game",)), backend_bucket(None)]
    with pytest.raises(ConfigError) as caught:
        resolve(found, collect(found, environ={}))
    assert caught.value.message == "environment 'game': option 'data_file' is required"
    assert caught.value.hint == "give the flag --data-file, or the key 'data_file' in section [env]"


def test_a_component_that_is_not_known_yet_keeps_its_keys_unseen() -> None:
    write("c.toml", "[env]\nanything = 1\n[backends.x]\ny = 1\n")
    found = [settings_bucket(), environment_bucket(None), backend_bucket(None)]
    got = resolve(found, collect(found, config=Path("c.toml"), environ={"ATROPOS_ENV__X": "1"}))
    assert got.given["env"] == {}


def test_a_yaml_file_that_would_not_be_read_is_told() -> None:
    write("atropos.yaml", "seed: 1\n")
    with pytest.raises(ConfigError, match="not read by itself"):
        settle()


def test_rows_show_values_with_sources_and_hide_secrets() -> None:
    write("c.toml", "[env]\ntoken = 'sk-very-secret'\n[sampling]\nstop = ['###']\n")
    shown = {row.key: row for row in rows(settle(config="c.toml"))}
    assert shown["env.token"].text == "********"
    assert "secret" not in repr([row.as_json() for row in shown.values()])
    assert shown["sampling.stop"].as_json() == {
        "key": "sampling.stop",
        "value": ["###"],
        "source": {"kind": "file", "name": "c.toml", "line": 4},
    }
    assert shown["execution.workers"].as_json()["source"] == {"kind": "default"}


def test_a_wrong_secret_is_not_quoted() -> None:
    write("c.toml", "[env]\ntoken = 12345678\n")
    with pytest.raises(ConfigError) as caught:
        settle(config="c.toml")
    assert "12345678" not in caught.value.message


def test_variables_of_other_commands_are_left_alone() -> None:
    settle(environ={"ATROPOS_SERVE__TOKEN": "x", "ATROPOS_FILTER__MIN_SCORE": "1"})
    with pytest.raises(ConfigError, match="ATROPOS_SERV__TOKEN: unknown variable"):
        settle(environ={"ATROPOS_SERV__TOKEN": "x"})


def test_variables_of_a_command_of_another_plugin_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("far.away", "package:command", "atropos.commands")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **group: [point])
    settle(environ={"ATROPOS_FAR_AWAY__TOKEN": "x"})
    with pytest.raises(ConfigError, match="ATROPOS_FAR: unknown variable"):
        settle(environ={"ATROPOS_FAR": "x"})
