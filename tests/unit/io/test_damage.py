"""Run files that were damaged, edited or forged between two sessions: told with file and line, or mended.

The groups come from the real writer; each test damages its own copy of the folder.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.domain.group import ScoredGroup, make_group_id
from atropos_cli.domain.rollout import Rollout
from atropos_cli.domain.task import Task
from atropos_cli.errors import DataError
from atropos_cli.io import index as index_module
from atropos_cli.io.groupfile import GroupFile, ZstGroupFile, encode_group
from atropos_cli.io.rundir import read_plan, stored_command
from atropos_cli.sdk import assistant, user

DIGEST = "0123456789abcdef"
COUNT = 12


def groups(task: int) -> tuple[ScoredGroup, ...]:
    """Of an odd task two turns, of an even one a single group."""
    messages = (user("вопрос"), assistant(f"答え {task} " * 5))
    rollouts = tuple(Rollout(id=f"r{n}", task_id=str(task), messages=messages, reward=1.0) for n in range(2))
    turns: tuple[int | None, ...] = (0, 1) if task % 2 else (None,)
    return tuple(
        ScoredGroup(
            group_id=make_group_id(DIGEST, task, turn),
            last=turn == turns[-1],
            env="e",
            task=Task(id=str(task)),
            rollouts=rollouts,
            model="m",
        )
        for turn in turns
    )


def recovered(path: Path, kind: type[GroupFile] = GroupFile) -> list[int]:
    file = kind(path, prefix=DIGEST[:10])
    try:
        return list(file.recover())
    finally:
        file.close()


@pytest.fixture(params=["small", "sealed"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """groups.jsonl of COUNT tasks. sealed: with an index that is believed while nobody touches the file."""
    if request.param == "sealed":
        monkeypatch.setattr(index_module, "_SEALED_FROM", 0)
    file = GroupFile(tmp_path / "groups.jsonl", prefix=DIGEST[:10])
    list(file.recover())
    for task in range(COUNT):
        file.write(groups(task))
    file.close()
    return tmp_path / "groups.jsonl"


def middle(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Changes the seventh line."""

    def work(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        return b"".join([*lines[:6], change(lines[6]), *lines[7:]])

    return work


MIDDLE: dict[str, Callable[[bytes], bytes]] = {
    "cut in the body": middle(lambda line: line[:200] + b"\n"),
    "zeros in the body": middle(lambda line: line[:100] + bytes(len(line) - 101) + b"\n"),
    "quotes changed, same length": middle(lambda line: line[:90] + line[90:].replace(b'"', b"'")),
    "half a character": middle(lambda line: line.replace("答".encode(), b"\xe7\xad.", 1)),
    "newline lost": middle(lambda line: line[:-1]),
    "another record": middle(lambda line: b'{"step": 7, "loss": 0.5}\n'),
    "no rollouts": middle(lambda line: line[: line.index(b',"rollouts"')] + b"}\n"),
    "a number": middle(lambda line: b"7\n"),
    "merge marks": middle(lambda line: b"<<<<<<< ours\n" + line),
}


@pytest.mark.parametrize("index", ["kept", "gone", "restored"])
@pytest.mark.parametrize("how", MIDDLE)
def test_a_broken_middle_line_is_told_and_nothing_changed(path: Path, how: str, index: str) -> None:
    sidecar = path.with_name("groups.jsonl.idx")
    data = MIDDLE[how](path.read_bytes())
    path.write_bytes(data)
    if index == "gone":
        sidecar.unlink()
    elif index == "restored":
        os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns - 10**9))
    with pytest.raises(DataError, match=r"groups\.jsonl:7: broken line") as caught:
        recovered(path)
    assert "resume" in (caught.value.hint or "")
    assert path.read_bytes() == data
    assert not path.with_name("groups.jsonl.torn").exists()


@pytest.mark.parametrize("removed", [[6], [4], [0, 1, 2], [17]])
def test_a_line_removed_by_hand_brings_the_task_again_or_is_told(path: Path, removed: list[int]) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    tasks = [int(json.loads(line)["task"]["id"]) for line in lines]
    lost = {tasks[number] for number in removed}
    path.write_bytes(b"".join(line for number, line in enumerate(lines) if number not in removed))
    left = [line for number, line in enumerate(lines) if number not in removed and tasks[number] in lost]
    if left and not json.loads(left[-1])["last"] and tasks[-1] not in lost:
        with pytest.raises(DataError, match=f"task {lost.pop()} has no last group"):
            recovered(path)
    else:
        complete = {task for task in lost if any(json.loads(line)["last"] for line in left)}
        assert set(recovered(path)) == set(range(COUNT)) - lost | complete


TAILS = [
    b'{"schema',
    b'{"schema_version":1,"group_id":"0123456789-99","last":true,\n',
    b"\0" * 4096,
    b"\0" * 99 + b"\n",
]
TAILS += [
    b'{"torn"\n\n\n  \n',
    b'{"torn\0\0\0\0\n\0\0\0',
    b"\xe2\x82",
    b"\n\n",
    b" \t\n",
    b"[1, 2]\n",
    b"kernel panic\r\n",
]


@pytest.mark.parametrize("tail", TAILS)
def test_a_torn_tail_is_the_last_line_that_is_not_blank(path: Path, tail: bytes) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    assert recovered(path) == list(range(COUNT))
    assert path.read_bytes() == whole
    torn = path.with_name("groups.jsonl.torn")
    assert tail in torn.read_bytes() if tail.strip() else not torn.exists()


def records(data: bytes) -> list[bytes]:
    return [data[at : at + 20] for at in range(64, len(data), 20)]


