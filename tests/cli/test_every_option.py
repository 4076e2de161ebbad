"""Every option of every command is one field: flag, variable and file key mean the same, and `config show` has it."""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from atropos_training.options import TrainOptions
from atropos_training.settings import train_bucket

from atropos_cli.cli.app import COMMANDS
from atropos_cli.cli.commands import eval as evaluate
from atropos_cli.cli.commands import gen
from atropos_cli.cli.environments import EnvironmentGroup
from atropos_cli.cli.lazy import _common, as_command, command_of, owners
from atropos_cli.cli.options import ALIASES
from atropos_cli.config.buckets import settings_bucket
from atropos_cli.config.options import Option
from atropos_cli.config.sections import COMMANDS as SECTIONS
from atropos_cli.config.sections import is_section
from atropos_cli.config.settings import GenSettings
from atropos_cli.config.sources import Bucket
from atropos_cli.console.commands import bucket_of
from atropos_cli.plugins.commands import load_command

SWITCHES = {"--json", "--config"}
"""--json is about the answer, --config about where the configuration is; the common switches are those like -q."""
OTHERWISE: set[str] = set()
"""Commands that do not take their options from models yet."""


def leaves() -> Iterator[tuple[tuple[str, ...], Any]]:
    """(words, command) of every command; a group with a command per environment counts as one."""

    def walk(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
        members = getattr(command, "commands", {})
        if not members:
            yield words, command
        for name, member in members.items():
            yield from walk((*words, name), member)

    for name, row in COMMANDS.items():
        module, _, attr = row.target.partition(":")
        loaded = getattr(importlib.import_module(module), attr) if module else load_command(name, built_in=OWNERS)
        if isinstance(loaded, typer.Typer):
            loaded = typer.main.get_command(loaded)
        elif not hasattr(loaded, "make_context"):
            loaded = as_command(loaded, name, None)
        yield from walk(tuple(name.split()), loaded)


OWNERS = owners(COMMANDS)
LEAVES = dict(leaves())


def bucket(command: Any) -> Bucket | None:
    return command.use.own if isinstance(command, EnvironmentGroup) else bucket_of(command.callback)


def cases() -> Iterator[tuple[tuple[str, ...], Bucket]]:
    """(words of `config show`, options)."""
    for words, command in LEAVES.items():
        found = bucket(command)
        if found is not None and words[0] != "config":
            yield (*words, "arithmetic") if isinstance(command, EnvironmentGroup) else words, found
    yield ("gen", "arithmetic"), settings_bucket()
    yield ("train", "grpo"), train_bucket(TrainOptions)


CASES = list(cases())


def plain(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


def bounds(option: Option) -> dict[str, float]:
    words = dict(re.findall(r"(>=|<=|>|<) (-?[\d.]+)", option.range))
    both = re.fullmatch(r"(-?[\d.]+) to (-?[\d.]+)", option.range)
    found = {">=": both[1], "<=": both[2]} if both else words
    return {sign: float(number) for sign, number in found.items()}


def number(option: Option) -> float:
    """Within the range, and not the default."""
    known = bounds(option)
    low, high = known.get(">=", known.get(">")), known.get("<=", known.get("<"))
    whole = option.core is not float
    for value in (8, 5, 0.5, 0.25, low, high):
        if value is None or value == option.default or (whole and value != int(value)):
            continue
        fits = (low is None or value > low or value == known.get(">=")) and (
            high is None or value < high or value == known.get("<=")
        )
        if fits:
            return int(value) if whole else value
    raise AssertionError(option)


NAMES = {
    "trainer": "native",
    "backend": "openai",
    "writer": "jsonl.zst",
    "execution.shard": "1/3",
    "rewards": ["length"],
    "roles": ["user"],
    "tools": ["mcp:server"],
    "delivery.to": "http://127.0.0.1:8000",
}
"""Values of options whose text has to name something, or has a form of its own."""
LEFT_OUT = {"env", "prices", "execution.cache_dir", "engine_options"}
"""env: stands in the command line of `gen`, and needs a backend for `train`; prices and engine_options: tables;
execution.cache_dir: the variable ATROPOS_CACHE_DIR is the folder of models and data."""


FLAT = ("sampling", "execution", "tracking", "delivery", "selection")
"""Sections whose options have flags without the section's name."""


def sample(option: Option) -> Any:
    """A value that is not the default, as a file has it."""
    if option.key in NAMES:
        return NAMES[option.key]
    if option.kind == "bool":
        return not option.default
    if option.choices:
        one: Any = next(plain(choice) for choice in option.choices if plain(choice) != option.default)
    elif option.core in (str, Path) or option.secret:
        one = "some/place" if option.core is Path else "2"
    else:
        one = number(option)
    return [one] if option.kind == "list" else one


def told(cli: Any, words: tuple[str, ...], *flags: str) -> dict[str, tuple[Any, str]]:
    done = cli("config", "show", *words, *flags, "--json")
    assert done.code == 0, done.stderr
    return {row["key"]: (row["value"], row["source"]["kind"]) for row in json.loads(done.stdout)}


def as_flags(option: Option, value: Any) -> list[str]:
    flat = option.path[-1] if option.path[0] in FLAT else option.flag
    name = {**ALIASES, "evals": "eval", "source": "from", "requirements": "with"}.get(flat, flat).replace("_", "-")
    if option.kind == "bool":
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}={item}" for item in (value if isinstance(value, list) else [value])]


@pytest.mark.parametrize(
    ("words", "options"), CASES, ids=lambda value: "-".join(value) if isinstance(value, tuple) else ""
)
def test_flag_variable_and_key_mean_the_same(
    cli: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], options: Bucket
) -> None:
    wanted = {option.path: sample(option) for option in options.options if option.key not in LEFT_OUT}
    section = [options.section] if options.section else []
    shown = {path: ".".join((*section, *path)) for path in wanted}
    default = told(cli, words)
    assert {key: default[key] for key in shown.values()}.keys() == set(shown.values())

    # A secret has no flag: other users of a machine see the command lines of its processes.
    secret = {shown[path] for path in wanted if options.by_path[path].secret}
    flags = [
        word
        for path, value in wanted.items()
        if not options.by_path[path].secret
        for word in as_flags(options.by_path[path], value)
    ]
    by_flag = told(cli, words, *flags)

    lines = [f"{'.'.join(path)} = {json.dumps(value)}" for path, value in wanted.items()]
    Path("c.toml").write_text("\n".join([*(f"[{name}]" for name in section), *lines, ""]))
    by_file = told(cli, words, "--config", "c.toml")

    for path, value in wanted.items():
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        name = "__".join(path) if section else path[-1]
        monkeypatch.setenv(f"ATROPOS_{options.prefix}{name.upper()}", text)
    by_variable = told(cli, words)

    for key in shown.values():
        value = by_file[key][0]
        assert value != default[key][0], key
        assert by_flag[key] == (default[key] if key in secret else (value, "flag")), key
        assert by_file[key] == (value, "file"), key
        assert by_variable[key] == (value, "environment variable"), key


