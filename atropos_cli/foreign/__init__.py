"""Environments of other frameworks: their own virtual environments and processes, and the engine's model for them."""
