"""Games in the real engine: seats, opponents, invalid moves, and what the summary says of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from atropos_games.environment import GamesConfig, GamesEnvironment
from atropos_games.match import OUTCOMES
from atropos_games.reading import read_move
from games_support import first_move, offered, play, random_player
from pydantic import ValidationError

from atropos_cli.cli import app
from atropos_cli.sdk import ConfigError, Message, ScoredGroup, token_sequences


def sides(groups: Sequence[ScoredGroup]) -> list[Any]:
    return [rollout for group in groups for rollout in group.rollouts]


def test_each_side_sees_its_own_position_and_has_its_own_tokens(tmp_path: Path) -> None:
    groups = play(tmp_path / "run", first_move, group_size=1, limit=1)
    first, second = groups[0].rollouts
    assert (first.role, second.role) == ("first", "second")
    assert first.info["moves"] == second.info["moves"] == ["1", "2", "3", "4", "5", "6", "7"]
    assert (first.reward, second.reward) == (1.0, -1.0)
    assert first.messages[0].role == "system"
    assert "You play X" in first.messages[0].text
    assert "You play O" in second.messages[0].text
    assert "X | 2 | 3" in second.messages[1].text
    assert "[1]" not in second.messages[1].text.rpartition("Your moves:")[2]
    for rollout in groups[0].rollouts:
        (sequence,) = token_sequences(rollout)
        assert sequence.whole
        assert 0 < sum(sequence.mask) < len(sequence.ids)


@pytest.mark.parametrize("game", ["tictactoe", "connectfour", "kuhn"])
def test_what_one_side_wins_the_other_loses(tmp_path: Path, game: str) -> None:
    for group in play(tmp_path / "run", random_player(), game=game, limit=4):
        for first, second in zip(group.rollouts[::2], group.rollouts[1::2], strict=True):
            assert first.reward == -second.reward
            assert 0 <= abs(first.reward) <= 1
            pairs = {("won", "lost"), ("lost", "won"), ("drawn", "drawn")}
            assert (first.info["outcome"], second.info["outcome"]) in pairs
            assert first.info["moves"] == second.info["moves"]


@pytest.mark.parametrize("opponent", ["random", "perfect"])
def test_against_a_script_the_policy_plays_each_start_from_both_seats(tmp_path: Path, opponent: str) -> None:
    groups = play(tmp_path / "run", random_player(), opponent=(opponent,), limit=6, opening_plies=2)
    assert [group.rollouts[0].info["seat"] for group in groups] == ["first", "second"] * 3
    assert {rollout.role for rollout in groups[0].rollouts} == {"first"}
    for one, other in zip(groups[::2], groups[1::2], strict=True):
        assert one.task.info["key"] == other.task.info["key"]
    starts = [group.rollouts[0].messages[1].text for group in groups[::2]]
    assert len(set(starts)) > 1
    assert {group.task.info["task_name"] for group in groups} == {f"tictactoe against {opponent}"}


def test_the_perfect_player_is_never_beaten_from_the_empty_board(tmp_path: Path) -> None:
    found = sides(play(tmp_path / "run", random_player(), opponent=("perfect",), limit=30))
    assert len(found) == 60
    assert {rollout.info["outcome"] for rollout in found} <= {"lost", "drawn"}


def test_a_scripted_player_does_the_same_again_and_differs_by_seed(tmp_path: Path) -> None:
    def moves(name: str, seed: int) -> list[Any]:
        found = play(tmp_path / name, first_move, opponent=("random",), limit=8, data_seed=seed)
        return [rollout.info["moves"] for rollout in sides(found)]

    assert moves("a", 0) == moves("b", 0)
    assert moves("c", 1) != moves("a2", 0)


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("I give up", "unreadable"),
        ("", "unreadable"),
        ("[0]", "illegal"),
        ("[10]", "illegal"),
        ("[the middle]", "illegal"),
        ("<think>[5]", "unreadable"),
        ("[5] or rather [X]", "illegal"),
        ("12", "unreadable"),
    ],
)
def test_an_invalid_move_ends_the_game_apart_from_defeat(tmp_path: Path, reply: str, fault: str) -> None:
    (group,) = play(tmp_path / "run", lambda messages: reply, limit=1, group_size=1)
    offender, other = group.rollouts
    assert (offender.reward, other.reward) == (-1.5, 0.5)
    assert (offender.info["outcome"], other.info["outcome"]) == ("lost_by_format", "won_by_format")
    assert offender.info["fault"] == fault
    assert "fault" not in other.info
    assert (offender.metrics[fault], other.metrics[fault]) == (1.0, 0.0)
    assert offender.metrics["lost"] == other.metrics["won"] == 0.0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["metrics"]["lost_by_format"] == summary["metrics"]["won_by_format"] == 0.5


def test_a_taken_cell_without_brackets_is_illegal_and_not_unreadable(tmp_path: Path) -> None:
    (group,) = play(tmp_path / "run", lambda messages: "5", limit=1, group_size=1)
    first, second = group.rollouts
    assert (first.reward, second.reward) == (0.5, -1.5)
    assert second.info["fault"] == "illegal"


def test_a_game_that_takes_too_long_pays_nothing(tmp_path: Path) -> None:
    groups = play(tmp_path / "run", first_move, max_turns=3, limit=1)
    for rollout in sides(groups):
        assert rollout.reward == 0.0
        assert rollout.info["outcome"] == "truncated"
        assert rollout.metrics["game_turns"] == 3
    assert "step_limit" in {rollout.stop_reason for rollout in sides(groups)}


@pytest.mark.parametrize(
    ("text", "move"),
    [
        ("[5]", "5"),
        ("5", "5"),
        ("  Bet\n", "bet"),
        ("I take [4], no: [ 7 ]", "7"),
        ("<think>maybe [1]</think>[2]", "2"),
        ("[check]\nThat is all.", "check"),
        ("a b\nc", None),
        ("[]", "[]"),
        ("<think>[1]", None),
        ("x" * 200, None),
        ("[" * 100_000, None),
    ],
)
def test_moves_are_read(text: str, move: str | None) -> None:
    said = read_move(text)
    assert (None if said is None else said.move) == move


@pytest.mark.parametrize(
    "config",
    [
        {"game": "chess"},
        {"game": "openspiel"},
        {"game": "kuhn", "opening_plies": 1},
        {"opponent": ()},
        {"opponent": ("first",)},
        {"opponent": ("a b",)},
        {"max_turns": 0},
    ],
)
def test_options_that_mean_nothing_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        GamesConfig(**config)


def test_there_is_no_perfect_player_of_connect_four() -> None:
    with pytest.raises(ConfigError, match="no perfect player of connectfour"):
        GamesEnvironment(GamesConfig(game="connectfour", opponent=("perfect",)))


def test_a_role_without_a_model_is_no_opponent(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="opponent rival: the role has no model of its own"):
        play(tmp_path / "run", first_move, opponent=("rival",))


PLAYERS = """
import re


