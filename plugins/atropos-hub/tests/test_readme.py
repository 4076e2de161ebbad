"""Names of repositories, and the README.md of one: what people wrote in it stays. Pushes: tests/cli/test_push.py."""

from __future__ import annotations

from typing import Any

import atropos_hub
import pytest
from atropos_hub.hub import HubShare
from atropos_hub.readme import Part, merged, split_header

from atropos_cli.sdk import UsageError
from atropos_cli.sdk.sharing import Repository


@pytest.mark.parametrize("name", ["sums", "../x", "a/b/c", "a/b--c", "a/b.git", "-a/b", "a b/c", ""])
def test_names_that_the_hub_does_not_take(name: str) -> None:
    with pytest.raises(UsageError, match="is not a repository"):
        HubShare(Repository(name))


def test_a_name_with_a_colon_is_left_to_other_plugins() -> None:
    assert atropos_hub.atropos_share(Repository("box:rows")) is None
    assert isinstance(atropos_hub.atropos_share(Repository("me/rows")), HubShare)


@pytest.mark.parametrize(
    ("old", "license_id"),
    [
        ("\ufeff---\r\nlicense: mit\r\n---\r\n# Mine\r\n\r\nWords.\r\n", "mit"),
        ("# Mine\n\n<!-- atropos: sft -->\nA section whose end is gone.\n\nWords.\n", "unknown"),
    ],
)
def test_what_people_wrote_stays(old: str, license_id: str) -> None:
    empty: dict[str, Any] = {"sources": [], "steps": [], "outputs": [], "rows": {}, "lineage": "", "notes": []}
    card = {**empty, "command": "sft-gen", "atropos_version": "0", "created": "now"}
    part = Part("sft", "me/sums", {"train": ["data/sft/x.jsonl"]}, card)
    made = merged(merged(old, part), part)
    header, body = split_header(made)
    assert header["license"] == license_id
    assert body.count("Words.") == body.count("<!-- atropos: sft -->") == 1
    assert "\ufeff" not in made
