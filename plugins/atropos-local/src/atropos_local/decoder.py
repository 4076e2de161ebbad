"""Forward passes over rows of different lengths: prefill, one decoding step, scoring of given tokens.

Knows a model and its rows, nothing of requests. All passes are one primitive: a range of rows is
extended by some tokens each, from its own position on, with an attention mask that lets each token see
what comes before it in its row.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk.backends import FatalBackendError

from .rows import RowCache

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CHUNK_TOKENS = 2048
LOGITS_BYTES = 256 << 20
GPU_LOGITS_BYTES = 1 << 30
_FLOAT_BYTES = 4
_ATTENTION_KINDS = ("full_attention", "sliding_attention")
_CHECK_LENGTH = 12
_TOLERANCE = {"float32": 1e-3, "float64": 1e-3}
_COARSE_TOLERANCE = 0.1
_SERVE_HINT = "serve this model with SGLang or vLLM and give --base-url"


@dataclass(frozen=True)
class _Pass:
    """One forward pass of a chunk: tokens begin .. begin+size of each row; logits at `kept` (offsets in the rows)."""

    begin: int
    kept: list[int]
    logits: Tensor


class Decoder:
    """One model with its rows. Used from one thread only."""

    def __init__(self, model: Any, *, device: torch.device, context: int, max_tokens: int) -> None:
        self.model = model
        self.device = device
        self.context = context
        self.vocabulary = int(model.get_output_embeddings().weight.shape[0])
        self.embedded = int(model.get_input_embeddings().weight.shape[0])
        self.rows = RowCache(max_tokens)
        logits_bytes = GPU_LOGITS_BYTES if device.type == "cuda" else LOGITS_BYTES
        self._chunk = max(1, min(CHUNK_TOKENS, logits_bytes // (_FLOAT_BYTES * self.vocabulary)))
        self._cache_name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        self._windows = _windows(model.config.get_text_config())

    def prefill(self, first: int, new_ids: Sequence[Sequence[int]], starts: Sequence[int]) -> Tensor:
        """Extend rows first, first + 1, ... by their new ids. Returns the logits after each row's last id.

        starts: how many positions of each row are filled already. Result: (rows, vocabulary), float32.
        """
        import torch

        lasts = [len(ids) - 1 for ids in new_ids]
        found: list[Tensor | None] = [None] * len(new_ids)
        with torch.inference_mode():
            for step in self._passes(first, new_ids, starts, [range(last, last + 1) for last in lasts]):
                for row, last in enumerate(lasts):
                    if last in step.kept:
                        found[row] = step.logits[row, step.kept.index(last)].float()
            return torch.stack([logits for logits in found if logits is not None])

    def step(self, tokens: Sequence[int], lengths: Sequence[int]) -> Tensor:
        """Extend rows 0, 1, ... by one token each. lengths: of the rows before. Result: (rows, vocabulary), float32."""
        import torch

        with torch.inference_mode():
            self.rows.reserve(len(tokens), max(lengths) + 1)
            ids = torch.tensor(tokens, device=self.device)[:, None]
            starts = torch.tensor(lengths, device=self.device)[:, None]
            logits = self._forward(0, ids, starts, max(lengths) + 1, 1)
            return logits[:, -1].float()

    def score(
        self, first: int, ids: Sequence[Sequence[int]], starts: Sequence[int], targets: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        """Log-probabilities of the targets, the last of which follows the last of `ids`.

        ids: new ids of each row, behind its `starts` filled positions; the target before the last is the
        last of ids, and so on. At most len(ids) targets per row.
        """
        import torch

        wanted = [range(len(row) - len(goal), len(row)) for row, goal in zip(ids, targets, strict=True)]
        found: list[list[float]] = [[] for _ in ids]
        with torch.inference_mode():
            for step in self._passes(first, ids, starts, wanted):
                where = {offset: index for index, offset in enumerate(step.kept)}
                for row, span in enumerate(wanted):
                    here = [offset for offset in step.kept if offset in span]
                    if not here:
                        continue
                    logits = step.logits[row, [where[offset] for offset in here]].float()
                    goal = torch.tensor([targets[row][offset - span.start] for offset in here], device=logits.device)
                    values = logits.gather(1, goal[:, None])[:, 0] - torch.logsumexp(logits, dim=-1)
                    found[row].extend(values.tolist())
        return found

    def check(self) -> None:
        """Prove on a few tokens that rows, positions and masks mean to this model what they mean here.

        Two rows of different lengths, filled in two pieces, must give what one plain forward pass
        gives. Raises FatalBackendError for a model that works otherwise.
        """
        import torch

        ids = [(7919 * index + 13) % self.embedded for index in range(_CHECK_LENGTH)]
        short = ids[: _CHECK_LENGTH // 2]
        name = type(self.model).__name__
        try:
            self.prefill(0, [ids[:5], short[:2]], [0, 0])
            ours = self.prefill(0, [ids[5:], short[2:]], [5, 2])
            with torch.inference_mode():
                plain = self.model(torch.tensor([ids], device=self.device), use_cache=False).logits[0].float()
        except Exception as error:
            first_line = (str(error) or "no reason given").split("\n", 1)[0]
            raise FatalBackendError(
                f"a {name} model cannot be run by the local backend: {type(error).__name__}: {first_line}",
                hint=_SERVE_HINT,
            ) from error
        expected = torch.stack([plain[-1], plain[len(short) - 1]])
        tolerance = _TOLERANCE.get(str(self.model.dtype).removeprefix("torch."), _COARSE_TOLERANCE)
        difference = float((ours - expected).norm() / expected.norm().clamp(min=1e-9))
        if not difference <= tolerance:
            raise FatalBackendError(
                f"a {name} model gives other logits in batches than alone (relative difference {difference:.2g})",
                hint=f"{_SERVE_HINT}; or try --backend.dtype float32",
            )

    def clear(self) -> None:
        """Forget all rows and give their memory back."""
        import torch

        self.rows.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _passes(
        self, first: int, new_ids: Sequence[Sequence[int]], starts: Sequence[int], wanted: Sequence[range]
    ) -> Iterator[_Pass]:
        """Forward passes over chunks of the new ids; rows shorter than the longest are padded behind their end."""
        import torch

        count, longest = len(new_ids), max(len(ids) for ids in new_ids)
        size = max(1, self._chunk // count)
        self.rows.reserve(first + count, max(starts) + longest)
        start = torch.tensor(starts, device=self.device)[:, None]
        padded = torch.tensor([[*ids, *([0] * (longest - len(ids)))] for ids in new_ids], device=self.device)
        for begin in range(0, longest, size):
            chunk = padded[:, begin : begin + size]
            kept = sorted({at for span in wanted for at in span if begin <= at < begin + chunk.shape[1]})
            keep = torch.tensor([at - begin for at in kept], device=self.device) if kept else 1
            logits = self._forward(first, chunk, start + begin, max(starts) + begin + chunk.shape[1], keep)
            yield _Pass(begin, kept, logits)

    def _forward(self, first: int, ids: Tensor, starts: Tensor, length: int, keep: Any) -> Tensor:
        import torch

        positions = starts + torch.arange(ids.shape[1], device=self.device)
        self.rows.aim(first, positions, length)
        output = self.model(
            input_ids=ids,
            attention_mask=self._mask(positions, length),
            position_ids=positions.clamp(max=self.context - 1),  # only padding lies behind the context
            use_cache=True,
            logits_to_keep=keep,
            **{self._cache_name: self.rows},
        )
        logits: Tensor = output.logits
        return logits.cpu() if self.device.type == "mps" else logits

    def _mask(self, positions: Tensor, length: int) -> Any:
        """Which positions each new token sees: (rows, 1, tokens, length), or one such mask per kind of attention."""
        import torch

        keys = torch.arange(length, device=self.device)
        queries = positions[:, None, :, None]
        masks = {}
        for kind, window in self._windows.items():
            mask = keys <= queries
            if window is not None:
                mask = mask & (keys > queries - window)
            masks[kind] = mask if self.model.config._attn_implementation == "sdpa" else self._additive(mask)
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _additive(self, mask: Tensor) -> Tensor:
        import torch

        lowest = torch.finfo(self.model.dtype).min
        return torch.zeros_like(mask, dtype=self.model.dtype).masked_fill(~mask, lowest)


def _windows(config: Any) -> dict[str, int | None]:
    """The kinds of attention in a model, each with its window. Raises FatalBackendError for any other kind of layer."""
    kinds = set(getattr(config, "layer_types", None) or ())
    unknown = kinds.difference(_ATTENTION_KINDS)
    if unknown:
        raise FatalBackendError(
            f"the model has layers of kind {', '.join(sorted(unknown))}; the local backend runs plain attention only",
            hint=_SERVE_HINT,
        )
    window = getattr(config, "sliding_window", None)
    if not kinds:
        kinds = {"sliding_attention" if window else "full_attention"}
    return {kind: window if kind == "sliding_attention" else None for kind in sorted(kinds)}
