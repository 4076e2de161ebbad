"""What this distribution offers to atropos. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl

_ENVIRONMENTS = (
    ("mbpp", "atropos_code.datasets:MbppEnvironment", "MBPP, full or sanitized: small Python functions with tests."),
    ("humaneval", "atropos_code.datasets:HumanEvalEnvironment", "HumanEval: complete a Python function; tested."),
    ("code-exec", "atropos_code.freeform:CodeExecEnvironment", "Endless free Python programs, rewarded for running."),
    ("code-game", "atropos_code.game:CodeGameEnvironment", "One writes a program, the other predicts its output."),
)
_REWARDS = (
    ("code_runs", "1.0 runs with output, 0.5 without, -0.5 does not compile or no code, -1.0 fails."),
    ("code_tests", "1 for a program that passes all tests of the task, else 0."),
    ("code_tests_levels", "1.0 passes all tests, -0.5 does not compile or no code, -1.0 anything else."),
    ("code_game", "Proposer against opponent: 1 when the output was not predicted."),
)


@hookimpl
def atropos_register_environments() -> Iterable[ComponentSpec]:
    """mbpp, humaneval, code-exec and code-game."""
    return [ComponentSpec("environment", name, target, summary=summary) for name, target, summary in _ENVIRONMENTS]


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """Their rewards, also by name."""
    return [ComponentSpec("reward", name, f"atropos_code.rewards:{name}", summary) for name, summary in _REWARDS]


@hookimpl
def atropos_doctor() -> Iterable[tuple[str, str, str]]:
    """How far programs can be shut in on this machine."""
    from atropos_code.doctor import checks

    return checks()
