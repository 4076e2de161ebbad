"""The options of a role: the model that plays it, and how it is asked."""

from __future__ import annotations

from pydantic import Field

from atropos_cli.domain.base import Frozen, JsonDict


class RoleOptions(Frozen):
    """Options of one role: --role.NAME.OPTION, [role.NAME], ATROPOS_ROLE__NAME__OPTION."""

    model: str | None = Field(
        default=None, description="Model that plays the role; default: the policy, or the first one of --base-url."
    )
    base_url: str | None = Field(default=None, description="Base URL of its server; default: the run's.")
    api_key_env: str | None = Field(default=None, description="Environment variable that holds the API key.")
    backend: str = Field(default="auto", description="Backend through which it is asked; auto: by model and base_url.")
    backend_options: JsonDict = Field(default_factory=dict, description="More options of that backend.")
    temperature: float | None = Field(default=None, ge=0, description="Sampling temperature; default: the run's.")
    top_p: float | None = Field(default=None, gt=0, le=1, description="Nucleus sampling mass; default: the run's.")
    max_tokens: int | None = Field(default=None, ge=1, description="Most tokens of a reply; default: the run's.")
    workers: int | None = Field(default=None, ge=1, description="Requests kept in flight; default: the run's.")
    retries: int | None = Field(default=None, ge=0, description="Retries per group and rollout; default: the run's.")
    timeout: float | None = Field(default=None, gt=0, description="Seconds to wait for an answer; default: the run's.")
    refresh: int | None = Field(
        default=None, ge=1, description="In train: played by a frozen copy of the policy, renewed every N steps."
    )

    @property
    def own_model(self) -> bool:
        """Is it another model than the policy?"""
        return self.model is not None or self.base_url is not None or self.backend != "auto"

    def all_backend_options(self) -> JsonDict:
        """The options of the backend, those with a name of their own among them."""
        named: JsonDict = {"base_url": self.base_url, "api_key_env": self.api_key_env}
        return {**self.backend_options, **{name: value for name, value in named.items() if value is not None}}
