"""Paths as users give them and are shown them: `~`, links, shells, disks of one machine. Standard library only."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_SHARED = re.compile(
    r"(?:nfs\d?|lustre|gpfs|mmfs|beegfs|fhgfs|ceph|cephfs|cifs|smb\d?|smbfs|glusterfs|pvfs2|orangefs|afs|coda|ocfs2|gfs2"
    r"|wekafs|panfs|9p|virtiofs|acfs|quobyte|moosefs|vastnfs|dvs|daos|fuse\..+|fuse|prl_fs|vboxsf)\Z"
)
"""File systems that other machines may have mounted as well. A list of the shared ones: any other is this machine's."""
_EXPORTS = ("/etc/exports", "/var/lib/nfs/etab")


def home(text: str) -> str:
    """The path with a leading `~` or `~user` as the folder it stands for; addresses (scheme://) as they are."""
    return text if not text.startswith("~") or "://" in text else os.path.expanduser(text)  # noqa: PTH111 - a text


def user_cache() -> Path:
    """This user's folder for what can be made again: $XDG_CACHE_HOME/atropos. Raises RuntimeError without a home."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache") / "atropos"


def real_target(path: Path) -> Path:
    """What a write to the path replaces: the path itself, or what a link points to, so that the link stays."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


@contextlib.contextmanager
def replacing(path: Path, *, mode: int | None = None, sync: bool = True) -> Iterator[BinaryIO]:
    """Write a file as a whole: `with replacing(path) as file: file.write(...)`.

    A reader sees the old content or the new, never a part; an error leaves the old. A link stays a link.
    mode: permissions, which the file never exceeds; None: those of the old file. sync: wait until it is on the disk.
    """
    path = real_target(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        created = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else mode
        )
        with os.fdopen(created, "wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if mode is None:
            with contextlib.suppress(OSError):  # what its owner opened to others, or closed to them, stays so
                temporary.chmod(path.stat().st_mode & 0o777)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def put_in_place(made: Path, path: Path) -> None:
    """Give a finished file its name. A link stays one, also when it leads to another disk."""
    final = real_target(path)
    try:
        made.replace(final)
    except OSError:
        if final == path:
            raise
        import shutil  # rarely needed, and not light

        beside = final.with_name(f".{final.name}.{os.getpid()}.tmp")
        try:
            shutil.copyfile(made, beside)
            with beside.open("rb") as file:
                os.fsync(file.fileno())
            beside.replace(final)
        finally:
            beside.unlink(missing_ok=True)
        made.unlink()


def only_here(path: Path) -> str | None:
    """The disk on which the path lies, when it is one that other machines do not see; None when they may see it."""
    real = Path(os.path.realpath(path))
    kind, mount = _mount_of(real)
    if not kind or _SHARED.match(kind) or _is_exported(real):
        return None
    return f"{kind} at {mount}"


def _mount_of(path: Path) -> tuple[str, str]:
    """(file system, mount point) of a path that need not exist; ("", "") where the system does not say."""
    found = ("", "")
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            left, _, right = line.partition(" - ")
            place = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), left.split()[4])
            if path.is_relative_to(place) and len(place) >= len(found[1]):
                found = (right.split()[0], place)
    return found


def _is_exported(path: Path) -> bool:
    """Does this machine serve the path to others?"""
    for name in _EXPORTS:
        with contextlib.suppress(OSError):
            for line in Path(name).read_text(encoding="utf-8", errors="ignore").splitlines():
                words = line.split()
                if words and words[0].startswith("/") and path.is_relative_to(os.path.realpath(words[0])):
                    return True
    return False


def shell_word(word: str | Path) -> str:
    """A word to be pasted into a shell, bash or zsh. A path never looks like an option."""
    text = f"./{word}" if isinstance(word, Path) and str(word).startswith("-") else str(word)
    return shlex.quote(text) if text.isprintable() else f"$'{''.join(map(_quoted, text))}'"


def _quoted(char: str) -> str:
    """A character between $' and ': a line break, or what a message must not hold, as an escape."""
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file's name that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if char in "\\'":
        return f"\\{char}"
    return char if char.isprintable() else f"\\x{code:02x}" if code < 0x80 else f"\\U{code:08x}"


def shell_file(name: str) -> str | Path:
    """The name of a file as a word for `shell`: a path, or an address (scheme://) as it is."""
    return name if "://" in name else Path(name)


def shell(*words: str | Path) -> str:
    """A command line of this program, to be pasted into a shell."""
    return " ".join(["atropos", *map(shell_word, words)])
