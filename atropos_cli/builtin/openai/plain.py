"""What headers and extra_body may contain as plain text. All else comes from an environment variable, as ${NAME}.

The lists say what is plain, not what is secret: an unknown header or field may be a key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from atropos_cli.sdk import ConfigError, JsonDict
from atropos_cli.sdk.secrets import learn_secret, looks_secret, names_a_secret

VARIABLE = re.compile(r"\$\{(\w+)\}")

_PLAIN_HEADERS_TEXT = """
accept accept-charset accept-language anthropic-beta anthropic-version api-version baggage cache-control expect from
host http-referer openai-beta openai-organization openai-project origin pragma prefer priority referer te
traceparent tracestate user-agent via x-api-version x-app-name x-application-name x-client-name x-client-version
x-correlation-id x-forwarded-for x-forwarded-host x-forwarded-proto x-model x-model-id x-openrouter-title x-priority
x-provider x-region x-request-id x-request-priority x-request-timeout x-title x-trace-id x-vllm-priority
"""
_PLAIN_HEADERS = frozenset(_PLAIN_HEADERS_TEXT.split())
_PLAIN_FIELDS_TEXT = """
add_generation_prompt add_special_tokens allowed_token_ids audio bad_words best_of cache_prompt cache_salt
chat_template chat_template_kwargs continue_final_message custom_logit_processor data_parallel_rank detokenize
documents dry_sequence_breakers early_stopping ebnf echo enable_thinking format frequency_penalty function_call
functions grammar guidance_scale guided_backend guided_choice guided_decoding_backend guided_grammar guided_json
guided_regex guided_whitespace_pattern ignore_eos include include_reasoning include_stop_str_in_output json_schema
keep_alive language logit_bias logits_processors logprobs lora lora_path max_completion_tokens max_tokens min_p
min_tokens mirostat mm_processor_kwargs modalities model models no_stop_trim options parallel_tool_calls plugins
prediction presence_penalty priority prompt_logprobs provider quantization reasoning reasoning_effort
reasoning_format regex repetition_penalty response_format return_token_ids return_tokens_as_token_ids rid route
safe_prompt samplers sampling_params seed separate_reasoning service_tier skip_special_tokens
spaces_between_special_tokens stop stop_regex stop_token_ids store stream_options stream_reasoning structural_tag
structured_outputs suffix temperature template text thinking thinking_budget tokenizer tool_choice tools top_a top_k
top_logprobs top_p transforms truncate truncate_prompt_tokens truncation typical_p use_beam_search verbosity
web_search_options
"""
_PLAIN_FIELDS = frozenset(_PLAIN_FIELDS_TEXT.split())
# What may stand beside the variable in a header that is not plain: the words of a scheme.
_SCHEME = re.compile(r"[\s:;,=\"]*(?:[A-Za-z][A-Za-z_-]{0,11}(?:[\s:;,=\"]+|$))*")


def check_header(name: str, text: str) -> None:
    """Raises ConfigError for a header that may hold a secret and does not take it from a variable."""
    rest = VARIABLE.sub("", text)
    if name.lower() in _PLAIN_HEADERS:
        held = looks_secret(rest)
    else:
        held = not _SCHEME.fullmatch(rest) or not VARIABLE.search(text)
    if held:
        learn_secret(rest)
        raise ConfigError(
            f"header {name!r} holds a secret in the configuration, or what may be one",
            hint=f"put it into an environment variable and write {name} = '${{NAME}}'",
        )


def check_body(body: JsonDict) -> None:
    """Raises ConfigError for a request field that may hold a secret and does not take it from a variable."""
    for field, value in body.items():
        for key, text in _texts(value, field):
            rest = VARIABLE.sub("", text)
            plain = field in _PLAIN_FIELDS and not names_a_secret(key) and not looks_secret(rest)
            if rest and not plain:
                learn_secret(rest)
                where = repr(field) if key == field else f"{key!r} in {field!r}"
                raise ConfigError(
                    f"extra_body: {where} holds text that may be a secret",
                    hint=f'put it into an environment variable and write "{key}": "${{NAME}}"',
                )


def fill_header(name: str, text: str) -> str:
    """A header's value with its variables. Raises ConfigError for one that is not set."""
    return VARIABLE.sub(_value(f"header {name!r}"), text)


def fill_body(body: JsonDict) -> JsonDict:
    """The request fields with their variables. Raises ConfigError for one that is not set."""
    return {field: _filled(value, _value(f"extra_body: {field!r}")) for field, value in body.items()}


def _filled(value: Any, fill: Callable[[re.Match[str]], str]) -> Any:
    if isinstance(value, str):
        return VARIABLE.sub(fill, value)
    if isinstance(value, Mapping):
        return {key: _filled(item, fill) for key, item in value.items()}
    return [_filled(item, fill) for item in value] if isinstance(value, list) else value


def _value(where: str) -> Callable[[re.Match[str]], str]:
    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match.group(1))
        if found is None:
            raise ConfigError(
                f"{where} needs the environment variable {match.group(1)}", hint=f"export {match.group(1)}=..."
            )
        learn_secret(found)
        return found.strip()

    return value


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Every text in a value, with its key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, key)
