"""Locks of files and folders, and files that are replaced as a whole."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from atropos_cli.io.lock import file_lock
from atropos_cli.paths import replacing

HOLD = """
import sys
from pathlib import Path
from atropos_cli.io.lock import file_lock
with file_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("name", ["file", "."])
def test_another_process_is_refused_until_the_holder_dies(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    began = time.monotonic()
    with pytest.raises(BlockingIOError), file_lock(path, wait=0.2):
        pass
    assert 0.2 <= time.monotonic() - began < 5
    holder.kill()
    holder.communicate()
    with file_lock(path, wait=0):
        pass


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with file_lock(tmp_path / "lock"):
            order.append("second")

    with file_lock(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"worse", "no bytes"])  # type: ignore[list-item]
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_permissions_and_links_are_kept(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"old")
    path.chmod(0o640)
    link.symlink_to(path)
    with replacing(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o640)
    with replacing(tmp_path / "secret", mode=0o600) as file:
        file.write(b"word")
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
