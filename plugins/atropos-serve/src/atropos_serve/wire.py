"""The messages of the wire, as atroposlib's environments and trainers send them, and their errors."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator

_LARGE = 2**53
_MOST_ERRORS = 20

Count = Annotated[int, Field(ge=-_LARGE, le=_LARGE)]
Positive = Annotated[int, Field(ge=1, le=1_000_000_000)]
EnvId = Annotated[int, Field(ge=-_LARGE, le=_LARGE)]


class _Message(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)


class _Shown(_Message):
    """Its texts are answered, stored and shown later: what cannot be written as UTF-8 is refused now."""

    @field_validator("*")
    @classmethod
    def _text(cls, value: object) -> object:
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ValueError("half of a surrogate pair is not text") from None
        return value


class Registration(_Shown):
    """A trainer's wishes. A second registration replaces the first; the queue stays."""

    wandb_group: str
    wandb_project: str
    batch_size: Annotated[int, Field(ge=1, le=1_000_000, description="Sequences of a batch.")]
    max_token_len: Positive
    checkpoint_dir: str
    save_checkpoint_interval: Count
    starting_step: Annotated[int, Field(ge=0, le=_LARGE)]
    num_steps: Count


class RegisterEnv(_Shown):
    """An environment, and the groups that it will send."""

    max_token_length: Positive
    desired_name: str | None
    weight: float | None = Field(1.0, description="Its part of the inference servers; -1: it takes no part in that.")
    group_size: Annotated[int, Field(ge=1, le=1_000_000, description="Sequences of a group; divides the batch size.")]
    min_batch_allocation: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="At least this part of each batch is of this environment."
    )

    @field_validator("weight")
    @classmethod
    def _weight(cls, weight: float | None) -> float | None:
        if weight is not None and weight < 0 and weight != -1:
            raise ValueError("a weight is 0 or more, or -1 for an environment without one")
        return weight


class EnvIdentifier(_Message):
    """Which environment asks."""

    env_id: EnvId


class Group(_Message):
    """The sequences of one task. Optional lists may be null or empty."""

    tokens: list[list[int]]
    masks: list[list[int]]
    scores: list[float]
    advantages: list[list[float]] | None = None
    ref_logprobs: list[list[float]] | None = None
    messages: list[list[dict[str, Any]]] | None = None
    generation_params: dict[str, Any] | None = None
    inference_logprobs: list[list[float]] | None = None
    overrides: list[dict[str, Any]] | None = None
    group_overrides: dict[str, Any] | None = None
    images: Any | None = None
    env_id: EnvId | None = None
    distill_token_ids: list[list[list[int]]] | None = None
    distill_logprobs: list[list[list[float]]] | None = None

    @model_validator(mode="after")
    def _lengths(self) -> Group:
        count = len(self.tokens)
        if not count:
            raise ValueError("tokens: a group has at least one sequence")
        for name in ("masks", "scores"):
            if (given := len(getattr(self, name))) != count:
                raise ValueError(f"{name}: {given} for {count} sequences")
        for name in (*_PER_SEQUENCE, *_PER_TOKEN):
            values = getattr(self, name)
            if values and len(values) != count:
                raise ValueError(f"{name}: {len(values)} for {count} sequences")
        for name in ("masks", *_PER_TOKEN):
            for place, (tokens, values) in enumerate(zip(self.tokens, getattr(self, name) or (), strict=False)):
                if len(values) != len(tokens) and (values or name == "masks"):
                    raise ValueError(f"{name}: {len(values)} for the {len(tokens)} tokens of sequence {place}")
        for conversation in self.messages or ():
            for message in conversation:
                if "role" not in message or "content" not in message:
                    raise ValueError("messages: a message has a role and a content")
        return self


# Stock environments send advantages of other lengths than the tokens (tests of atroposlib 0.4.0 do): not checked.
_PER_SEQUENCE = ("advantages", "messages", "overrides")
_PER_TOKEN = ("ref_logprobs", "inference_logprobs", "distill_token_ids", "distill_logprobs")

GROUP_KEYS = tuple(Group.model_fields)
_IN_EXAMPLE = ("advantages", "ref_logprobs", "generation_params", "inference_logprobs", "messages", "images")
NO_EXAMPLE: dict[str, list[Any]] = {name: [] for name in ("tokens", "masks", "scores", *_IN_EXAMPLE)}


class Refused(Exception):
    """A request that the server does not accept: 422, with the place and the reason of each error."""

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        super().__init__("; ".join(str(error["msg"]) for error in errors))
        self.errors = errors

    @classmethod
    def because(cls, message: str, *place: str | int) -> Refused:
        return cls([{"type": "value_error", "loc": ["body", *place], "msg": message}])


def read_group(body: bytes) -> Group:
    """One group of a request. Raises Refused."""
    try:
        group = Group.model_validate_json(body)
    except ValidationError as error:
        raise Refused(_told(error)) from None
    _finite(group)
    return group


def read_groups(body: bytes) -> list[Group]:
    """The groups of a request that sends several. Raises Refused: then none is taken."""
    try:
        groups = _GROUPS.validate_json(body)
    except ValidationError as error:
        raise Refused(_told(error)) from None
    for group in groups:
        _finite(group)
    return groups


def encode(group: Group) -> bytes:
    """The group as trainers get it: all keys, absent ones null. Raises Refused for what JSON cannot say."""
    try:
        return orjson.dumps(group.__dict__)
    except (TypeError, ValueError) as error:
        raise Refused.because(f"not representable: {error}") from None


_GROUPS = TypeAdapter(list[Group])


def _told(error: ValidationError) -> list[dict[str, Any]]:
    found = error.errors(include_url=False, include_input=False, include_context=False)[:_MOST_ERRORS]
    return [{"type": one["type"], "loc": ["body", *one["loc"]], "msg": one["msg"]} for one in found]


def _finite(group: Group) -> None:
    """Numbers like 1e999 hide in the parts without a schema, too."""
    for name in ("messages", "generation_params", "overrides", "group_overrides", "images"):
        if _has_nan(getattr(group, name)):
            raise Refused.because("NaN and Infinity are not JSON", name)


def _has_nan(value: object) -> bool:
    if isinstance(value, float):
        return value != value or value in (float("inf"), float("-inf"))
    if isinstance(value, dict):
        return any(_has_nan(one) for one in value.values())
    if isinstance(value, list):
        return any(_has_nan(one) for one in value)
    return False
