"""What a run reports: the summary, written beside the groups and printed at the end."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from atropos_cli.domain.base import Frozen, JsonDict

RunState = Literal["running", "finished", "interrupted", "failed"]


class FailureRecord(Frozen):
    """One line of failures.jsonl. rollout is None when the whole group failed and was not written.

    lost: True when every rollout of the task failed, each with a line of its own, and no group was written.
    attempt: which session of the run it was. place: FILE:LINE of the code that raised, where known.
    """

    group_id: str
    task_id: str | None = None
    rollout: str | None = None
    stage: str
    type: str
    message: str
    place: str | None = None
    attempt: int = 1
    lost: bool | None = None
    time: str


class RunSummary(Frozen):
    """Counts and means of a run, over all its sessions.

    groups_done counts the tasks in the groups file, groups_resumed those that were there before this session.
    groups_failed counts tasks of which every rollout failed, as long as no session has written them. What a killed
    session did in its last seconds is missing in requests, retries, paused_s and seconds. zero_std_groups are groups
    whose rewards do not differ, spread_groups those whose rewards do; a group of one reward is neither.
    reward_details: by name, what a reward says of itself and what it counted (which model judged, how many verdicts
    flipped). usage: by model, all that was billed, judges and repeated requests too: requests, tokens of each kind,
    cost, unsure, unpriced (requests to a model without a price), and cache_hits, replies that cost nothing.
    cost: all of it in `currency`, None without prices.
    cost_unsure: what requests without a whole answer cost at most, part of it. stopped: why the run ended before its
    last task, where that was no error and no signal; next_cost: the limit that what came next needed.
    parse_failures: calls of tools that could not be read or do not fit their schemas, by kind. roles: which model
    played each role. useful_per_1000: groups with spread per thousand rollouts. environments: of a mixture, counts and
    mean reward of the groups of each member.
    """

    state: RunState
    plan_digest: str
    env: str
    model: str | None
    groups_done: int = 0
    groups_failed: int = 0
    groups_total: int | None = None
    groups_resumed: int = 0
    rollouts: int = 0
    rollouts_failed: int = 0
    failures: dict[str, int] = Field(default_factory=dict)
    stop_reasons: dict[str, int] = Field(default_factory=dict)
    parse_failures: dict[str, int] = Field(default_factory=dict)
    reward_mean: float | None = None
    reward_std: float | None = None
    zero_std_groups: int = 0
    spread_groups: int = 0
    useful_per_1000: float | None = None
    environments: dict[str, JsonDict] = Field(default_factory=dict)
    rewards: dict[str, float] = Field(default_factory=dict)
    metrics: dict[str, float] = Field(default_factory=dict)
    reward_details: dict[str, JsonDict] = Field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    requests: int = 0
    retries: int = 0
    paused_s: float = 0.0
    max_in_flight: int = 0
    seconds: float = 0.0
    backend: JsonDict = Field(default_factory=dict)
    roles: dict[str, JsonDict] = Field(default_factory=dict)
    error: str | None = None
    usage: dict[str, dict[str, int | float]] = Field(default_factory=dict)
    cost: float | None = None
    cost_unsure: float = 0.0
    currency: str | None = None
    max_cost: float | None = None
    stopped: str | None = None
    next_cost: float | None = None
