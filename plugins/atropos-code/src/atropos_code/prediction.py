"""The rules of the game in which one player writes a program and the other predicts its output."""

from __future__ import annotations

from atropos_code.outcomes import RunResult


def normalize(output: str) -> str:
    """Output as it is compared: ends trimmed, line ends made alike; all inner spacing counts."""
    return output.replace("\r\n", "\n").replace("\r", "\n").strip()


def scores(actual: str, predicted: str | None, *, ran_ok: bool, deterministic: bool) -> tuple[float, float]:
    """(proposer, opponent). A program that broke, is silent or varies loses for its proposer, and the opponent gets 0.

    Otherwise +1 to the proposer and -1 to the opponent when the prediction differs; no prediction is
    a wrong one. The text is compared exactly, numbers included.
    """
    if not ran_ok or not deterministic or not normalize(actual):
        return -1.0, 0.0
    right = predicted is not None and normalize(predicted) == normalize(actual)
    return (-1.0, 1.0) if right else (1.0, -1.0)


def deterministic(first: RunResult, second: RunResult) -> bool:
    """Whether two runs, with different hash seeds, ended alike and wrote the same."""
    return first.outcome == second.outcome and first.stdout == second.stdout


def learnability(solved: list[bool]) -> float:
    """Another reward of the proposer: 1 - mean solve rate when that is strictly between 0 and 1, else 0.

    It values programs that some predictions get right and some wrong (Absolute Zero, arXiv 2505.03335),
    where the plain rule teaches a proposer to write unpredictable programs.
    """
    rate = sum(solved) / len(solved) if solved else 0.0
    return 1.0 - rate if 0.0 < rate < 1.0 else 0.0
