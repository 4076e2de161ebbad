"""A server of the Tinker API: reached, asked, and waited for.

    service = Service(url, "TINKER_API_KEY"); service.connect(); service.wait(lambda: service.client....)

The client of the API repeats a request for minutes, or for ever, where there is no server. So the server is looked at
before it is used and while an answer is awaited, and what the client raises becomes an error that says what to do.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from atropos_cli.sdk import AtroposError, ConfigError, JsonDict
from atropos_cli.sdk.backends import FatalBackendError, ServerUnavailable, place_of
from atropos_cli.sdk.secrets import learn_secret
from atropos_cli.sdk.serving import get
from atropos_cli.sdk.training import TrainerError

from .config import URL_VARIABLE

T = TypeVar("T")

HOSTED = "https://tinker.thinkingmachines.dev/services/tinker-prod"
_NO_KEY = "tml-none"
"""The client wants a key of this form, also for servers that ask for none."""
_TIMEOUT = 10.0
_LOOK_EVERY = 5.0
_TICK = 0.5
_BROKEN = 500
_PASSING = (429, 502, 503, 504)
_RESUME = "a run that has a checkpoint continues with --resume"
CLIENT = "0.24"
"""The client's last version that reads samples in JSON, as SkyRL's server writes them. Later ones read protobuf alone,
and have no call that fetches an adapter."""


class Refused(TrainerError):
    """The server's answer to a request: no. It may have been started again, and know nothing of the run."""


class Gone(FatalBackendError):
    """The server of a training does not answer, and has been waited for: the rollouts are not to wait once more."""


class Unreadable(TrainerError):
    """A download that is damaged, such as one that was cut off."""


