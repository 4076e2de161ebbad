"""The template_name reward for atropos-cli. This module only says what there is; imports happen on use."""

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_rewards() -> list[ComponentSpec]:
    return [
        ComponentSpec(
            "reward",
            "template_name",
            "atropos_template.rewards:template_name",
            summary="Share of the answer's words that the reply contains.",
        )
    ]
