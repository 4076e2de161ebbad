"""Which tasks of a run are done: one bit each, so that a million groups cost 125 kB."""

from __future__ import annotations

from pathlib import Path

from atropos_cli.errors import DataError


class DoneTasks:
    """A growing set of task indexes."""

    def __init__(self) -> None:
        self._bits = bytearray()
        self.count = 0

    def add(self, index: int) -> bool:
        """Mark a task done; False when it was already."""
        byte, bit = index >> 3, 1 << (index & 7)
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte - len(self._bits) + 1 + (len(self._bits) >> 1)))
        if self._bits[byte] & bit:
            return False
        self._bits[byte] |= bit
        self.count += 1
        return True

    def __contains__(self, index: int) -> bool:
        byte = index >> 3
        return byte < len(self._bits) and bool(self._bits[byte] & (1 << (index & 7)))

    def next_open(self, start: int) -> int:
        """The smallest index >= start that is not done."""
        index = start
        while True:
            byte = index >> 3
            if byte >= len(self._bits):
                return index
            if not index & 7 and self._bits[byte] == 0xFF:
                index += 8
            elif self._bits[byte] & (1 << (index & 7)):
                index += 1
            else:
                return index


def doubled_group(folder: Path | None, group_id: str) -> DataError:
    """The error for a run that holds the groups of one task twice."""
    return DataError(
        f"{folder} holds the groups of one task twice",
        hint=f"remove one of the lines that begin with group {group_id!r}, then resume",
    )
