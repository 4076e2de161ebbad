"""Disks that fail at a bad moment, files that are gone, bodies made to keep the server busy."""

from __future__ import annotations

import gzip
import os
import random
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from atropos_serve.gate import gunzip
from atropos_serve.status import reason, status, status_env
from atropos_serve.store import Store
from serve_support import Clock, env, group, opened, registration, started, tags

from atropos_cli.sdk import DataError


def fails(*arguments: object, **named: object) -> Any:
    raise OSError(28, "No space left on device")


# -- the disk


def test_a_registration_that_fails_half_way_loses_no_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = opened(tmp_path)
    exchange.add([group(8, 1), group(8, 2)])
    with monkeypatch.context() as patch:
        patch.setattr(Store, "set_unit", fails)
        with pytest.raises(OSError, match="No space"):
            exchange.register(registration())
    assert (exchange.registration, status(exchange)["queue_size"]) == (None, 2)
    exchange.register(registration())
    assert tags(exchange.next_batch()) == [1, 2]


def test_another_batch_size_that_fails_half_way_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = started(tmp_path, 4, batch_size=8)
    exchange.add([group(4, tag, 0) for tag in range(6)])
    with monkeypatch.context() as patch:
        patch.setattr("atropos_serve.exchange.Queue.place", fails)
        with pytest.raises(OSError, match="No space"):
            exchange.register(registration(batch_size=12))
    assert tags(exchange.next_batch()) == [0, 1]
    exchange.register(registration(batch_size=12))
    assert tags(exchange.next_batch()) == [2, 3, 4]


