"""What conversions can be told, as the options of their commands. Converters take these models as they are."""

from __future__ import annotations

from typing import Any, Literal

from atropos_cli.config.commands import CommandOptions, option
from atropos_cli.io.thinkform import ThinkingForm

CHOICE, TEXTS, LENGTH, READING, WRITING = "Which rollouts", "Messages and templates", "Length", "Reading", "Output"

Form = Literal["messages", "prompt-completion", "sharegpt", "text", "tokens"]
OverLength = Literal["drop", "truncate-prompt-middle", "split"]
TaskForm = Literal["verl", "prompt-answer"]


class RowOptions(CommandOptions):
    """How the rows of the inputs are read."""

    group: bool = option(False, "Join rows of one rollout into groups by task, or by prompt.", panel=CHOICE)
    input_format: str = option(
        "auto",
        "Format of the rows read: native, atropos, sharegpt, messages, preference, completion, solutions, taubench, "
        "text; auto looks at each row.",
        panel=READING,
        metavar="NAME",
    )


class TemplateOptions(CommandOptions):
    """The tokenizer and the template that rendered rows are made with."""

    tokenizer: str | None = option(
        None, "Folder, smollm2, FILE.gguf, or a hub's OWNER/NAME.", panel=TEXTS, metavar="NAME"
    )
    chat_template: str | None = option(
        None, "Jinja file instead of the tokenizer's template.", panel=TEXTS, metavar="FILE"
    )
    template_args: tuple[str, ...] = option(
        (),
        "Variable for the template, as JSON or text: enable_thinking=false.",
        panel=TEXTS,
        flag="template-arg",
        metavar="NAME=VALUE",
    )

    @property
    def uses_template(self) -> bool:
        """Was any of them given?"""
        return bool(self.tokenizer or self.chat_template or self.template_args)


class TaskOptions(CommandOptions):
    """The shape of rows of problems."""

    format: TaskForm = option(
        "verl",
        "Shape of the rows: verl (data_source, prompt, ability, reward_model, extra_info), prompt-answer (for TRL's "
        "GRPO).",
        panel=WRITING,
        metavar="NAME",
    )
    data_source: str | None = option(
        None,
        "verl: what stands as data_source, which picks its reward, as in openai/gsm8k; default: the environment.",
        panel=WRITING,
        metavar="NAME",
    )


class SampleOptions(RowOptions, TemplateOptions):
    """How conversations are prepared."""

    keep_truncated: bool = option(False, "Take rollouts that were cut off or filtered, too.", panel=CHOICE)
    thinking: Literal["auto", "tags", "field", "drop", "keep"] = option(
        "auto",
        "Form of all thinking: tags (<think> in the text), field (reasoning_content), drop, keep (as stored), auto "
        "(field where a template is used that knows it, else tags).",
        panel=TEXTS,
    )
    system: Literal["keep", "fold"] = option(
        "keep", "fold: system text goes to the head of the first user message.", panel=TEXTS
    )
    fields: tuple[str, ...] = option(
        (), "Carry this field of the source along.", panel=WRITING, flag="field", metavar="NAME"
    )

    @property
    def thinking_form(self) -> ThinkingForm:
        """The form that thinking takes; tags where it was left to the template."""
        return "tags" if self.thinking == "auto" else self.thinking

    def with_template(self, *, knows_thinking: bool) -> Any:
        """The same with the form of thinking settled: "auto" is what the template knows."""
        return self.replace(thinking="field" if knows_thinking else "tags") if self.thinking == "auto" else self


