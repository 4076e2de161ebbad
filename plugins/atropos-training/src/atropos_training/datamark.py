"""Which rows a training learns from: their number, order and content, so that a resumed one continues with the same.

A place in the data means nothing in other data, even under the same name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from atropos_cli.sdk import DataError
from atropos_cli.sdk.data import atomic_write, read_object

DATA_FILE = "data.json"
Row = TypeVar("Row")


class DataMark:
    """RUN/data.json: made in the first session, compared in later ones. keeps: may this process write it?

    accepted: takes the news that rows are others than those of earlier sessions; without it they are refused. The marks
    of those sessions stay in the file, as "earlier".
    """

    def __init__(
        self, folder: Path, *, resume: bool, keeps: bool, accepted: Callable[[str], None] | None = None
    ) -> None:
        self._folder = folder
        self._resume = resume
        self._keeps = keeps
        self._accepted = accepted
        self._known = False

    def look(self, rows: Iterator[Any]) -> None:
        """Go over all rows once, for a trainer that takes them little by little. Raises DataError as `watch` does."""
        if not self._known:
            for _ in self.watch(rows):
                pass

    def watch(self, rows: Iterator[Row]) -> Iterator[Row]:
        """The rows as they are. Raises DataError behind the last one when they are not those of the run."""
        digest, count = hashlib.sha256(), 0
        for row in rows:
            value: Any = row.model_dump(mode="json") if isinstance(row, BaseModel) else row
            digest.update(json.dumps(value, sort_keys=True, ensure_ascii=True, default=str).encode() + b"\n")
            count += 1
            yield row
        self._known = True
        self._compare({"rows": count, "sha256": digest.hexdigest()})

    def _compare(self, now: dict[str, Any]) -> None:
        path = self._folder / DATA_FILE
        before = self._before(path)
        if before is None:
            if self._keeps:
                atomic_write(path, json.dumps(now).encode() + b"\n")
            return
        if before.get("sha256") == now["sha256"]:
            return
        old, new = before.get("rows"), now["rows"]
        what = f"{old} rows then, {new} now" if old != new else f"{new} rows as then, of other content or order"
        differ = f"the rows of its data differ from those that it learnt from ({what})"
        if self._accepted is None:
            raise DataError(
                f"{self._folder} cannot be resumed: {differ}",
                hint="put the rows back as they were, train on these with another --output, or accept them by "
                "--accept-changed-data",
            )
        if self._keeps:
            earlier = [*(before.pop("earlier", None) or []), before]
            atomic_write(path, json.dumps({**now, "earlier": earlier}).encode() + b"\n")
        self._accepted(f"{differ}: accepted, and it continues at the same place of the new ones")

    def _before(self, path: Path) -> dict[str, Any] | None:
        """The mark of earlier sessions; None while nothing was learnt, so that other rows do no harm."""
        if not self._resume or not any((self._folder / "checkpoints").glob("*")):
            return None
        try:
            return read_object(path)
        except (OSError, ValueError):  # of an earlier version
            return None
