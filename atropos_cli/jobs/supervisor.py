"""Carry out a JobPlan: start the components, wait until the servers work, run main, stop all in order.

    run_job(plan, folder, placer) -> exit code
        0 or main's own code      main (and its tasks) ended
        70                        a service ended before everything else had, with whatever code, or cannot work
        75                        the services were not ready within start_timeout
        7                         a component could not be started at all
        128+n                     signal n: TERM and INT stop the job, USR1 (the time limit comes) also queues it again

A service that ends is a failure even with code 0: vLLM ends with 0 when its engine has died. One that says so by
its health check before it ends (Component.dead_status) is killed at once. When main fails,
the services are looked at for some seconds first, since a client often notices before the server has ended.
A second signal does not wait any more.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from atropos_cli.domain.job import SERVICE_FAILED, START_TIMEOUT, Component, JobPlan
from atropos_cli.errors import ExitCode, LaunchError
from atropos_cli.jobs.folder import JobFolder
from atropos_cli.jobs.placing import Placed, Placer
from atropos_cli.jobs.readiness import Readiness, healthy
from atropos_cli.jobs.setup import SetupFailed, adopt_setup, end_setup

_TICK = 0.1
_BLAME = 5.0
_RESEND = 0.5
_MARGIN = 5.0
_HURRY = 3.0
"""Seconds after which main is told again to stop when a service has failed: nothing that it waits for will come."""
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
_RESUMABLE = (int(ExitCode.INTERRUPTED), *(128 + number for number in _HANDLED))
"""Codes of a main component that was stopped before its end: it can go on later."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the job ends: its exit code, why, and the component that is to blame."""

    code: int
    reason: str
    component: str | None = None


def run_job(plan: JobPlan, folder: Path, placer: Placer, say: Callable[[str], None] | None = None) -> int:
    """Carry out the job whose job.json lies in `folder`; returns its exit code. `say` gets lines for people."""
    return Supervisor(plan, folder.resolve(), placer, say or (lambda text: None)).run()