def _swapped(data: bytes) -> bytes:
    found = records(data)
    return data[:64] + b"".join([*found[:3], found[4], found[3], *found[5:]])


FORGED: dict[str, Callable[[bytes], bytes]] = {
    "a task that is not there": lambda data: data[:104] + (500).to_bytes(8, "little") + data[112:],
    "a task named as another": lambda data: data[:104] + data[164:172] + data[112:],
    "one record more": lambda data: data + data[-20:],
    "a record invented": lambda data: data + (77).to_bytes(8, "little") + data[-12:],
    "one record less": lambda data: data[:-20],
    "records swapped": _swapped,
    "an offset moved": lambda data: data[:112] + (1).to_bytes(8, "little") + data[120:],
    "all of another run": lambda data: data[:8] + b"ffffffffff" + data[18:],
    "the form of an older version": lambda data: b"".join(item[:16] for item in records(data)),
    "noise": lambda data: os.urandom(len(data)),
    "nothing": lambda data: b"",
    "half a record": lambda data: data[:-7],
}


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_or_stale_index_is_found(path: Path, how: str) -> None:
    sidecar = path.with_name("groups.jsonl.idx")
    sidecar.write_bytes(FORGED[how](sidecar.read_bytes()))
    assert recovered(path) == list(range(COUNT))
    # What was found is true again, and stays so over half a file.
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:9]))
    assert recovered(path) == list(range(6))


def test_a_sealed_index_is_believed_without_reading_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_SEALED_FROM", 0)
    path = tmp_path / "groups.jsonl"
    file = GroupFile(path, prefix=DIGEST[:10])
    list(file.recover())
    file.write(groups(0))
    file.close()
    with monkeypatch.context() as patch:
        patch.setattr(index_module, "_agreeing", lambda *args: iter(()))
        patch.setattr(GroupFile, "_lines", lambda *args: iter(()))
        assert recovered(path) == [0]
    shutil.copy(path, tmp_path / "copy")  # another inode, another ctime: compared
    os.replace(tmp_path / "copy", path)
    monkeypatch.setattr(index_module, "_agreeing", lambda *args: iter([(5, 1)]))
    assert 5 in recovered(path)


def zst(tmp_path: Path) -> tuple[Path, list[int]]:
    """groups.jsonl.zst and where its frames end."""
    path = tmp_path / "groups.jsonl.zst"
    file = ZstGroupFile(path, prefix=DIGEST[:10])
    list(file.recover())
    ends = []
    for task in range(COUNT):
        file.write(groups(task))
        ends.append(path.stat().st_size)
    file.close()
    return path, ends


@pytest.mark.parametrize("keep_index", [True, False])
@pytest.mark.parametrize("damage", ["flipped", "zeros", "head", "cut"])
def test_a_compressed_file_damaged_in_the_middle_is_told(tmp_path: Path, damage: str, keep_index: bool) -> None:
    path, ends = zst(tmp_path)
    data = bytearray(path.read_bytes())
    start, end = ends[4], ends[5]
    if damage == "flipped":
        data[(start + end) // 2] ^= 0xFF
    elif damage == "zeros":
        data[start + 8 : end] = bytes(end - start - 8)
    elif damage == "head":
        data[start : start + 6] = bytes(6)
    else:
        del data[start + 10 : end]
    path.write_bytes(data)
    if not keep_index:
        path.with_name(path.name + ".idx").unlink()
    with pytest.raises(DataError, match="broken"):
        recovered(path, ZstGroupFile)
    assert path.read_bytes() == data


@pytest.mark.parametrize("tail", [b"", b"\0" * 512, b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\x04\x58\x01\0", b"noise"])
def test_a_compressed_file_with_a_torn_end_is_mended(tmp_path: Path, tail: bytes) -> None:
    path, ends = zst(tmp_path)
    path.write_bytes(path.read_bytes()[: ends[-2]] + (tail or path.read_bytes()[ends[-2] : -5]))
    path.with_name(path.name + ".idx").unlink()
    assert recovered(path, ZstGroupFile) == list(range(COUNT - 1))
    assert path.stat().st_size == ends[-2]


PLANS: list[bytes] = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"7",
    b'"plan"',
    b"\xff\xfe",
    b"\0" * 50,
    b"[" * 100_000,
    b'{"a":' * 99_999,
]
PLANS += [b'{"digest": 1}', b'{"rollouts": {}}', b'{"rollouts": []}', b'{"command": ["gen"]}', b'{"command": "train"}']
PLANS += [
    b"1" * 5000,
    b'{"seed": 1e999}',
    b'{"seed": NaN}',
    b'{"model": "\\ud800"}',
    b"<html></html>",
    b"\xef\xbb\xbf{}",
]


@pytest.mark.parametrize("content", PLANS, ids=lambda content: repr(content[:20]))
def test_a_plan_of_any_content_is_an_error_in_words(tmp_path: Path, content: bytes, cli: Any) -> None:
    path = tmp_path / "run" / "plan.json"
    path.parent.mkdir()
    path.write_bytes(content)
    (path.parent / "groups.jsonl").write_bytes(encode_group(groups(0)[0]) + b"\n")
    with pytest.raises(DataError, match=r"plan\.json"):
        read_plan(path)
    assert stored_command(path) in (None, "train")
    for command in (["run", str(path.parent)], ["gen", "arithmetic", "-o", str(path.parent), "--resume"]):
        got = cli(*command, "--backend", "scripted", "--backend.replies", "1") if command[0] == "gen" else cli(*command)
        assert got.code == 6, got.stderr
        assert "plan.json" in got.stderr
        assert "Traceback" not in got.stderr
