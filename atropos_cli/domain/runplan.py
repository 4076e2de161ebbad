"""The common base of the plans of all commands: one is stored as plan.json, and known again by its digest."""

from __future__ import annotations

import hashlib
import json

from atropos_cli.domain.base import Frozen, JsonDict


class RunPlan(Frozen):
    """A resolved run. A subclass adds its fields, among them `command`: the name of the command that executes it."""

    def identity(self) -> JsonDict:
        """The part that decides the results: a run is resumed under a plan of the same identity only."""
        return self.model_dump(mode="json")

    def beside(self, other: RunPlan) -> RunPlan:
        """This plan, as it is compared with another of the same run, which another version may have stored."""
        return self

    @property
    def digest(self) -> str:
        """sha256 over the canonical JSON of the identity, in hex."""
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()
