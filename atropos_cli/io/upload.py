"""Outputs with a scheme (s3://, gs://, memory://): made whole on this machine, then sent through fsspec.

    place = RemoteTarget.open("s3://bucket/rows.jsonl")
    place.local             where the file is made
    place.send([path])      its way there

Object stores show an object when all of it has arrived. Other file systems get it under a temporary name that is
changed at the end, so nowhere does half a file stand under the name that was asked for.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import posixpath
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from atropos_cli.errors import DataError, RunExists, UsageError
from atropos_cli.io.remote import is_remote, opened, shown, words_of

_OBJECT_STORES = frozenset(
    {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "memory", "hf", "cos", "obs", "tos"}
)
_FILE = "file://"


def local_name(target: str) -> str:
    """The path that file:// stands for; anything else as it is."""
    return unquote(urlsplit(target).path) if target[: len(_FILE)].lower() == _FILE else target


def is_remote_target(target: str) -> bool:
    """Is the output another place than this machine's files?"""
    return is_remote(target) and target[: len(_FILE)].lower() != _FILE


def send_bytes(target: str, data: bytes) -> None:
    """Write one small file there. Raises DataError."""
    place = RemoteTarget.open(target)
    place.local.write_bytes(data)
    place.send([place.local])
    place.close()


@dataclass(slots=True)
class RemoteTarget:
    """A place reached by fsspec, and the folder where its files are made."""

    url: str
    system: Any
    folder: str
    scratch: Path
    local: Path

    @classmethod
    def open(cls, url: str) -> RemoteTarget:
        """Raises DataError without fsspec or the storage's own library, UsageError for what nobody can write to."""
        scheme = url.partition("://")[0].lower()
        if "::" in scheme:
            raise UsageError(
                f"{shown(url)}: an address in an address is read, not written",
                hint=f"give -o {scheme.split('::')[-1]}://",
            )
        if scheme in ("http", "https", "data", "zip", "tar", "github"):
            raise UsageError(
                f"{shown(url)}: {scheme} is read, not written", hint="give a local path, s3://, gs://, ..."
            )
        system, path = opened(url, "written")
        folder, name = posixpath.split(path.rstrip("/"))
        if not name or path.endswith("/"):
            raise UsageError(f"{shown(url)} names no file", hint="end it with a name such as rows.jsonl")
        scratch = Path(tempfile.mkdtemp(prefix="atropos-out-"))
        atexit.register(shutil.rmtree, scratch, ignore_errors=True)  # cards follow the rows: wanted until the end
        return cls(url, system, folder, scratch, scratch / name)

    def address(self, path: Path) -> str:
        """The address of a file that was made here."""
        base = shown(self.url)
        return f"{base.rpartition('/')[0]}/{path.name}"

    def refuse_existing(self, names: Sequence[str], patterns: Sequence[str]) -> None:
        """Raises RunExists when a file of these names, or one that a pattern matches, is there."""
        try:
            there = [name for name in names if self.system.exists(self._there(name))]
            there += [
                posixpath.basename(str(path)) for glob in patterns for path in self.system.glob(self._there(glob))
            ]
        except Exception as error:
            raise self._failed(f"{shown(self.url)} cannot be looked for", error) from error
        if there:
            raise RunExists(
                f"{self.address(Path(there[0]))} is already there", hint="--overwrite replaces it, -o names another"
            )

    def send(self, paths: Sequence[Path]) -> None:
        """Raises DataError; the files stay here then, and the error says where."""
        for path in paths:
            target = self._there(path.name)
            try:
                self._make_folder()
                if self._is_object_store():
                    self.system.put_file(str(path), target)
                else:
                    beside = f"{target}.{os.getpid()}.tmp"
                    try:
                        self.system.put_file(str(path), beside)
                        self.system.mv(beside, target)
                    except BaseException:
                        with contextlib.suppress(Exception):  # it may not be there, or no longer be reached
                            self.system.rm_file(beside)
                        raise
            except Exception as error:
                raise self._failed(f"{self.address(path)} could not be written", error, keep=self._kept()) from error

    def remove_old(self, patterns: Sequence[str], new: set[str]) -> None:
        """Remove shards of an earlier output that this one did not replace."""
        for pattern in patterns:
            for found in self.system.glob(self._there(pattern)):
                if posixpath.basename(str(found)) not in new:
                    self.system.rm_file(str(found))

    def close(self) -> None:
        """Remove what was made here."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _kept(self) -> Path:
        """Where the files stay that could not be sent."""
        kept = self.scratch.with_name(self.scratch.name.replace("atropos-out-", "atropos-kept-"))
        return self.scratch.rename(kept)

    def _there(self, name: str) -> str:
        return f"{self.folder}/{name}" if self.folder else name

    def _is_object_store(self) -> bool:
        protocol = self.system.protocol
        return not _OBJECT_STORES.isdisjoint((protocol,) if isinstance(protocol, str) else protocol)

    def _make_folder(self) -> None:
        if self.folder and not self._is_object_store():
            self.system.makedirs(self.folder, exist_ok=True)

    def _failed(self, text: str, error: Exception, keep: Path | None = None) -> DataError:
        kept = f"; the rows are kept in {keep}" if keep is not None else ""
        return DataError(
            f"{text}: {type(error).__name__}{words_of(error, self.url)}{kept}",
            hint="copy them there once it takes them" if keep is not None else "check the address and the access to it",
        )
