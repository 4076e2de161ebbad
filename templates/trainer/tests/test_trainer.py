"""The contract that every trainer keeps: it learns, saves, stops and goes on."""

from __future__ import annotations

from typing import ClassVar

from atropos_template.trainer import TemplateName

from atropos_authoring import TrainerContract


class TestContract(TrainerContract):
    target = "template_name"
    options: ClassVar = {"learning_rate": 0.02}


def test_it_is_installed(atropos_registry):
    assert atropos_registry.find("trainer", "template_name").load() is TemplateName
