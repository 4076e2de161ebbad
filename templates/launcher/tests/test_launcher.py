"""The contract that every launcher keeps: jobs run, end, fail, are cancelled; shards make one run."""

from __future__ import annotations

from atropos_template.launcher import TemplateName

from atropos_authoring import LauncherContract


class TestContract(LauncherContract):
    def make(self) -> TemplateName:
        return TemplateName(TemplateName.Config())


def test_it_is_installed(atropos_registry):
    assert atropos_registry.find("launcher", "template_name").load() is TemplateName
