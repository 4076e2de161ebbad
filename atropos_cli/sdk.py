"""The one module that plugin authors import.

    from atropos_cli.sdk import Environment, Message, Task, hookimpl, reward

Everything in `__all__` is public and kept stable; nothing else in the package is.
"""

from __future__ import annotations

from pydantic import Field, SecretStr

from atropos_cli.config.dotenv import from_dotenv
from atropos_cli.config.sizes import job_name, parse_memory, parse_time
from atropos_cli.domain.base import Frozen, JsonDict, clean_text
from atropos_cli.domain.finish import StopReason, cut_by, finish_in, finish_of, is_known, stop_reason_of
from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.job import Component, JobPlan, Resources, Warmup
from atropos_cli.domain.messages import FunctionCall, Message, TokenSpan, ToolCall, assistant, system, user
from atropos_cli.domain.placeholders import escape as escape_placeholders
from atropos_cli.domain.plan import ComponentRef, Plan, RewardRef, Sampling
from atropos_cli.domain.prices import Price, TokenUsage
from atropos_cli.domain.rollout import Rollout, RolloutFailure, TokenSequence, Usage, token_sequences
from atropos_cli.domain.run import RunSummary
from atropos_cli.domain.score import Score
from atropos_cli.domain.task import Task
from atropos_cli.domain.tokendata import ids_fault, is_binary, logprobs_fault
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
from atropos_cli.io.prompting import PROMPT_PARTS, whole_prompt
from atropos_cli.io.remote import is_remote, local_copy
from atropos_cli.isolation.command import bubblewrap_command, guard_file, readable_paths
from atropos_cli.isolation.spec import (
    WorkerCrashed,
    WorkerError,
    WorkerMemory,
    WorkerSpec,
    WorkerTimeout,
    accept_isolation,
    is_machine_root,
    own_user_id,
    stored_isolation,
)
from atropos_cli.isolation.worker import IsolatedWorker, shared_worker
from atropos_cli.models.gguf_cache import gguf_folder, gguf_header
from atropos_cli.models.gguf_cache import load as load_gguf
from atropos_cli.models.loading import loading_model
from atropos_cli.models.prompts import Prompts, StopText, TokenLimits, completion_of, end_ids
from atropos_cli.models.sources import ModelSource, find_model
from atropos_cli.models.threads import cpu_count, wait_passively
from atropos_cli.paths import home, only_here
from atropos_cli.plugins.backends import make_backend
from atropos_cli.plugins.hookspecs import hookimpl
from atropos_cli.plugins.spec import ComponentSpec
from atropos_cli.ports.analyzer import AnalysisTable, AnalyzedGroup, AnalyzedRollout, Analyzer
from atropos_cli.ports.backend import Capabilities, Completion, GenerateRequest, Generation, InferenceBackend
from atropos_cli.ports.environment import Config, Environment, Episode, GroupContext, SingleTurn, TaskStream
from atropos_cli.ports.launcher import (
    JobSpec,
    JobState,
    JobStatus,
    Launcher,
    LauncherCapabilities,
    LauncherCommands,
)
from atropos_cli.ports.reward import Reward, group_reward, reward
from atropos_cli.ports.tracker import SAMPLE_COLUMNS, TrackedRun, Tracker
from atropos_cli.ports.trainer import TrainContext, Trainer, TrainResult
from atropos_cli.ports.writer import Writer
from atropos_cli.redaction import learn as learn_secret
from atropos_cli.redaction import learn_url as learn_url_secret
from atropos_cli.redaction import looks_secret, names_a_secret, redacted, redacted_bytes
from atropos_cli.resources import slurm_templates
from atropos_cli.stats.charts import Chart, Line, histogram
from atropos_cli.stats.streaming import Correlation, Moments, Series
from atropos_cli.streams import data_stream
from atropos_cli.text.overflow import too_much
from atropos_cli.text.thinking import split_thinking, thought_text
from atropos_cli.text.toolcalls import ParsedCall, ToolFormat, ToolParse, parse_tool_calls
from atropos_cli.text.words import normal_text, word_grams, words
from atropos_cli.timelimit import OverTime, time_limit

__all__ = [
    "PROMPT_PARTS",
    "SAMPLE_COLUMNS",
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
    "LauncherCapabilities",
    "LauncherCommands",
    "Line",
    "Message",
    "ModelSource",
    "Moments",
    "OverTime",
    "ParsedCall",
    "Plan",
    "PluginError",
    "Price",
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
    "StopReason",
    "StopText",
    "Task",
    "TaskStream",
    "TokenLimits",
    "TokenSequence",
    "TokenSpan",
    "TokenUsage",
    "ToolCall",
    "ToolFormat",
    "ToolParse",
    "TrackedRun",
    "Tracker",
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
    "accept_isolation",
    "assistant",
    "bubblewrap_command",
    "clean_text",
    "completion_of",
    "cpu_count",
    "cut_by",
    "data_stream",
    "encode_group",
    "end_ids",
    "escape_placeholders",
    "find_model",
    "finish_in",
    "finish_of",
    "from_dotenv",
    "gguf_folder",
    "gguf_header",
    "group_reward",
    "guard_file",
    "histogram",
    "home",
    "hookimpl",
    "ids_fault",
    "is_binary",
    "is_known",
    "is_machine_root",
    "is_remote",
    "job_name",
    "learn_secret",
    "learn_url_secret",
    "load_gguf",
    "loading_model",
    "local_copy",
    "logprobs_fault",
    "looks_secret",
    "make_backend",
    "names_a_secret",
    "normal_text",
    "only_here",
    "own_user_id",
    "parse_memory",
    "parse_time",
    "parse_tool_calls",
    "readable_paths",
    "redacted",
    "redacted_bytes",
    "reward",
    "shared_worker",
    "slurm_templates",
    "split_thinking",
    "stop_reason_of",
    "stored_isolation",
    "system",
    "thought_text",
    "time_limit",
    "token_sequences",
    "too_much",
    "user",
    "wait_passively",
    "whole_prompt",
    "word_grams",
    "words",
]
