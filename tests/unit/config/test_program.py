"""Offline mode and the cache folder: where they may be set, what they set."""

from __future__ import annotations

from pathlib import Path

import pytest

from atropos_cli.config.program import ProgramSettings, apply, program_settings
from atropos_cli.errors import ConfigError


def test_sources_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert program_settings() == ProgramSettings()
    Path("atropos.toml").write_text('offline = true\ncache_dir = "a"\n')
    found = program_settings()
    assert (found.offline, found.cache_dir, found.cache_source) == (True, Path("a").absolute(), "atropos.toml")
    monkeypatch.setenv("ATROPOS_OFFLINE", "0")
    monkeypatch.setenv("ATROPOS_CACHE_DIR", "/b")
    found = program_settings()
    assert (found.offline, found.offline_source, found.cache_dir) == (False, "ATROPOS_OFFLINE", Path("/b"))
    assert program_settings(["gen", "x", "--offline"]).offline_source == "--offline"
    assert not program_settings(["launch-vllm", "m", "--", "--offline"]).offline
    Path("c.yaml").write_text("cache_dir: c\n")
    monkeypatch.delenv("ATROPOS_CACHE_DIR")
    assert program_settings(["gen", "--config", "c.yaml"]).cache_dir == Path("c").absolute()
    assert program_settings(["gen", "--config=c.yaml"]).cache_dir == Path("c").absolute()


def test_bad_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATROPOS_OFFLINE", "maybe")
    with pytest.raises(ConfigError, match="ATROPOS_OFFLINE: offline: expected true or false, got 'maybe'"):
        program_settings()
    monkeypatch.delenv("ATROPOS_OFFLINE")
    Path("atropos.toml").write_text("cache_dir = 5\n")
    with pytest.raises(ConfigError, match="cache_dir: expected a folder, got 5"):
        program_settings()
    Path("atropos.toml").write_text("not toml\n")
    assert program_settings() == ProgramSettings()  # the command that reads it will say so


def test_the_libraries_variables() -> None:
    env = {"WANDB_MODE": "disabled", "HF_DATASETS_CACHE": "/mine", "HF_HUB_OFFLINE": "0"}
    apply(ProgramSettings(offline=True, cache_dir=Path("/c")), env)
    assert env == {
        "ATROPOS_OFFLINE": "1",
        "ATROPOS_CACHE_DIR": "/c",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "HF_HUB_CACHE": "/c/hub",
        "HF_DATASETS_CACHE": "/mine",
    }
    untouched: dict[str, str] = {}
    apply(ProgramSettings(), untouched)
    assert untouched == {}
