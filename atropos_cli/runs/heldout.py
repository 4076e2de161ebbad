"""What a run that pushes its groups counted on held-out tasks: RUN/evals/ENV-step-N.json, as `atropos eval` writes."""

from __future__ import annotations

from atropos_cli.console.names import safe_name
from atropos_cli.evaluation.evaluation import Evaluation, evaluate
from atropos_cli.evaluation.evidence import Evidence
from atropos_cli.evaluation.report import estimate
from atropos_cli.io.append import atomic_write
from atropos_cli.rollout.report import Examined
from atropos_cli.training.summary import plain_name


def keep(found: Examined) -> tuple[Evaluation, str]:
    """Count it and write it down: the evaluation, and a line that says it. Raises DataError."""
    result = evaluate(found.plan, Evidence(found.groups, found.lost))
    name = f"{safe_name(plain_name(result.environment))}-step-{found.step}.json"
    atomic_write(found.folder / name, result.model_dump_json(indent=2).encode() + b"\n")
    if result.accuracy is not None:
        said = f"accuracy {estimate(result.accuracy)}"
    else:
        said = f"reward {estimate(result.reward)}" if result.reward is not None else "no rewards"
    errors = f", {result.errors} errors" if result.errors else ""
    return result, f"step {found.step}: {said} on {result.tasks} held-out tasks{errors}"
