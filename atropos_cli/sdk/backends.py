"""Backends: what an inference backend implements, and the errors it raises."""

from __future__ import annotations

from atropos_cli.config.dotenv import from_dotenv
from atropos_cli.domain.finish import finish_of, is_known
from atropos_cli.domain.plan import Sampling
from atropos_cli.domain.prices import Price, TokenUsage
from atropos_cli.domain.tokendata import ids_fault, logprobs_fault
from atropos_cli.errors import (
    BackendError,
    ContextOverflow,
    FatalBackendError,
    RateLimited,
    RequestRejected,
    ServerUnavailable,
    TransientBackendError,
)
from atropos_cli.network import key_variable, place_of, proxy_for, tls_context
from atropos_cli.plugins.backends import make_backend
from atropos_cli.ports.asking import role_models
from atropos_cli.ports.backend import Capabilities, Completion, GenerateRequest, Generation, InferenceBackend
from atropos_cli.text.bytetokens import encode_prompt, encode_reply, token_logprobs
from atropos_cli.text.overflow import too_much

__all__ = [
    "BackendError",
    "Capabilities",
    "Completion",
    "ContextOverflow",
    "FatalBackendError",
    "GenerateRequest",
    "Generation",
    "InferenceBackend",
    "Price",
    "RateLimited",
    "RequestRejected",
    "Sampling",
    "ServerUnavailable",
    "TokenUsage",
    "TransientBackendError",
    "encode_prompt",
    "encode_reply",
    "finish_of",
    "from_dotenv",
    "ids_fault",
    "is_known",
    "key_variable",
    "logprobs_fault",
    "make_backend",
    "place_of",
    "proxy_for",
    "role_models",
    "tls_context",
    "token_logprobs",
    "too_much",
]
