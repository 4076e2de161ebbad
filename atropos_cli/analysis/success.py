"""What counts as a success, and how it is told.

    field NAME    the environment's own verdict: a boolean NAME beside the rollout, in its info or its metrics
    >=0.5  >0.5   a threshold on the reward
    max           the highest reward seen in the environment
    auto          of a run: the own verdict, else a reward of full marks by the run's plan, as in an evaluation;
                  of other files: the own verdict when every scored rollout carries one, else max

A reward above zero is no success by itself: environments give 0.1 for a wrong but tidy end. Where a group is one turn
of an episode, success belongs to the episode: only its own verdict tells it, and no reward of a turn does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from atropos_cli.errors import UsageError
from atropos_cli.io.records import Record, StoredRollout
from atropos_cli.stats.estimators import Threshold

OWN_FIELDS = ("success", "won", "passed", "is_correct", "correct", "resolved", "solved")
"""Names under which environments store their own verdict, in the order they are looked for."""

NO_VERDICT = "none: the groups are turns of episodes, which carry no verdict of their own"

TOLERANCE = 1e-6
"""A reward this close to the maximum is the maximum."""

_THRESHOLD = re.compile(r"(>=?)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")


def parse_threshold(text: str, option: str) -> Threshold:
    """ ">=0.5" or ">0.5". Raises UsageError."""
    match = _THRESHOLD.fullmatch(text.strip())
    if match is None or not math.isfinite(float(match[2])):
        raise UsageError(f"{option} {text!r} is not a threshold", hint=f'{option} ">=0.5" or {option} ">0"')
    return Threshold(float(match[2]), ">" if match[1] == ">" else ">=")


@dataclass(frozen=True, slots=True)
class SuccessRule:
    """How success is told. kind: auto, field, threshold or max."""

    kind: str = "auto"
    field: str | None = None
    threshold: Threshold | None = None

    @staticmethod
    def parse(text: str) -> SuccessRule:
        """From the command line. Raises UsageError."""
        if text in ("auto", "max"):
            return SuccessRule(text)
        if text.startswith("field:") and len(text) > len("field:"):
            return SuccessRule("field", field=text.removeprefix("field:"))
        if text[:1] == ">":
            return SuccessRule("threshold", threshold=parse_threshold(text, "--success"))
        raise UsageError(
            f"--success {text!r} is none of auto, max, field:NAME, >=NUMBER, >NUMBER", hint='--success ">=0.5"'
        )

    def verdict(self, record: Record, rollout: StoredRollout, marks: float | None) -> tuple[str, bool] | None:
        """(what says so, verdict) on a rollout: its own verdict, else by full marks where these are known."""
        own = self.own_verdict(record, rollout)
        if own is not None or self.kind != "auto" or marks is None or rollout.score is None:
            return own
        return f"reward >= {marks:g}, full marks", rollout.score >= marks - TOLERANCE

    def own_verdict(self, record: Record, rollout: StoredRollout) -> tuple[str, bool] | None:
        """(field, verdict) of the environment's own; None when it has none or the rule does not ask for it."""
        if self.kind in ("max", "threshold"):
            return None
        for name in OWN_FIELDS if self.field is None else (self.field,):
            # Of our own rollouts an evaluation reads the same: a number may be a count of something.
            strict = record.format == "native" and self.field is None
            verdict = info_verdict(rollout.raw.get("info"), name) if strict else _verdict(record, rollout, name)
            if verdict is not None:
                return name, verdict
        return None


def info_verdict(info: Any, name: str) -> bool | None:
    """The verdict of that name in a rollout's info."""
    verdict = info.get(name) if isinstance(info, dict) else None
    return verdict if isinstance(verdict, bool) else None


def one_verdict(found: Sequence[tuple[str, bool]]) -> tuple[str, bool] | None:
    """What the rollouts of a turn say of its episode: nothing when they differ, since they speak of themselves then."""
    return found[0] if len({verdict for _, verdict in found}) == 1 else None


def told_by(names: Iterable[str]) -> str:
    """By what success was told, from the names of `verdict`."""
    own = [name for name in names if not name.startswith("reward ")]
    texts = [f"the environment's own verdict ({', '.join(own)})"] if own else []
    return " or ".join([*texts, *(name for name in names if name.startswith("reward "))])


def _verdict(record: Record, rollout: StoredRollout, name: str) -> bool | None:
    raw = rollout.raw
    # In formats of parallel lists the rollout's own object is the group: only lists speak of single rollouts.
    whole_group = raw is record.raw and len(record.rollouts) > 1
    value = raw.get(name)
    if isinstance(value, list):
        return _boolean(value[rollout.index]) if len(value) == len(record.rollouts) else None
    if whole_group:
        return None
    found = _boolean(value)
    for place in ("info", "metrics"):
        if found is None and isinstance(part := raw.get(place), dict):
            found = _boolean(part.get(name))
    return found


def _boolean(value: Any) -> bool | None:
    """True and False, and the numbers 1 and 0 that stand for them."""
    if isinstance(value, bool):
        return value
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else None
