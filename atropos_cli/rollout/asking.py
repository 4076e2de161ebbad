"""Ask a backend for an exact number of completions."""

from __future__ import annotations

from collections.abc import Callable

from atropos_cli.ports.backend import GenerateRequest, Generation
from atropos_cli.rollout.dispatch import Dispatcher, GroupBudget
from atropos_cli.rollout.episodes import together
from atropos_cli.rollout.prefill import check_wishes


async def exactly(
    dispatcher: Dispatcher,
    request: GenerateRequest,
    budget: GroupBudget,
    next_seed: Callable[[], int],
    *,
    line: str | None = None,
) -> list[Generation]:
    """Generations that hold request.n completions together: one request, or single ones where n is ignored.

    line: of the bill, where that is not the model's own.
    """
    check_wishes(dispatcher.backend, request)
    generations: list[Generation] = []
    if request.n == 1 or dispatcher.backend.capabilities.n is not False:
        generations.append(await dispatcher.generate(request, budget, line=line))
    missing = request.n - sum(len(generation.completions) for generation in generations)
    if missing > 0:
        singles = [request.model_copy(update={"n": 1, "seed": next_seed()}) for _ in range(missing)]
        generations += await together(dispatcher.generate(single, budget, line=line) for single in singles)
    return generations
