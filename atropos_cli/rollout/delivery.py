"""Push the groups of a run to a trajectory server: each after it is stored, once, and no faster than is trained.

A journal in the run folder says which groups the server has acknowledged; a resumed run sends the others. Requests
carry a key, so that a repeated one changes nothing at `atropos serve`. (atroposlib's run-api knows no keys: there a
group whose answer was lost may arrive twice.) A thread sends; the run's loop only hears whether it must wait.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.plan import Plan
from atropos_cli.errors import AtroposError, ConfigError, DataError, ServerUnavailable
from atropos_cli.io.append import AppendLog
from atropos_cli.io.scoreddata import scored_data
from atropos_cli.network import on_this_machine, proxy_for, tls_context
from atropos_cli.redaction import learn

if TYPE_CHECKING:
    import httpx

JOURNAL = "delivered.jsonl"
TOKEN_VARIABLE = "ATROPOS_SERVE__TOKEN"  # noqa: S105 - the name of a variable
_LOOK_EVERY = 0.5
_MOST_PENDING = 64
_PATIENCE = 5.0
_TIMEOUT = 60.0
_NOT_SENT = {
    "incomplete": "has a failed rollout or an empty one",
    "split": "has rollouts of several token sequences, which the server cannot take",
    "refused": "is refused",
}
_ANSWERS = ("received", "buffered", "refused")
PASSING = (408, 425, 429)
"""Refusals below 500 that pass, such as those of a proxy that has too much to do."""
_REFUSALS = (413, 422)
"""Too large, and not acceptable: no repetition mends that, and other groups may fit."""


class Journal:
    """The groups that have been acknowledged, one a line, and the key of this run.

    Refused groups are offered again by the next session: the server may have other limits by then.
    """

    def __init__(self, folder: Path, name: str = JOURNAL) -> None:
        path = folder / name
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
            os.truncate(path, sum(map(len, lines)))
        try:
            rows = [json.loads(line) for line in lines]
            self.done = {row["group"] for row in rows[1:] if row["answer"] != "refused"}
            self.key: str = rows[0]["key"] if rows else secrets.token_hex(8)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} is damaged: {error!r}", hint="remove it to send all groups again") from error
        self._log = AppendLog(path, fsync="never")
        if not rows:
            self._append({"key": self.key})

    def add(self, group: str, answer: str) -> None:
        self.done.add(group)
        self._append({"group": group, "answer": answer})

    def _append(self, row: dict[str, str]) -> None:
        self._log.write(json.dumps(row).encode() + b"\n")

    def close(self) -> None:
        self._log.close()


class Sender(threading.Thread):
    """held: should the run start no more groups? wake is called when that ends."""

    def __init__(
        self, plan: Plan, env_name: str, on_event: Callable[[str, str], None], wake: Callable[[], None]
    ) -> None:
        super().__init__(name="delivery", daemon=True)
        self.held = True
        self.error: AtroposError | None = None
        self.trainer_folder: str | None = None
        """Where the newest trainer keeps its checkpoints; "" if it does not say, None before one has registered."""
        self._plan, self._env_name = plan, env_name
        self._on_event, self._wake = on_event, wake
        self._url = str(plan.delivery.to)
        self._live: queue.SimpleQueue[ScoredGroup] = queue.SimpleQueue()
        self._earlier: Iterator[ScoredGroup] = iter(())
        self._put = 0
        self._taken = 0
        self._caught_up = False
        self._ending = threading.Event()
        self._env_id: int | None = None
        self._batch_size = 1
        self._most = 0
        self._before = 0
        self._looked = 0.0
        self.step: int | None = None
        """The trainer's, when the server was last asked."""
        self._said: set[str] = set()
        self._counts: dict[str, int] = {}

    def begin(self, folder: Path, stored: Iterable[ScoredGroup]) -> None:
        """Start; what an earlier session has stored and not sent is sent first."""
        self._journal = Journal(folder, f"delivered-{self._env_name}.jsonl" if self._plan.mixture else JOURNAL)
        self._earlier = iter(stored)
        self.start()

    def put(self, groups: tuple[ScoredGroup, ...]) -> None:
        """Stored groups."""
        self._put += len(groups)
        for group in groups:
            self._live.put(group)
        self._decide()

    @property
    def pending(self) -> bool:
        return self.is_alive() and (self._put > self._taken or not self._caught_up)

    def end(self) -> str:
        """Stop sending; the next session sends the rest. Returns the counts of answers, as text."""
        self._ending.set()
        if self.ident is not None:
            self.join(_PATIENCE)
        return ", ".join(f"{count} {answer}" for answer, count in sorted(self._counts.items())) or "none"

    def run(self) -> None:
        try:
            with connect(self._url) as client:
                self._register(client)
                for group in self._groups(client):
                    self._deliver(client, group)
                if self._env_id is not None:
                    with contextlib.suppress(AtroposError):  # all is sent; the server forgets silent ones by itself
                        self._ask(client, "POST", "/disconnect-env", {"env_id": self._env_id}, last=True)
        except AtroposError as error:
            self.error = error
        except _Ending:
            pass
        except Exception as error:  # noqa: BLE001 - a run whose groups are not sent must not look finished
            self.error = AtroposError(
                f"groups cannot be sent to {self._url}: {type(error).__name__}: {error}",
                hint="the groups are stored; --resume sends the rest",
            )
        finally:
            self.held = False
            self._journal.close()
            self._wake()

    def _groups(self, client: httpx.Client) -> Iterator[ScoredGroup]:
        for group in self._earlier:
            if self._ending.is_set():
                return
            if group.group_id not in self._journal.done:
                self._look(client)
                yield group
        self._caught_up = True
        while True:
            try:
                group = self._live.get(timeout=_LOOK_EVERY)
            except queue.Empty:
                if self._ending.is_set():
                    return
            else:
                if group.group_id not in self._journal.done:
                    yield group
                self._taken += 1
            self._look(client)

    def _register(self, client: httpx.Client) -> None:
        """Wait for the trainer, then say who sends."""
        asked = {
            "max_token_length": self._plan.sampling.max_tokens or 2048,
            "desired_name": self._env_name,
            "weight": self._plan.delivery.to_weight,
            "group_size": self._plan.group_size,
            "min_batch_allocation": self._plan.delivery.to_share,
        }
        while True:
            answer = self._ask(client, "POST", "/register-env", asked)
            if answer.get("status") == "success":
                break
            self._say("waiting", f"{self._url} waits for a trainer to register")
            self._pause(1.0)
        self._env_id = self._whole("/register-env", answer, "env_id")
        self.trainer_folder = str(answer.get("checkpoint_dir") or "")
        self._batch_size = self._whole("/info", self._ask(client, "GET", "/info"), "batch_size")
        self._say("delivery", f"groups go to {self._url} as {answer.get('wandb_name')}", again=True)
        self._look(client)

    def _look(self, client: httpx.Client) -> None:
        """Ask now and then how far the trainer is; hold the run while enough waits for it."""
        if time.monotonic() - self._looked < _LOOK_EVERY:
            return
        self._looked = time.monotonic()
        status = self._ask(client, "GET", "/status-env", {"env_id": self._env_id})
        self._most = max(1, self._plan.delivery.off_policy * self._batch_size // self._plan.group_size)
        self._before = self._whole("/status-env", status, "queue_size") - self._taken
        self.step = self._whole("/status-env", status, "current_step")
        if isinstance(folder := status.get("checkpoint_dir"), str):  # run-api says it at the registration alone
            self.trainer_folder = folder
        self._decide()

    def _decide(self) -> None:
        # The groups that waited there when it was asked, and those stored since.
        waiting = self._before + self._put
        before, self.held = self.held, waiting >= self._most or self._put - self._taken >= _MOST_PENDING
        if before and not self.held:
            self._wake()
        if waiting >= self._most > 0:
            self._say("enough", f"enough groups wait at {self._url}: no more start until the trainer takes some")

    def _deliver(self, client: httpx.Client, group: ScoredGroup) -> None:
        body = scored_data(group, temperature=self._plan.sampling.temperature)
        if body is None or len(body["tokens"]) != self._plan.group_size:
            split = body is not None and len(body["tokens"]) > len(group.rollouts)
            self._done(group, "split" if split else "incomplete")
            return
        headers = {"Idempotency-Key": f"{self._journal.key}/{group.group_id}"}
        if self.step is not None:
            headers["X-Atropos-Step"] = str(self.step)
        answer = self._ask(client, "POST", "/scored_data", {**body, "env_id": self._env_id}, headers=headers)
        if (status := answer.get("status")) not in _ANSWERS:
            raise self._strange("/scored_data", answer)
        self._done(group, status)

    def _done(self, group: ScoredGroup, answer: str) -> None:
        self._journal.add(group.group_id, answer)
        self._counts[answer] = self._counts.get(answer, 0) + 1
        if answer in _NOT_SENT:
            self._say(answer, f"group {group.group_id} {_NOT_SENT[answer]}: it is stored, but not trained on")

    def _ask(
        self, client: httpx.Client, method: str, path: str, body: Any = None, *, headers: Any = None, last: bool = False
    ) -> dict[str, Any]:
        """Ask until the server answers. Raises what no repetition mends, and _Ending."""
        import httpx

        delay = 0.25
        while True:
            try:
                answer = client.request(method, path, json=body, headers=headers)
            except (httpx.HTTPError, OSError) as error:
                problem = f"{self._url} does not answer ({type(error).__name__})"
            else:
                if answer.status_code < 300:
                    self._said.discard("unreachable")
                    return self._read(path, answer)
                if answer.status_code in _REFUSALS and path == "/scored_data":
                    self._say("refused-why", f"{self._url} refuses a group: {answer.text[:300]}")
                    return {"status": "refused"}
                if answer.status_code < 500 and answer.status_code not in PASSING:
                    raise self._no(path, answer)
                problem = f"{self._url} answers {answer.status_code}: {answer.text[:200]}"
            if last:
                return {}
            self._say("unreachable", f"{problem}; groups are kept until it does")
            self._pause(delay)
            delay = min(5.0, delay * 2)

    def _read(self, path: str, answer: httpx.Response) -> dict[str, Any]:
        try:
            found = answer.json()
        except (ValueError, RecursionError):
            found = answer.text
        if not isinstance(found, dict):
            raise self._strange(path, found)
        return found

    def _whole(self, path: str, answer: dict[str, Any], name: str) -> int:
        found = answer.get(name)
        if not isinstance(found, int | float):
            raise self._strange(path, answer)
        return int(found)

    def _strange(self, path: str, found: object) -> AtroposError:
        text = found if isinstance(found, str) else json.dumps(found)
        return ServerUnavailable(
            f"{self._url}{path} does not answer like a trajectory server: {text[:300]!r}",
            hint="--to takes the URL of atropos serve or of run-api",
            address=self._url,
        )

    def _no(self, path: str, answer: httpx.Response) -> AtroposError:
        if answer.status_code == 401 and os.environ.get(TOKEN_VARIABLE):
            return ConfigError(
                f"{self._url} refuses the token in {TOKEN_VARIABLE}", hint="set it to the token of the server"
            )
        if answer.status_code == 401:
            return ConfigError(f"{self._url} asks for a token", hint=f"set {TOKEN_VARIABLE}")
        said = answer.headers.get("location") or answer.text[:300]
        text = f"{self._url}{path} answers {answer.status_code}: {said}"
        if answer.status_code == 422:
            return ConfigError(text, hint="change the option that it names, such as --group-size")
        return ServerUnavailable(text, hint="--to takes the URL of atropos serve or of run-api", address=self._url)

    def _pause(self, seconds: float) -> None:
        if self._ending.wait(seconds):
            raise _Ending

    def _say(self, kind: str, text: str, *, again: bool = False) -> None:
        """Once for each kind, until it is over."""
        if again or kind not in self._said:
            self._said.add(kind)
            self._on_event(kind, text)


def connect(url: str) -> httpx.Client:
    """A client of the trajectory server, with the token in TOKEN_VARIABLE. Raises ConfigError for an unusable one."""
    import httpx

    headers, proxy = _access(), proxy_for(url)
    if on_this_machine(url):
        headers["Accept-Encoding"] = "identity"  # compression costs both sides more than it saves
    verify = tls_context() if url.startswith("https:") else True
    return httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT, proxy=proxy, verify=verify, trust_env=False)


def _access() -> dict[str, str]:
    """The header with the token, if there is one. Raises ConfigError."""
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        return {}
    learn(token)
    if not token.isascii() or not token.isprintable() or token != token.strip():
        text = f"{TOKEN_VARIABLE} holds a line break, a blank at an end or a letter beyond ASCII"
        raise ConfigError(text, hint="a token is made of ASCII letters and digits")
    return {"Authorization": f"Bearer {token}"}


class _Ending(Exception):
    """The run ends while the server does not answer."""