@pytest.mark.parametrize("segment", [10_000, 100])
def test_a_request_that_does_not_fit_on_the_disk_leaves_no_bytes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment: int
) -> None:
    monkeypatch.setattr("atropos_serve.store.SEGMENT_SIZE", segment)
    exchange = started(tmp_path, 8)
    exchange.add([group(8, 1)])
    room, write = 1, os.pwrite

    def filling(file: int, data: bytes, place: int) -> int:
        nonlocal room
        if room < 0:
            raise OSError(28, "No space left on device")
        room -= 1
        return write(file, data if room >= 0 else data[:50], place)

    before = sum(path.stat().st_size for path in tmp_path.glob("groups-*.log"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", filling)
        with pytest.raises(OSError, match="No space"):
            exchange.add([group(8, 2), group(8, 3)])
    assert room == -1
    assert sum(path.stat().st_size for path in tmp_path.glob("groups-*.log")) == before
    exchange.add([group(8, 4)])
    assert tags(exchange.next_batch()) == [1, 4]


def test_a_disk_that_is_nearly_full_takes_no_groups_and_gives_them_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atropos_serve.store._LOOK_EVERY", 500)
    exchange = started(tmp_path, 8)
    exchange.add([group(8, 1), group(8, 2)])
    found = os.statvfs(tmp_path)
    little = os.statvfs_result((*found[:4], 20 * 2**20 // found.f_frsize, *found[5:]))
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda path: little)
        with pytest.raises(OSError, match="less than 32 MB are free"):
            exchange.add([group(8, 3)])
        assert sum(path.stat().st_size for path in tmp_path.glob("groups-*.log"))
        assert tags(exchange.next_batch()) == [1, 2]
        assert not sum(path.stat().st_size for path in tmp_path.glob("groups-*.log"))
    assert exchange.add([group(8, 4)]) == [True]


def test_a_disk_that_does_not_say_how_full_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atropos_serve.store._LOOK_EVERY", 100)
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result((4096, 4096, *[0] * 8, 255)))
    exchange = started(tmp_path, 8)
    exchange.add([group(8, 1), group(8, 2)])
    assert tags(exchange.next_batch()) == [1, 2]


def test_groups_larger_than_what_is_written_between_two_looks_at_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atropos_serve.store._LOOK_EVERY", 100)
    exchange = started(tmp_path, 8)
    exchange.add([group(8, 1), group(8, 2)])
    assert tags(exchange.next_batch()) == [1, 2]


def test_a_file_that_cannot_be_deleted_does_not_cost_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atropos_serve.store.SEGMENT_SIZE", 1000)
    exchange = started(tmp_path, 8, batch_size=8)
    exchange.add([group(8, tag) for tag in range(6)])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", fails)
        assert [tags(exchange.next_batch(lease)) for lease in (None, 60, None, None)] == [[0], [1], [2], [3]]
        assert exchange.acknowledge(1)
    exchange.close()
    exchange = opened(tmp_path)
    assert len(list(tmp_path.glob("groups-*.log"))) <= 2
    assert [tags(exchange.next_batch()) for _ in range(3)] == [[4], [5], None]


def test_a_lent_batch_that_the_disk_lost_is_not_delivered_empty(tmp_path: Path) -> None:
    clock = Clock()
    exchange = started(tmp_path, 8, batch_size=8, clock=clock)
    exchange.add([group(8, 1)])
    assert tags(exchange.next_batch(30)) == [1]
    for segment in tmp_path.glob("groups-*.log"):
        segment.write_bytes(b"")
    clock.now += 31
    assert exchange.next_batch(30) is None
    assert (exchange.counts.damaged, status(exchange)["leased_batches"]) == (1, 0)
    exchange.add([group(8, 2)])
    assert tags(exchange.next_batch(30)) == [2]


def test_numbers_of_batches_survive_a_reset_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = started(tmp_path, 8, batch_size=8)
    exchange.add([group(8, 1)])
    assert exchange.next_batch(30) is not None
    with monkeypatch.context() as patch:
        patch.setattr(Store, "_new_segment", fails)  # as if the process had ended after the transaction
        with pytest.raises(OSError, match="No space"):
            exchange.reset()
    exchange.close()
    exchange = opened(tmp_path)
    exchange.register(registration(batch_size=8))
    exchange.add([group(8, 2)])
    batch = exchange.next_batch(30)
    assert batch is not None
    assert batch.id == 2


def test_with_sync_each_file_of_a_request_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atropos_serve.store.SEGMENT_SIZE", 1000)
    synced: dict[int, int] = {}

    def sync(file: int) -> None:
        found = os.fstat(file)
        synced[found.st_ino] = found.st_size

    monkeypatch.setattr(os, "fdatasync", sync)
    monkeypatch.setattr(os, "fsync", sync)
    store = Store(tmp_path, sync=True)
    with store.transaction():
        for _ in range(5):
            store.add(None, 1, 0, b"x" * 700)
    store.close()
    files = [path.stat() for path in tmp_path.glob("groups-*.log")]
    assert len(files) == 3
    assert {file.st_ino: file.st_size for file in files}.items() <= synced.items()
    assert tmp_path.stat().st_ino in synced


def test_a_folder_in_which_no_index_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "queue.db").mkdir()
    with pytest.raises(DataError, match=r"queue\.db: unable to open"):
        Store(tmp_path)


# -- minimums


def test_an_environment_whose_minimum_is_missing_is_not_stopped_by_the_groups_of_others(tmp_path: Path) -> None:
    exchange = started(tmp_path, 8)
    assert exchange.register_env(env(8, desired_name="late", min_batch_allocation=0.5)) is not None
    exchange.add([group(8, 1, 0) for _ in range(6)])  # three batches: as many as `gen --to` lets wait
    assert exchange.next_batch() is None
    assert "a batch needs 8 sequences of late_0" in (reason(exchange) or "")
    assert [status_env(exchange, one)["queue_size"] for one in (0, 1)] == [6, 0]
    exchange.add([group(8, 2, 1)])
    assert status_env(exchange, 1)["queue_size"] == 7
    assert tags(exchange.next_batch()) == [1, 2]


def test_groups_that_wait_for_a_trainer_count_for_environments_that_run_on(tmp_path: Path) -> None:
    exchange = started(tmp_path, 8)
    exchange.reset()
    exchange.add([group(8, tag, 0) for tag in range(5)])
    assert status_env(exchange, 0)["queue_size"] == 5
    exchange.register(registration())
    assert status_env(exchange, 0)["queue_size"] == 5
    assert tags(exchange.next_batch()) == [0, 1]
    assert status_env(exchange, 0)["queue_size"] == 3


# -- compressed bodies


def test_members_of_all_sizes_are_unpacked() -> None:
    dice = random.Random(5)
    texts = [dice.randbytes(size) for size in (0, 1, 100, 511, 512, 513, 5_000, 3_000_000, 0, 7)]
    data = b"".join(gzip.compress(text, mtime=0) + b"\0" * dice.randrange(3) for text in texts)
    assert gunzip(data, 2**23) == b"".join(texts)
    zeros = gzip.compress(b"\0" * 20_000_000)
    assert gunzip(zeros + zeros, 2**26) == b"\0" * 40_000_000
    with pytest.raises(OverflowError):
        gunzip(zeros, 19_999_999)
    for damaged in (zeros[:-1], zeros + b"x", zeros + zeros[:5]):
        with pytest.raises((zlib.error, EOFError)):
            gunzip(damaged, 2**26)


def test_many_empty_members_take_time_in_proportion() -> None:
    member = gzip.compress(b"")

    def seconds(count: int) -> float:
        start = time.process_time()
        assert gunzip(member * count, 1000) == b""
        return time.process_time() - start

    seconds(1000)
    assert seconds(32_000) < 40 * max(seconds(4000), 0.001)  # 8 times as much; in proportion to the square it was 64
