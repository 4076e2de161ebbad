"""Rollout rows and libraries for the tests of view."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

from atropos_view.page.library import Library
from atropos_view.page.runs import Run

from atropos_cli.io.sources import find_sources


def group(ident: str, scores: list[Any], replies: list[str] | None = None, **more: Any) -> dict[str, Any]:
    texts = replies or [f"reply {i}" for i in range(len(scores))]
    messages = [[{"role": "user", "content": f"ask {ident}"}, {"role": "assistant", "content": text}] for text in texts]
    return {"item_id": ident, "messages": messages, "scores": scores, **more}


def native(ident: str, rollouts: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    prompt = [{"role": "user", "content": f"ask {ident}"}]
    for i, rollout in enumerate(rollouts):
        rollout.setdefault("id", f"{ident}/{i}")
        rollout.setdefault("messages", [*prompt, {"role": "assistant", "content": f"reply {i}"}])
    return {
        "group_id": f"g-{ident}",
        "env": "e",
        "task": {"id": ident, "prompt": prompt},
        "rollouts": rollouts,
        "model": "m",
        **more,
    }


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def opened(*paths: Path, **options: Any) -> Library:
    return Library([Run(str(path), find_sources([str(path)]), **options) for path in paths])


def ask(library: Library, what: str, **given: Any) -> Any:
    return library.answer(what, {name: str(value) for name, value in given.items()})


def words(message: dict[str, Any]) -> str:
    """The text of a message that has one part."""
    (part,) = message["parts"]
    return str(part["text"])


class Exported:
    """What an exported page holds."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text("utf-8")
        self.data = json.loads(self.text.partition('id="data">')[2].partition("</script>")[0])

    def block(self, name: str) -> Any:
        packed = self.text.partition(f'id="{name}">')[2].partition("</script>")[0]
        return json.loads(zlib.decompress(base64.b64decode(packed)))

    def all(self, kind: str) -> Any:
        """The blocks of a kind together: g groups, i lists, t tokens."""
        return [
            self.block(f"{kind}{i}") for i, block in enumerate(self.data["blocks"]) if kind != "t" or block["tokens"]
        ]
