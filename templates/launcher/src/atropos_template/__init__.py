"""The template_name launcher for atropos-cli. This module only says what there is; imports happen on use."""

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_launchers() -> list[ComponentSpec]:
    return [
        ComponentSpec(
            "launcher",
            "template_name",
            "atropos_template.launcher:TemplateName",
            summary="Processes of this machine that go on after logout.",
        )
    ]
