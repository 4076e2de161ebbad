"""Group files after every kind of interruption."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atropos_cli.domain.group import ScoredGroup, make_group_id
from atropos_cli.domain.task import Task
from atropos_cli.errors import DataError
from atropos_cli.io.groupfile import GroupFile, ZstGroupFile, encode_group

DIGEST = "0123456789abcdef"


def group(task: int, turn: int | None = None, *, last: bool = True, text: str = "é\u2028\n") -> ScoredGroup:
    return ScoredGroup(
        group_id=make_group_id(DIGEST, task, turn),
        last=last,
        env="e",
        task=Task(id=str(task), answer=text),
        rollouts=(),
        model="m",
    )


def opened(path: Path, kind: type[GroupFile] = GroupFile) -> tuple[GroupFile, list[int]]:
    file = kind(path, prefix=DIGEST[:10])
    return file, list(file.recover())


@pytest.mark.parametrize("kind", [GroupFile, ZstGroupFile])
def test_what_is_written_is_found_again(tmp_path: Path, kind: type[GroupFile]) -> None:
    path = tmp_path / "groups"
    file, done = opened(path, kind)
    assert done == []
    for task in (3, 1, 2):
        file.write((group(task),))
    file.close()
    file.close()
    for _ in range(2):
        file, done = opened(path, kind)
        file.close()
        assert done == [3, 1, 2]


def test_a_cut_at_every_byte_loses_only_what_is_not_whole(tmp_path: Path) -> None:
    path = tmp_path / "groups.jsonl"
    file, _ = opened(path)
    file.write((group(0),))
    file.write((group(1, 0, last=False), group(1, 1)))
    file.write((group(2),))
    file.close()
    data = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    index = path.with_name("groups.jsonl.idx").read_bytes()
    for cut in range(len(data) + 1):
        for keep_index in (True, False):
            path.write_bytes(data[:cut])
            path.with_name("groups.jsonl.idx").write_bytes(index if keep_index else b"")
            whole = [task for task, end in ((0, ends[0]), (1, ends[2]), (2, ends[3])) if end <= cut]
            file, done = opened(path)
            assert done == whole
            for task in {0, 1, 2} - set(done):
                file.write((group(task),))
            file.close()
            records = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
            assert sorted({int(r["task"]["id"]) for r in records}) == [0, 1, 2]


def test_an_index_that_lies_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "groups.jsonl"
    file, _ = opened(path)
    for task in range(3):
        file.write((group(task),))
    file.close()
    index = path.with_name("groups.jsonl.idx")
    good = index.read_bytes()
    for lie in (good[:32] + b"\x07" + good[33:], b"x" * 40, good[:-5], good + b"tail"):
        index.write_bytes(lie)
        file, done = opened(path)
        file.close()
        assert done == [0, 1, 2]


def test_lines_written_by_others_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "groups.jsonl"
    record = json.loads(encode_group(group(5)))
    path.write_text(json.dumps(dict(reversed(record.items())), indent=None) + "\n")
    file, done = opened(path)
    file.close()
    assert done == [5]


def test_a_group_of_another_plan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "groups.jsonl"
    path.write_bytes(encode_group(group(5)).replace(b"0123456789", b"9999999999") + b"\n")
    before = path.read_bytes()
    with pytest.raises(DataError, match="another plan"):
        list(GroupFile(path, prefix=DIGEST[:10]).recover())
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "line", [b"null", b"[1,2]", b'{"a":1}', b'{"group_id":"x-1","la', b"\xff\xfe", b'{"group_id":"x"}']
)
def test_broken_lines_are_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "groups.jsonl"
    path.write_bytes(encode_group(group(1)) + b"\n" + line + b"\n" + encode_group(group(2)) + b"\n")
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"groups\.jsonl"):
        list(GroupFile(path, prefix=DIGEST[:10]).recover())
    assert path.read_bytes() == before
