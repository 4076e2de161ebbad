"""The one module that plugin authors import.

    from atropos_cli.sdk import Environment, Message, Task, hookimpl, reward

Everything in `__all__` is public and kept stable; nothing else in the package is.
"""

from __future__ import annotations

from pydantic import Field, SecretStr

from atropos_cli.domain.base import Frozen, JsonDict, clean_text
from atropos_cli.domain.charts import Chart, Line, histogram
from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.job import Component, JobPlan, Resources, Warmup
from atropos_cli.domain.messages import FunctionCall, Message, TokenSpan, ToolCall, assistant, system, user
from atropos_cli.domain.placeholders import escape as escape_placeholders
from atropos_cli.domain.plan import ComponentRef, Plan, RewardRef, Sampling
from atropos_cli.domain.rollout import Rollout, RolloutFailure, TokenSequence, Usage, token_sequences
from atropos_cli.domain.run import RunSummary
from atropos_cli.domain.score import Score
from atropos_cli.domain.streaming import Correlation, Moments, Series
from atropos_cli.domain.task import Task
from atropos_cli.domain.thinking import split_thinking
from atropos_cli.domain.timelimit import OverTime, time_limit
from atropos_cli.domain.toolcalls import ParsedCall, ToolFormat, ToolParse, parse_tool_calls
from atropos_cli.domain.training import EvalSuite, TrainPlan
from atropos_cli.errors import (
    AtroposError,
    BackendError,
    ConfigError,
    ContextOverflow,
    DataError,
    ExitCode,
    FatalBackendError,
    LaunchError,
    PluginError,
    RateLimited,
    RequestRejected,
    ServerUnavailable,
    TrainerError,
    TransientBackendError,
    UsageError,
)
from atropos_cli.io.groupfile import GroupFile, ZstGroupFile, encode_group
from atropos_cli.isolation.command import bubblewrap_command, readable_paths
from atropos_cli.isolation.worker import (
    IsolatedWorker,
    WorkerCrashed,
    WorkerError,
    WorkerMemory,
    WorkerSpec,
    WorkerTimeout,
    shared_worker,
)
from atropos_cli.models.gguf_cache import gguf_folder, gguf_header
from atropos_cli.models.gguf_cache import load as load_gguf
from atropos_cli.models.loading import loading_model
from atropos_cli.models.prompts import Prompts, StopText, TokenLimits, completion_of, end_ids
from atropos_cli.models.sources import ModelSource, find_model
from atropos_cli.models.threads import cpu_count, wait_passively
from atropos_cli.plugins.backends import make_backend
from atropos_cli.plugins.hookspecs import hookimpl
from atropos_cli.plugins.spec import ComponentSpec
from atropos_cli.ports.analyzer import AnalysisTable, AnalyzedGroup, AnalyzedRollout, Analyzer
from atropos_cli.ports.backend import Capabilities, Completion, GenerateRequest, Generation, InferenceBackend
from atropos_cli.ports.environment import Config, Environment, Episode, GroupContext, SingleTurn, TaskStream
from atropos_cli.ports.launcher import JobSpec, JobState, JobStatus, Launcher
from atropos_cli.ports.reward import Reward, group_reward, reward
from atropos_cli.ports.trainer import TrainContext, Trainer, TrainResult
from atropos_cli.ports.writer import Writer
from atropos_cli.resources import slurm_templates

__all__ = [
    "AnalysisTable",
    "AnalyzedGroup",
    "AnalyzedRollout",
    "Analyzer",
    "AtroposError",
    "BackendError",
    "Capabilities",
    "Chart",
    "Completion",
    "Component",
    "ComponentRef",
    "ComponentSpec",
    "Config",
    "ConfigError",
    "ContextOverflow",
    "Correlation",
    "DataError",
    "Environment",
    "Episode",
    "EvalSuite",
    "ExitCode",
    "FatalBackendError",
    "Field",
    "Frozen",
    "FunctionCall",
    "GenerateRequest",
    "Generation",
    "GroupContext",
    "GroupFile",
    "InferenceBackend",
    "IsolatedWorker",
    "JobPlan",
    "JobSpec",
    "JobState",
    "JobStatus",
    "JsonDict",
    "LaunchError",
    "Launcher",
    "Line",
    "Message",
    "ModelSource",
    "Moments",
    "OverTime",
    "ParsedCall",
    "Plan",
    "PluginError",
    "Prompts",
    "RateLimited",
    "RequestRejected",
    "Resources",
    "Reward",
    "RewardRef",
    "Rollout",
    "RolloutFailure",
    "RunSummary",
    "Sampling",
    "Score",
    "ScoredGroup",
    "SecretStr",
    "Series",
    "ServerUnavailable",
    "SingleTurn",
    "StopText",
    "Task",
    "TaskStream",
    "TokenLimits",
    "TokenSequence",
    "TokenSpan",
    "ToolCall",
    "ToolFormat",
    "ToolParse",
    "TrainContext",
    "TrainPlan",
    "TrainResult",
    "Trainer",
    "TrainerError",
    "TransientBackendError",
    "Usage",
    "UsageError",
    "Warmup",
    "WorkerCrashed",
    "WorkerError",
    "WorkerMemory",
    "WorkerSpec",
    "WorkerTimeout",
    "Writer",
    "ZstGroupFile",
    "assistant",
    "bubblewrap_command",
    "clean_text",
    "completion_of",
    "cpu_count",
    "encode_group",
    "end_ids",
    "escape_placeholders",
    "find_model",
    "gguf_folder",
    "gguf_header",
    "group_reward",
    "histogram",
    "hookimpl",
    "load_gguf",
    "loading_model",
    "make_backend",
    "parse_tool_calls",
    "readable_paths",
    "reward",
    "shared_worker",
    "slurm_templates",
    "split_thinking",
    "system",
    "time_limit",
    "token_sequences",
    "user",
    "wait_passively",
]
