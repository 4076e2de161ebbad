"""The template-name environment for atropos-cli. This module only says what there is; imports happen on use."""

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_environments() -> list[ComponentSpec]:
    return [
        ComponentSpec(
            "environment",
            "template-name",
            "atropos_template.environment:TemplateName",
            summary="Add whole numbers.",
        )
    ]