class SftOptions(SampleOptions):
    """Which rollouts become rows for supervised fine-tuning, and how."""

    format: Form | None = option(
        None,
        "Shape of the rows: messages (the default), prompt-completion, sharegpt (the default of --recipe "
        "llama-factory), text, tokens.",
        panel=WRITING,
        metavar="NAME",
    )
    select: Literal["best", "top", "all"] = option(
        "best", "Of each group: the best rollout, the --top best, or all that pass.", panel=CHOICE
    )
    top: int | None = option(None, "The n best of a group (--select top).", panel=CHOICE, ge=1)
    above: float | None = option(None, "Take score > this.", panel=CHOICE)
    min_score: float | None = option(None, "Take score >= this.", panel=CHOICE)
    min_gap: float = option(0.0, "Take score > the group's worst + this.", panel=CHOICE, ge=0.0)
    max_per_task: int | None = option(None, "Rollouts of a task, over all groups.", panel=CHOICE, ge=1)
    keep_duplicates: bool = option(False, "Take identical answers of a group more than once.", panel=CHOICE)
    train_on: Literal["all", "last"] = option("all", "Which replies are trained on.", panel=TEXTS)
    split_turns: bool = option(False, "One row for each reply, with what came before it.", panel=TEXTS)
    text: bool = option(False, "prompt-completion: rendered text instead of messages.", panel=TEXTS)
    retokenize: bool = option(False, "tokens: tokenise again where token ids are stored.", panel=TEXTS)
    max_tokens: int | None = option(None, "Longest row, in tokens of the template.", panel=LENGTH, ge=8)
    over_length: OverLength = option(
        "drop",
        "For longer ones: drop, truncate-prompt-middle, split (between exchanges).",
        panel=LENGTH,
        metavar="POLICY",
    )

    @property
    def form(self) -> Form:
        """The shape of the rows."""
        return self.format or "messages"

    @property
    def rendered(self) -> bool:
        """Do the rows hold rendered text or tokens?"""
        return self.form in ("text", "tokens") or self.text


class PairOptions(SampleOptions):
    """Which rollouts are paired, and how the rows look. threshold counts for correct-wrong and the labels of KTO."""

    format: Literal["messages", "sharegpt"] | None = option(
        None,
        "Shape of the rows: messages (the default, as TRL reads them), sharegpt (the default of --recipe "
        "llama-factory).",
        panel=WRITING,
        metavar="NAME",
    )
    policy: Literal["best-worst", "all", "best-random", "correct-wrong"] = option(
        "best-worst",
        "best-worst, all (every pair with a gap), best-random, correct-wrong (each rollout once).",
        panel=CHOICE,
        metavar="NAME",
    )
    margin: float = option(0.0, "Least gap between the two scores.", panel=CHOICE, ge=0.0)
    min_chosen: float | None = option(None, "Least score of the chosen.", panel=CHOICE)
    threshold: float = option(0.5, "Score from which on a rollout is correct (correct-wrong, --kto).", panel=CHOICE)
    max_pairs: int = option(4, "Pairs of a group, drawn by the seed.", panel=CHOICE, ge=1)
    tiebreak: Literal["first", "shorter", "longer"] = option(
        "first", "Of equal best scores choose the first, the shorter or the longer.", panel=CHOICE, metavar="NAME"
    )
    same_prompt: Literal["all", "user"] = option(
        "all", "Messages that must agree in the prompts of a group.", panel=CHOICE
    )
    kto: bool = option(False, "Rows {prompt, completion, label} of single rollouts instead.", panel=CHOICE)
    seed: int = option(0, "Seed of random choices.", panel=CHOICE)
    completion: Literal["rest", "turn"] | None = option(
        None,
        "From the first differing reply on: all that follows (the default), or that reply alone (the default of "
        "--format sharegpt).",
        panel=TEXTS,
    )
    text: bool = option(False, "Text instead of messages; by the template where there is one.", panel=TEXTS)
    max_length_ratio: float | None = option(
        None, "Leave out pairs with one side longer than this.", panel=LENGTH, ge=1.0
    )
    max_tokens: int | None = option(None, "Leave out pairs with a longer side, prompt included.", panel=LENGTH, ge=8)

    @property
    def sharegpt(self) -> bool:
        """Rows as LLaMA-Factory reads them?"""
        return self.format == "sharegpt"

    @property
    def turn_only(self) -> bool:
        """Is the completion the differing reply alone?"""
        return self.completion == "turn" or (self.completion is None and self.sharegpt)
