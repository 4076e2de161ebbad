"""What fits a model: the limits that backends with a model of their own share."""

from __future__ import annotations

import pytest

from atropos_cli.errors import ContextOverflow, RequestRejected
from atropos_cli.models.prompts import TokenLimits

LIMITS = TokenLimits(context=10, vocabulary=5)


def test_a_completion_gets_what_it_asks_for_or_the_rest_of_the_context() -> None:
    assert LIMITS.room([1, 2, 3], 4) == 4
    assert LIMITS.room([1, 2, 3], 7) == 7
    assert LIMITS.room([1, 2, 3], None) == 7


@pytest.mark.parametrize(("length", "wanted"), [(3, 8), (10, None), (11, 1)])
def test_what_does_not_fit_is_an_overflow_that_tells_the_sizes(length: int, wanted: int | None) -> None:
    with pytest.raises(ContextOverflow, match=f"{length} tokens.*holds 10"):
        LIMITS.room([1] * length, wanted)


@pytest.mark.parametrize(("ids", "said"), [([], "prompt is empty"), ([0, 5], "id 5 of the prompt"), ([-1], "id -1")])
def test_ids_that_the_model_lacks_are_refused(ids: list[int], said: str) -> None:
    with pytest.raises(RequestRejected, match=said):
        LIMITS.room(ids, 1)


def test_scored_tokens_may_fill_the_context_but_for_what_the_backend_needs() -> None:
    LIMITS.check_score([1] * 4, [2] * 6)
    LIMITS.check_score([1] * 4, [2] * 5, spare=1)
    with pytest.raises(ContextOverflow, match="have 11 tokens, the context holds 10"):
        LIMITS.check_score([1] * 4, [2] * 7)
    with pytest.raises(ContextOverflow, match="have 10 tokens, the context holds 9"):
        LIMITS.check_score([1] * 4, [2] * 6, spare=1)
    with pytest.raises(RequestRejected, match="prefix is empty"):
        LIMITS.check_score([], [1])
    with pytest.raises(RequestRejected, match="id 7 of the continuation"):
        LIMITS.check_score([1], [7])