def test_flag_over_variable_over_file_over_default(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def value() -> Any:
        return told(cli, ("filter",))["filter.ngram"][0]

    assert value() == 13
    Path("atropos.toml").write_text("[filter]\nngram = 4\n")
    assert value() == 4
    monkeypatch.setenv("ATROPOS_FILTER__NGRAM", "5")
    assert value() == 5
    assert told(cli, ("filter",), "--ngram", "6")["filter.ngram"][0] == 6


def test_no_option_is_outside_the_machine() -> None:
    common = {name for param in command_of(_common, name="common").params for name in param.opts} | {"--help"}
    outside = {}
    for words, command in LEAVES.items():
        if isinstance(command, EnvironmentGroup):
            own = [
                f"--{name}"
                for name, item in inspect.signature(command.use.action).parameters.items()
                if item.kind is inspect.Parameter.KEYWORD_ONLY and name not in ("options", "as_json", "config")
            ]
        else:
            known = {f"--{option.flag}" for option in found.options} if (found := bucket(command)) else set()
            options = [param for param in command.params if param.param_type_name == "option"]
            own = [param.opts[0] for param in options if not known.intersection(param.opts)]
        if left := set(own) - common - SWITCHES:
            outside[words] = left
    assert {words[0] for words in outside} == OTHERWISE, outside


def test_every_section_of_a_command_is_known() -> None:
    assert {options.section for _, options in CASES if options.section} - {"train"} <= SECTIONS
    sections = {name.replace(" ", "-") for name in COMMANDS}
    assert {name for name in sections if not is_section(name)} <= {
        "launch-sglang",
        "launch-skyrl",
        "launch-vllm",
    } | GROUPS
    assert not SECTIONS & set(GenSettings.model_fields)
    assert {gen.OWN.section, evaluate.OWN.section} == {"gen", "eval"}


GROUPS = {"env", "export", "config", "reward", "trainer", "plugins"}
"""Groups whose commands have sections of their own, or no options."""


def test_a_section_stops_no_other_command(cli: Any) -> None:
    Path("atropos.toml").write_text("[filter]\nmin_score = 0.5\n[view]\nport = 1\n[env-check]\nlimit = 3\n")
    assert cli("gen", "arithmetic", "--backend", "scripted", "--limit", "1", "--dry-run").code == 0
    assert cli("config", "show", "merge").code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[filtr]\nmin_score = 1\n", "atropos.toml:1: unknown key 'filtr'\nhint: did you mean 'filter'?"),
        ("[filter]\nmin_scor = 1\n", "atropos.toml:2: unknown key 'filter.min_scor' for atropos filter"),
        ("[filter]\nmin_score = 'x'\n", "atropos.toml:2: min_score of atropos filter: expected a number, got 'x'"),
        ("[filter]\ndedup = 'nearr'\n", "hint: did you mean near?"),
        ("filter = 3\n", "[filter]: expected a section with keys, got 3"),
    ],
)
def test_mistakes_name_file_line_and_what_was_meant(cli: Any, text: str, said: str) -> None:
    Path("atropos.toml").write_text(text)
    done = cli("filter", "rows.jsonl", "-o", "out.jsonl")
    assert done.code == 3
    assert said in done.stderr


