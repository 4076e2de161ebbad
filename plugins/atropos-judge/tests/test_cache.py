"""Verdicts on disk: the same for everybody, whatever happens to those who write them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from atropos_judge.cache import VerdictCache

ABOUT = {"model": "m"}
WRITER = """
import sys
from pathlib import Path
from atropos_judge.cache import VerdictCache
cache = VerdictCache(Path(sys.argv[1]), {"model": "m"}, {"model": "m"})
mine = float(sys.argv[2])
for number in range(int(sys.argv[3])):
    kept = cache.add(f"{number % 500}", {0: mine})
    print(number % 500, kept[0], flush=True)
"""


def cache_in(folder: Path | None, model: str = "m") -> VerdictCache:
    return VerdictCache(folder, {"model": model}, ABOUT)


def test_the_first_of_several_counts_and_others_see_it(tmp_path: Path) -> None:
    one, two = cache_in(tmp_path / "new"), cache_in(tmp_path / "new")
    assert one.votes("k") == {}
    assert one.add("k", {0: 7.0}) == {0: 7.0}
    assert two.add("k", {0: 3.0, 1: 4.0}) == {0: 7.0, 1: 4.0}
    assert two.votes("k") == {0: 7.0, 1: 4.0}
    assert cache_in(tmp_path / "new").votes("k") == {0: 7.0, 1: 4.0}
    assert cache_in(tmp_path / "new", "other").votes("k") == {}
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_what_is_asked_for_again_replaces(tmp_path: Path) -> None:
    cache_in(tmp_path).add("k", {0: 7.0})
    assert cache_in(tmp_path).add("k", {0: 2.0}, again=True) == {0: 2.0}
    assert cache_in(tmp_path).votes("k") == {0: 2.0}


@pytest.mark.parametrize("torn", [b'{"key": "b", "vote": 0, "sco', b'{"key": "b"', b"\xff\xfe", b"\x00" * 100])
def test_a_torn_line_is_skipped_and_ended(tmp_path: Path, torn: bytes) -> None:
    first = cache_in(tmp_path)
    first.add("a", {0: 1.0})
    assert first.path is not None
    with first.path.open("ab") as file:
        file.write(torn)
    second = cache_in(tmp_path)
    assert (second.votes("a"), second.votes("b")) == ({0: 1.0}, {})
    second.add("b", {0: 2.0})
    third = cache_in(tmp_path)
    assert (third.votes("a"), third.votes("b")) == ({0: 1.0}, {0: 2.0})


@pytest.mark.parametrize(
    "line", ["[]", "1", '{"key": "k"}', '{"key": "k", "vote": 0, "score": NaN}', '{"key":"k","vote":"x","score":1}']
)
def test_lines_that_are_none_are_skipped(tmp_path: Path, line: str) -> None:
    first = cache_in(tmp_path)
    first.add("a", {0: 1.0})
    assert first.path is not None
    with first.path.open("a") as file:
        file.write(line + "\n")
    assert cache_in(tmp_path).votes("k") == {}


def test_processes_agree_even_when_some_are_killed(tmp_path: Path) -> None:
    """Four processes write other scores for the same questions; one is killed in the middle."""
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [
        subprocess.Popen([*command, str(score), "3000"], stdout=subprocess.PIPE, text=True) for score in range(4)
    ]
    victim = writers[0]
    assert victim.stdout is not None
    for _ in range(50):
        victim.stdout.readline()
    os.kill(victim.pid, signal.SIGKILL)
    told: dict[str, set[str]] = {}
    for writer in writers:
        out, _ = writer.communicate(timeout=120)
        for line in out.splitlines():
            if len(parts := line.split()) == 2:
                told.setdefault(parts[0], set()).add(parts[1])
    assert len(told) == 500
    assert all(len(scores) == 1 for scores in told.values()), "two processes went by different verdicts"
    found = cache_in(tmp_path)
    assert all(str(found.votes(key)[0]) in scores for key, scores in told.items())
    assert found.path is not None
    records = [json.loads(line) for line in found.path.read_text().splitlines()[1:]]
    assert len(records) == len({record["key"] for record in records}) == 500


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    cache = cache_in(tmp_path / "file" / "below")
    assert cache.add("k", {0: 1.0}) == {0: 1.0}
    assert cache.votes("k") == {0: 1.0}
    cache.add("l", {0: 1.0})
    assert len([record for record in caplog.records if "cannot be kept" in record.message]) == 1


def test_without_a_folder_verdicts_are_kept_in_memory() -> None:
    cache = cache_in(None)
    assert cache.add("k", {0: 1.0}) == {0: 1.0}
    assert cache.add("k", {0: 2.0}) == {0: 1.0}


def test_many_verdicts_are_read_quickly(tmp_path: Path) -> None:
    first = cache_in(tmp_path)
    first.add("a", {0: 1.0})
    assert first.path is not None
    with first.path.open("a") as file:
        file.writelines(json.dumps({"key": f"{i:032x}", "vote": 0, "score": 5.0}) + "\n" for i in range(100_000))
    began = time.process_time()
    assert cache_in(tmp_path).votes(f"{99_999:032x}") == {0: 5.0}
    print(f"100,000 verdicts read in {time.process_time() - began:.2f} CPU seconds")
