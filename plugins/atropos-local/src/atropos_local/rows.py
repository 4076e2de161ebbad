"""Keys and values of independent rows, and the prefixes worth keeping after a row has ended.

A row holds one sequence from position 0 on; rows have different lengths and grow in place, so that a
request can join or leave between two steps without moving the others. Positions at and behind a
row's length hold leavings; the attention mask hides them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_LENGTH_STEP, _SHORT_STEP = 256, 32
"""Lengths are rounded up to the first; to the second while rows are shorter than the first."""
MIN_SHARED = 16
"""Prefixes shorter than this are not worth the copying."""

Saved = dict[int, tuple["Tensor", "Tensor"]]
"""Keys and values of one row by layer: (heads, length, head size)."""


class CacheLost(Exception):
    """The rows' memory could not be enlarged; whatever was in it is gone."""


class RowCache:
    """What a transformers model takes for its cache: `update` stores new keys and values and returns all.

    Memory is (rows, heads, length, head size) per layer, allocated at first use, enlarged on demand
    and kept within `max_tokens` = rows * length where one row alone does not need more.
    """

    is_compileable = False
    is_initialized = True

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.capacity = (0, 0)
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._rows: Any = None
        self._positions: Any = None
        self._view = (0, 0, 0)

    def reserve(self, rows: int, length: int) -> None:
        """Make room for so many rows of such a length. Raises CacheLost."""
        have_rows, have_length = self.capacity
        if rows <= have_rows and length <= have_length:
            return
        step = _LENGTH_STEP if length > _LENGTH_STEP else _SHORT_STEP
        rounded = -(-length // step) * step
        new_rows = have_rows if rows <= have_rows else max(rows, 2 * have_rows)
        new_length = max(rounded, have_length)
        if new_rows * new_length > self.max_tokens:
            new_rows, new_length = rows, max(length, min(rounded, self.max_tokens // rows))
        try:
            for store in (self._keys, self._values):
                for layer, old in store.items():
                    store[layer] = self._resized(old, new_rows, new_length)
        except (RuntimeError, MemoryError) as error:
            self.clear()
            raise CacheLost(str(error)) from error
        self.capacity = (new_rows, new_length)

    @staticmethod
    def _resized(old: Tensor, rows: int, length: int) -> Tensor:
        new = old.new_zeros((rows, old.shape[1], length, old.shape[3]))
        kept_rows, kept_length = min(rows, old.shape[0]), min(length, old.shape[2])
        new[:kept_rows, :, :kept_length] = old[:kept_rows, :, :kept_length]
        return new

    def aim(self, first: int, positions: Tensor, length: int) -> None:
        """Say where the next forward pass writes. positions: (rows, tokens), for rows first, first + 1, ...

        length: how many positions the attention sees. The room must have been reserved.
        """
        import torch

        count = positions.shape[0]
        self._rows = torch.arange(first, first + count, device=positions.device)[:, None]
        self._positions = positions
        self._view = (first, first + count, length)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Called by each attention layer with the new (rows, heads, tokens, head size)."""
        first, last, length = self._view
        seen = []
        for store, states in ((self._keys, key_states), (self._values, value_states)):
            whole = self._memory(store, layer_idx, states[0])
            whole[self._rows, :, self._positions] = states.transpose(1, 2)
            seen.append(whole[first:last, :, :length])
        return seen[0], seen[1]

    def _memory(self, store: dict[int, Tensor], layer: int, like: Tensor) -> Tensor:
        """The layer's tensor, made at first use. like: (heads, any length, head size) of the right kind."""
        if layer not in store:
            rows, length = self.capacity
            store[layer] = like.new_zeros((rows, like.shape[0], length, like.shape[2]))
        return store[layer]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Part of the cache interface; positions are always given, so nothing depends on it."""
        return 0

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """Part of the cache interface, as above."""
        return 0

    def get_mask_sizes(self, query_length: Any, layer_idx: int = 0) -> tuple[int, int]:
        """Part of the cache interface, as above: masks are always given ready-made."""
        return self._view[2], 0

    def __len__(self) -> int:
        return len(self._keys)

    def copy(self, source: int, target: int, length: int, *, count: int = 1) -> None:
        """Copy the first `length` positions of one row into `count` rows from `target` on."""
        for whole in self._all():
            whole[target : target + count, :, :length] = whole[source, :, :length]

    def save(self, row: int, length: int) -> Saved:
        """A copy of the first `length` positions of a row."""
        return {
            layer: (keys[row, :, :length].clone(), self._values[layer][row, :, :length].clone())
            for layer, keys in self._keys.items()
        }

    def restore(self, row: int, saved: Saved, length: int) -> None:
        """Write the first `length` positions of a saved row into a row."""
        for layer, pair in saved.items():
            for store, states in zip((self._keys, self._values), pair, strict=True):
                self._memory(store, layer, states)[row, :, :length] = states[:, :length]

    @property
    def bytes_per_token(self) -> int:
        """Memory of one position of one row; 0 before the first use."""
        return sum(whole.shape[1] * whole.shape[3] * whole.element_size() for whole in self._all())

    def clear(self) -> None:
        """Give all memory back."""
        self._keys.clear()
        self._values.clear()
        self.capacity = (0, 0)

    def _all(self) -> Iterator[Tensor]:
        yield from self._keys.values()
        yield from self._values.values()


class PrefixStore:
    """Finished rows, least recently used first out, so that the next turn of a conversation begins behind them.

    Any common prefix can be used, because keys and values depend only on the tokens before them.
    """

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.tokens = 0
        self._entries: OrderedDict[int, tuple[Tensor, Saved]] = OrderedDict()
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, ids: Tensor) -> tuple[int, Saved | None]:
        """The longest prefix of `ids` that is stored: its length (0 when too short to use) and the row."""
        best, key = 0, -1
        for candidate, (stored, _) in self._entries.items():
            shared = common_prefix(stored, ids)
            if shared > best:
                best, key = shared, candidate
        if best < MIN_SHARED:
            return 0, None
        self._entries.move_to_end(key)
        return best, self._entries[key][1]

    def worth_adding(self, ids: Tensor) -> bool:
        """False when nothing would be gained: too short, too long, or all of it stored already."""
        if not MIN_SHARED <= len(ids) <= self.max_tokens:
            return False
        return all(common_prefix(stored, ids) < len(ids) for stored, _ in self._entries.values())

    def add(self, ids: Tensor, saved: Saved) -> None:
        """Keep a row. Entries that the new one extends are dropped, then the least recently used."""
        for key, (stored, _) in list(self._entries.items()):
            if common_prefix(stored, ids) == len(stored):
                self._drop(key)
        while self._entries and self.tokens + len(ids) > self.max_tokens:
            self._drop(next(iter(self._entries)))
        self._entries[self._next] = (ids, saved)
        self._next += 1
        self.tokens += len(ids)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.tokens = 0

    def _drop(self, key: int) -> None:
        stored, _ = self._entries.pop(key)
        self.tokens -= len(stored)


def common_prefix(first: Tensor, second: Tensor) -> int:
    """How many leading ids two one-dimensional tensors share."""
    length = min(len(first), len(second))
    different = (first[:length] != second[:length]).nonzero()
    return int(different[0]) if len(different) else length
