"""What goes wrong with the sandbox itself, never with a program in it."""

from __future__ import annotations

from atropos_cli.sdk import PluginError


class SandboxError(PluginError):
    """No program can be run here, or a sandbox process was lost for a reason of its own."""
