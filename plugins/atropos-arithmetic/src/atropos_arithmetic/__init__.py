"""Small sums as an atropos environment. This module is what atropos loads; it names what is here."""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_environments() -> Iterable[ComponentSpec]:
    """The environment `arithmetic`, and the fixed suite `arithmetic_eval`."""
    return [
        ComponentSpec(
            "environment",
            "arithmetic",
            "atropos_arithmetic.environment:ArithmeticEnvironment",
            summary="Endless small sums with an exact answer.",
        ),
        ComponentSpec(
            "environment",
            "arithmetic_eval",
            "atropos_arithmetic.suite:ArithmeticEval",
            summary="200 fixed problems, very easy to very hard, for `atropos eval`.",
        ),
    ]


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """Its reward, also by name."""
    target = "atropos_arithmetic.environment:exact"
    return [ComponentSpec("reward", "arithmetic_exact", target, summary="1 for the right number, else 0.")]