def test_a_misspelt_variable_is_told(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATROPOS_FILTER__MIN_SCOR", "1")
    done = cli("filter", "rows.jsonl", "-o", "out.jsonl")
    assert (done.code, "did you mean ATROPOS_FILTER__MIN_SCORE?" in done.stderr) == (3, True)


def test_a_reward_of_a_file_brings_its_options(cli: Any) -> None:
    Path("atropos.toml").write_text("[score]\nrewards = ['judge']\n[reward.judge]\nmodel = 'm'\n")
    found = told(cli, ("score",), "--judge.temperature", "0.5")
    assert (found["score.rewards"], found["reward.judge.model"]) == ((["judge"], "file"), ("m", "file"))
    assert found["reward.judge.temperature"] == (0.5, "flag")


TOKEN = """
from pydantic import SecretStr

from atropos_cli.sdk import Config, Reward


class TokenConfig(Config):
    token: SecretStr | None = None


class Token(Reward):
    Config = TokenConfig

    def __init__(self, config=None):
        self.config = config
        super().__init__(self.score, name="token")

    def configured(self, config):
        return Token(config)

    def score(self, task, rollout):
        return float(self.config.token is not None and self.config.token.get_secret_value() == "abcdef-4711")


token = Token()
"""


def test_a_secret_in_a_file_reaches_the_reward_and_nothing_else(cli: Any) -> None:
    Path("r.py").write_text(TOKEN)
    Path("rows.jsonl").write_text('{"prompt": "q", "completion": "a"}\n')
    Path("atropos.toml").write_text("[score]\nrewards = ['./r.py:token']\n[reward.token]\ntoken = 'abcdef-4711'\n")
    assert told(cli, ("score",))["reward.token.token"] == ("********", "file")
    done = cli("score", "rows.jsonl", "-o", "out.jsonl")
    assert done.code == 0, done.stderr
    assert json.loads(Path("out.jsonl").read_text())["score"] == 1.0
    assert not [path for path in Path().glob("out*") if "4711" in path.read_text()]
