"""The texts of an environment's messages in a file of its package, which `--prompt FILE` replaces.

class Mine(Environment):
    prompt = packaged_prompt(__file__)      # prompts.toml beside this module
"""

from __future__ import annotations

from atropos_cli.io.promptfile import packaged_prompt
from atropos_cli.ports.prompt import Prompt

__all__ = ["Prompt", "packaged_prompt"]
