"""Selection and pairing, against the case table and on its own."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import case_tables
import pytest

from atropos_cli.datasets.convert import selection

SELECTING = {
    "best_vs_worst",
    "best_vs_worst_distinct",
    "all_pairs",
    "correct_vs_wrong",
    "sft_top_n",
    "length_control",
}


def cases(wanted: set[str]) -> list[Any]:
    return case_tables.params("pairs", lambda row: row["fn"] in wanted)


def selected(fn: str, given: dict[str, Any]) -> list[Any]:
    if fn == "sft_top_n":
        given["min_gap"] = given.pop("min_gap_over_group_min")
        return selection.top_n(given.pop("scores"), given.pop("n"), **given)
    if fn == "length_control":
        pairs = [(a, b) for a, b in given["pairs"]]
        return selection.length_control(pairs, given["lengths"], given["max_ratio"])
    function = getattr(selection, fn.removesuffix("_distinct"))
    result: list[Any] = function(given.pop("scores"), **given)
    return result


@pytest.mark.parametrize("case", cases(SELECTING))
def test_case(case: dict[str, Any]) -> None:
    got = selected(case["fn"], dict(case["input"]))
    assert [list(item) if isinstance(item, tuple) else item for item in got] == case["expected"]


def test_every_case_of_the_table_has_a_home() -> None:
    formats = {
        "sharegpt_to_messages",
        "messages_to_sharegpt",
        "to_trl_preference",
        "to_trl_unpaired",
        "to_trl_prompt_completion",
    }
    known = {row["fn"] for row in case_tables.table("pairs")}
    assert known <= SELECTING | {"dpo_loss"} | formats  # the loss is the trainer's


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_score_that_is_no_number_is_nowhere(bad: float | None, place: int) -> None:
    scores: list[float | None] = [0.2, 0.9]
    scores.insert(place, bad)
    best, worst = scores.index(0.9), scores.index(0.2)
    rng = Random(0)
    assert selection.best_vs_worst(scores) == [(best, worst)]
    assert selection.all_pairs(scores) == [(best, worst)]
    assert selection.best_vs_random(scores, rng) == [(best, worst)]
    assert selection.correct_vs_wrong(scores, threshold=0.5) == [(best, worst)]
    assert selection.top_n(scores, None) == [best, worst]


def test_ties_are_never_paired() -> None:
    for scores in ([1.0, 1.0, 1.0], [0.0, 0.0], [None, 2.0], []):
        assert selection.all_pairs(scores) == []
        assert selection.best_vs_worst(scores) == []
        assert selection.best_vs_random(scores, Random(0)) == []
    assert selection.is_tie([1.0, None, 1.0])
    assert not selection.is_tie([1.0, None])
    assert not selection.is_tie([1.0, 0.0])


def test_identical_texts_are_never_paired() -> None:
    scores, texts = [1.0, 0.5, 0.0], ["a", "b", " a\n"]
    assert selection.all_pairs(scores, texts=texts) == [(0, 1), (1, 2)]
    assert selection.best_vs_random(scores, Random(1), texts=texts) == [(0, 1)]
    assert selection.correct_vs_wrong(scores, threshold=1.0, texts=texts) == [(0, 1)]
    # The best one has no partner of another text: the next best is chosen.
    assert selection.best_vs_worst([1.0, 0.5, 0.0], texts=["a", "a", "a "]) == []


def test_the_margin_holds_for_every_policy() -> None:
    scores = [0.3, 0.1, 0.25]
    assert selection.all_pairs(scores, margin=0.2) == [(0, 1)]  # 0.3 - 0.1 is 0.19999999999999998
    assert selection.best_vs_worst(scores, margin=0.21) == []
    assert selection.best_vs_random(scores, Random(0), margin=0.2) == [(0, 1)]
    assert selection.correct_vs_wrong(scores, threshold=0.25, margin=0.2) == [(0, 1)]


def test_min_chosen_lets_no_bad_best_through() -> None:
    assert selection.all_pairs([0.2, 0.1], min_chosen=0.5) == []
    assert selection.best_vs_random([0.2, 0.1], Random(0), min_chosen=0.5) == []
    assert selection.best_vs_worst([0.5, 0.1], min_chosen=0.5) == [(0, 1)]


def test_the_longer_tie_is_kept_when_asked_for() -> None:
    scores, lengths = [1, 1, 0, 0], [90, 40, 30, 70]
    assert selection.best_vs_worst(scores, lengths=lengths, tiebreak="longer") == [(0, 2)]
    assert selection.best_vs_worst(scores, lengths=lengths) == [(0, 2)]


def test_random_choices_depend_on_the_seed_and_the_group_only() -> None:
    scores: list[float | None] = [9.0, *[float(i) for i in range(8)]]

    def pick(seed: int, group: str) -> list[tuple[int, int]]:
        return selection.best_vs_random(scores, selection.group_random(seed, group))

    assert pick(3, "a") == pick(3, "a")
    assert len({tuple(pick(seed, "a")) for seed in range(40)}) > 3
    assert len({tuple(pick(0, str(group))) for group in range(40)}) > 3
    many = selection.all_pairs(scores)
    few = selection.capped(many, 4, selection.group_random(1, "g"))
    assert few == selection.capped(many, 4, selection.group_random(1, "g"))
    assert len(few) == 4
    assert few == sorted(few)
    assert set(few) <= set(many)
    assert selection.capped(many, None, Random(0)) == many


def test_top_n_takes_identical_texts_once() -> None:
    assert selection.top_n([1.0, 1.0, 0.5], 2, texts=["x", "x ", "y"]) == [0, 2]
    assert selection.top_n([1.0, 2.0, 3.0], None, threshold=2.0, op=">=") == [2, 1]
    assert selection.top_n([None, None], None) == []