class Service:
    """One server, and the client's session there."""

    def __init__(
        self, url: str | None, key_env: str, *, max_wait: float = 60.0, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """stopping: once it is true, a server that does not answer is no longer waited for."""
        given = url or os.environ.get(URL_VARIABLE, "").strip()
        self.url = (given or HOSTED).rstrip("/")
        self.client: Any = None
        self.contexts: dict[str, int | None] = {}
        """The models that it has, and their longest sequence where it says so."""
        self._max_wait = max_wait
        self._stopping = stopping
        self._key = os.environ.get(key_env, "").strip()
        if not self._key and self.url == HOSTED:
            raise ConfigError(
                f"the hosted service wants a key, and {key_env} is not set",
                hint=f"export {key_env}=..., or name a server of your own: --base-url http://HOST:PORT",
            )
        if self._key:
            learn_secret(self._key)
        self._looking = threading.Lock()
        self._counting = threading.Lock()
        self._waiting = 0
        self._looked = self._seen = time.monotonic()

    def connect(self) -> None:
        """Open a session and ask what the server has. Raises ServerUnavailable, ConfigError."""
        if self.client is not None:
            return
        if not (found := version("tinker")).startswith(f"{CLIENT}."):
            raise ConfigError(
                f"the client tinker {found} is installed: its protocol is another than the servers' and ours",
                hint=f"pip install 'tinker=={CLIENT}.*'",
            )
        self._look()
        # The client would report errors, with pieces of our code, to the server.
        os.environ.setdefault("TINKER_TELEMETRY", "0")
        import tinker

        def open_session() -> tuple[Any, Any]:
            client = tinker.ServiceClient(base_url=self.url, api_key=self._key or _NO_KEY)
            return client, client.get_server_capabilities()

        self.client, has = self.wait(open_session, within=max(self._max_wait, _TIMEOUT))
        known = {one.model_name: one.max_context_length for one in has.supported_models if one.model_name}
        self.contexts = {name: length if (length or 0) > 0 else None for name, length in known.items()}

    def model(self, wanted: str) -> str:
        """The server's name of a model. Raises ConfigError where it has another one."""
        if wanted in self.contexts:
            return wanted
        same = [name for name in self.contexts if _same_file(name, wanted)]
        if same:
            return same[0]
        known = ", ".join(sorted(self.contexts)) or "none"
        raise ConfigError(
            f"the server at {place_of(self.url)} does not have the model {wanted!r}; it has: {known}",
            hint=f"--base-model {min(self.contexts, default='NAME')}, if --model is the same model under another name",
        )

    def wait(self, work: Callable[[], T], *, within: float | None = None) -> T:
        """The result of work that blocks. Raises ServerUnavailable when the server is gone meanwhile for too long.

        within: seconds for work that takes none on a server in order; the client repeats a failed request for minutes.
        """
        future, began = self.submit(work), time.monotonic()
        while True:
            try:
                return future.result(timeout=_TICK)
            except TimeoutError:
                if future.done():
                    raise self.error(TimeoutError("the client gave up waiting")) from None
            except Exception as error:
                raise self.error(error) from error
            waited = time.monotonic() - began
            if within is not None and (waited > within or self._stopping()):
                raise self._gone(f"is there, and gave no session in {waited:.0f} s: its log says why")
            self.watch()

    def fetch(self, work: Callable[[], None], address: str) -> None:
        """Do a download, which the client does not: again while it fails, as long as servers are waited for.

        Raises ServerUnavailable and Unreadable after that, and once the run is to stop; Refused for what does not
        pass; OSError.
        """
        import httpx

        def once() -> httpx.HTTPError | OSError | Unreadable | None:
            try:
                work()
            except (httpx.HTTPError, OSError, Unreadable) as error:
                return error
            return None

        failed = 0.0
        while (error := self.wait(once)) is not None:
            failed = failed or time.monotonic()  # not before: a large download may take longer than we wait
            if isinstance(error, OSError):
                raise error
            text = (str(error).strip() or type(error).__name__).splitlines()[0]
            if not _passes(error):
                raise Refused(f"{place_of(address)} refuses a download: {text}", hint=_RESUME) from error
            if self._stopping() or time.monotonic() - failed > self._max_wait:
                if isinstance(error, Unreadable):
                    raise error
                raise ServerUnavailable(
                    f"the server at {place_of(address)} cannot be reached ({text})",
                    hint=_RESUME,
                    address=place_of(address),
                ) from error
            time.sleep(_TICK)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have work done in a thread that the end of the process does not wait for."""
        future: Future[T] = Future()
        with self._counting:
            if not self._waiting:
                self._looked = self._seen = time.monotonic()
            self._waiting += 1

        def run() -> None:
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                future.set_exception(error)
            else:
                future.set_result(result)
            finally:
                with self._counting:
                    self._waiting -= 1

        threading.Thread(target=run, name="tinker", daemon=True).start()
        return future

    def watch(self) -> None:
        """To be called while an answer is awaited: look at the server now and then, in any thread.

        Raises ServerUnavailable when it has been gone for too long.
        """
        if not self._looking.acquire(blocking=False):
            return
        try:
            if time.monotonic() - self._looked < (_TICK if self._stopping() else _LOOK_EVERY):
                return
            answers = self.answers()
            self._looked = time.monotonic()
            if answers:
                self._seen = self._looked
        finally:
            self._looking.release()
        gone = self._looked - self._seen
        if gone > self._max_wait or (self._stopping() and gone):
            raise self._gone(f"does not answer for {gone:.0f} s")

    def answers(self) -> bool:
        """Is a server there? Any answer of its own counts; 5xx is that of a proxy without it, or of a broken one."""
        try:
            return get(f"{self.url}/api/v1/healthz", timeout=_TIMEOUT).status_code < _BROKEN
        except OSError:
            return False

    def error(self, error: Exception) -> AtroposError:
        """What a failure of the client means, and what to do."""
        import tinker

        if isinstance(error, AtroposError):
            return error
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        place = place_of(self.url)
        if isinstance(error, tinker.AuthenticationError | tinker.PermissionDeniedError) or "api_key" in text:
            return ConfigError(f"the server at {place} refuses the key: {text}", hint="check the key's variable")
        if isinstance(error, tinker.APIConnectionError):
            return self._gone(f"cannot be reached ({text})")
        return Refused(f"the server at {place} refuses a request: {text}", hint=f"its log says more; {_RESUME}")

    def describe(self) -> JsonDict:
        """For the record of a run."""
        return {"server": place_of(self.url), "tinker": version("tinker")}

    def headers(self) -> dict[str, str]:
        """What a download needs where it is the server itself that sends it."""
        return {"X-API-Key": self._key} if self._key else {}

    def _look(self) -> None:
        try:
            answer = get(f"{self.url}/api/v1/healthz", timeout=_TIMEOUT)
        except OSError as error:
            raise self._gone(f"cannot be reached ({error})") from error
        if answer.status_code >= _BROKEN:
            raise self._gone(f"answers {answer.status_code}")
        if answer.status_code in (404, 405) or "text/html" in answer.headers.get("content-type", ""):
            raise ConfigError(
                f"the server at {place_of(self.url)} does not speak the Tinker API (no /api/v1/healthz)",
                hint="--base-url takes the address without /v1: atropos launch-skyrl starts such a server",
            )

    def _gone(self, what: str) -> ServerUnavailable:
        return ServerUnavailable(
            f"the server at {place_of(self.url)} {what}",
            hint=f"start it: atropos launch-skyrl MODEL; {_RESUME}",
            address=self.url,
        )


def _passes(error: Exception) -> bool:
    """May this be over in a while: no connection, one that broke off, or a proxy without the server behind it?"""
    import httpx

    if isinstance(error, Unreadable):
        return True
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in _PASSING
    never = httpx.UnsupportedProtocol | httpx.LocalProtocolError
    return isinstance(error, httpx.TransportError) and not isinstance(error, never)


def _same_file(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        return False
