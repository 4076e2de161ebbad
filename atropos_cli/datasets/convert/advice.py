"""What people should know about the rows that came out: one sentence for each finding."""

from __future__ import annotations

from collections import Counter

from atropos_cli.datasets.convert.dpo import PairReport
from atropos_cli.datasets.convert.rendering import Rendering
from atropos_cli.datasets.convert.sft import SftReport
from atropos_cli.datasets.convert.spec import PairOptions, SftOptions

_NOTES: dict[str, tuple[str, str | None]] = {
    "thinking_dropped": (
        "thinking is left out of {n} of {rows} rows",
        "--thinking tags keeps it in the text; --split-turns makes one row of each turn, with its thinking",
    ),
    "tools_not_rendered": ("the chat template writes no tool into {n} of {rows} rows that have tools", None),
    "special_token_in_text": ("{n} rows hold the text of a special token inside a message", None),
    "begins_inside_a_token": (
        "in {n} rows a reply begins inside a token: the prompt's tokens are not quite what a server would send",
        None,
    ),
    "turn_without_prompt": (
        "in {n} rows earlier turns are not trained: their prompts are not how these rows begin",
        "--split-turns makes one row of each turn",
    ),
    "turn_without_end": (
        "in {n} rows a trained turn has no end-of-turn token: a model does not learn there to stop",
        None,
    ),
    "stored_ids_unlike_text": (
        "the stored token ids of {n} of the first rows are not the replies by this tokenizer",
        "give the tokenizer of the model that made them, or --retokenize",
    ),
    "cut_replies": (
        "{n} rows hold a reply that was cut off: by its finish_reason `train sft` teaches no end token, others may",
        "--format tokens says it in the labels",
    ),
    "weights_lost": ("{n} rows have weights on messages, which text cannot carry", "--format tokens honours them"),
    "weighted": ("{n} rows mark messages with weight 0 or a fraction: the trainer must honour `weight`", None),
}


def advice(report: SftReport, options: SftOptions, rendering: Rendering | None) -> list[tuple[str, str | None]]:
    """(finding, hint) for everything worth a warning."""
    found = [
        (text.format(n=report.notes[note], rows=report.rows), hint)
        for note, (text, hint) in _NOTES.items()
        if report.notes[note]
    ]
    no_threshold = options.above is None and options.min_score is None
    if report.zero_or_less and no_threshold:
        found.append(
            (
                f"{report.zero_or_less} of {report.selected} rollouts taken have a score of 0 or less",
                "--above 0 leaves them out",
            )
        )
    if rendering is not None and rendering.doubled_bos:
        found.append((f"{rendering.doubled_bos} rows began with two BOS tokens: one was taken away", None))
    if (
        rendering is not None
        and rendering.tokens is not None
        and rendering.rows > 0
        and rendering.ended < rendering.rows
    ):
        missing = rendering.rows - rendering.ended
        found.append((f"in {missing} of {rendering.rows} rows the last trained token is not an end token", None))
    return found


def why_nothing(report: SftReport) -> tuple[str, str | None]:
    """(why no row came out, hint)."""
    if not report.left_out:
        return "no row came out: the records hold no rollouts", None
    reason, count = report.left_out.most_common(1)[0]
    text = f"no row came out of {report.rollouts} rollouts; most were left out as {reason} ({count})"
    example = report.first.get(reason)
    return (f"{text}\n{example}" if example else text), _HINTS.get(reason.partition(":")[0])


_HINTS = {
    "template": "--system fold takes the system message out of the template's sight; --chat-template FILE replaces it",
    "unscored": "--select all takes rollouts without a score; atropos score gives them one",
    "score": "loosen --above or --min-score",
    "truncated": "--keep-truncated takes rollouts that were cut off",
    "no_prompt_tokens": "--retokenize --tokenizer NAME makes tokens of the messages instead",
    "cut_end_mark": "--format tokens leaves the end mark untrained; --keep-truncated is what takes such replies",
    "no_messages": "--format tokens takes rows that hold tokens without messages, as they are",
    "no_tokens": "--tokenizer NAME makes tokens of the messages",
    "text_lost": "give a chat template that writes such messages with --chat-template FILE",
    "prompt_not_prefix": "give a chat template whose generation prompt is how its replies begin",
    "too_long": "raise --max-tokens, or use --over-length truncate-prompt-middle or split",
    "weight_zero": "rows whose replies all have weight 0 hold nothing to train on",
}


def pair_advice(report: PairReport, options: PairOptions, warn_longer: float) -> list[tuple[str, str | None]]:
    """(what was found, hint) for everything worth a warning."""
    found: list[tuple[str, str | None]] = []
    share = report.longer_share
    if share is not None and share > warn_longer and report.rows >= _ENOUGH:
        found.append(
            (
                f"the chosen side is the longer one in {100 * share:.0f} % of the pairs: a model learns that",
                "--max-length-ratio 2 leaves out pairs of very different length",
            )
        )
    if report.of_several_messages and not options.turn_only:
        found.append(
            (
                f"{report.of_several_messages} pairs hold messages of the user or tools on a side: TRL trains on them",
                "--completion turn takes the first differing reply alone",
            )
        )
    if report.labels and len(report.labels) == 1:
        found.append((f"all labels are {str(next(iter(report.labels))).lower()}", "see --threshold"))
    if options.same_prompt == "user" and report.rows and not options.kto:
        found.append(("only the user's messages of prompts were compared: the prompt is the chosen side's", None))
    return found


_ENOUGH = 10  # pairs, before a share of them says anything


def why_no_pairs(report: PairReport, options: PairOptions) -> tuple[str, str | None]:
    """(why no row came out, hint)."""
    groups = report.left_out_groups
    if report.groups and groups["one_rollout"] == report.groups:
        noun = "group" if report.groups == 1 else "groups"
        return (
            f"{report.groups} {noun}, all with one completion: there is nothing to pair",
            "sample more rollouts a task (atropos gen --group-size 8), or join rows of one task with --group",
        )
    every = Counter({**groups, **report.left_out_pairs} if groups else report.left_out_pairs) + Counter()
    if options.kto or not every:
        every = report.left_out_rollouts + report.left_out_pairs
    if not every:
        return f"no row came out of {report.groups} groups", None
    reason, count = every.most_common(1)[0]
    what = "row" if options.kto else "pair"
    text = f"no {what} came out of {report.groups} groups; most were left out as {reason} ({count})"
    example = report.first.get(reason)
    if reason == "one_usable_rollout" and report.left_out_rollouts:
        reason = report.left_out_rollouts.most_common(1)[0][0]
        text += f", their rollouts as {reason}"
    return (f"{text}\n{example}" if example else text), _PAIR_HINTS.get(reason.partition(":")[0])


_PAIR_HINTS = {
    **_HINTS,
    "no_messages": "a pair is made of messages, and these rows hold tokens only; sft-gen --format tokens takes them",
    "tie": "a pair needs two scores that differ; atropos score may separate more rollouts",
    "margin": "lower --margin",
    "prompts_differ": "rollouts of a group answer different prompts; --same-prompt user compares user messages only",
    "unscored": "atropos score gives rollouts a score",
    "needs_template": "give --tokenizer, or leave out --text",
    "environment_differs": "the rollouts part where the environment answers, so they share no prompt",
    "length_ratio": "raise --max-length-ratio",
}
