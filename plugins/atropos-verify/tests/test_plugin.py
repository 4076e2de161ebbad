"""The manifest: found by its entry point, light to import, every component loads."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import atropos_verify
import pytest

from atropos_cli.sdk import ComponentSpec, PluginError, Reward

SPECS = list(atropos_verify.atropos_register_rewards())


def test_entry_point() -> None:
    [found] = [point for point in entry_points(group="atropos") if point.name == "verify"]
    assert found.load() is atropos_verify


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_component_loads(spec: ComponentSpec) -> None:
    loaded = spec.load()
    assert isinstance(loaded, Reward)
    assert loaded.name == spec.name
    assert loaded.kind == "rollout"
    assert loaded.summary
    assert spec.summary


def test_manifest_and_rewards_import_nothing_heavy() -> None:
    """math-verify and sympy are imported by the worker processes only."""
    code = (
        "import sys, atropos_verify\n"
        "light = set(sys.modules)\n"
        "assert not any(name.startswith('atropos_verify.') for name in light), light\n"
        "[spec.load() for spec in atropos_verify.atropos_register_rewards()]\n"
        "heavy = {'math_verify', 'sympy', 'latex2sympy2_extended', 'jsonschema', 'numpy', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "math_verify" else real(name, *rest)
    )
    monkeypatch.delitem(sys.modules, "atropos_verify.symbolic", raising=False)
    spec = next(spec for spec in SPECS if spec.name == "math")
    with pytest.raises(PluginError) as caught:
        spec.load(dist="atropos-verify")
    assert caught.value.hint == "pip install 'atropos-verify[math]'"
    checks = {name: status for name, status, _ in atropos_verify.atropos_doctor()}
    assert checks == {"atropos-verify[math]": "info", "atropos-verify[schema]": "ok"}
