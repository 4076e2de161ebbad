"""The groups that a training has written, found again by a later session: by the place of their task."""

from __future__ import annotations

import re
from pathlib import Path

from atropos_cli.sdk import DataError, ScoredGroup

_HEADER = re.compile(rb'\{"schema_version":\d+,"group_id":"[0-9a-f]+-(\d+)\.')


class KeptGroups:
    """A run's groups.jsonl after its repair. Groups written after look() are not read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[int, list[tuple[int, int]]] = {}
        self.last: ScoredGroup | None = None
        """The one at the end of the file."""

    def __contains__(self, place: int) -> bool:
        return place in self._places

    def look(self) -> None:
        """Find all groups; reads none but the last."""
        if not self._path.exists():
            return
        last = b""
        with self._path.open("rb") as file:
            at = 0
            for line in file:
                if (found := _HEADER.match(line)) is not None:
                    self._places.setdefault(int(found[1]), []).append((at, len(line)))
                    last = line
                at += len(line)
        if last:
            self.last = self._read(last)

    def written(self, place: int) -> None:
        """Its groups are new in the file: this session has no need to read them."""
        self._places[place] = []

    def groups(self, place: int) -> list[ScoredGroup]:
        """Those of one task. Raises DataError."""
        with self._path.open("rb") as file:
            return [self._read(file.read(length)) for at, length in self._places[place] if file.seek(at) == at]

    def _read(self, line: bytes) -> ScoredGroup:
        try:
            return ScoredGroup.model_validate_json(line)
        except ValueError as error:
            raise DataError(f"{self._path} is damaged: {error}", hint="start again with --overwrite") from error
