"""Manifest of a plugin that needs a library which is not there."""

import no_such_lib

__all__ = ["no_such_lib"]
