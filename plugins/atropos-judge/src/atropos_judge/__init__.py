"""A language model as a judge: the reward `judge`, and judges of one's own by `make_judge`.

This module is the plugin's manifest; the reward is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """The reward of this plugin."""
    yield ComponentSpec("reward", "judge", "atropos_judge.judge:judge", "A language model's score of the reply.")
