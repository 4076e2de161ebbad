"""Secrets that came into this process, and the one function that takes them out of text that leaves it.

    learn(value)          whoever reads a key, a header's variable, a password of a URL or a token tells it here
    redacted(text)        for messages, logs and records
    redacted_bytes(data)  for whole files

`begin` learns what this machine keeps for us: variables named like a secret, the tokens of the Hugging Face hub and
of W&B. Standard library only; nothing here is written anywhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import quote, quote_plus, unquote

MARK = "[secret]"

_NAMED_SECRET = re.compile(
    r"(?:^|_)(?:KEY|APIKEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|AUTH|AUTHORIZATION|PAT|CREDENTIALS?|COOKIE|JWT"
    r"|BEARER)$",
    re.I,
)
# Of these, many hold a word like any other (SORT_KEY=name): only a value that nobody would say counts.
_NAMED_WEAKLY = re.compile(r"(?<!API)(?<!ACCESS)(?<!SECRET)(?<!PRIVATE)_KEY$|^KEY$|(?:^|_)(?:AUTH|PAT|COOKIE)$", re.I)
_UNSPEAKABLE = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z]).{16,}")
_SHAPED = re.compile(
    r"\b(?:sk-[\w-]{16,}|hf_\w{16,}|gh[opusr]_\w{16,}|github_pat_\w{16,}|xox[abprs]-[\w-]{10,}|AKIA[A-Z0-9]{12,}"
    r"|AIza[\w-]{20,}|glpat-[\w-]{12,}|eyJ[\w-]{8,}\.[\w-]{8,})|\b(?:Bearer|Basic)\s+[\w.+/=-]{6,}",
    re.I,
)
_USER_OF_URL = re.compile(r"(?<=://)[^\s/'\"<>]+@")  # up to the last @ of the host: a password may hold others
_SCHEMES = frozenset({"basic", "bearer", "digest", "token", "apikey", "api-key", "key"})
# What people put where a server wants a key and none is needed: words like any other.
_NO_SECRETS_TEXT = """
anything changeme default dummy empty fake false lm-studio local no-key no-key-required none not-needed not-used
not_needed not_used notused null ollama openai password placeholder secret sglang sk-no-key-required sk-none
something test token true unused vllm
"""
_NO_SECRETS = frozenset(_NO_SECRETS_TEXT.split())
_SHORTEST, _PLAIN, _SHORTEST_NUMBER, _LONG_PART = 5, 10, 16, 8

_forms: dict[str, None] = {}  # every way in which a secret may be written, the longest first
_forms_as_bytes: tuple[bytes, ...] = ()


def begin(environ: Mapping[str, str] | None = None, args: Iterable[str] = ()) -> None:
    """Forget what an earlier command learnt, and learn what variables, arguments and this user's token files hold."""
    global _forms_as_bytes
    _forms.clear()
    _forms_as_bytes = ()
    env = os.environ if environ is None else environ
    for name, value in env.items():
        if value and names_a_secret(name) and not value.startswith(("/", "~", "./")):
            if not _NAMED_WEAKLY.search(name) or _UNSPEAKABLE.fullmatch(value):
                learn(value)
        elif "://" in value and "@" in value:
            learn_url(value)
    for value in _token_files(env):
        learn(value)
    for arg in args:
        learn_url(arg)


def names_a_secret(name: str) -> bool:
    """Is a variable or a field of this name likely to hold one?"""
    return _NAMED_SECRET.search(name.replace("-", "_")) is not None


def looks_secret(text: str) -> bool:
    """Does the text hold something that has the form of a key, or that is known to be a secret?"""
    return bool(_SHAPED.search(text) or _USER_OF_URL.search(text)) or any(form in text for form in _forms)


def learn(value: str | None) -> None:
    """From now on this value does not leave the process, nor any part of it that is a secret by itself."""
    whole = (value or "").strip()
    for part in dict.fromkeys((whole, *(word for word in whole.split() if len(word) >= _LONG_PART))):
        if _is_secret(part):
            _add(part)


