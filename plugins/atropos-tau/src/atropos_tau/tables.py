"""The tables of a domain, parsed once for all episodes of the process: an episode copies the records it touches.

Run under tau2's own Python: it imports nothing but the standard library.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView
from copy import deepcopy
from typing import Any

_FEW = 20


class Overlay(MutableMapping[str, Any]):
    """A table of an episode: records of a shared table, copied on the first access by key.

    reading: a tool that only reads is at work, so going through all records gives the shared ones. Otherwise each is
    copied first.
    """

    def __init__(self, base: dict[str, Any]) -> None:
        self._base = base
        self._own: dict[str, Any] = {}
        self._gone: set[str] = set()
        self.reading = False

    def __getitem__(self, key: str) -> Any:
        if key in self._own:
            return self._own[key]
        if key in self._gone:
            raise KeyError(key)
        record = self._own[key] = self._base[key].model_copy(deep=True)
        return record

    def __setitem__(self, key: str, record: Any) -> None:
        self._gone.discard(key)
        self._own[key] = record

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._own.pop(key, None)
        self._gone.add(key)

    def __contains__(self, key: object) -> bool:
        return key in self._own or (key in self._base and key not in self._gone)

    def __iter__(self) -> Iterator[str]:
        yield from (key for key in self._base if key not in self._gone)
        yield from (key for key in self._own if key not in self._base)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def values(self) -> ValuesView[Any]:
        return _Values(self)

    def items(self) -> ItemsView[str, Any]:
        return _Items(self)

    def peek(self, key: str) -> Any:
        """The record as it is now, not to be changed; None where there is none."""
        if key in self._own:
            return self._own[key]
        return None if key in self._gone else self._base.get(key)

    def touched(self) -> set[str]:
        """Keys of the records that may differ from the shared ones."""
        return self._gone | self._own.keys()

    def met(self, key: str) -> Any:
        """The record for one that goes through all."""
        return self.peek(key) if self.reading else self[key]


class _Values(ValuesView[Any]):
    _mapping: Overlay

    def __iter__(self) -> Iterator[Any]:
        return (self._mapping.met(key) for key in list(self._mapping))


class _Items(ItemsView[str, Any]):
    _mapping: Overlay

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((key, self._mapping.met(key)) for key in list(self._mapping))


def copied(database: Any, *, whole: bool = False) -> Any:
    """A database (a pydantic model) for one episode. whole: nothing is shared."""
    made = database.model_copy()
    for name in type(database).model_fields:
        value = getattr(database, name)
        setattr(made, name, Overlay(value) if not whole and _is_large(value) else deepcopy(value))
    return made


def _is_large(value: Any) -> bool:
    """Is it a table of models by key, of more than can be copied in no time?"""
    return isinstance(value, dict) and len(value) > _FEW and hasattr(next(iter(value.values())), "model_copy")


def overlays(database: Any) -> list[Overlay]:
    """The shared tables of an episode's database."""
    if database is None:
        return []
    return [value for name in type(database).model_fields if isinstance(value := getattr(database, name), Overlay)]