class Supervisor:
    """One attempt at a job."""

    def __init__(self, plan: JobPlan, folder: Path, placer: Placer, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.placer = placer
        self.folder = JobFolder(folder)
        self.by_name = {item.name: item for item in plan.components}
        self.placed: dict[str, Placed] = {}
        self.codes: dict[str, int] = {}
        self.readiness: dict[str, Readiness] = {}
        self.signals: list[int] = []
        self._announced: set[str] = set()
        self._killed: set[str] = set()
        self._say = say
        self._early = _closure(plan, [item.name for item in plan.services], lambda item: item.awaits())
        main = plan.main
        self._late = set() if main is None else self._behind(main.name)

    def run(self) -> int:
        """Run to the end; nothing that was started is left."""
        before = {number: signal.signal(number, self._on_signal) for number in _HANDLED}
        self.folder.event("job_started", job_id=self.placer.job_id, nodes=list(self.placer.nodes))
        try:
            try:
                adopt_setup(self.plan, self.folder, self._say, stopped=lambda: bool(self.signals))
                outcome = self._watch()
            except SetupFailed as error:
                outcome = Outcome(128 + self.signals[0] if self.signals else error.code, error.message)
            except LaunchError as error:
                outcome = Outcome(ExitCode.LAUNCH, error.message)
            except OSError as error:
                outcome = Outcome(ExitCode.DATA, f"{error.filename or self.folder.folder}: {error.strerror or error}")
            finally:
                self._stop_all()
                end_setup(self.plan, self.folder)
            return self._end(outcome)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # Watching --------------------------------------------------------------------------------------------------------

    def _watch(self) -> Outcome:
        deadline = time.monotonic() + self.plan.start_timeout
        while True:
            if self.signals:
                name = signal.Signals(self.signals[0]).name
                self.folder.event("signal", signal=name)
                return Outcome(128 + self.signals[0], f"stopped by {name}")
            outcome = self._look_for_ends() or self._look_for_problems()
            if outcome is not None:
                return outcome
            if self._complete():
                return Outcome(0, "finished")
            self._start_what_can()
            waiting = [item.name for item in self.plan.services if not self._is_ready(item.name)]
            if waiting and time.monotonic() > deadline:
                return self._timed_out(waiting)
            time.sleep(_TICK)

    def _start_what_can(self) -> None:
        for item in self.plan.components:
            if item.name not in self.placed and self._may_start(item):
                self._start(item)

    def _may_start(self, item: Component) -> bool:
        for name in item.awaits():
            other = self.by_name[name]
            if other.role == "service" or item.role == "helper":
                if self.folder.endpoint(name) is None:
                    return False
            elif self.codes.get(name) != 0:
                return False
        if item.role == "service" or item.name in self._early:
            return True
        if not all(self._is_ready(service.name) for service in self.plan.services):
            return False
        tasks = [other.name for other in self.plan.components if other.role == "task" and other.name not in self._late]
        return item.role == "task" or all(self.codes.get(name) == 0 for name in tasks)

    def _start(self, item: Component) -> None:
        node = self.placer.nodes[item.node]
        self.folder.event("start", component=item.name, node=node)
        self._say(f"start {item.name} on {node}, log {self.folder.log(item.name)}")
        self.placed[item.name] = self.placer.start(item, self.folder.folder, self.folder.log(item.name))
        if item.role == "service":
            watcher = Readiness(item, self.folder, self.plan.start_timeout)
            self.readiness[item.name] = watcher
            watcher.start()

    def _is_ready(self, name: str) -> bool:
        watcher = self.readiness.get(name)
        if watcher is None or not watcher.ready:
            return False
        if name not in self._announced:
            self._announced.add(name)
            endpoint = self.folder.endpoint(name) or {}
            self.folder.event("ready", component=name, endpoint=endpoint)
            ports = ", ".join(str(port) for port in endpoint.get("ports", {}).values())
            self._say(f"{name} is ready" + (f" at {endpoint.get('host')}, port {ports}" if ports else ""))
        return True

    def _look_for_ends(self) -> Outcome | None:
        for item in (*self.plan.services, *(other for other in self.plan.components if other.role != "service")):
            placed = self.placed.get(item.name)
            if placed is None or item.name in self.codes:
                continue
            code = placed.poll()
            if code is None:
                continue
            self._note_end(item.name, code)
            if item.role == "service":
                return self._blame(item.name, "while it was used" if self._is_ready(item.name) else "while it started")
            if code != 0:
                return self._guilty_service() or self._failed(*self._main_or(item.name, code))
        return None

    def _note_end(self, name: str, code: int) -> None:
        self.codes[name] = code
        self.folder.event("ended", component=name, code=code)
        self._say(f"{name} ended with {code}")

    def _look_for_problems(self) -> Outcome | None:
        for name, watcher in self.readiness.items():
            if watcher.problem is not None:
                if watcher.dead:
                    self.placed[name].kill()
                return Outcome(SERVICE_FAILED, f"{name}: {watcher.problem}", name)
        return None

    def _blame(self, name: str, when: str) -> Outcome:
        problem = (self.folder.status(name) or {}).get("problem")
        text = f"service {name} ended with {self.codes[name]} {when}" + (f": {problem}" if problem else "")
        return Outcome(SERVICE_FAILED, text, name)

    def _failed(self, name: str, code: int) -> Outcome:
        problem = (self.folder.status(name) or {}).get("problem")
        return Outcome(code, f"{name} ended with {code}" + (f": {problem}" if problem else ""), name)

    def _main_or(self, name: str, code: int) -> tuple[str, int]:
        """A helper often notices first that main has failed: then main's code says why."""
        main = self.plan.main
        end = time.monotonic() + (_BLAME if self.by_name[name].role == "helper" else 0)
        while main is not None and main.name not in self.codes and not self.signals and time.monotonic() < end:
            if self._ended([main.name]) and self.codes[main.name]:
                return main.name, self.codes[main.name]
            time.sleep(_TICK)
        return name, code

    def _guilty_service(self) -> Outcome | None:
        """After main failed: has a service ended, or stopped answering?"""
        end = time.monotonic() + _BLAME
        while self.plan.services and not self.signals and time.monotonic() < end:
            sick = []
            for item in self.plan.services:
                placed = self.placed.get(item.name)
                code = placed.poll() if placed else None
                if code is not None:
                    self._note_end(item.name, code)
                    return self._blame(item.name, "while it was used")
                if not healthy(item, self.folder.endpoint(item.name)):
                    sick.append(item.name)
            if not sick and time.monotonic() > end - _BLAME / 2:
                return None
            time.sleep(_TICK)
        if self.plan.services and not self.signals and sick:
            return Outcome(SERVICE_FAILED, f"service {sick[0]} does not answer its health check any more", sick[0])
        return None

    def _timed_out(self, waiting: list[str]) -> Outcome:
        name = waiting[0]
        watcher = self.readiness.get(name)
        what = watcher.waits_for if watcher else "the services before it"
        text = f"{', '.join(waiting)} not ready after {self.plan.start_timeout:g} s; {name} waits for {what}"
        return Outcome(START_TIMEOUT, text, name)

    def _complete(self) -> bool:
        """Has everything ended that ends by itself? Services alone run until they are stopped."""
        ending = [item.name for item in self.plan.components if item.role != "service"]
        return bool(ending) and all(name in self.codes for name in ending)

    # Stopping --------------------------------------------------------------------------------------------------------

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)

    def _stop_all(self) -> None:
        """Main and tasks first, then the services together, in reverse order of their start."""
        for watcher in self.readiness.values():
            watcher.cancel()
        drain, grace = (self.plan.drain if self.signals else self.plan.grace), self.plan.grace
        limit = self.placer.stop_within
        if self.signals and self.signals[0] != signal.SIGUSR1 and limit is not None:
            # The cluster kills everything soon, and it has told all programs already.
            left = max(limit - _MARGIN, 1.0)
            grace = min(grace, left / 3)
            drain = min(drain, left - grace)
        running = [name for name in self.placed if name not in self.codes]
        hurry = None if self.signals else _HURRY
        self._stop([name for name in running if self.by_name[name].role != "service"], drain, hurry=hurry)
        self._stop([name for name in reversed(running) if self.by_name[name].role == "service"], grace)

    def _stop(self, names: list[str], seconds: float, *, hurry: float | None = None) -> None:
        signals = len(self.signals)
        left = set(names)
        told: set[str] = set()
        began = last = time.monotonic()
        for name in names:
            self.folder.event("stop", component=name)
        while left:
            again = time.monotonic() - last >= _RESEND
            for name in names:
                # Before it has published its endpoint, its parent may not listen yet.
                if name in left and name not in told and (again or last == began):
                    if self.folder.endpoint(name) is not None:
                        told.add(name)
                    self.placed[name].stop()
            if again or last == began:
                last = time.monotonic()
            left -= self._ended(left)
            if hurry is not None and time.monotonic() - began > hurry:
                hurry = None
                for name in left:
                    self.placed[name].stop()
            if left and (time.monotonic() - began > seconds or len(self.signals) > max(signals, 1)):
                break
            time.sleep(_TICK / 2)
        for name in names:
            if name in left:
                self.folder.event("killed", component=name, after_s=round(time.monotonic() - began, 1))
                self._say(f"{name} did not stop within {seconds:g} s: killed")
                self._killed.add(name)
                self.placed[name].kill()
        self._ended(left)

    def _ended(self, names: Iterable[str]) -> set[str]:
        ended = set()
        for name in names:
            code = self.placed[name].poll()
            if code is not None:
                self._note_end(name, code)
                ended.add(name)
        return ended

    # The end ---------------------------------------------------------------------------------------------------------

    def _end(self, outcome: Outcome) -> int:
        main = self.plan.main
        code = None if main is None else self.codes.get(main.name)
        if self.signals and outcome.code > 128 and main is not None:
            if code == 0 and self._complete():
                outcome = Outcome(0, "finished")
            elif code and code not in _RESUMABLE and main.name not in self._killed and self._limit_comes():
                outcome = self._failed(main.name, code)
        outcome, preempted = self._by_cluster(outcome)
        again = self._should_requeue(outcome, preempted=preempted)
        record: dict[str, Any] = {
            "code": outcome.code,
            "reason": outcome.reason,
            "component": outcome.component,
            "job_id": self.placer.job_id,
            "requeued": again,
            "restarts": self.placer.restarts,
            "components": dict(self.codes),
        }
        said = {key: record[key] for key in ("code", "reason", "requeued", "restarts")}
        self.folder.event("exit", **said)
        self._explain(outcome)
        self.folder.finish(record)
        if again:
            try:
                self.placer.requeue()
            except LaunchError as error:
                self._say(f"cannot be queued again: {error.message}")
                # A preempted job is queued again by the cluster itself, and has been if it was a moment faster.
                self.folder.finish({**record, "requeued": preempted, "requeue_problem": error.message})
        return outcome.code

    def _limit_comes(self) -> bool:
        return bool(self.signals) and self.signals[0] == signal.SIGUSR1

    def _by_cluster(self, outcome: Outcome) -> tuple[Outcome, bool]:
        """The outcome with the cluster's reason where it stops the job, and whether that is to make room for another.

        A cluster may signal only the steps: then main ends as if somebody had stopped it, or a server ends first.
        """
        if outcome.code not in (*_RESUMABLE, SERVICE_FAILED):
            return outcome, False
        cause = self.placer.cause()
        if cause == "preempted":
            return Outcome(128 + signal.SIGTERM, "preempted by a job of higher priority"), True
        if cause == "time limit" and outcome.code != SERVICE_FAILED:
            return Outcome(outcome.code, f"ran into its time limit ({outcome.reason})", outcome.component), False
        return outcome, False

    def _should_requeue(self, outcome: Outcome, *, preempted: bool) -> bool:
        """At its time limit as often as the plan says; a preempted job has used up none of its time."""
        if preempted:
            return self.plan.max_requeues > 0
        stopped = self._limit_comes() and outcome.code == 128 + signal.SIGUSR1
        return stopped and self.placer.restarts < self.plan.max_requeues

    def _explain(self, outcome: Outcome) -> None:
        self._say(f"{self.plan.name}: {outcome.reason} (exit code {outcome.code})")
        if outcome.component is not None:
            for line in self.folder.tail(outcome.component):
                self._say(f"  {line}")
            with contextlib.suppress(OSError):
                self._say(f"the whole log: {self.folder.log(outcome.component)}")

    def _behind(self, name: str) -> set[str]:
        """The components that wait for `name`, directly or not."""
        found = {name}
        while True:
            more = {item.name for item in self.plan.components if not found.isdisjoint(item.awaits())} - found
            if not more:
                return found - {name}
            found |= more


def _closure(plan: JobPlan, names: list[str], below: Callable[[Component], Iterable[str]]) -> set[str]:
    """Everything reachable from `names`."""
    by_name = {item.name: item for item in plan.components}
    found: set[str] = set()
    todo = list(names)
    while todo:
        new = [name for name in below(by_name[todo.pop()]) if name not in found]
        found.update(new)
        todo += new
    return found
