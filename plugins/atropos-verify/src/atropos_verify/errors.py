"""Why an answer could not be judged. Each of these fails the rollout at stage "score"; none is a 0.0."""

from __future__ import annotations

from atropos_cli.sdk import AtroposError


class VerifierError(AtroposError):
    """A verifier could not give a verdict."""


class GoldError(VerifierError):
    """The task's own answer is missing or cannot be read, so that no answer could be right."""


class VerifierTimeout(VerifierError):
    """The deadline passed; the worker was killed and replaced."""


class VerifierMemory(VerifierError):
    """The worker reached its memory limit and was replaced."""


class VerifierCrashed(VerifierError):
    """The worker died or could not be started, and was replaced."""
