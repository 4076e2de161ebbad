"""The file .env and the variables that other tools share: what they may set, who wins, and who gets a key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

from atropos_cli.config import dotenv

DIGITS = "./digits.py:Digits"
KEY = "sk-of-the-environment-1234"
FILE_KEY = "sk-of-the-file-56789"


@pytest.fixture(autouse=True)
def digits(monkeypatch: pytest.MonkeyPatch, isolation: Path) -> None:
    Path("digits.py").write_text("from atropos_authoring.digits import Digits\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(isolation / "state"))


def settings(cli: Any, *words: str) -> dict[str, tuple[Any, str]]:
    """key -> (value, source) of `config show`."""
    got = cli("config", "show", *words, "--json")
    assert got.code == 0, got.stderr
    return {
        row["key"]: (
            row["value"],
            f"{row['source'].get('name', 'default')}:{row['source'].get('line', '')}".rstrip(":"),
        )
        for row in got.json
    }


def test_the_precedence(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """flag > ATROPOS_ variable > .env's ATROPOS_ > atropos.toml > usual variable > .env's usual > default."""

    def url(*flags: str) -> tuple[Any, str]:
        value, source = settings(cli, "gen", DIGITS, "--backend", "openai", *flags)["backend_options.base_url"]
        return value[0], source

    assert url() == ("http://127.0.0.1:8000/v1", "default")
    Path(".env").write_text("OPENAI_API_BASE=http://a0\nOPENAI_BASE_URL=http://a\n")
    assert url() == ("http://a/v1", ".env:2")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://b")
    assert url() == ("http://b/v1", "OPENAI_BASE_URL")
    Path("atropos.toml").write_text('[backend_options]\nbase_url = "http://c"\n')
    assert url() == ("http://c/v1", "atropos.toml:2")
    Path(".env").write_text("ATROPOS_BASE_URL=http://d\n")
    assert url() == ("http://d/v1", ".env:1")
    monkeypatch.setenv("ATROPOS_BASE_URL", "http://e")
    assert url() == ("http://e/v1", "ATROPOS_BASE_URL")
    assert url("--base-url", "http://f") == ("http://f/v1", "--base-url")
    assert "ATROPOS_BASE_URL" in os.environ
    assert dotenv.MARK not in os.environ  # nothing of the file stays behind


def test_config_show_tells_all_of_them_and_no_secret(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnop")
    monkeypatch.setenv("WANDB_ENTITY", "team")
    Path(".env").write_text(f"OPENAI_API_KEY={FILE_KEY}\nWANDB_PROJECT=sums\nWANDB_NAME=one\nWANDB_MODE=offline\n")
    pytest.importorskip("atropos_trl")
    found = settings(cli, "train", "grpo")
    assert found["WANDB_PROJECT"] == ("sums", ".env:2")
    assert found["WANDB_NAME"] == ("one", ".env:3")
    assert found["WANDB_MODE"] == ("offline", ".env:4")
    assert found["WANDB_ENTITY"] == ("team", "WANDB_ENTITY")
    assert (found["OPENAI_API_KEY"], found["HF_TOKEN"]) == (("********", ".env:1"), ("********", "HF_TOKEN"))
    assert settings(cli, "gen", DIGITS)["WANDB_PROJECT"] == ("sums", ".env:2")
    for words in (["gen", DIGITS], ["train"], ["launch"], ["slurm"], []):
        got = cli("config", "show", *words)
        assert got.code == 0
        assert FILE_KEY not in got.stdout + got.stderr
        assert ".env: read" in got.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["train"],
        ["train", "--steps", "3"],
        ["train", "sft"],
        ["train", "dpo", "--beta", "0.2"],
        ["eval", DIGITS],
        ["launch"],
        ["slurm"],
    ],
)
def test_every_command_with_settings_can_be_shown(cli: Any, words: list[str]) -> None:
    if words[0] == "train":
        pytest.importorskip("atropos_trl")
    Path("atropos.toml").write_text(
        'seed = 4\n[launch]\ntp = 2\n[slurm]\nprofile = "a"\n[slurm.profiles.a]\npartition = "gpu"\n'
    )
    found = settings(cli, *words)
    expected = {
        "launch": ("launch.tp", 2, 3),
        "slurm": ("slurm.profiles.a.partition", "gpu", 7),
    }.get(words[0], ("seed", 4, 1))
    assert found[expected[0]] == (expected[1], f"atropos.toml:{expected[2]}")
    if words == ["train", "--steps", "3"]:
        assert found["train.steps"] == (3, "--steps")


def test_a_foreign_or_broken_file_breaks_nothing(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_PAPER", "de_DE")
    Path(".env").write_bytes(
        b"\xef\xbb\xbfDATABASE_URL=postgres://u:p@h/db\nPATH=/evil\nLD_PRELOAD=x.so\nPYTHONPATH=/evil\nLC_PAPER=x\n"
        b"not an assignment\n=\nA B=3\nATROPOS_API_URL=http://x\nATROPOS_ENV__NOPE=3\nATROPOS_BACKEND__X=1\n"
        b"ATROPOS_SEED='unclosed\nHF_ENDPOINT=http://evil\nWANDB_BASE_URL=http://evil\n\xff\xfe\x00=1\n"
        b"WANDB_PROJECT=\x00\nATROPOS_WORKERS=3\n"
    )
    before = dict(os.environ)
    got = cli("gen", DIGITS, "--backend", "scripted", "--dry-run", "--json")
    assert got.code == 0, got.stderr
    assert got.json["execution"]["workers"] == 3
    assert dict(os.environ) == before
    told = cli("config", "show").stderr
    assert "lines that are not for atropos: 11" in told
    assert ".env:12: ATROPOS_SEED is passed over" in told
    reasons = {"directory": "it is not a file", "large": "it is larger than 64 KiB", "pipe": "it is not a file"}
    for kind, reason in reasons.items():
        Path(".env").unlink()
        if kind == "directory":
            Path(".env").mkdir()
        elif kind == "large":
            Path(".env").rmdir() if Path(".env").is_dir() else None
            Path(".env").write_text("ATROPOS_WORKERS=3\n" + "#" * (1 << 17))
        else:
            os.mkfifo(".env")
        assert cli("gen", DIGITS, "--backend", "scripted", "--dry-run", "--json").json["execution"]["workers"] == 8
        assert f".env: not read: {reason}" in cli("config", "show", "launch").stderr
        if kind == "directory":
            Path(".env").rmdir()
            Path(".env").touch()


def test_a_wrong_value_names_its_line(cli: Any) -> None:
    Path(".env").write_text("# ours\nATROPOS_WORKERS=many\n")
    got = cli("gen", DIGITS, "--backend", "scripted", "--dry-run")
    assert got.code == 3
    assert "error: .env:2: execution.workers: expected an integer, got 'many'" in got.stderr


def test_a_line_that_is_none_but_meant_for_us_is_named(cli: Any) -> None:
    Path(".env").write_text(
        "OPENAI_BASE_URL: http://h/v1\nOPENAI_API_KEY='sk-open-quote\nset WANDB_PROJECT=a\n"
        "$env:HF_TOKEN='hf_abcdefgh'\nexport WANDB_MODE offline\nFOO: 1\n"
    )
    told = cli("config", "show", "launch").stderr
    names = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "WANDB_PROJECT", "HF_TOKEN", "WANDB_MODE")
    for number, name in enumerate(names, start=1):
        assert f".env:{number}: {name} is passed over" in told
    assert ".env: read; lines that are not for atropos: 1" in told
    assert "sk-open" not in told
    assert "hf_abcd" not in told


def test_a_file_of_powershell_is_read(cli: Any) -> None:
    Path(".env").write_bytes("ATROPOS_WORKERS=3\r\n".encode("utf-16"))
    assert settings(cli)["execution.workers"] == (3, ".env:1")


def test_a_wrong_switch_of_the_program_names_its_line(cli: Any) -> None:
    Path(".env").write_text("# ours\nATROPOS_OFFLINE=maybe\n")
    got = cli("config", "show", "launch")
    assert (got.code, "error: .env:2: ATROPOS_OFFLINE: offline: expected" in got.stderr) == (3, True)


def test_a_variable_that_nobody_filled_in_is_no_host(cli: Any) -> None:
    Path(".env").write_text("OPENAI_BASE_URL=http://${HOST}:8000/v1\n")
    got = cli("config", "show", "gen", DIGITS)
    assert (got.code, ".env:1: base_url" in got.stderr) == (3, True)


def test_the_file_can_be_left_alone(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".env").write_text("ATROPOS_WORKERS=3\nATROPOS_DOTENV=1\n")
    monkeypatch.setenv("ATROPOS_DOTENV", "0")
    assert settings(cli)["execution.workers"] == (8, "default")
    assert ".env: not read: ATROPOS_DOTENV is off" in cli("config", "show", "launch").stderr


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=b", "b"),
        ("export A=b", "b"),
        ("  A = b c  ", "b c"),
        ("A=b # c", "b"),
        ("A=b#c", "b#c"),
        ("A='b # $c' # d", "b # $c"),
        ('A="b\\n\\"c\\""', 'b\n"c"'),
        ("A=", ""),
        ("A=# c", ""),
        ("A=b=c", "b=c"),
        ("A=$(rm -rf /)", "$(rm -rf /)"),
        ("A='b", None),
        ('A="b" c', None),
        ("A", None),
        ("A-B=c", None),
    ],
)
def test_lines(text: str, value: str | None) -> None:
    (line,) = dotenv.parse(text)
    assert (line.value if line.name else None) == value


@pytest.mark.parametrize(
    ("file", "environment", "sent"),
    [
        ("OPENAI_BASE_URL={url}\nOPENAI_API_KEY={file_key}\n", {}, FILE_KEY),
        ("OPENAI_BASE_URL={url}\n", {"OPENAI_API_KEY": KEY}, None),  # the address of a file gets no key from elsewhere
        ("OPENAI_BASE_URL={url}\nOPENAI_API_KEY={file_key}\n", {"OPENAI_API_KEY": KEY}, None),
        ("", {"OPENAI_BASE_URL": "{url}", "OPENAI_API_KEY": KEY}, KEY),
        ("OPENAI_API_KEY={file_key}\n", {"OPENAI_BASE_URL": "{url}"}, FILE_KEY),
        ("", {"OPENAI_API_BASE": "{url}", "OPENAI_API_KEY": KEY}, KEY),
        ("", {"ATROPOS_BASE_URL": "{url}", "OPENAI_API_KEY": KEY}, None),
        ("", {"ATROPOS_BASE_URL": "{url}", "OPENAI_BASE_URL": "http://h:1", "OPENAI_API_KEY": KEY}, None),
        ("", {"OPENAI_BASE_URL": "{url}"}, None),
    ],
)
def test_who_gets_the_key(
    cli: Any, monkeypatch: pytest.MonkeyPatch, file: str, environment: dict[str, str], sent: str | None
) -> None:
    with MockServer(models=("tiny",), reply="12") as server:
        Path(".env").write_text(file.format(url=server.base_url, file_key=FILE_KEY))
        for name, value in environment.items():
            monkeypatch.setenv(name, value.format(url=server.base_url))
        got = cli("gen", DIGITS, "--limit", "1", "--group-size", "2", "--output", "run")
        assert got.code == 0, got.stderr
        keys = {seen.headers.get("authorization") for seen in server.requests}
    assert keys == {None if sent is None else f"Bearer {sent}"}
    assert not any(key.encode() in path.read_bytes() for path in Path("run").iterdir() for key in (KEY, FILE_KEY))


def test_a_usual_address_is_not_for_a_model_of_this_machine(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("atropos_local")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    got = cli("gen", DIGITS, "--model", "smollm2", "--dry-run", "--json")
    assert got.code == 0, got.stderr
    assert got.json["backend"]["name"] == "local"
    assert cli("gen", DIGITS, "--model", "x", "--dry-run", "--json").json["backend"]["name"] == "openai"
