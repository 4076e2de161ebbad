"""Imported once by the process that starts those of environments: none of them has to import these packages again."""

from __future__ import annotations

from atropos_control.making import register

register()
