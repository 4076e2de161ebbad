"""Training rows for supervised fine-tuning out of stored rollouts: choose, prepare, render, count.

    converter = SftConverter(SftOptions(form="tokens"), Rendering.of(tokens, template))
    for record in read_records(...):
        for row in converter.rows(record): ...
    converter.report

Every rollout that does not become a row is counted under one reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from atropos_cli.datasets.choices import Choices, Keyed
from atropos_cli.datasets.convert import shapes
from atropos_cli.datasets.convert.limits import fit, shorten_ids
from atropos_cli.datasets.convert.rendering import Rendering, Warn
from atropos_cli.datasets.convert.samples import (
    Sample,
    check_uncut,
    completion_key,
    each_turn,
    is_cut,
    lineage_of,
    prepare,
    why_not,
)
from atropos_cli.datasets.convert.selection import passes, top_n
from atropos_cli.datasets.convert.spec import SftOptions
from atropos_cli.datasets.convert.template import TemplateRefused
from atropos_cli.datasets.convert.turns import BadMessage
from atropos_cli.io.formats.native import sampled
from atropos_cli.io.records import Record, Row, StoredRollout
from atropos_cli.stats.tallies import add_tally, tally_state


@dataclass(slots=True)
class SftReport:
    """left_out: rollouts by reason. notes: rows that something is to be said about. first: an example of a reason."""

    records: int = 0
    rollouts: int = 0
    selected: int = 0
    rows: int = 0
    from_stored_ids: int = 0
    zero_or_less: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "rollouts": self.rollouts,
            "selected": self.selected,
            "rows": self.rows,
            "rows_from_stored_ids": self.from_stored_ids,
            "left_out": dict(self.left_out.most_common()),
            "notes": dict(+self.notes),
        }

    def tally(self) -> dict[str, Any]:
        """The counts, for `absorb`."""
        return tally_state(self, *self.__slots__)

    def absorb(self, state: dict[str, Any]) -> None:
        """Add the counts of another part of the input."""
        add_tally(self, state)


_COMPARED = 20  # stored rows whose ids are decoded and compared with the reply


class SftConverter:
    """Turns records into rows; `report` grows with each. tell: called as (kind, text) with what people should read.

    table: arguments of tool calls become JSON text, since all objects of a table's column have the same keys.
    choices: says which rollouts a task has room for, where the records are a part of the data.
    """

    def __init__(
        self,
        options: SftOptions,
        rendering: Rendering | None = None,
        tell: Warn = lambda kind, text: None,
        *,
        table: bool = False,
        choices: Choices | None = None,
    ) -> None:
        self.options = options
        self._elsewhere = choices if options.max_per_task is not None else None
        self.report = SftReport()
        self.rendering = rendering
        self._tell = tell
        self._table = table
        self._per_task: Counter[bytes] = Counter()
        self._make: dict[str, Callable[[Sample], Row]] = {
            "messages": self._messages,
            "prompt-completion": self._prompt_completion,
            "sharegpt": self._sharegpt,
            "text": self._text,
            "tokens": self._tokens,
        }

    def rows(self, record: Record) -> list[Row]:
        """The rows of a record."""
        self.report.records += 1
        self.report.rollouts += len(record.rollouts)
        made: list[Row] = []
        for i in self._chosen(record):
            rollout = record.rollouts[i]
            if not self._room(record):
                self.report.left_out["task_cap"] += 1
                continue
            rows = self._tried(record, rollout)
            if self._elsewhere is not None and self._elsewhere.collects:
                self._elsewhere.ask(_digest(record.task_key), b"" if rows is None else b"1")
            if rows is not None:
                self._took(record, rollout)
                made += rows
        self.report.rows += len(made)
        return made

    def _tried(self, record: Record, rollout: StoredRollout) -> list[Row] | None:
        """The rows of a rollout; None, with the reason counted, for one that cannot be used."""
        try:
            return self._rows_of(record, rollout)
        except BadMessage as error:
            self._refuse(error.reason, f"{record.where}: {error}")
        except TemplateRefused as error:
            self._refuse("template", f"{record.where}: the chat template refuses: {error}")
        return None

    def _refuse(self, reason: str, text: str) -> None:
        self.report.left_out[reason] += 1
        self.report.first.setdefault(reason, text)
        self._tell(reason, text)

    def _room(self, record: Record) -> bool:
        limit = self.options.max_per_task
        if self._elsewhere is not None:
            return self._elsewhere.collects or not self._elsewhere.ask(_digest(record.task_key))
        return limit is None or self._per_task[_digest(record.task_key)] < limit

    def _took(self, record: Record, rollout: StoredRollout) -> None:
        self.report.selected += 1
        self.report.zero_or_less += rollout.score is not None and rollout.score <= 0
        if self.options.max_per_task is not None and self._elsewhere is None:
            self._per_task[_digest(record.task_key)] += 1

    def _chosen(self, record: Record) -> list[int]:
        """Positions of the rollouts that the policy takes; the others are counted."""
        options, rollouts = self.options, record.rollouts
        scores: list[float | None] = []
        usable: list[int] = []
        by_tokens = options.form == "tokens" and not options.retokenize
        for i, rollout in enumerate(rollouts):
            reason = why_not(record, rollout, keep_truncated=options.keep_truncated, by_tokens=by_tokens)
            if reason is None and rollout.label == "rejected":
                reason = "rejected"
            scores.append(rollout.score if reason is None else None)
            if reason is None:
                usable.append(i)
            else:
                self.report.left_out[reason] += 1
        free = options.above is None and options.min_score is None
        if free and rollouts and all(scores[i] is None for i in usable) and (len(rollouts) == 1 or rollouts[0].label):
            return usable  # nothing to choose between
        if options.select == "all":
            kept = [i for i in usable if self._passes(scores[i]) or (free and scores[i] is None)]
            kept = _above_gap(kept, scores, options.min_gap)
        else:
            texts = None
            if options.select == "top" and not options.keep_duplicates:
                texts = [completion_key(rollout) for rollout in rollouts]
            passing = scores if free else [score if self._passes(score) else None for score in scores]
            kept = _above_gap(
                top_n(passing, 1 if options.select == "best" else options.top or 1, texts=texts),
                scores,
                options.min_gap,
            )
        if len(kept) < len(usable):
            self._count_rest(usable, kept, scores)
        return kept

    def _passes(self, score: float | None) -> bool:
        return passes(score, self.options.above, ">") and passes(score, self.options.min_score, ">=")

    def _count_rest(self, usable: Sequence[int], kept: Sequence[int], scores: Sequence[float | None]) -> None:
        options, reasons = self.options, self.report.left_out
        if options.above is None and options.min_score is None and None not in scores:
            reasons["not_best"] += len(usable) - len(kept)
            return
        for i in usable:
            if i not in kept:
                score = scores[i]
                reasons["unscored" if score is None else "not_best" if self._passes(score) else "score"] += 1

    def _rows_of(self, record: Record, rollout: StoredRollout) -> list[Row]:
        options = self.options
        if options.form == "tokens" and not options.retokenize and rollout.sequences and not _weighted(record, rollout):
            return self._stored(record, rollout)
        sample = prepare(record, rollout, options)
        one_each = options.split_turns or (options.form == "prompt-completion" and len(sample.trained) > 1)
        samples = each_turn(sample) if one_each else [sample]
        rows: list[Row] = []
        for one in samples:
            for part in self._fitted(one):
                row = self._make[options.form](part)
                rows.append({**row, **part.lineage, **row})  # a field of the source never replaces a column
        self.report.notes["thinking_dropped"] += sample.dropped_thinking
        return rows

    def _fitted(self, sample: Sample) -> list[Sample]:
        limit = self.options.max_tokens
        if limit is None:
            return [sample]
        rendering = self._need_rendering()
        parts = fit(sample, limit, self.options.over_length, lambda turns: rendering.count(turns, sample.tools))
        if parts != [sample]:
            self.report.notes["split" if self.options.over_length == "split" else "shortened"] += 1
        return parts

    def _need_rendering(self) -> Rendering:
        if self.rendering is None:
            raise BadMessage("no_tokens", "no token ids are stored, and no tokenizer is given")
        return self.rendering

    # One method for each form ----------------------------------------------------------------------------------

    def _note_cut(self, sample: Sample) -> None:
        self.report.notes["cut_replies"] += any(is_cut(sample.messages[i]) for i in sample.trained)

    def _messages(self, sample: Sample) -> Row:
        self._note_cut(sample)
        return {
            **shapes.messages_row(self._marked(sample), arguments_as_text=self._table),
            **shapes.tools_column(sample.tools),
        }

    def _sharegpt(self, sample: Sample) -> Row:
        self._note_cut(sample)
        return {**shapes.sharegpt_row(self._marked(sample)), **shapes.tools_column(sample.tools)}

    def _prompt_completion(self, sample: Sample) -> Row:
        if self.options.text:
            check_uncut(sample.messages[sample.trained[-1] :], "a completion of text")
            return self._need_rendering().prompt_and_completion(sample, self.report.notes)
        self._note_cut(sample)
        row = shapes.prompt_completion_row(sample.messages, arguments_as_text=self._table)
        return {**row, **shapes.tools_column(sample.tools)}

    def _text(self, sample: Sample) -> Row:
        check_uncut(sample.messages, "a row of text")
        if any(message.get("weight", 1) != 1 for message in sample.messages):
            self.report.notes["weights_lost"] += 1
        return {"text": self._need_rendering().text(sample, self.report.notes)}

    def _tokens(self, sample: Sample) -> Row:
        for i in sample.trained:
            weight = sample.messages[i].get("weight", 1)
            if weight != 1:
                raise BadMessage("weight_fraction", f"message {i} has the weight {weight:g}; a mask knows 0 and 1 only")
        ids, mask = self._need_rendering().tokens_of(sample, self.report.notes)
        return self._token_row(ids, mask)

    def _marked(self, sample: Sample) -> Sequence[Row]:
        """The messages, with weight 0 on replies that are not to be learned."""
        messages = sample.messages
        replies = sum(message["role"] == "assistant" for message in messages)
        if replies == len(sample.trained):
            if any("weight" in message for message in messages):
                self.report.notes["weighted"] += 1
            return messages
        self.report.notes["weighted"] += 1
        return [
            {**message, "weight": 0.0} if message["role"] == "assistant" and i not in sample.trained else message
            for i, message in enumerate(messages)
        ]

    def _stored(self, record: Record, rollout: StoredRollout) -> list[Row]:
        """Rows of the token ids that were stored with the rollout."""
        options = self.options
        rows = []
        sequences = rollout.sequences[-1:] if options.train_on == "last" else rollout.sequences
        for sequence in sequences:
            if sequence.mask[0]:
                raise BadMessage(
                    "no_prompt_tokens", "the first of the stored tokens is trained: those of its prompt are missing"
                )
            ids, mask = list(sequence.ids), list(sequence.mask)
            if options.train_on == "last":
                mask = _last_run(mask)
            if options.max_tokens is not None and len(ids) > options.max_tokens:
                if options.over_length != "truncate-prompt-middle":
                    raise BadMessage("too_long", f"{len(ids)} stored tokens, and the limit is {options.max_tokens}")
                ids, mask = shorten_ids(ids, mask, options.max_tokens)
                self.report.notes["shortened"] += 1
            if not any(mask):
                raise BadMessage("no_trained_token", "no stored token is trained on")
            row = self._token_row(ids, mask)
            rows.append({**row, **lineage_of(record, rollout, options.fields), **row})
        if self.report.from_stored_ids < _COMPARED:
            self._compare(rollout, rows[-1])
        self.report.from_stored_ids += len(rows)
        return rows

    def _compare(self, rollout: StoredRollout, row: Row) -> None:
        """Do stored ids say what the reply says, in the words of the tokenizer that was given?"""
        if self.rendering is not None and self.rendering.tokens is not None:
            trained = [label for label in row["labels"] if label != -100]
            if rollout.text.strip() not in self.rendering.tokens.decode(trained):
                self.report.notes["stored_ids_unlike_text"] += 1

    def _token_row(self, ids: list[int], mask: list[bool]) -> Row:
        if self.rendering is not None:
            self.rendering.check_tokens(ids, mask)
        labels = [ident if trained else -100 for ident, trained in zip(ids, mask, strict=True)]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


def keyed_cap(options: SftOptions) -> Keyed | None:
    """How the rollouts of a task are limited over all parts of the data."""
    if options.max_per_task is None:
        return None
    return Keyed("--max-per-task", "atropos_cli.datasets.choices:first_of_a_task", {"limit": options.max_per_task})


def _above_gap(order: list[int], scores: Sequence[float | None], min_gap: float) -> list[int]:
    if min_gap <= 0 or not order:
        return order
    lowest = min(score for score in scores if score is not None)
    return [i for i in order if (score := scores[i]) is not None and score - lowest > min_gap]


def _weighted(record: Record, rollout: StoredRollout) -> bool:
    """Do its messages have weights that its tokens know nothing of?"""
    return any(
        message.get("weight", 1) != 1 and (record.format != "native" or sampled(message))
        for message in rollout.messages
    )


def _last_run(mask: Sequence[bool]) -> list[bool]:
    """The mask with its last run of trained tokens only."""
    end = len(mask)
    while end and not mask[end - 1]:
        end -= 1
    begin = end
    while begin and mask[begin - 1]:
        begin -= 1
    return [begin <= i < end for i in range(len(mask))]


def _digest(task: str) -> bytes:
    return blake2b(task.encode("utf-8", "replace"), digest_size=12).digest()
