"""The batches of a trajectory server, each kept in the run's groups file before the server hears that it arrived.

The groups of one batch are those of one task in the file, written at once: a crash leaves a batch whole or not at all.
A resumed training learns from the stored batches again, so none is lost or learnt from twice in the weights that stay.
"""

from __future__ import annotations

import hashlib
import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk import AtroposError, ConfigError, DataError, ScoredGroup, token_sequences
from atropos_cli.sdk.backends import ServerUnavailable
from atropos_cli.sdk.engine import make_group_id
from atropos_cli.sdk.outputs import Writer
from atropos_cli.sdk.trajectories import PASSING, TOKEN_VARIABLE, connect, received_group
from atropos_training.keptgroups import KeptGroups

if TYPE_CHECKING:
    import httpx

LEASE = 30
"""Seconds that the server waits to hear that a batch is stored."""
_ASK_EVERY = 0.25
_TELL_AFTER = 15.0
_MOST = 600.0
"""Seconds for one answer: a server that sends a byte now and then counts as dead."""
_GRACE = 5.0


class _Unfit(DataError):
    """A group of another tokenizer, or of another size than the trainer takes."""


class Batches:
    """The batch of each step: stored, or asked for. Steps count from 0."""

    def __init__(self, url: str, digest: str, path: Path, warn: Callable[[str], None]) -> None:
        self.waited = 0.0
        self._url, self._digest, self._warn = url, digest, warn
        self._file = KeptGroups(path)
        self._client: httpx.Client | None = None
        self._last: tuple[int, str] | None = None
        self._unsaid: int | None = None
        self._registration: dict[str, Any] | None = None
        self._told = ""
        self._warned = False
        self.vocabulary: int | None = None
        """Token ids of the model are below it."""
        self.group_size: int | None = None
        """The only size that the trainer takes."""

    def look(self) -> None:
        """Find the batches that the file holds; it has been repaired."""
        self._file.look()
        if self._file.last is not None:
            told: dict[str, Any] = self._file.last.task.info
            if "batch" in told:
                self._last, self._unsaid = (told["batch"], told["content"]), told["batch"]

    def of(self, step: int, writer: Writer, stopping: Callable[[], bool]) -> list[ScoredGroup]:
        """The groups of a step; none if the run is asked to stop while the server has no batch. Raises AtroposError."""
        began = time.monotonic()
        if step in self._file:
            return self._file.groups(step)
        while (found := self._next(step, stopping)) is not None:
            batch, content, rows = found
            if batch is not None and (batch, content) == self._last:  # stored, and the server did not hear of it
                self._acknowledge(batch)
                time.sleep(_ASK_EVERY)
                continue
            groups = self._groups(step, rows, {} if batch is None else {"batch": batch, "content": content})
            if groups:
                writer.write(tuple(groups))
                self._file.written(step)
            if batch is not None:
                self._last = batch, content
                self._acknowledge(batch)
            if groups:
                self.waited = time.monotonic() - began
                return groups
        return []

    def register(self, registration: dict[str, Any]) -> None:
        """Say who trains, before the first batch is asked for. The server counts on from that one's step."""
        self._registration = registration

    def served(self) -> bool:
        """May the server have had a trainer before, whose weights those have who sample?"""
        status = self._once("GET", "/status")
        return status is None or status.get("current_step") != 0

    def close(self) -> None:
        """Let go of the connection. The next session acknowledges stored batches that are not acknowledged yet."""
        if self._client is not None:
            if self._unsaid is not None:
                self._acknowledge(self._unsaid)
            self._client.close()
            self._client = None

    def _groups(self, step: int, rows: Sequence[Any], told: dict[str, Any]) -> list[ScoredGroup]:
        """Raises DataError when all are unfit for this trainer: those stay with the server."""
        found: list[ScoredGroup] = []
        unfit: list[_Unfit] = []
        for row in rows:
            try:
                group = received_group(row, group_id=make_group_id(self._digest, step, len(found)), last=False)
                found.append(self._usable(group))
                if group.advantages is None and row.get("advantages"):
                    self._warn_of_advantages(group.env)
            except _Unfit as error:
                unfit.append(error)
            except DataError as error:
                self._warn(f"step {step + 1}: a group is left out: {error.message}")
        if len(unfit) == len(rows):
            raise unfit[0]
        for one in unfit:
            self._warn(f"step {step + 1}: a group is left out: {one.message}")
        if found:
            task = found[-1].task.model_copy(update={"info": {**found[-1].task.info, **told}})
            found[-1] = found[-1].model_copy(update={"last": True, "task": task})
        return found

    def _warn_of_advantages(self, env: str) -> None:
        """Once, and only where the trainer would take them."""
        if self.group_size is None and not self._warned:
            self._warned = True
            self._warn(
                f"{env} sends advantages that are not one for all tokens of a sequence, with a number for each token: "
                "they are computed from the scores"
            )

    def _usable(self, group: ScoredGroup) -> ScoredGroup:
        """The group; rollouts without a trained token behind a prompt have no reward. Raises DataError if none has."""
        kept = []
        if self.group_size not in (None, len(group.rollouts)):
            raise _Unfit(
                f"{group.env} sends a group of {len(group.rollouts)}, and this trainer takes {self.group_size}",
                hint=f"--group-size {len(group.rollouts)}, or --trainer native, which takes all sizes",
            )
        for rollout in group.rollouts:
            sequences = token_sequences(rollout)
            highest = max((max(one.ids) for one in sequences), default=0)
            if self.vocabulary is not None and highest >= self.vocabulary:
                raise _Unfit(
                    f"{group.env} sends token {highest}, the model's are 0 to {self.vocabulary - 1}",
                    hint="groups of another tokenizer: --model must be that which samples them",
                )
            whole = bool(sequences) and all(one.whole for one in sequences)
            kept.append(rollout if whole else rollout.model_copy(update={"reward": None}))
        if all(rollout.reward is None for rollout in kept):
            raise DataError(f"{group.env} sends no rollout with a prompt and a trained token")
        return group.model_copy(update={"rollouts": tuple(kept)})

    # The server -------------------------------------------------------------------------------------------------------

    def _next(self, step: int, stopping: Callable[[], bool]) -> tuple[int | None, str, list[Any]] | None:
        began = told = time.monotonic()
        while not stopping():
            if self._registration is not None:
                registration = {**self._registration, "starting_step": step}
                if self._ask("POST", "/register", registration, stopping=stopping) is None:
                    return None
                self._registration = None
            headers = {"X-Atropos-Lease": str(LEASE)}
            if self._unsaid is not None:
                headers["X-Atropos-Ack"] = str(self._unsaid)
            answer = self._ask("GET", "/batch", headers=headers, stopping=stopping)
            if answer is None:
                return None
            self._unsaid = None
            rows, batch = answer.get("batch"), answer.get("batch_id")
            if isinstance(rows, list) and rows:
                content = hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
                return (batch if type(batch) is int else None), content, rows
            if answer.get("status") == "error":
                raise ServerUnavailable(
                    f"{self._url} has forgotten its trainer: {answer.get('message')}",
                    hint="another program reset it; --resume continues",
                    address=self._url,
                )
            if time.monotonic() - told > _TELL_AFTER:
                told = time.monotonic()
                self._tell(told - began)
            time.sleep(_ASK_EVERY)
        return None

    def _tell(self, seconds: float) -> None:
        status = self._once("GET", "/status")
        reason = "" if status is None else str(status.get("reason") or "")
        if reason != self._told:
            self._told = reason
            self._warn(f"{self._url} has had no batch for {seconds:.0f} s" + (f": {reason}" if reason else ""))

    def _acknowledge(self, batch: int) -> None:
        """Once; what the server does not hear now is said with the next request for a batch."""
        self._unsaid = batch
        if self._once("POST", f"/batch/{batch}/ack") is not None:
            self._unsaid = None

    def _once(self, method: str, path: str) -> dict[str, Any] | None:
        """The answer; None where there is none."""
        import httpx

        try:
            answer = self._answer({"method": method, "url": path}, lambda: False, _GRACE)
            found = None if answer is None else answer.json()
        except (httpx.HTTPError, OSError, ValueError, RecursionError):
            return None
        return found if answer is not None and isinstance(found, dict) and answer.status_code < 500 else None

    def _ask(
        self, method: str, path: str, body: Any = None, *, headers: Any = None, stopping: Callable[[], bool]
    ) -> dict[str, Any] | None:
        """Ask until the server answers; None after `stopping`. Raises ConfigError for what no repetition mends."""
        import httpx

        delay, said = 0.25, False
        while not stopping():
            try:
                answer = self._answer(
                    {"method": method, "url": path, "json": body, "headers": headers}, stopping, _MOST
                )
                if answer is None:
                    return None
                if answer.status_code < 300 and isinstance(found := answer.json(), dict):
                    return found
                told = answer.headers.get("location") or answer.text[:200]
                problem = f"{self._url}{path} answers {answer.status_code}: {told}"
                if answer.status_code < 500 and answer.status_code not in PASSING:
                    raise self._refusal(answer.status_code, problem)
            except (httpx.HTTPError, OSError, ValueError, RecursionError) as error:
                problem = f"{self._url} does not answer ({type(error).__name__})"
            if not said:
                said = True
                self._warn(f"{problem}; waiting for it")
            time.sleep(delay)
            delay = min(5.0, delay * 2)
        return None

    def _answer(self, request: dict[str, Any], stopping: Callable[[], bool], seconds: float) -> httpx.Response | None:
        """One answer; None when the run is asked to stop and none comes soon. Raises httpx.HTTPError, OSError."""
        client, found = self._connected(), queue.SimpleQueue[Any]()

        def ask() -> None:
            try:
                found.put(client.request(**request))
            except Exception as error:  # noqa: BLE001 - raised where it is awaited
                found.put(error)

        threading.Thread(target=ask, name="trajectory-server", daemon=True).start()
        until = time.monotonic() + seconds
        while True:
            try:
                answer = found.get(timeout=0.1)
            except queue.Empty:
                # A batch that is on its way may have left the server for good: it gets some time.
                until = min(until, time.monotonic() + _GRACE) if stopping() else until
                if time.monotonic() < until:
                    continue
                self._client = None  # the thread has the old one
                if stopping():
                    return None
                raise TimeoutError from None
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[no-any-return]

    def _refusal(self, status: int, problem: str) -> AtroposError:
        if status == 401:
            return ConfigError(f"{self._url} asks for a token, or refuses the one given", hint=f"set {TOKEN_VARIABLE}")
        if status == 422:
            return ConfigError(problem, hint="change --group-size or --prompts-per-step, which make the batch size")
        return ServerUnavailable(problem, hint="--from takes the URL of atropos serve or of run-api", address=self._url)

    def _connected(self) -> httpx.Client:
        if self._client is None:
            self._client = connect(self._url)
        return self._client
