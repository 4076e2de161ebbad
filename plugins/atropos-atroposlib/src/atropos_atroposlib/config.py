"""The options of the bridge itself; those of the environment's own config are added to them."""

from __future__ import annotations

from atropos_cli.sdk import Config, Field

HIDDEN = frozenset({
    "group_size", "max_num_workers", "max_num_workers_per_node", "max_eval_workers", "steps_per_eval", "eval_handling",
    "eval_limit_ratio", "inference_weight", "batch_size", "max_batches_offpolicy", "use_wandb", "rollout_server_url",
    "total_steps", "wandb_name", "num_rollouts_to_keep", "num_rollouts_per_group_for_logging", "worker_timeout",
    "ensure_scores_are_not_same", "data_path_to_save_groups", "data_dir_to_save_evals", "include_messages",
    "min_items_sent_before_logging", "min_batch_allocation",
})  # fmt: skip
"""Fields of BaseEnvConfig in whose place are options of the run."""


class BridgeConfig(Config):
    """What all environments of atroposlib have here."""

    own_sampling: bool = Field(
        default=True,
        description="Temperature, max_tokens, top_p and stop as the environment asks for them; "
        "--no-own-sampling: those of the run.",
    )
    timeout_s: float = Field(
        default=600.0, gt=0, description="Seconds an item may take without asking the model; then its process is ended."
    )
