"""Options of the OpenAI-compatible backend, and the request headers that they mean.

Secrets are never in the options: a key is named by its environment variable, and read when the backend opens.
"""

from __future__ import annotations

import os
import re
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import field_validator

from atropos_cli.builtin.openai.plain import check_body, check_header, fill_header
from atropos_cli.sdk import Config, ConfigError, Field, JsonDict
from atropos_cli.sdk.backends import from_dotenv, key_variable
from atropos_cli.sdk.secrets import learn_secret, learn_url_secret

_HEADER_NAME = re.compile(r"[A-Za-z0-9_-]+")
_FRAMING = {"content-length", "transfer-encoding", "connection", "accept-encoding", "content-type"}
_PLACE = re.compile(r"[\w.:\[\]%-]+")
"""Host and port. Not ${HOST}: a variable that has not been filled in."""
_HEADER_VALUE = re.compile(r"[\x20-\x7e\x80-\xff]*")


class OpenAIConfig(Config):
    base_url: tuple[str, ...] = Field(
        default=("http://127.0.0.1:8000/v1",),
        description="Base URL of the server, repeated or separated by commas for several servers of one model.",
    )
    api_key_env: str | None = Field(
        default=None,
        description="Environment variable that holds the API key; default: OPENAI_API_KEY for api.openai.com "
        "and for OPENAI_BASE_URL, none for other hosts.",
    )
    endpoint: Literal["chat", "completions"] = Field(
        default="chat", description="chat: the server applies its chat template; completions: we do."
    )
    chat_template: str | None = Field(
        default=None, description="For completions: plain, chatml, or a jinja file; default: the tokenizer's, or plain."
    )
    tokenizer: str | None = Field(
        default=None, description="For completions: folder or hub id of a tokenizer; exact token ids are sent then."
    )
    send_reasoning: bool = Field(
        default=False, description="Send earlier thinking back as reasoning_content in multi-turn episodes."
    )
    choices_field: Literal["auto", "structured_outputs", "guided_choice", "regex", "grammar"] = Field(
        default="auto",
        description="Request field that holds the server to given replies: structured_outputs (vLLM), guided_choice "
        "(vLLM before 0.11), regex (SGLang), grammar (llama.cpp); auto: by the kind of server.",
    )
    extra_body: JsonDict = Field(
        default_factory=dict,
        description="More request fields, merged last; ${NAME} in a text stands for an environment variable.",
    )
    headers: dict[str, str] = Field(
        default_factory=dict, description="More request headers; ${NAME} stands for an environment variable."
    )

    @field_validator("base_url", mode="before")
    @classmethod
    def _split_urls(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [value]
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return [url for item in value for url in item.replace(",", " ").split()]
        return value

    @field_validator("base_url")
    @classmethod
    def _normal_urls(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("give at least one URL")
        return tuple(_normal_url(url) for url in value)

    @field_validator("headers")
    @classmethod
    def _no_secrets(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(text):
                raise ValueError(f"header {name!r} is not a valid HTTP header")
            if name.lower() in _FRAMING:
                raise ValueError(f"header {name!r} is set by the HTTP client itself")
            check_header(name, text)
        return value

    @field_validator("extra_body")
    @classmethod
    def _no_stream(cls, value: JsonDict) -> JsonDict:
        for name in ("stream", "n", "messages", "prompt"):
            if name in value:
                raise ValueError(f"extra_body cannot set {name!r}")
        check_body(value)
        return value


def _normal_url(url: str) -> str:
    """The URL with a scheme, a path (/v1 if there is none) and no slash at the end. Credentials are refused."""
    text = url.strip() if "://" in url else f"http://{url.strip()}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(f"{text.rpartition('@')[2]!r} is not a URL") from None
    place = _PLACE.fullmatch(parts.netloc.rpartition("@")[2]) and port != 0
    host = parts.hostname or ""
    typo = host.isdigit() or ("://" not in url and host in ("http", "https"))  # 8000, http//host
    if parts.scheme not in ("http", "https") or not host or not place or typo or re.search(r"[\s\x00-\x1f]", text):
        raise ValueError(f"{public_url(text)!r} is not an http:// or https:// URL")
    if parts.query or parts.fragment:
        raise ValueError(f"{public_url(text)!r} must not have a query or fragment")
    if "@" in parts.netloc:
        learn_url_secret(text)
        raise ConfigError(
            f"the base URL {public_url(text)!r} holds a user name or password",
            hint="set the header Authorization = 'Basic ${NAME}' instead, with the value in the environment",
        )
    path = parts.path.rstrip("/").removesuffix("/chat/completions").removesuffix("/completions").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"


def public_url(url: str) -> str:
    """The URL without user name and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def api_key(config: OpenAIConfig, url: str) -> tuple[str | None, str | None]:
    """The key for a URL and the variable that holds it; (None, None) without. Raises ConfigError when it is not set.

    OPENAI_API_KEY goes to api.openai.com, and to the address that OPENAI_BASE_URL names beside it. The key of a server
    of our own job goes to that server.
    """
    name = config.api_key_env
    if name is None and (urlsplit(url).hostname == "api.openai.com" or _goes_with_key(url)):
        name = "OPENAI_API_KEY"
    name = name or key_variable(url)
    if name is None:
        return None, None
    key = os.environ.get(name, "").strip()
    if not key:
        raise ConfigError(f"the environment variable {name} is not set", hint=f"export {name}=...")
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"the environment variable {name} does not hold a valid API key")
    learn_secret(key)
    return key, name


def _goes_with_key(url: str) -> bool:
    """Does OPENAI_BASE_URL name this server, and may it have the key that is set?

    An address out of a file .env is not sent a key of the environment itself: the two belong together.
    """
    if not os.environ.get("OPENAI_API_KEY", "").strip():
        return False
    for variable in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):
        try:
            named = OpenAIConfig(base_url=os.environ.get(variable, "")).base_url  # type: ignore[arg-type]
        except (ValueError, ConfigError):
            continue
        if url in named:
            return from_dotenv(variable) is None or from_dotenv("OPENAI_API_KEY") is not None
    return False


def request_headers(config: OpenAIConfig, key: str | None) -> dict[str, str]:
    """The headers of every request. Raises ConfigError for a header's variable that is not set."""
    headers = {"Accept": "application/json", "User-Agent": "atropos-cli"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    filled = {name: fill_header(name, text) for name, text in config.headers.items()}
    for name, text in filled.items():
        if not _HEADER_VALUE.fullmatch(text):
            raise ConfigError(f"the value of header {name!r} is not valid in HTTP")
    return headers | filled
