"""The cache of compiled games: bounded, shared by processes, never half written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_textworld.engine.cache import GameCache, GameRecord, content_key, default_root
from atropos_textworld.engine.errors import EngineError
from atropos_textworld.games.spec import GameSpec

from atropos_cli.sdk import Task

SIZE = 1000


def stored(cache: GameCache, number: int) -> GameRecord:
    """Put a made-up game of 2 * SIZE bytes into the cache, last used `number` seconds after 1970."""
    record = GameRecord(GameSpec("quest-fetch", "easy", number), content_key(str(number)), "", ("look",), ("look",), 1)
    unfinished = cache.unfinished()
    for suffix in (".z8", ".json"):
        unfinished.with_suffix(suffix).write_bytes(b"x" * SIZE)
    cache.put_game(record.key, unfinished)
    cache.put_record(record)
    for suffix in (".z8", ".json"):
        os.utime(cache.game_path(record.key).with_suffix(suffix), (number, number))
    return record


@pytest.fixture
def cache(tmp_path: Path) -> GameCache:
    """An empty cache with room for 5 games."""
    return GameCache(tmp_path / "games", max_bytes=10 * SIZE)


def test_what_was_put_is_found(cache: GameCache) -> None:
    record = stored(cache, 1)
    assert cache.find(record.spec) == record
    assert cache.find(GameSpec("quest-fetch", "easy", 2)) is None
    assert cache.find(GameSpec("quest-fetch", "easy", 1, "test")) is None


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b'{"spec": 1}', b"\xff", b"null"])
def test_a_damaged_record_is_no_record(cache: GameCache, damage: bytes) -> None:
    record = stored(cache, 1)
    cache._record_path(record.spec).write_bytes(damage)
    assert cache.find(record.spec) is None


def test_a_game_without_one_of_its_files_is_not_there(cache: GameCache) -> None:
    record = stored(cache, 1)
    cache.game_path(record.key).with_suffix(".json").unlink()
    assert cache.find(record.spec) is None


def test_it_stays_within_its_bounds_and_drops_what_was_used_longest_ago(cache: GameCache) -> None:
    records = [stored(cache, number) for number in range(1, 9)]
    assert cache.find(records[0].spec)  # That is a use: now it is the newest.
    assert cache.trim(keep=frozenset({records[1].key})) == 3
    left = [record.spec.seed for record in records if cache.find(record.spec)]
    assert left == [1, 2, 6, 7, 8]
    assert sum(path.stat().st_size for path in cache.games.iterdir()) <= cache.max_bytes


def test_files_of_killed_processes_are_swept(cache: GameCache) -> None:
    old, new = cache.unfinished(), cache.unfinished()
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (1, 1))
    cache.trim()
    assert not old.exists()
    assert new.exists()


def test_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_root() == Path("/somewhere/atropos/textworld")
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert default_root() == Path.home() / ".cache/atropos/textworld"


async def test_a_cache_that_cannot_be_written_is_an_error(opened: Any, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(EngineError, match="cannot be used") as failed:
        await opened()
    assert "XDG_CACHE_HOME" in str(failed.value.hint)


BUILD = """
import asyncio
from atropos_textworld.environment import TextWorldEnvironment as E
from atropos_textworld.games.spec import GameSpec
async def main():
    environment = E(E.Config(processes=1))
    await environment.open()
    for seed in (501, 502):
        record = await environment._runtime.pool.get(GameSpec("quest-fetch", "easy", seed))
        print(record.key, environment._runtime.pool.built)
    await environment.close()
asyncio.run(main())
"""


def test_processes_may_share_it(cache_folder: Path) -> None:
    """Two runs want the same games at once, then a third finds them all made."""
    runs = [subprocess.Popen([sys.executable, "-c", BUILD], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [run.communicate()[0].splitlines() for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    keys = [[line.split()[0] for line in output] for output in outputs]
    assert keys[0] == keys[1]
    third = subprocess.run([sys.executable, "-c", BUILD], capture_output=True, text=True, check=True)
    assert [line.split() for line in third.stdout.splitlines()] == [[key, "0"] for key in keys[0]]
    games = cache_folder / "atropos" / "textworld" / "games"
    assert not list(games.glob("tmp-*"))
    assert not list(games.glob("*.ni"))


async def test_a_second_start_of_a_game_builds_nothing(opened: Any, make_task: Callable[..., Task]) -> None:
    spec = GameSpec.from_json(make_task("quest-fetch", seed=600).info)
    first = await opened()
    record = await first._runtime.pool.get(spec)
    second = await opened()
    assert await second._runtime.pool.get(spec) == record
    assert second._runtime.pool.built == 0
