"""References to components: what a plan keeps of them."""

from __future__ import annotations

from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from atropos_cli.domain.base import Frozen, JsonDict


class ComponentRef(Frozen):
    """Which component, from which distribution and version, with which config (secrets left out)."""

    name: str
    dist: str | None = None
    version: str | None = None
    config: JsonDict = Field(default_factory=dict)

    def served(self, urls: tuple[str, ...]) -> ComponentRef:
        """A backend's reference with the addresses of servers that were not known when the plan was made."""
        if not urls or "base_url" not in self.config:
            return self
        served: ComponentRef = self.replace(config={**self.config, "base_url": list(urls)})
        return served


class RewardRef(ComponentRef):
    """A reward and its weight.

    config: the options that decide the values. access: those that only say how the values are got (a server's
    address, time limits); they are no part of a plan's identity, and are not written where there are none.
    """

    weight: float = 1.0
    access: JsonDict = Field(default_factory=dict)

    @model_serializer(mode="wrap")
    def _without_empty_access(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        if not self.access:
            data.pop("access", None)
        return data


class ToolsRef(ComponentRef):
    """A source of tools and its target, such as the command or the URL of a server.

    access: options that do not decide the results, such as the name of a key's variable.
    """

    target: str
    access: JsonDict = Field(default_factory=dict)

    def identity(self) -> JsonDict:
        """The part that decides the results."""
        return {"name": self.name, "target": self.target, "config": self.config}
