"""The manifest: found by its entry point, light to import."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import atropos_judge

from atropos_cli.sdk import Reward


def test_entry_point_and_component() -> None:
    [found] = [point for point in entry_points(group="atropos") if point.name == "judge"]
    assert found.load() is atropos_judge
    [spec] = atropos_judge.atropos_register_rewards()
    reward = spec.load()
    assert isinstance(reward, Reward)
    assert (reward.name, reward.kind) == ("judge", "rollout")
    assert reward.summary
    assert set(reward.access) < set(reward.Config.model_fields)


def test_the_manifest_imports_no_module_of_the_plugin() -> None:
    code = "import sys, atropos_judge; assert not [n for n in sys.modules if n.startswith('atropos_judge.')]"
    subprocess.run([sys.executable, "-c", code], check=True)