def learn_url(url: str) -> None:
    """The user name and the password of a URL, or of every URL in a text, where it has them."""
    for user_info in _USER_OF_URL.findall(url):
        user, colon, password = unquote(user_info[:-1]).partition(":")
        learn(password if colon else user)
        if colon:
            import base64

            learn(base64.b64encode(f"{user}:{password}".encode()).decode())


def redacted(text: str) -> str:
    """The text without secrets, and without the user names and passwords of URLs."""
    for form in _forms:
        if form in text:
            text = _replace(form, text)
    return _USER_OF_URL.sub(f"{MARK}@", text) if "://" in text and "@" in text else text


def redacted_bytes(data: bytes) -> bytes:
    """The same for UTF-8 text in bytes, but for URLs that are not known to hold a secret."""
    if any(form in data for form in _forms_as_bytes):
        text = data.decode("utf-8", "surrogateescape")
        for form in _forms:
            if form in text:
                text = _replace(form, text)
        return text.encode("utf-8", "surrogateescape")
    return data


def redacted_json(value: Any) -> Any:
    """The same for every text in a JSON value; keys stay."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return {key: redacted_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_json(item) for item in value]
    return value


class RedactedStream:
    """A text stream whose writes pass the redactor; all else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(redacted(text))

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _is_secret(value: str) -> bool:
    if len(value) < _SHORTEST or value.casefold() in _NO_SECRETS or value.casefold() in _SCHEMES:
        return False
    if value.isdigit():  # a short number occurs by chance, in places where a mark would break a file
        return len(value) >= _SHORTEST_NUMBER
    return len(value) >= _PLAIN or not value.isalpha() or not (value.islower() or value.isupper() or value.istitle())


def _add(secret: str) -> None:
    global _forms_as_bytes
    if secret in _forms:
        return
    import html  # its tables are not worth loading at every start

    escaped = (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])
    nested = (json.dumps(text)[1:-1] for text in escaped[:2])  # JSON in a text of JSON, as proxies pass errors on
    web = (quote(secret, safe=""), quote(secret), quote_plus(secret), html.escape(secret))
    written = (secret, *escaped, *nested, *web, *_in_base64(secret))
    known = sorted({*_forms, *written}, key=len, reverse=True)
    _forms.clear()
    _forms.update(dict.fromkeys(known))
    _forms_as_bytes = tuple(form.encode("utf-8", "surrogatepass") for form in known)


def _in_base64(secret: str) -> tuple[str, ...]:
    """As Basic credentials and Kubernetes write it, without the padding, which may be left out."""
    import base64

    data = secret.encode("utf-8", "surrogatepass")
    return tuple(encode(data).decode().rstrip("=") for encode in (base64.b64encode, base64.urlsafe_b64encode))


def _replace(form: str, text: str) -> str:
    if len(form) >= _PLAIN:
        return text.replace(form, MARK)
    return re.sub(rf"(?<![A-Za-z0-9]){re.escape(form)}(?![A-Za-z0-9])", MARK, text)


def _token_files(env: Mapping[str, str]) -> Iterator[str]:
    """What the hub's and W&B's own log-ins have stored."""
    home = env.get("HOME", "")
    cache = env.get("XDG_CACHE_HOME") or f"{home}/.cache"
    hub = env.get("HF_TOKEN_PATH") or f"{env.get('HF_HOME') or f'{cache}/huggingface'}/token"
    yield _content(hub)
    for line in _content(env.get("NETRC") or f"{home}/.netrc").splitlines():
        yield from re.findall(r"\bpassword\s+(\S+)", line)


def _content(path: str) -> str:
    with contextlib.suppress(OSError, ValueError):
        if Path(path).stat().st_size < 1 << 16:
            return Path(path).read_text(encoding="utf-8", errors="ignore")
    return ""
