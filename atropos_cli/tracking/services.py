"""The trackers of a run. One that fails or hangs is left out, never fatal.

Each works in a thread of its own. Where trackers are waited for (training), it is OPENING seconds for them to open, and
PATIENCE seconds in all for their calls (a tracker that is slower works behind the run); ENDING seconds at the end.

Nothing is opened, and so nothing sent, but what the plan names. What a tracker keeps (the id at its service) is in
trackers.json of the run folder, so that a resumed run goes on under the same id.
"""

from __future__ import annotations

import functools
import json
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from atropos_cli.config.dotenv import truth
from atropos_cli.domain.base import JsonDict, clean_text
from atropos_cli.domain.tracking import Tracking
from atropos_cli.errors import AtroposError
from atropos_cli.io.append import atomic_write
from atropos_cli.io.jsonvalue import read_object
from atropos_cli.plugins.records import Registration
from atropos_cli.plugins.registry import Registry
from atropos_cli.ports.tracker import TrackedRun, Tracker, Values
from atropos_cli.redaction import redacted, redacted_json

FILE = "trackers.json"
OPENING = 60.0
PATIENCE = 10.0
CALL = 60.0
"""A tracker whose call takes longer is left out."""
ENDING = 120.0
ENDING_SOON = 10.0
"""The same for a run that was interrupted: whoever stopped it waits, or kills it soon."""
_INTERRUPTED = 130
_SHORT = 5.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class About:
    """The run, as its trackers are told of it. See TrackedRun."""

    command: Literal["gen", "eval", "train"]
    folder: Path
    config: JsonDict
    axis: str
    resume: bool = False
    name: str | None = None
    """What the run is called where the user names it not; default: the folder's name."""
    earlier_samples: Callable[[], list[JsonDict]] = list


class _Service:
    """One tracker in a thread of its own, which may hang for ever: the program ends without it.

    why: says of an error of the opener what it means.
    error: why it no longer works. busy_since: when its present call began, None between calls.
    """

    def __init__(self, name: str, opener: Callable[[Say], Tracker], why: Callable[[BaseException, str], str]) -> None:
        self.name = name
        self.why = why
        self.opened = False
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
            self.opened = True
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
    """All trackers of a run. None of its methods raises on account of a tracker, or waits for one for long.

    patience: seconds in all that calls wait for trackers. then: what follows when one is left out.
    """

    def __init__(self, services: Sequence[_Service], say: Say, *, patience: float, then: str) -> None:
        self._services = list(services)
        self._say = say
        self._patience = patience
        self._then = then

    @classmethod
    def none(cls) -> Trackers:
        """No trackers."""
        return cls((), lambda text: None, patience=0.0, then="")

    @property
    def names(self) -> list[str]:
        """Those that still work."""
        return [service.name for service in self._services]

    def await_opening(self) -> None:
        deadline = time.monotonic() + OPENING
        for service in list(self._services):
            in_time = service.wait(deadline - time.monotonic())
            if self._still_works(service) and not in_time:
                self._drop(service, f"is left out: it did not open within {OPENING:.0f} s; {self._then}")

    def metrics(self, step: int, values: Values) -> None:
        told = {clean_text(name): value for name, value in values.items()}
        self._each(lambda tracker: tracker.metrics(step, told))

    def samples(self, step: int, rows: Sequence[JsonDict]) -> None:
        if rows:
            shown = redacted_json(rows)
            self._each(lambda tracker: tracker.samples(step, shown))

    def videos(self, step: int, rows: Sequence[JsonDict]) -> None:
        if rows:
            shown = redacted_json(rows)
            self._each(lambda tracker: tracker.videos(step, shown))

    def summary(self, step: int, values: Mapping[str, float | str]) -> None:
        shown = {
            clean_text(name): clean_text(redacted(value)) if isinstance(value, str) else value
            for name, value in values.items()
            if isinstance(value, str) or math.isfinite(value)
        }
        self._each(lambda tracker: tracker.summary(step, shown))

    def finish(self, code: int) -> None:
        """End all of them; call it on every way out. code: the exit code that the program is about to end with."""
        ending = ENDING_SOON if code == _INTERRUPTED else ENDING
        deadline = time.monotonic() + ending
        for service in self._services:
            service.ask(lambda tracker: tracker.finish(code))
        try:
            for service in list(self._services):
                in_time = service.wait(min(_SHORT, deadline - time.monotonic()))
                if not in_time and deadline > time.monotonic():
                    self._say(f"waiting for {service.name}, at most {ending:.0f} s (Ctrl-C: no longer)")
                    in_time = service.wait(deadline - time.monotonic())
                if self._still_works(service) and not in_time:
                    text = f"it did not end within {ending:.0f} s; what it has not sent is lost there"
                    self._drop(service, f"is left out from here: {text}")
                service.end()
        except KeyboardInterrupt:
            self._say("the trackers are not waited for: what they have not sent is lost there")
        finally:
            self._services = []

    def drop(self) -> None:
        """Ask them for nothing more, and wait for none."""
        for service in self._services:
            service.end()
        self._services = []

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for service in list(self._services):
            since = service.busy_since
            if since is not None and time.monotonic() - since > CALL:
                self._drop(service, f"is left out from here: it has not answered for {CALL:.0f} s; {self._then}")
                continue
            service.ask(call)
            began = time.monotonic()
            service.wait(self._patience)
            self._patience -= min(time.monotonic() - began, self._patience)
            self._still_works(service)

    def _still_works(self, service: _Service) -> bool:
        """Pass on what the service said; if it failed, say why and use it no more."""
        while not service.words.empty():
            self._say(service.words.get())
        if service.error is None:
            return True
        if service.opened:
            self._drop(service, f"is left out from here: {_reason(service.error)}; {self._then}")
        else:
            self._drop(service, f"is left out: {service.why(service.error, self._then)}")
        return False

    def _drop(self, service: _Service, text: str) -> None:
        service.end()
        self._services.remove(service)
        self._say(f"{service.name} {text}")


