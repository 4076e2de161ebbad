"""Every error the product raises on purpose, and the exit code each one ends with.

    AtroposError                      has an exit code and an optional hint
    +-- UsageError            2       a bad flag or argument
    +-- ConfigError           3       a bad file, key, value or environment variable
    +-- PluginError           4       a plugin that is missing, broken or ambiguous
    |   +-- ComponentNotFound
    |   +-- ComponentClash
    +-- BackendError          5       the model server
    |   +-- TransientBackendError     worth retrying; may carry Retry-After
    |   |   +-- RateLimited           429: every worker waits
    |   |   +-- ServerUnavailable     refused, 502/503/504: opens the circuit breaker
    |   +-- RequestRejected           this one request is wrong (4xx); never retried
    |   |   +-- ContextOverflow       prompt and completion do not fit the context
    |   +-- FatalBackendError         no request can succeed: stop the run
    +-- DataError             6       a rollout file or the disk
    |   +-- Unscored                  a rollout has no value by a reward
    |   +-- RunLocked                 another process writes this run
    |   +-- RunExists                 the output is already there
    |   +-- PlanChanged               --resume with another plan
    +-- LaunchError           7
    |   +-- LauncherSilent            it did not answer; its jobs may be well
    +-- TrainerError          8
    +-- RunFailed             1       the run ended, but too much of it failed

A bug (any other exception) ends with 70, Ctrl-C with 130. This module imports the standard
library only, so that every layer may use it.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Process exit codes; `docs/reference/exit-codes` is generated from this enum."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CONFIG = 3
    PLUGIN = 4
    BACKEND = 5
    DATA = 6
    LAUNCH = 7
    TRAINER = 8
    BUG = 70
    INTERRUPTED = 130


EXIT_MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "everything asked for was done, or whoever read our output stopped reading (`| head`)",
    ExitCode.FAILED: "ran to the end, but more failed than --max-failure-rate allows, or nothing succeeded",
    ExitCode.USAGE: "an unknown option or a bad argument",
    ExitCode.CONFIG: "a configuration file, key, value or environment variable is wrong",
    ExitCode.PLUGIN: "a plugin or component is missing, broken or ambiguous",
    ExitCode.BACKEND: "the model or its server cannot be used",
    ExitCode.DATA: "a data file is unreadable, locked or already there, or the disk is full",
    ExitCode.LAUNCH: "a job could not be launched",
    ExitCode.TRAINER: "a trainer stopped with an error",
    ExitCode.BUG: "a defect in atropos or a plugin; please report it",
    ExitCode.INTERRUPTED: "stopped by Ctrl-C, SIGTERM or --max-cost; the run can be resumed",
}


class AtroposError(Exception):
    """Base of all expected errors. `hint` is a command or an edit that may help."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # for scripts that import us, where Python prints the error


class UsageError(AtroposError):
    exit_code = ExitCode.USAGE


class ConfigError(AtroposError):
    exit_code = ExitCode.CONFIG


class PluginError(AtroposError):
    exit_code = ExitCode.PLUGIN


class ComponentNotFound(PluginError):
    """No component of that kind and name; the hint carries close matches."""


class ComponentClash(PluginError):
    """Two distributions registered the same short name."""


class BackendError(AtroposError):
    """billed: may the request have been charged for? True where it was sent and its answer never came whole."""

    exit_code = ExitCode.BACKEND
    billed: bool = False


class TransientBackendError(BackendError):
    """The same request may succeed later. `retry_after` is in seconds when the server named a time."""

    billed = True

    def __init__(self, message: str, *, hint: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after

    def pause(self, delay: float, longest: float) -> float:
        """Seconds until the next try: as long as the server asked, but no less than `delay` and no more than `longest`.

        A server's word is neither a licence to hammer it (0) nor to hang (a day): the caller's own delay grows.
        """
        return max(delay, min(self.retry_after or 0.0, longest))


class RateLimited(TransientBackendError):
    """429: the server asks everybody to slow down."""

    billed = False


class ServerUnavailable(TransientBackendError):
    """Nobody listens, or the server refuses all work for now. `address` is host:port when known."""

    billed = False

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        retry_after: float | None = None,
        address: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, retry_after=retry_after)
        self.address = address


class RequestRejected(BackendError):
    """The server will never accept this request (4xx other than 408 and 429)."""

    def __init__(self, message: str, *, hint: str | None = None, status: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class ContextOverflow(RequestRejected):
    """Prompt plus completion is longer than the model's context: the episode ends truncated."""


class FatalBackendError(BackendError):
    """No request of this run can succeed (wrong key, unknown model, no chat template)."""


class DataError(AtroposError):
    exit_code = ExitCode.DATA


class Unscored(DataError):
    """A rollout has no value by a reward. Of weight 0 and not the only one, it is left out; else the rollout fails."""


class RunLocked(DataError):
    """Another process holds the run folder's lock."""


class RunExists(DataError):
    """The output exists and neither --resume nor --overwrite was given."""


class PlanChanged(DataError):
    """A resumed run was asked for with another plan."""


class LaunchError(AtroposError):
    exit_code = ExitCode.LAUNCH


class LauncherSilent(LaunchError):
    """A launcher or its cluster did not answer: nothing is known of its jobs for now, and later it may be."""


class TrainerError(AtroposError):
    exit_code = ExitCode.TRAINER


class RunFailed(AtroposError):
    exit_code = ExitCode.FAILED
