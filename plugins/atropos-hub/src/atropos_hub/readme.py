"""The README.md of a data set on the hub: a YAML header that says what `datasets` loads, and a section for each file.

merged(old, part)    the README with this part in it; all else that stood there stays

A repository may hold several parts (`sft`, `dpo`), each a configuration of its own. Our sections stand between
comments that name them, so that the next push finds its own and leaves the words of people alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import yaml

from atropos_cli.sdk import DataError
from atropos_cli.sdk.secrets import redacted, redacted_json
from atropos_cli.sdk.sharing import card_markdown

UNKNOWN_LICENSE = "unknown"
_HEADER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_SIZES = (
    (10**3, "n<1K"),
    (10**4, "1K<n<10K"),
    (10**5, "10K<n<100K"),
    (10**6, "100K<n<1M"),
    (10**7, "1M<n<10M"),
    (10**8, "10M<n<100M"),
    (10**9, "100M<n<1B"),
    (10**12, "1B<n<10B"),
)
_TASKS = {
    "verl": "reinforcement-learning",
    "prompt-answer": "reinforcement-learning",
    "groups": "reinforcement-learning",
}
_TAGS = {"preference": ["dpo"], "kto": ["kto"], "sft": ["sft"], "verl": ["grpo", "verl"], "prompt-answer": ["grpo"]}
_SFT = frozenset({"messages", "prompt-completion", "sharegpt", "text", "tokens"})
_ABSOLUTE = re.compile(r"(?<![\w.])(?:/|[A-Za-z]:\\)[^\s,;:]+")


@dataclass(frozen=True, slots=True)
class Part:
    """What one push brings. files: paths in the repository by split. card: as it is stored beside an output."""

    name: str
    repo: str
    files: Mapping[str, Sequence[str]]
    card: Mapping[str, Any]
    license: str | None = None
    revision: str | None = None

    @property
    def shape(self) -> str:
        return str(self.card.get("shape") or "")

    @property
    def rows(self) -> int:
        rows = self.card.get("rows")
        return sum(n for n in rows.values() if isinstance(n, int)) if isinstance(rows, Mapping) else 0


def merged(old: str | None, part: Part) -> str:
    """The README with the part in it. Raises DataError where the old header cannot be read."""
    header, body = split_header(old or "")
    header = _header(header, part)
    section = _section(part)
    begin, end = _marks(part.name)
    before, found, rest = body.partition(begin)
    if found:
        old_section, closed, behind = rest.partition(end)
        kept = behind if closed else old_section  # somebody removed the end: their words may stand in it
        body = f"{before.rstrip()}\n\n{section}\n{kept.lstrip()}"
    else:
        body = f"{body.rstrip() or '# ' + _plain(part.repo.rpartition('/')[2])}\n\n{section}"
    text = yaml.safe_dump(header, sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{text}---\n\n{body.strip()}\n"


def split_header(text: str) -> tuple[dict[str, Any], str]:
    """(YAML header, the rest) of a README. Raises DataError."""
    text = text.removeprefix("\ufeff")
    found = _HEADER.match(text)
    if found is None:
        return {}, text
    try:
        header = yaml.safe_load(found[1])
    except (yaml.YAMLError, ValueError) as error:
        raise DataError(
            f"the header of the README.md in the repository is not YAML: {str(error).splitlines()[0]}",
            hint="repair it there, or push to another repository",
        ) from error
    if header is not None and not isinstance(header, dict):
        raise DataError("the header of the README.md in the repository holds no keys", hint="repair it there")
    return header or {}, text[found.end() :]


def paths_of(header: Mapping[str, Any], name: str) -> set[str]:
    """Files that the configuration of this name loads by now."""
    found: set[str] = set()
    for config in _configs(header):
        if config.get("config_name") == name:
            data_files = config.get("data_files")
            for item in data_files if isinstance(data_files, list) else []:
                path = item.get("path") if isinstance(item, dict) else item
                found |= {str(one) for one in (path if isinstance(path, list) else [path]) if one}
    return found


def _configs(header: Mapping[str, Any]) -> list[dict[str, Any]]:
    configs = header.get("configs")
    return [item for item in configs if isinstance(item, dict)] if isinstance(configs, list) else []


def _header(old: dict[str, Any], part: Part) -> dict[str, Any]:
    others = [config for config in _configs(old) if config.get("config_name") != part.name]
    data_files = [
        {"split": split, "path": paths[0] if len(paths) == 1 else list(paths)} for split, paths in part.files.items()
    ]
    sizes = [_size(part.rows), *(size for size in _listed(old.get("size_categories")) if others)]
    known = [name for _, name in _SIZES]
    new = {
        "license": part.license or old.get("license") or UNKNOWN_LICENSE,
        "task_categories": _union(old.get("task_categories"), [_TASKS.get(part.shape, "text-generation")]),
        "tags": _union(old.get("tags"), ["atropos-cli", "reinforcement-learning", *_tags(part.shape)]),
        "size_categories": [max(sizes, key=lambda size: known.index(size) if size in known else -1)],
        "configs": [*others, {"config_name": part.name, "data_files": data_files}],
    }
    return {**old, **new}


def _tags(shape: str) -> list[str]:
    return _TAGS["sft"] if shape in _SFT else _TAGS.get(shape, _TAGS.get(shape.partition("-")[0], []))


def _size(rows: int) -> str:
    return next((name for limit, name in _SIZES if rows < limit), _SIZES[-1][1])


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value] if value else []


def _union(old: Any, new: Sequence[str]) -> list[Any]:
    return list(dict.fromkeys([*(item for item in _listed(old) if isinstance(item, str)), *new]))


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- atropos: {name} -->", f"<!-- /atropos: {name} -->"


def _section(part: Part) -> str:
    begin, end = _marks(part.name)
    card = card_markdown(shareable(part.card), part.name)
    card = re.sub(r"^#", "##", card, flags=re.MULTILINE)  # the title of the page is the repository's name
    revision = f", revision={part.revision!r}" if part.revision else ""
    load = [
        "### How to load it",
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        f'rows = load_dataset("{part.repo}", "{part.name}"{revision})',
        "```",
    ]
    return "\n".join([begin, card.rstrip().replace(end, ""), "", *load, end])


def shareable(card: Mapping[str, Any]) -> dict[str, Any]:
    """The card without secrets, and without the folders of the machine it was made on."""
    made: dict[str, Any] = redacted_json(_without_folders(dict(card)))
    return made


def _without_folders(value: Any) -> Any:
    if isinstance(value, str):
        return _ABSOLUTE.sub(lambda found: "/".join(PurePosixPath(found[0]).parts[-2:]).lstrip("/"), value)
    if isinstance(value, Mapping):
        return {key: _without_folders(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_folders(item) for item in value]
    return value


def _plain(text: str) -> str:
    return " ".join(redacted(text).split())
