"""The reference page of training runs names every health rule with its defaults, and every file of the records."""

from __future__ import annotations

from pathlib import Path

import pytest
from atropos_tracking import reevaluations
from atropos_training import health

from atropos_cli.domain.training import HealthRules
from atropos_cli.tracking import services
from atropos_cli.training import curves, metrics, samples, summary

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "training-run.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("rule", health.RULES)
def test_rules(rule: str) -> None:
    assert f"| `{rule}` |" in PAGE


@pytest.mark.parametrize("name", [name for name in HealthRules.model_fields if name not in ("stop", "off")])
def test_defaults(name: str) -> None:
    default = HealthRules.model_fields[name].default
    assert f"`--health.{name.replace('_', '-')}` {default}" in PAGE


@pytest.mark.parametrize(
    "file",
    [
        metrics.FILE,
        samples.FILE,
        summary.FILE,
        services.FILE,
        reevaluations.FILE,
        curves.HTML,
        curves.SVG,
        *samples.COLUMNS,
        str(samples.MOST_CHARACTERS),
    ],
)
def test_files(file: str) -> None:
    assert file in PAGE
