"""Preference pairs (DPO) and labelled completions (KTO) out of stored groups.

    converter = PairConverter(PairOptions(policy="best-worst"))
    for record in read_records(...):
        for row in converter.rows(record): ...

A pair shares its prompt to the letter. In conversations of several turns the prompt goes up to the first
reply that differs. Every group, rollout and pair that is left out is counted under one reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from atropos_cli.datasets.convert import selection, shapes
from atropos_cli.datasets.convert.pairing import (
    Divergence,
    Lazy,
    Prompted,
    completion_length,
    diverge,
    same_prompts,
)
from atropos_cli.datasets.convert.rendering import Rendering, Warn
from atropos_cli.datasets.convert.samples import (
    check_uncut,
    completion_key,
    expect_question,
    lineage_of,
    rollout_id,
    why_not,
)
from atropos_cli.datasets.convert.selection import Pair
from atropos_cli.datasets.convert.spec import PairOptions
from atropos_cli.datasets.convert.template import TemplateRefused
from atropos_cli.datasets.convert.turns import BadMessage
from atropos_cli.io.records import Record, Row
from atropos_cli.stats.tallies import add_tally, tally_state


@dataclass(slots=True)
class PairReport:
    """left_out_*: by reason. per_group: how many groups gave how many pairs. *_chars: sums over the pairs.

    labels: of KTO rows. first: an example of a reason.
    """

    groups: int = 0
    groups_with_pairs: int = 0
    rollouts: int = 0
    rows: int = 0
    left_out_groups: Counter[str] = field(default_factory=Counter)
    left_out_rollouts: Counter[str] = field(default_factory=Counter)
    left_out_pairs: Counter[str] = field(default_factory=Counter)
    per_group: Counter[int] = field(default_factory=Counter)
    labels: Counter[bool] = field(default_factory=Counter)
    chosen_chars: int = 0
    rejected_chars: int = 0
    longer_chosen: int = 0
    gap: float = 0.0
    gaps: int = 0
    of_several_messages: int = 0
    first: dict[str, str] = field(default_factory=dict)

    @property
    def longer_share(self) -> float | None:
        """The share of pairs whose chosen side is the longer one."""
        return self.longer_chosen / self.rows if self.rows and not self.labels else None

    def as_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {
            "groups": self.groups,
            "groups_with_pairs": self.groups_with_pairs,
            "ties": self.left_out_groups["tie"],
            "rollouts": self.rollouts,
            "rows": self.rows,
            "left_out_groups": dict((+self.left_out_groups).most_common()),
            "left_out_rollouts": dict((+self.left_out_rollouts).most_common()),
            "left_out_pairs": dict((+self.left_out_pairs).most_common()),
        }
        if self.labels:
            return {**made, "labels": {"true": self.labels[True], "false": self.labels[False]}}
        return {
            **made,
            "pairs_per_group": {str(pairs): groups for pairs, groups in sorted(self.per_group.items())},
            "mean_chars_chosen": self.chosen_chars / self.rows if self.rows else None,
            "mean_chars_rejected": self.rejected_chars / self.rows if self.rows else None,
            "longer_chosen_share": self.longer_share,
            "mean_gap": self.gap / self.gaps if self.gaps else None,
            "pairs_of_several_messages": self.of_several_messages,
        }

    def tally(self) -> dict[str, Any]:
        """The counts, for `absorb`."""
        return tally_state(self, *self.__slots__)

    def absorb(self, state: dict[str, Any]) -> None:
        """Add the counts of another part of the input."""
        add_tally(self, state)


def _sides(record: Record) -> list[Record]:
    """The record by roles of its rollouts; as it is where they have none."""
    if record.format != "native":
        return [record]
    roles = dict.fromkeys(str(rollout.raw.get("role")) for rollout in record.rollouts)
    if len(roles) < 2:
        return [record]
    return [
        replace(record, rollouts=[rollout for rollout in record.rollouts if str(rollout.raw.get("role")) == role])
        for role in roles
    ]


class PairConverter:
    """Turns records into rows; `report` grows with each. tell: called as (kind, text) with what people should read.

    table: arguments of tool calls become JSON text, since all objects of a table's column have the same keys.
    """

    def __init__(
        self,
        options: PairOptions,
        rendering: Rendering | None = None,
        tell: Warn = lambda kind, text: None,
        *,
        table: bool = False,
    ) -> None:
        self.options = options
        self.report = PairReport()
        self.rendering = rendering
        self._tell = tell
        self._table = table

    def rows(self, record: Record) -> list[Row]:
        """The rows of a record. Each side of a game is a group: the others saw and were asked something else."""
        return [row for side in _sides(record) for row in self._rows(side)]

    def _rows(self, record: Record) -> list[Row]:
        self.report.groups += 1
        self.report.rollouts += len(record.rollouts)
        usable = self._usable(record)
        made = self._unpaired(record, usable) if self.options.kto else self._paired(record, usable)
        self.report.rows += len(made)
        self.report.groups_with_pairs += bool(made)
        if not self.options.kto:
            self.report.per_group[len(made)] += 1
        return made

    def _usable(self, record: Record) -> list[int]:
        usable = []
        keep_truncated = self.options.keep_truncated
        for i, rollout in enumerate(record.rollouts):
            reason = why_not(record, rollout, keep_truncated=keep_truncated)
            if reason is None and rollout.score is None and rollout.label is None:
                reason = "unscored"
            if reason is None:
                usable.append(i)
            else:
                self.report.left_out_rollouts[reason] += 1
        return usable

    # Pairs -----------------------------------------------------------------------------------------------------

    def _paired(self, record: Record, usable: Sequence[int]) -> list[Row]:
        pairs = self._pairs(record, usable)
        if isinstance(pairs, str):
            self._leave_out(record, pairs)
            return []
        rows = [row for pair in pairs if (row := self._tried(record, pair)) is not None]
        if not rows and self.options.policy == "best-worst" and record.rollouts[pairs[0][0]].label is None:
            # One of the two says nothing that the other does not: the next widest gap may.
            for pair in self._by_gap(record, usable):
                if pair not in pairs and (row := self._tried(record, pair)) is not None:
                    return [row]
        return rows

    def _tried(self, record: Record, pair: Pair) -> Row | None:
        """The row of a pair; None when there is none, which is counted."""
        try:
            return self._row(record, *pair)
        except BadMessage as error:
            self._refuse(error.reason, f"{record.where}: {error}")
        except TemplateRefused as error:
            self._refuse("template", f"{record.where}: the chat template refuses: {error}")
        return None

    def _by_gap(self, record: Record, usable: Sequence[int]) -> list[Pair]:
        """All pairs that the options allow, the widest gap first."""
        options, rollouts = self.options, record.rollouts
        scores = _scores(record, usable)
        texts = Lazy(rollouts, completion_key)
        pairs = selection.all_pairs(scores, margin=options.margin, min_chosen=options.min_chosen, texts=texts)
        if options.max_length_ratio is not None:
            lengths = Lazy(rollouts, completion_length)
            pairs = selection.length_control(pairs, lengths, options.max_length_ratio)
        return sorted(pairs, key=lambda pair: (scores[pair[1]] or 0.0) - (scores[pair[0]] or 0.0))

    def _leave_out(self, record: Record, reason: str) -> None:
        self.report.left_out_groups[reason] += 1
        if reason in ("prompts_differ", "identical"):
            self.report.first.setdefault(reason, record.where)

    def _refuse(self, reason: str, text: str) -> None:
        self.report.left_out_pairs[reason] += 1
        self.report.first.setdefault(reason, text)
        self._tell(reason, text)

    def _pairs(self, record: Record, usable: Sequence[int]) -> list[Pair] | str:
        """The pairs of a group, or why there are none."""
        rollouts = record.rollouts
        labels = {rollouts[i].label: i for i in usable if rollouts[i].label}
        if labels:
            return self._labelled(record, labels)
        if len(rollouts) < 2:
            return "one_rollout"
        if len(usable) < 2:
            return "one_usable_rollout"
        scores = _scores(record, usable)
        if selection.is_tie(scores):
            return "tie"
        if not same_prompts([rollouts[i] for i in usable], self.options.same_prompt):
            return "prompts_differ"
        texts, lengths = Lazy(rollouts, completion_key), Lazy(rollouts, completion_length)
        pairs = self._by_policy(record, scores, texts, lengths)
        if not pairs:
            return self._why_no_pair(scores, texts)
        if self.options.max_length_ratio is not None:
            kept = selection.length_control(pairs, lengths, self.options.max_length_ratio)
            self.report.left_out_pairs["length_ratio"] += len(pairs) - len(kept)
            if not kept:
                return "length_ratio"
            pairs = kept
        if len(pairs) > self.options.max_pairs:
            self.report.left_out_pairs["over_max_pairs"] += len(pairs) - self.options.max_pairs
            pairs = selection.capped(pairs, self.options.max_pairs, self._random(record))
        return pairs

    def _random(self, record: Record) -> Random:
        return selection.group_random(self.options.seed, f"{record.task_key}\x00{record.line}")

    def _labelled(self, record: Record, labels: dict[str | None, int]) -> list[Pair] | str:
        """A row that is a pair already."""
        if len(labels) < 2:
            return "one_usable_rollout"
        pair = labels["chosen"], labels["rejected"]
        keys = [completion_key(record.rollouts[i]) for i in pair]
        if keys[0] == keys[1]:
            return "identical"
        ratio = self.options.max_length_ratio
        lengths = [completion_length(record.rollouts[i]) for i in pair]
        if ratio is not None and selection.length_ratio(*lengths) > ratio:
            self.report.left_out_pairs["length_ratio"] += 1
            return "length_ratio"
        return [pair]

    def _by_policy(
        self, record: Record, scores: Sequence[float | None], texts: Sequence[str], lengths: Sequence[int]
    ) -> list[Pair]:
        options = self.options
        if options.policy == "all":
            return selection.all_pairs(scores, margin=options.margin, min_chosen=options.min_chosen, texts=texts)
        if options.policy == "best-random":
            return selection.best_vs_random(
                scores, self._random(record), margin=options.margin, min_chosen=options.min_chosen, texts=texts
            )
        if options.policy == "correct-wrong":
            return selection.correct_vs_wrong(scores, threshold=options.threshold, margin=options.margin, texts=texts)
        return selection.best_vs_worst(
            scores,
            margin=options.margin,
            min_chosen=options.min_chosen,
            texts=texts,
            lengths=lengths,
            tiebreak=options.tiebreak,
        )

    def _why_no_pair(self, scores: Sequence[float | None], texts: Sequence[str]) -> str:
        if not selection.all_pairs(scores, texts=texts):
            return "identical"
        if not selection.all_pairs(scores, margin=self.options.margin, texts=texts):
            return "margin"
        if self.options.policy == "correct-wrong":
            return "all_correct_or_all_wrong"
        return "min_chosen"

    def _row(self, record: Record, chosen: int, rejected: int) -> Row:
        """Raises BadMessage, TemplateRefused."""
        options, report = self.options, self.report
        good, bad = record.rollouts[chosen], record.rollouts[rejected]
        expect_question(record, good.messages)
        split = diverge(good, bad, options, same_prompt=options.same_prompt, turn_only=options.turn_only)
        if options.max_tokens is not None:
            self._check_length(split, record.tools)
        if options.text:
            row = self._texts(split, record.tools)
        elif options.sharegpt:
            row = shapes.preference_sharegpt_row(split.prompt, split.chosen, split.rejected)
            row |= shapes.tools_column(record.tools)
        else:
            row = shapes.preference_row(split.prompt, split.chosen, split.rejected, arguments_as_text=self._table)
            row |= shapes.tools_column(record.tools)
        lengths = completion_length(good), completion_length(bad)
        report.chosen_chars += lengths[0]
        report.rejected_chars += lengths[1]
        report.longer_chosen += lengths[0] > lengths[1]
        report.of_several_messages += len(split.chosen) > 1 or len(split.rejected) > 1
        if good.score is not None and bad.score is not None:
            report.gap += good.score - bad.score
            report.gaps += 1
        made: Row = {
            **row,
            "rollout_chosen": rollout_id(record, good),
            "rollout_rejected": rollout_id(record, bad),
            "score_chosen": good.score,
            "score_rejected": bad.score,
            "task": record.task_key,
        }
        for name, value in lineage_of(record, good, options.fields).items():
            if name not in ("rollout", "score"):
                made.setdefault(name, value)  # a field of the source never replaces a column
        return made

    def _check_length(self, split: Divergence, tools: list[Row] | None) -> None:
        assert self.rendering is not None, "--max-tokens comes with a tokenizer"
        assert self.options.max_tokens is not None
        for side in (split.chosen, split.rejected):
            length = self.rendering.count([*split.prompt, *side], tools)
            if length > self.options.max_tokens:
                raise BadMessage("too_long", f"{length} tokens, and the limit is {self.options.max_tokens}")

    def _texts(self, split: Divergence, tools: list[Row] | None) -> Row:
        chosen, rejected = (self._text(split.prompt, side, tools) for side in (split.chosen, split.rejected))
        if chosen.prompt != rejected.prompt:
            raise BadMessage("prompt_text_differs", "the template writes the prompt otherwise for each side")
        return {"prompt": chosen.prompt, "chosen": chosen.completion, "rejected": rejected.completion}

    def _text(self, prompt: Sequence[Row], completion: Sequence[Row], tools: list[Row] | None) -> Prompted:
        check_uncut(completion, "text")
        return (
            Prompted.plain(prompt, completion)
            if self.rendering is None
            else Prompted.rendered(self.rendering, prompt, completion, tools)
        )

    # KTO -------------------------------------------------------------------------------------------------------

    def _unpaired(self, record: Record, usable: Sequence[int]) -> list[Row]:
        rows: list[Row] = []
        seen: set[str] = set()
        for i in usable:
            rollout = record.rollouts[i]
            key = completion_key(rollout)
            if key in seen:
                self.report.left_out_rollouts["identical"] += 1
                continue
            seen.add(key)
            if rollout.label is not None:
                label = rollout.label == "chosen"
            else:
                label = selection.passes(rollout.score, self.options.threshold, ">=")
            try:
                expect_question(record, rollout.messages)
                split = Divergence.alone(rollout, self.options)
                if self.options.text:
                    text = self._text(split.prompt, split.chosen, record.tools)
                    row: Row = {"prompt": text.prompt, "completion": text.completion, "label": label}
                elif self.options.sharegpt:
                    row = {**shapes.sharegpt_row([*split.prompt, *split.chosen]), "label": label}
                    row |= shapes.tools_column(record.tools)
                else:
                    row = shapes.unpaired_row(split.prompt, split.chosen, label, arguments_as_text=self._table)
                    row |= shapes.tools_column(record.tools)
            except BadMessage as error:
                self._refuse(error.reason, f"{record.where}: {error}")
                continue
            except TemplateRefused as error:
                self._refuse("template", f"{record.where}: the chat template refuses: {error}")
                continue
            self.report.labels[label] += 1
            rows.append({**row, **lineage_of(record, rollout, self.options.fields), **row})
        return rows


def _scores(record: Record, usable: Sequence[int]) -> list[float | None]:
    """The scores of a group, None for rollouts that are of no use."""
    if len(usable) == len(record.rollouts):
        return record.scores
    return [rollout.score if i in usable else None for i, rollout in enumerate(record.rollouts)]