def open_trackers(tracking: Tracking, about: About, registry: Registry, say: Say, *, wait: bool = True) -> Trackers:
    """Open what was asked for; whatever cannot be opened in time is said once and left out.

    wait False: they open behind the run, which never waits for one before its end.
    """
    services = []
    for name in dict.fromkeys(tracking.trackers):
        try:
            registration = registry.find("tracker", name)
        except AtroposError as error:
            say(f"{name} is left out: {error}" + (f" ({error.hint})" if error.hint else ""))
            continue
        opener = functools.partial(_open, registration, tracking, about)
        services.append(_Service(registration.name, opener, functools.partial(_why, registration)))
    trackers = Trackers(services, say, patience=PATIENCE if wait else 0.0, then=_GOES_ON[about.command])
    if wait:
        trackers.await_opening()
    return trackers


_GOES_ON = {"train": "training goes on", "gen": "the run goes on", "eval": "the evaluation goes on"}


def _open(registration: Registration, tracking: Tracking, about: About, say: Say) -> Tracker:
    tracker = registration.load()
    if switched_off(registration.name):
        raise SwitchedOff
    name = registration.name
    run = TrackedRun(
        command=about.command,
        folder=about.folder,
        name=redacted(tracking.run_name or os.environ.get("WANDB_NAME") or about.name or about.folder.absolute().name),
        project=_text(tracking.project),
        entity=_text(tracking.entity),
        group=_text(tracking.run_group),
        tags=tuple(map(redacted, tracking.tags)),
        config=redacted_json(about.config),
        axis=about.axis,
        resume=about.resume,
        offline=offline(),
        known=read_ids(about.folder).get(name, {}) if about.resume else {},
        keep=lambda values: keep_id(about.folder, name, values),
        say=say,
        earlier_samples=about.earlier_samples,
    )
    found: Tracker = tracker(run)
    return found


def _text(value: str | None) -> str | None:
    return None if value is None else redacted(value)


class SwitchedOff(Exception):
    """The user's environment says that this service is not to be used."""


def switched_off(name: str) -> bool:
    """W&B has variables that turn it off, for every program."""
    disabled = truth(os.environ.get("WANDB_DISABLED", "")) is True
    return name == "wandb" and (disabled or os.environ.get("WANDB_MODE", "").strip().lower() == "disabled")


def _why(registration: Registration, error: BaseException, then: str) -> str:
    """Why a tracker that did not open is left out."""
    spec = registration.spec
    if isinstance(error, SwitchedOff):
        return "WANDB_MODE or WANDB_DISABLED turns it off"
    if isinstance(error, ModuleNotFoundError):
        needed = " ".join(spec.requires) or error.name
        line = f"'{registration.dist}[{spec.extra}]'" if spec.extra else needed
        return f"{error.name} is not installed (pip install {line})"
    if isinstance(error, AtroposError):
        return str(error) + (f" ({error.hint})" if error.hint else "")
    return f"{_reason(error)}; {then}"


def read_ids(folder: Path) -> dict[str, Any]:
    """What trackers.json holds; empty when there is none or it is damaged."""
    try:
        return read_object(folder / FILE)
    except (OSError, ValueError):
        return {}


_keeping = threading.Lock()


def keep_id(folder: Path, name: str, values: JsonDict) -> None:
    """Store what a tracker wants to find again when the run goes on."""
    with _keeping:  # they open at the same time, each in its thread
        atomic_write(folder / FILE, json.dumps({**read_ids(folder), name: values}, indent=2).encode() + b"\n")


def offline() -> bool:
    """Did the user ask that nothing goes over the network?"""
    wanted = truth(os.environ.get("ATROPOS_OFFLINE", "")) is not False
    return wanted or os.environ.get("WANDB_MODE", "").strip().lower() in ("offline", "dryrun")


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
