"""Trajectory servers: where the groups of a run are pushed while it goes, and where a training takes them from."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, field_validator

from atropos_cli.domain.base import Frozen


class Delivery(Frozen):
    """A trajectory server, and the run's claims on it. None of it changes which groups come out."""

    to: str | None = Field(
        default=None,
        description="Push each stored group to the trajectory server at this URL (atropos serve or run-api).",
    )
    to_weight: float = Field(
        default=1.0, ge=0, allow_inf_nan=False, description="Weight of this environment among those of the server."
    )
    to_share: float | None = Field(
        default=None, ge=0, le=1, description="Part of each batch of the server that is of this environment, at least."
    )
    off_policy: int = Field(
        default=3, ge=1, description="Batches that may wait at the server; the run pauses while there are more."
    )

    eval_every: int | None = Field(
        default=None, ge=1, description="Steps of the trainer between evaluations on held-out tasks; one comes first."
    )
    eval_limit: int = Field(default=100, ge=1, description="Number of tasks of such an evaluation.")

    @field_validator("to")
    @classmethod
    def _is_url(cls, url: str | None) -> str | None:
        return None if url is None else server_url(url)


class Pull(Frozen):
    """A trajectory server that a training takes its batches from.

    off_policy: groups whose tokens are more versions of the weights old are left out.
    """

    url: str
    off_policy: int = Field(default=8, ge=0)

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        return server_url(url)


def server_url(url: str) -> str:
    """The address of a trajectory server, without a slash at its end. Raises ValueError."""
    parts = urlsplit(url)
    try:
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is none
        usable = False
    if not usable or parts.query or parts.fragment:
        raise ValueError("expected http://HOST:PORT")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a plan holds no passwords: give the server's token by ATROPOS_SERVE__TOKEN")
    return url.rstrip("/")
