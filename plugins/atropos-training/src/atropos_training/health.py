"""Is training going well? Rules that look at the numbers of each step and name what usually is wrong.

A rule warns once when its trouble begins, and again only after the trouble was over for some steps. A rule
listed in `stop` ends training instead, and `non-finite` does so by itself once it has lasted.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

from atropos_cli.sdk.training import HealthRules, Rule, TrainerError

RULES: tuple[Rule, ...] = get_args(Rule)

_TINY = 1e-6
_OVER = 10
"""Steps without trouble after which it counts as over: a number about its limit would be reported at every crossing."""


@dataclass(frozen=True, slots=True)
class HealthWarning:
    """What a rule found, and what to try."""

    rule: Rule
    step: int
    message: str
    hint: str

    def __str__(self) -> str:
        return f"step {self.step}, {self.rule}: {self.message} ({self.hint})"


@dataclass(frozen=True, slots=True)
class _Finding:
    message: str
    hint: str
    fatal: bool = False


class Health:
    """Watches one run. limit: the most tokens of a completion, named when completions are cut.

    last_good: returns the checkpoint to go back to, for the message that ends a run.
    """

    def __init__(
        self,
        rules: HealthRules | None = None,
        *,
        limit: int | None = None,
        last_good: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.rules = rules or HealthRules()
        self.counts: dict[str, int] = {}
        self._limit = limit
        self._last_good = last_good
        self._streaks: dict[Rule, int] = {}
        self._calm: dict[Rule, int] = {}
        """Rules that have warned, and the steps in a row without trouble since."""
        self._entropies: list[float] = []
        self._rewards: deque[float] = deque(maxlen=self.rules.plateau_steps)
        self._best: float | None = None
        self._checks: dict[Rule, Callable[[Mapping[str, float | None]], _Finding | None]] = {
            "non-finite": self._nonfinite,
            "zero-std": self._zero_std,
            "truncated": self._truncated,
            "kl": self._kl,
            "entropy": self._entropy,
            "plateau": self._plateau,
        }

    def observe(self, step: int, metrics: Mapping[str, float | None]) -> list[HealthWarning]:
        """The warnings that begin at this step. Raises TrainerError when a stop rule says so."""
        begun: list[HealthWarning] = []
        for rule in RULES:
            if rule in self.rules.off:
                continue
            found = self._checks[rule](metrics)
            if found is None:
                self._calm_down(rule)
                continue
            if rule in self.rules.stop or found.fatal:
                raise self._stopped(rule, step, found)
            known = rule in self._calm
            self._calm[rule] = 0
            if not known:
                self.counts[rule] = self.counts.get(rule, 0) + 1
                begun.append(HealthWarning(rule=rule, step=step, message=found.message, hint=found.hint))
        return begun

    def replay(self, rows: Iterable[tuple[int, Mapping[str, float | None]]]) -> None:
        """Take in the steps of an earlier session: counts continue, and earlier warnings are not repeated."""
        for step, metrics in rows:
            try:
                self.observe(step, metrics)
            except TrainerError:
                self._streaks.clear()  # the user went on: the rule counts anew

    def _calm_down(self, rule: Rule) -> None:
        if rule in self._calm:
            self._calm[rule] += 1
            if self._calm[rule] >= _OVER:
                del self._calm[rule]

    def _stopped(self, rule: Rule, step: int, found: _Finding) -> TrainerError:
        good = self._last_good()
        saved = f"; the last checkpoint is {good}" if good else ""
        return TrainerError(f"stopped at step {step} by the rule {rule}: {found.message}{saved}", hint=found.hint)

    def _lasts(self, rule: Rule, bad: bool, steps: int) -> bool:
        """Count the steps in a row; True from the `steps`-th on."""
        self._streaks[rule] = self._streaks.get(rule, 0) + 1 if bad else 0
        return self._streaks[rule] >= steps

    def _nonfinite(self, metrics: Mapping[str, float | None]) -> _Finding | None:
        bad = [
            name
            for name in ("loss", "grad_norm")
            if name in metrics and ((value := metrics[name]) is None or not math.isfinite(value))
        ]
        lasting = self._lasts("non-finite", bool(bad), self.rules.nonfinite_steps)
        if not bad:
            return None
        count = self._streaks["non-finite"]
        times = f"for {count} steps in a row" if count > 1 else "at this step"
        return _Finding(
            f"{' and '.join(bad)} not finite {times}",
            "lower --learning-rate, check the data for extreme rewards or log-probabilities, or train in fp32",
            fatal=lasting,
        )

    def _zero_std(self, metrics: Mapping[str, float | None]) -> _Finding | None:
        share = _value(metrics, "frac_reward_zero_std")
        if share is None:
            return None
        if not self._lasts("zero-std", share >= self.rules.zero_std_share, self.rules.zero_std_steps):
            return None
        reward = _value(metrics, "reward")
        level = "" if reward is None else f" (mean reward {reward:g})"
        return _Finding(
            f"{share:.0%} of the groups had equal rewards for {self._streaks['zero-std']} steps{level}: "
            "nothing is learnt from them",
            "look at samples.jsonl: is the answer in the form that the reward reads, are completions cut, are the "
            "tasks too hard or already solved? Raise --temperature or --group-size for more spread",
        )

    def _truncated(self, metrics: Mapping[str, float | None]) -> _Finding | None:
        share = _value(metrics, "completions/clipped_ratio")
        if share is None:
            return None
        if not self._lasts("truncated", share >= self.rules.truncated_share, self.rules.truncated_steps):
            return None
        limit = "the limit of tokens" if self._limit is None else f"the limit of {self._limit} tokens"
        return _Finding(
            f"{share:.0%} of the completions were cut at {limit}",
            "raise --max-tokens, give a --stop text, or check that the model ends its turns with its end token",
        )

    def _kl(self, metrics: Mapping[str, float | None]) -> _Finding | None:
        value = _value(metrics, "kl")
        if value is None:
            return None
        if not self._lasts("kl", value > self.rules.kl_most, self.rules.kl_steps):
            return None
        return _Finding(
            f"KL to the reference model is {value:.3g} nats a token, above {self.rules.kl_most:g}",
            "lower --learning-rate or raise --beta; an earlier checkpoint may be the better model",
        )

    def _entropy(self, metrics: Mapping[str, float | None]) -> _Finding | None:
        value = _value(metrics, "entropy")
        if value is None:
            return None
        if len(self._entropies) < self.rules.entropy_steps:
            self._entropies.append(value)
            return None
        first = sum(self._entropies) / len(self._entropies)
        bad = value < self.rules.entropy_share * first - _TINY
        if not self._lasts("entropy", bad, self.rules.entropy_steps):
            return None
        return _Finding(
            f"entropy fell to {value:.3g} from {first:.3g}: samples of a task are nearly the same",
            "fine when the reward is near its best; else raise --temperature, lower --learning-rate, or add --beta",
        )

    def _plateau(self, metrics: Mapping[str, float | None]) -> _Finding | None:
        """The mean of the last window against the best such mean so far."""
        value = _value(metrics, "reward")
        if value is None:
            return None
        self._rewards.append(value)
        window = self.rules.plateau_steps
        if len(self._rewards) < window:
            return None
        mean = sum(self._rewards) / window
        if self._best is None or mean > self._best + self.rules.plateau_gain:
            self._best = mean
            self._streaks["plateau"] = 0
            return None
        if not self._lasts("plateau", True, window):
            return None
        return _Finding(
            f"the mean reward of {window} steps has not grown for {self._streaks['plateau']} steps (now {mean:.3g})",
            "look at the evaluations and at samples.jsonl; other tasks or a higher --learning-rate may help",
        )


def _value(metrics: Mapping[str, float | None], name: str) -> float | None:
    value = metrics.get(name)
    return value if value is not None and math.isfinite(value) else None
