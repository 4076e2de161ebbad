"""Trackers: services and files beside the run's own records. A tracker that fails or hangs is left out, never fatal.

Each works in a thread of its own. Training waits OPENING seconds for them to open, PATIENCE seconds in all for
their calls (a tracker that is slower works behind it), and ENDING seconds at the end.

Nothing is opened, and so nothing sent, but what the plan names. Run ids are kept in trackers.json of the
run folder, so that a resumed run goes on under the same id.
"""

from __future__ import annotations

import functools
import json
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.training import TrainPlan
from atropos_cli.io.append import atomic_write
from atropos_cli.io.jsonvalue import read_object
from atropos_cli.redaction import redacted_json

FILE = "trackers.json"
OPENING = 60.0
PATIENCE = 10.0
CALL = 60.0
"""A tracker whose call takes longer is left out."""
ENDING = 120.0

Say = Callable[[str], None]
Values = Mapping[str, float | None]


class Tracker(Protocol):
    """One service. Any call may raise; Trackers takes care of it."""

    name: str

    def metrics(self, step: int, values: Values) -> None: ...

    def samples(self, step: int, rows: Sequence[JsonDict]) -> None: ...

    def finish(self, code: int) -> None: ...


class _Service:
    """One tracker in a thread of its own, which may hang for ever: the program ends without it.

    error: why it no longer works. busy_since: when its present call began, None between calls.
    """

    def __init__(self, name: str, opener: Callable[[Say], Tracker]) -> None:
        self.name = name
        self.error: BaseException | None = None
        self.busy_since: float | None = time.monotonic()
        self.words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._calls: queue.SimpleQueue[Callable[[Tracker], None] | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._waiting = 1  # for it to open
        threading.Thread(target=self._work, args=(opener,), name=f"tracker {name}", daemon=True).start()

    def ask(self, call: Callable[[Tracker], None]) -> None:
        """Let it do this when it has done all before."""
        with self._changed:
            self._waiting += 1
        self._calls.put(call)

    def wait(self, seconds: float) -> bool:
        """Wait until it has done all that it was asked for; False when it takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting == 0 or self.error is not None, max(seconds, 0.0))

    def end(self) -> None:
        """Let the thread end, once the call that it is in returns."""
        self._calls.put(None)

    def _work(self, opener: Callable[[Say], Tracker]) -> None:
        try:
            tracker = opener(self.words.put)
            self._done()
            while (call := self._calls.get()) is not None:
                self.busy_since = time.monotonic()
                call(tracker)
                self._done()
        except BaseException as error:  # noqa: BLE001 (whatever a tracker raises, SystemExit too, training goes on)
            with self._changed:
                self.error = error
                self._changed.notify_all()

    def _done(self) -> None:
        with self._changed:
            self.busy_since = None
            self._waiting -= 1
            self._changed.notify_all()


class Trackers:
    """All trackers of a run. None of its methods raises on account of a tracker, or waits for one for long."""

    def __init__(self, services: Sequence[_Service], say: Say) -> None:
        self._services = list(services)
        self._say = say
        self._patience = PATIENCE

    @property
    def names(self) -> list[str]:
        """Those that still work."""
        return [service.name for service in self._services]

    def metrics(self, step: int, values: Values) -> None:
        self._each(lambda tracker: tracker.metrics(step, values))

    def samples(self, step: int, rows: Sequence[JsonDict]) -> None:
        if rows:
            shown = redacted_json(rows)
            self._each(lambda tracker: tracker.samples(step, shown))

    def finish(self, code: int) -> None:
        """End all of them; call it on every way out. code: the exit code that the program is about to end with."""
        deadline = time.monotonic() + ENDING
        for service in self._services:
            service.ask(lambda tracker: tracker.finish(code))
        for service in list(self._services):
            if not service.wait(deadline - time.monotonic()):
                self._leave_out(service, f"it did not end within {ENDING:.0f} s", "what it has not sent is lost there")
            elif service.error is not None:
                self._leave_out(service, _reason(service.error))
            self._pass_on(service)
            service.end()
        self._services = []

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for service in list(self._services):
            since = service.busy_since
            if since is not None and time.monotonic() - since > CALL:
                self._leave_out(service, f"it has not answered for {CALL:.0f} s")
                continue
            service.ask(call)
            began = time.monotonic()
            service.wait(self._patience)
            self._patience -= min(time.monotonic() - began, self._patience)
            self._pass_on(service)
            if service.error is not None:
                self._leave_out(service, _reason(service.error))

    def _pass_on(self, service: _Service) -> None:
        while not service.words.empty():
            self._say(service.words.get())

    def _leave_out(self, service: _Service, reason: str, then: str = "training goes on") -> None:
        service.end()
        self._services.remove(service)
        self._say(f"{service.name} is left out from here: {reason}; {then}")


def open_trackers(plan: TrainPlan, folder: Path, say: Say, *, resume: bool = False) -> Trackers:
    """Open what the plan names; whatever cannot be opened in time is said once and left out."""
    services = [
        _Service(name, functools.partial(_open, _OPENERS[name], plan, folder, resume)) for name in plan.trackers
    ]
    deadline = time.monotonic() + OPENING
    opened = []
    for service in services:
        in_time = service.wait(deadline - time.monotonic())
        while not service.words.empty():
            say(service.words.get())
        if not in_time:
            service.end()
            say(f"{service.name} is left out: it did not open within {OPENING:.0f} s; training goes on")
        elif isinstance(service.error, ModuleNotFoundError):
            extra = f"pip install 'atropos-cli[{service.name}]'"
            say(f"{service.name} is left out: {service.error.name} is not installed ({extra})")
        elif service.error is not None:
            say(f"{service.name} is left out: {_reason(service.error)}; training goes on")
        else:
            opened.append(service)
    return Trackers(opened, say)


def _open(
    opener: Callable[[TrainPlan, Path, Say, bool], Tracker], plan: TrainPlan, folder: Path, resume: bool, say: Say
) -> Tracker:
    return opener(plan, folder, say, resume)


def read_ids(folder: Path) -> dict[str, Any]:
    """What trackers.json holds; empty when there is none or it is damaged."""
    try:
        return read_object(folder / FILE)
    except (OSError, ValueError):
        return {}


def keep_id(folder: Path, name: str, values: JsonDict) -> None:
    """Store a tracker's own id of the run."""
    atomic_write(folder / FILE, json.dumps({**read_ids(folder), name: values}, indent=2).encode() + b"\n")


def offline() -> bool:
    """Did the user ask that nothing goes over the network?"""
    wanted = os.environ.get("ATROPOS_OFFLINE", "").strip().lower() not in ("", "0", "false", "no", "off")
    return wanted or os.environ.get("WANDB_MODE", "").strip().lower() in ("offline", "dryrun")


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _wandb(plan: TrainPlan, folder: Path, say: Say, resume: bool) -> Tracker:
    from atropos_cli.engine.training.records.wandb import WandbTracker

    return WandbTracker(plan, folder, say, resume=resume)


def _tensorboard(plan: TrainPlan, folder: Path, say: Say, resume: bool) -> Tracker:
    from atropos_cli.engine.training.records.tensorboard import TensorBoardTracker

    return TensorBoardTracker(folder, resume=resume)


_OPENERS: dict[str, Callable[[TrainPlan, Path, Say, bool], Tracker]] = {"wandb": _wandb, "tensorboard": _tensorboard}
