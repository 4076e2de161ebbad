"""Make the TRL trainer of a method: its config from ours, its data, its class with our mixins."""

from __future__ import annotations

import math
from typing import Any

from atropos_cli.sdk import ConfigError, DataError, JsonDict
from atropos_cli.sdk.training import Demonstrations, demonstrations

from .checks import check_constant
from .common.lora import lora_config
from .common.models import as_ids
from .grpo import GrpoMixin, Live, environment, everywhere
from .job import Job
from .labelled import labelled
from .loop import bring_in
from .options import completion_limit, temperature
from .preferences import preferences

WAIT_SECONDS = 24 * 3600
"""How long a process waits for another: for slow rollouts, or for rank 0's evaluation."""


def common_arguments(job: Job, steps: int) -> dict[str, Any]:
    """Arguments of every TRL config. `extra` comes last: its names are checked not to be ours."""
    config, plan = job.config, job.plan
    return {
        "output_dir": str(job.context.folder / "checkpoints"),
        "max_steps": steps,
        "per_device_train_batch_size": job.sizes.micro,
        "gradient_accumulation_steps": job.sizes.accumulation,
        "learning_rate": job.resolved.learning_rate,
        "lr_scheduler_type": job.resolved.lr_scheduler_type,
        "warmup_steps": config.warmup_steps,
        "weight_decay": config.weight_decay,
        "max_grad_norm": config.max_grad_norm,
        "gradient_checkpointing": job.checkpointing
        if config.gradient_checkpointing is None
        else config.gradient_checkpointing,
        "use_cpu": job.device.type == "cpu",
        "bf16": job.precision == "bf16",
        "seed": plan.seed,
        "logging_strategy": "steps",
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "ddp_timeout": WAIT_SECONDS,
        "ddp_find_unused_parameters": False,
        **config.extra,
    }


def make_config(cls: Any, arguments: dict[str, Any]) -> Any:
    """TRL's config. Raises ConfigError with TRL's own words for what it refuses."""
    try:
        return cls(**arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"TRL refuses the options: {str(error).splitlines()[0]}", hint="see --extra") from error


def build_grpo(job: Job) -> Any:
    """GRPO on live groups, or on the prompts of --data."""
    from trl import GRPOConfig, GRPOTrainer

    config, plan, resolved = job.config, job.plan, job.resolved
    live = plan.rollouts is not None
    rows = None if live else prompt_rows(job)
    steps = grpo_steps(job, None if rows is None else len(rows))
    if rows is not None and resolved.same_batch:
        rows = rows[: job.sizes.prompts]
    arguments = common_arguments(job, steps) | {
        "num_generations": job.sizes.generations,
        "max_completion_length": completion_limit(config, plan),
        "temperature": temperature(config, plan),
        "beta": resolved.beta,
        "epsilon": resolved.epsilon,
        "epsilon_high": resolved.epsilon_high,
        "num_iterations": config.num_iterations,
        "loss_type": resolved.rule.loss_type,
        "scale_rewards": resolved.rule.scale_rewards,
        "importance_sampling_level": resolved.rule.level,
        "mask_truncated_completions": config.mask_truncated and not live,
        "shuffle_dataset": not live,
    }
    args = make_config(GRPOConfig, arguments)
    parts: dict[str, Any]
    if rows is None:
        names = ("mask_truncated", "max_prompt_tokens", "num_iterations", "allow_constant_reward", "behaviour_logprobs")
        source = Live(
            job.hooks,
            job.sizes,
            resolved,
            filler=job.tokenizer.eos_token_id,
            options={**{name: getattr(config, name) for name in names}, "vocabulary": job.vocabulary},
        )
        places: list[JsonDict] = [{"prompt": str(number)} for number in range(job.sizes.prompts)]
        parts = {"reward_funcs": environment, "rollout_func": source, "train_dataset": dataset(places)}
    else:
        source = None
        numbered: list[JsonDict] = [{"prompt": row["prompt"], "row": number} for number, row in enumerate(rows)]
        parts = {"reward_funcs": Scored(job, rows), "train_dataset": dataset(numbered)}
    trainer = bring_in(GRPOTrainer, GrpoMixin)(
        model=job.model, args=args, processing_class=job.tokenizer, peft_config=job.peft, **parts
    )
    trainer.live, trainer.resolved, trainer.behaviour = source, resolved, config.behaviour_logprobs
    if resolved.rule.leave_one_out:
        trainer.beta = 0.0  # the KL is in the reward, not in the loss; the reference model stays
    if source is None:
        parts["reward_funcs"].trainer = trainer
    job.hooks.extra_state = lambda made: made.save_generation()
    return trainer


