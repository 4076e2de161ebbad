"""A launcher as the commands call it: what its methods raise or return wrongly becomes an error with its name.

A launcher is somebody else's code, and lists of jobs ask several: one that is broken must not take the others along.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from atropos_cli.domain.job import JobPlan
from atropos_cli.errors import AtroposError, LaunchError, PluginError
from atropos_cli.plugins.errortext import bare_signature, describe_error, found
from atropos_cli.ports.launcher import JobSpec, JobStatus, KeyedJob, Launcher

T = TypeVar("T")


def guarded(launcher: Launcher) -> Launcher:
    """The launcher, its answers checked."""

    class Guarded(_Guarded):
        name = launcher.name
        capabilities = launcher.capabilities
        asks = launcher.asks

    return Guarded(launcher)


class _Guarded(Launcher):
    def __init__(self, launcher: Launcher) -> None:
        super().__init__(launcher.config)
        self._launcher = launcher
        self.source = launcher.source

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_launcher"], name)

    def render(self, job: JobSpec) -> str:
        return self._one(str, "render", job)

    def submit(self, job: JobSpec) -> str:
        job_id = self._call("submit", job)
        if not isinstance(job_id, str | int) or not str(job_id).strip():
            raise self._wrong("submit", job_id, "the job's id as text", "; what it started is not in the list of jobs")
        return str(job_id)

    def status(self, job_id: str) -> JobStatus:
        return self._one(JobStatus, "status", job_id)

    def logs(self, job_id: str, *, follow: bool = False) -> Iterator[str]:
        lines = self._call("logs", job_id, follow=follow)
        if not hasattr(lines, "__iter__") or isinstance(lines, str | bytes):
            raise self._wrong("logs", lines, "an iterator of lines")
        walk = iter(lines)
        while True:
            try:
                line = next(walk)
            except StopIteration:
                return
            except (Exception, SystemExit) as error:
                raise self._raised("logs", error) from error
            if not isinstance(line, str):
                raise self._wrong("logs", line, "lines of text")
            yield line.rstrip("\n")

    def cancel(self, job_id: str) -> None:
        self._call("cancel", job_id)

    def decide(self, job: KeyedJob) -> None:
        self._call("decide", job)

    def adapt(self, plan: JobPlan, folder: Path) -> JobPlan:
        return self._one(JobPlan, "adapt", plan, folder)

    def check_option(self, key: str) -> None:
        self._launcher.check_option(key)  # a ValueError is its answer

    def call(self, job: JobSpec) -> list[str]:
        return self._words("call", job)

    def doubts(self, job: JobSpec) -> list[str]:
        return self._words("doubts", job)

    def verdict(self, job: JobSpec) -> str | None:
        said = self._call("verdict", job)
        return None if said is None else self._is(str, "verdict", said)

    def tasks(self, job_id: str, count: int) -> Mapping[int, JobStatus]:
        known: dict[Any, Any] = self._one(dict, "tasks", job_id, count)
        return {int(index): self._is(JobStatus, "tasks", status) for index, status in known.items()}

    def output(self, job: JobSpec, job_id: str, task: int | None = None) -> Path | None:
        path = self._call("output", job, job_id, task)
        return None if path is None else self._is(Path, "output", path)

    def _one(self, kind: type[T], method: str, *given: Any) -> T:
        return self._is(kind, method, self._call(method, *given))

    def _words(self, method: str, job: JobSpec) -> list[str]:
        return [self._is(str, method, word) for word in self._one(list, method, job)]

    def _call(self, method: str, *given: Any, **named: Any) -> Any:
        try:
            return getattr(self._launcher, method)(*given, **named)
        except (Exception, SystemExit) as error:
            raise self._raised(method, error) from error

    def _is(self, kind: type[T], method: str, value: Any) -> T:
        if isinstance(value, kind):
            return value
        raise self._wrong(method, value, kind.__name__)

    def _raised(self, method: str, error: BaseException) -> AtroposError:
        if isinstance(error, AtroposError):
            return error
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
        hint = f"in {self._where()}: def {method}{bare_signature(getattr(Launcher, method))}: ..."
        if frames:  # else it was not even entered
            place = [frame for frame in frames if frame.filename == frames[0].filename][-1]
            hint = f"{place.filename}:{place.lineno}; a launcher raises LaunchError for what it cannot do"
        return LaunchError(f"launcher {self.name!r}: {method}() raised {describe_error(error)}", hint=hint)

    def _wrong(self, method: str, value: Any, wanted: str, more: str = "") -> PluginError:
        hint = f"let {method}() of {self._where()} return {wanted}"
        if inspect.iscoroutine(value):
            value.close()  # else Python warns that nobody waited for it
            hint = f"def {method}(...) without async: launchers are asked in turn"
        return PluginError(f"launcher {self.name!r}: {method}() returned {found(value)}, not {wanted}{more}", hint=hint)

    def _where(self) -> str:
        return self.source or f"{type(self._launcher).__module__}:{type(self._launcher).__qualname__}"
