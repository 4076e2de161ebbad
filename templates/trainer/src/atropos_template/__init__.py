"""The template_name trainer for atropos-cli. This module only says what there is; imports happen on use."""

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_trainers() -> list[ComponentSpec]:
    return [
        ComponentSpec(
            "trainer",
            "template_name",
            "atropos_template.trainer:TemplateName",
            summary="Imitates the replies that were better than their group.",
            requires=("torch", "transformers"),
        )
    ]