class Scored:
    """TRL's reward function for --data: the run's rewards, by the engine."""

    __name__ = "rewards"

    def __init__(self, job: Job, rows: list[JsonDict]) -> None:
        self._job = job
        self._rows = rows
        self._checked = job.hooks.begun > 0
        self.trainer: Any = None

    def __call__(self, completions: list[Any], row: list[int], **columns: Any) -> list[float | None]:
        texts = [text if isinstance(text, str) else str(text[-1]["content"]) for text in completions]
        rows = [self._rows[number] for number in row]
        values = self._job.context.rewards(rows, texts)
        shown = [
            {"prompt": str(one["prompt"]), "completion": text, "expected": one.get("answer"), "reward": value}
            for one, text, value in list(zip(rows, texts, values, strict=True))[:: max(1, len(rows) // 4)]
        ]
        self._job.context.samples(self.trainer.state.global_step + 1, shown)  # the step that learns from them
        if not self._checked:
            self._check_first(values)
        self._checked = True
        self.trainer._last_rewards = list(values)
        return values

    def _check_first(self, values: list[float | None]) -> None:
        first = everywhere(values, self.trainer.accelerator)
        known = [value for value in first if value is not None]
        allowed = self._job.config.allow_constant_reward
        if not known and not allowed:
            names = ", ".join(reward.name for reward in self._job.plan.rewards)
            raise ConfigError(
                f"none of the {len(first)} completions of the first batch could be scored: --reward {names} fails",
                hint="compare what it needs with the data's columns; the completions are in samples.jsonl",
            )
        check_constant(known, len(first), 0, allowed=allowed)


def prompt_rows(job: Job) -> list[JsonDict]:
    """The rows of --data whose prompts are short enough. Raises DataError when too few are left."""
    limit, tokenizer = job.config.max_prompt_tokens, job.tokenizer
    if limit is None and job.length is not None:
        limit = job.length - completion_limit(job.config, job.plan)
    kept, long = [], 0
    for row in job.context.rows():
        prompt: Any = row["prompt"]
        if isinstance(prompt, str):
            length = len(tokenizer(prompt)["input_ids"])
        elif tokenizer.chat_template is None:
            raise ConfigError(
                "prompts are lists of messages, but the model has no chat template",
                hint="give prompts as text, or a model with a chat template",
            )
        else:
            text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
            length = len(tokenizer(text, add_special_tokens=False)["input_ids"])
        if limit is None or length <= limit:
            kept.append(row)
        else:
            long += 1
    if long:
        job.context.warn(f"{long} rows left out: their prompts have more than {limit} tokens")
    if len(kept) < job.sizes.prompts:
        raise DataError(
            f"{len(kept)} prompts are not enough for one step of {job.sizes.prompts}",
            hint="give more data, or a smaller --prompts-per-step",
        )
    return kept


def grpo_steps(job: Job, prompts: int | None) -> int:
    """--steps, or what one pass over the tasks makes."""
    if job.plan.steps is not None:
        return job.plan.steps
    available = prompts if prompts is not None else job.context.tasks
    if available is None:
        raise ConfigError("the environment has no last task: say how long to train", hint="--steps 100")
    if available < job.sizes.prompts:
        raise ConfigError(
            f"{available} tasks are not enough for one step of {job.sizes.prompts}",
            hint=f"--prompts-per-step {available}, or --steps to go over them several times",
        )
    return available * job.plan.epochs // job.sizes.prompts * job.config.num_iterations


def build_sft(job: Job) -> Any:
    """SFT on rows whose ids and labels are made here."""
    from trl import SFTConfig, SFTTrainer

    limit = job.config.max_length or job.length
    ends = frozenset(as_ids(job.model.generation_config.eos_token_id))
    rows = job.context.rows()
    found = demonstrations(rows, job.tokenizer, max_length=limit, vocabulary=job.vocabulary, ends=ends)
    if found.too_long or found.untrained:
        job.context.warn(
            f"{found.too_long} rows left out as longer than {limit} tokens, {found.untrained} without a trained token"
        )
    mark = learnt_end(found, job.tokenizer)
    if mark is not None:
        job.model.generation_config.eos_token_id = [*(ends or {job.tokenizer.eos_token_id}), mark]
        job.context.warn(
            f"all rows end with {job.tokenizer.convert_ids_to_tokens(mark)!r}, and the model does not stop there yet: "
            "it is added to generation_config.json, so that the trained model does"
        )
    elif found.open_ended:
        job.context.warn(
            f"{found.open_ended} of {len(found.rows)} rows do not end their trained part with the end token "
            f"{job.tokenizer.eos_token!r}: the model may not learn to stop"
        )
    arguments = common_arguments(job, data_steps(job, len(found.rows))) | {"max_length": None}
    trainer = bring_in(SFTTrainer)(
        model=job.model,
        args=make_config(SFTConfig, arguments),
        processing_class=job.tokenizer,
        peft_config=job.peft,
        train_dataset=dataset(found.rows),
    )
    return trainer


def learnt_end(found: Demonstrations, tokenizer: Any) -> int | None:
    """The special token with which all rows end, where the model does not stop at it yet."""
    if found.open_ended < len(found.rows) or len(found.last) != 1:
        return None
    (mark,) = found.last
    known = tokenizer.added_tokens_decoder.get(mark)
    return mark if known is not None and known.special else None


def build_dpo(job: Job) -> Any:
    """DPO on checked pairs; the reference is the model as it was (LoRA: without its adapter)."""
    from trl import DPOConfig, DPOTrainer

    return _of_rows(job, checked_pairs(job), DPOTrainer, DPOConfig, {"max_length": None, "beta": job.resolved.beta})


def checked_pairs(job: Job) -> list[JsonDict]:
    """The pairs of --data that can be trained on."""
    limit = job.config.max_length or job.length
    found = preferences(job.context.rows(), job.tokenizer, max_length=limit)
    if found.identical or found.too_long or found.cut:
        job.context.warn(
            f"{found.identical} pairs left out as identical, {found.too_long} as longer than {limit} tokens, "
            f"{found.cut} as cut off"
        )
    return found.rows


def build_kto(job: Job) -> Any:
    """KTO on checked completions; the reference is the model as it was (LoRA: without its adapter)."""
    from trl import KTOConfig, KTOTrainer

    limit = job.config.max_length or job.length
    found = labelled(job.context.rows(), job.tokenizer, max_length=limit)
    if found.too_long or found.cut:
        job.context.warn(f"{found.too_long} rows left out as longer than {limit} tokens, {found.cut} as cut off")
    return _of_rows(job, found.rows, KTOTrainer, KTOConfig, {"max_length": None, "beta": job.resolved.beta})


def build_reward(job: Job) -> Any:
    """A reward model on checked pairs: the chosen text shall have the larger number (Bradley and Terry)."""
    from trl import RewardConfig, RewardTrainer

    return _of_rows(job, checked_pairs(job), RewardTrainer, RewardConfig, {"max_length": None})


def _of_rows(job: Job, rows: list[JsonDict], trainer: Any, config: Any, options: dict[str, Any]) -> Any:
    """TRL's trainer of a method that learns from rows, with the options of that method."""
    arguments = common_arguments(job, data_steps(job, len(rows))) | options
    return bring_in(trainer)(
        model=job.model,
        args=make_config(config, arguments),
        processing_class=job.tokenizer,
        peft_config=job.peft,
        train_dataset=dataset(rows),
    )


def data_steps(job: Job, rows: int) -> int:
    """--steps, or one pass. Raises DataError where TRL would end at once and call it a success."""
    if rows < job.sizes.rows:
        raise DataError(
            f"{rows} rows are fewer than one step's {job.sizes.rows}",
            hint=f"--prompts-per-step {rows}, or more data",
        )
    return job.plan.steps or math.ceil(rows * job.plan.epochs / job.sizes.rows)


def dataset(rows: list[Any]) -> Any:
    """A datasets.Dataset, without progress bars."""
    import datasets

    datasets.disable_progress_bars()
    return datasets.Dataset.from_list(rows)


def make_peft(job: Job) -> Any:
    """The LoRA configuration, or None."""
    config = job.config
    if config.lora_r is None:
        return None
    return lora_config(
        r=config.lora_r,
        alpha=config.lora_alpha,
        dropout=config.lora_dropout,
        target_modules=config.lora_target_modules,
        model=job.model,
    )
