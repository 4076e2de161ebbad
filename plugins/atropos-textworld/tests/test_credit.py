"""Discounted credit, length and combination against the table of worked rows; the credit of alternatives."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import case_tables
import pytest
from atropos_textworld.agent import credit
from atropos_textworld.agent.latro import Plan, answer_logprob, with_truncation
from atropos_textworld.agent.options import AgentOptions
from atropos_textworld.agent.scoring import Spent
from atropos_textworld.agent.turn import Credit
from atropos_textworld.agent.vrcli import UnscorableError
from atropos_textworld.engine.observation import Observation


def test_rows_of_the_table() -> None:
    checked = 0
    for row in case_tables.table("advantages", "discounted_returns"):
        given = row["input"]
        assert credit.discounted_returns(given["rewards"], given["gamma"]) == pytest.approx(row["expected"])
        checked += 1
    for row in case_tables.table("advantages", "token_length_adjust"):
        given = dict(row["input"])
        assert credit.token_length_adjust(given.pop("score"), given.pop("tokens"), **given) == pytest.approx(
            row["expected"]
        ), row["id"]
        checked += 1
    assert checked >= 7


def alternative(command: str | None, outcome: Observation | None = None, *, executed: bool = False) -> Any:
    nothing = command is None or (outcome is not None and not outcome.acted and not outcome.done)
    return SimpleNamespace(reply=SimpleNamespace(command=command), outcome=outcome, executed=executed, nothing=nothing)


def turn(number: int, before: int, *alternatives: Any) -> Any:
    chosen = next(a for a in alternatives if a.executed)
    return SimpleNamespace(
        number=number, before=Observation("", score=before), alternatives=alternatives, chosen=chosen
    )


def test_credit_of_what_was_played_is_the_rule_of_the_rows() -> None:
    """Points 0, 1, 0 of 4, then the game is won: a turn's own, and what came later, discounted once a turn."""
    seen = [Observation("", score=0), Observation("", score=1), Observation("", score=1, won=True)]
    turns = [
        turn(0, 0, alternative("a", seen[0], executed=True)),
        turn(1, 0, alternative("b", seen[1], executed=True)),
        turn(2, 1, alternative("c", seen[2], executed=True)),
    ]
    earned = Credit(turns, seen[2], max_score=4, gamma=0.9)
    got = [earned.of(t, t.chosen) for t in turns]
    assert [value["score"] for value in got] == pytest.approx([0.9 * 0.25, 0.25, 0.0])
    assert [value["won"] for value in got] == pytest.approx([0.9**3, 0.9**2, 0.9])
    assert [value["lost"] for value in got] == [0, 0, 0]


def test_being_chosen_is_no_merit() -> None:
    """Alternatives with the same points get the same; points, the end and a lost turn make the difference."""
    good, same = Observation("", score=0), Observation("", score=0)
    richer, deadly = Observation("", score=2), Observation("", score=0, lost=True)
    useless = Observation("", score=0, acted=False)
    played = alternative("go north", good, executed=True)
    others = {
        "same": alternative("go south", same),
        "richer": alternative("take coin", richer),
        "deadly": alternative("eat poison", deadly),
        "useless": alternative("take moon", useless),
        "malformed": alternative(None),
    }
    last = alternative("open chest", Observation("", score=2, won=True), executed=True)
    turns = [turn(0, 0, played, *others.values()), turn(1, 0, last)]
    earned = Credit(turns, last.outcome, max_score=2, gamma=0.5)
    of = {name: earned.of(turns[0], other) for name, other in others.items()}
    assert earned.of(turns[0], played) == {"score": 0.5, "won": 0.25, "lost": 0.0}
    assert of["same"] == earned.of(turns[0], played)
    assert of["richer"] == {"score": 1.5, "won": 0.25, "lost": 0.0}
    assert of["deadly"] == {"score": 0.0, "won": 0.0, "lost": 0.5}
    assert of["useless"] == of["malformed"] == {"score": 0.25, "won": 0.125, "lost": 0.0}


def test_when_nothing_happened_all_that_did_nothing_are_equal() -> None:
    played, other = alternative(None, executed=True), alternative("xyzzy", Observation("", acted=False))
    last = alternative("c", Observation("", score=1), executed=True)
    turns = [turn(0, 0, played, other), turn(1, 0, last)]
    earned = Credit(turns, last.outcome, max_score=1, gamma=0.5)
    assert earned.of(turns[0], played) == earned.of(turns[0], other) == {"score": 0.5, "won": 0.0, "lost": 0.0}


def test_the_total() -> None:
    mean = AgentOptions(group_by="turn", vrcli="discrete", vrcli_weight=0.3, format_weight=0.1)
    assert credit.total(mean, env=1.0, vrcli=0.5, form=1.0) == pytest.approx(0.15 + 0.1 + 0.6)
    added = mean.model_copy(update={"combine": "additive"})
    assert credit.total(added, env=1.0, vrcli=0.5, form=1.0) == pytest.approx(1.25)
    off = mean.model_copy(update={"vrcli": "off"})
    assert credit.total(off, env=1.0, vrcli=0.0, form=0.0) == pytest.approx(0.9)
    long = added.model_copy(update={"length_scale": 0.0002})
    assert credit.total(long, env=-1.0, vrcli=0.0, form=0.0, tokens=2000) == pytest.approx(-1.1)
    assert credit.total(long, env=-1.0, vrcli=0.0, form=0.0, tokens=None) == -1.0


def test_the_plan_goes_on_while_it_is_kept_to() -> None:
    plan = Plan(["go north", "take key"])
    plan.played("examine door", True)
    plan.played("fly", False)
    plan.played(None, False)
    assert plan.next == "go north"
    plan.played("go north", True)
    assert plan.next == "take key"
    plan.played("go south", True)
    assert plan.next is None
    plan.played("take key", True)
    assert plan.next is None


def test_a_reply_that_was_cut_off_is_worse_than_the_mean() -> None:
    assert with_truncation([-4.0, -2.0, -6.0, -1.0], [True, False, True, True]) == [-4.0, -6.5, -6.0, -1.0]


class Letters:
    """A model whose tokens are letters, each as probable as the others of a text."""

    def __init__(self, *values: float) -> None:
        self.values = values

    async def tokenize(self, text: str) -> list[int]:
        return list(text.encode())

    async def score_logprobs(self, prefix_ids: Any, continuation_ids: Any) -> list[float]:
        count = len(continuation_ids)
        return list(itertools.islice(itertools.cycle(self.values), count - count % len(self.values)))


@pytest.mark.parametrize("answer", ["look", "put the rusty key into the oak chest", "拿起 铜 钥匙", "x"])
async def test_latro_does_not_grow_with_the_length_of_the_command(answer: str) -> None:
    spent = Spent()
    assert await answer_logprob(Letters(-0.75), [1, 2], "so", answer, spent) == pytest.approx(-0.75)
    assert spent.requests == 1
    assert spent.tokens > len(answer.encode())


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ((-1.0, math.nan), "missing_logprob"),
        ((-1.0, 0.5), "positive_logprob"),
        ((-1.0, -math.inf), "impossible_answer"),
        ((-1.0,) * 4, "token_count_mismatch"),
        ((-1.0,) * 50, "empty_completion"),
    ],
)
async def test_latro_of_values_that_are_no_log_probabilities_is_no_reward(values: Any, kind: str) -> None:
    with pytest.raises(UnscorableError) as caught:
        await answer_logprob(Letters(*values), [1], "so", "go north.", Spent())  # ten letters with the quote
    assert caught.value.kind == kind