def moves(messages):
    return re.findall(r"\\[([^\\]]+)\\]", messages[-1].text.rpartition("Your moves:")[2])


def first(messages, request):
    return f"[{moves(messages)[0]}]"


def last(messages, request):
    return f"[{moves(messages)[-1]}]"
"""


def test_models_of_roles_meet_the_policy_in_both_seats_and_are_rated(
    atropos_clean: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("players.py").write_text(PLAYERS.replace("\\\\", "\\"))
    rival = json.dumps({"function": "./players.py:last"})
    role = ("--role.rival.backend", "scripted", "--role.rival.backend-options", rival, "--role.rival.model", "champion")
    flags = ("--opponent", "rival", "--opponent", "random", "--limit", "8", "--group-size", "1", *role)
    policy = ("--backend", "scripted", "--backend.function", "./players.py:first", "--model", "newcomer")
    assert app.run(["gen", "games", *flags, *policy, "-o", "cup"]) == 0
    groups = [json.loads(line) for line in Path("cup/groups.jsonl").read_text().splitlines()]
    groups.sort(key=lambda group: int(group["group_id"].rpartition("-")[2]))
    found = [(side["role"], side["info"]["opponent"]) for group in groups for side in group["rollouts"]]
    one_round = [("first", "champion"), ("second", "champion"), ("first", "random"), ("second", "random")]
    assert found == one_round * 2
    assert json.loads(Path("cup/summary.json").read_text())["usage"]["champion (rival)"]["requests"] > 8
    capsys.readouterr()
    assert app.run(["analyze", "cup", "--json"]) == 0
    report = capsys.readouterr().out
    assert all(f'"player": "{name}"' in report for name in ("newcomer", "champion", "random"))


def test_every_outcome_is_counted_once(tmp_path: Path) -> None:
    def player(messages: Sequence[Message]) -> str:
        return f"[{offered(messages)[-1]}]" if len(messages) < 6 else "?"

    for rollout in sides(play(tmp_path / "run", player, limit=3)):
        assert sum(rollout.metrics[name] for name in OUTCOMES) == 1.0
