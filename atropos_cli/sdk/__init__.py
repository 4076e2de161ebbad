"""What plugin authors import: here what environments, rewards and commands need, in modules what others need.

    from atropos_cli.sdk import Environment, Message, Task, hookimpl, reward
    from atropos_cli.sdk.backends import Capabilities, InferenceBackend

Everything in `__all__` of this package and its modules is public and kept stable; nothing else in the core is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import Field, SecretStr

from atropos_cli.domain.base import JsonDict, clean_text
from atropos_cli.domain.finish import StopReason, cut_by, stop_reason_of
from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.messages import FunctionCall, Message, TokenSpan, ToolCall, assistant, system, user
from atropos_cli.domain.methods import METHODS, Method
from atropos_cli.domain.rollout import Rollout, RolloutFailure, TokenSequence, Usage, token_sequences
from atropos_cli.domain.score import Score
from atropos_cli.domain.task import Task
from atropos_cli.errors import AtroposError, ConfigError, DataError, PluginError, Unscored, UsageError
from atropos_cli.plugins.hookspecs import hookimpl
from atropos_cli.plugins.spec import ComponentSpec
from atropos_cli.ports.environment import (
    Config,
    Environment,
    Episode,
    Game,
    GameEnvironment,
    GroupContext,
    RoleModel,
    SingleTurn,
    TaskStream,
)
from atropos_cli.ports.reward import Reward, group_reward, reward
from atropos_cli.text.thinking import split_thinking, thought_text
from atropos_cli.text.toolcalls import ParsedCall, ToolFormat, ToolParse, parse_tool_calls
from atropos_cli.text.words import normal_text, word_grams, words
from atropos_cli.timelimit import OverTime, time_limit

__all__ = [
    "METHODS",
    "AtroposError",
    "ComponentSpec",
    "Config",
    "ConfigError",
    "DataError",
    "Environment",
    "Episode",
    "Field",
    "FunctionCall",
    "Game",
    "GameEnvironment",
    "GroupContext",
    "JsonDict",
    "Message",
    "Method",
    "OverTime",
    "ParsedCall",
    "PluginError",
    "Reward",
    "RoleModel",
    "Rollout",
    "RolloutFailure",
    "Score",
    "ScoredGroup",
    "SecretStr",
    "SingleTurn",
    "StopReason",
    "Task",
    "TaskStream",
    "TokenSequence",
    "TokenSpan",
    "ToolCall",
    "ToolFormat",
    "ToolParse",
    "Unscored",
    "Usage",
    "UsageError",
    "assistant",
    "clean_text",
    "cut_by",
    "group_reward",
    "hookimpl",
    "normal_text",
    "parse_tool_calls",
    "reward",
    "split_thinking",
    "stop_reason_of",
    "system",
    "thought_text",
    "time_limit",
    "token_sequences",
    "user",
    "word_grams",
    "words",
]

_MOVED = {
    "backends": (
        "BackendError Capabilities Completion ContextOverflow FatalBackendError GenerateRequest Generation "
        "InferenceBackend Price RateLimited RequestRejected Sampling ServerUnavailable TokenUsage "
        "TransientBackendError finish_of from_dotenv ids_fault is_known logprobs_fault make_backend too_much"
    ),
    "models": (
        "ModelSource Prompts StopText TokenLimits completion_of cpu_count end_ids find_model loading_model "
        "wait_passively"
    ),
    "secrets": "learn_secret learn_url_secret looks_secret names_a_secret redacted redacted_bytes",
    "training": "EvalSuite TrainContext TrainPlan TrainResult Trainer TrainerError finish_in is_binary",
    "launchers": "Component Frozen JobPlan JobSpec JobState JobStatus LaunchError Launcher Resources Warmup only_here",
    "outputs": "GroupFile SAMPLE_COLUMNS TrackedRun Tracker Writer ZstGroupFile encode_group",
    "isolation": (
        "IsolatedWorker WorkerCrashed WorkerError WorkerMemory WorkerSpec WorkerTimeout accept_isolation "
        "guard_file shared_worker stored_isolation"
    ),
    "data": "PROMPT_PARTS home is_remote local_copy whole_prompt",
    "runs": "ComponentRef Plan RewardRef RunSummary",
    "analysis": "AnalysisTable AnalyzedGroup AnalyzedRollout Analyzer Chart Correlation Line Moments Series histogram",
    "commands": "ExitCode data_stream",
}
"""Names that were here in 0.1.0, by the module that has them now."""

if not TYPE_CHECKING:  # a type checker would take any name for one that exists

    def __getattr__(name: str) -> Any:
        """A moved name, with a warning that says where it is now."""
        for module, names in _MOVED.items():
            if name in names.split():
                import warnings

                place = f"{__name__}.{module}"
                warnings.warn(f"{__name__}.{name} is now {place}.{name}", DeprecationWarning, stacklevel=2)
                return getattr(import_module(place), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
