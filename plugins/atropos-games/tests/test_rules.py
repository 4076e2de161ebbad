"""The exact games, by brute force: every position, every strategy."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from atropos_games import connectfour, kuhn, tictactoe
from atropos_games.rules import Position, Rules, opened

from atropos_cli.sdk import ConfigError


def test_tictactoe_has_its_known_numbers_of_positions_and_games() -> None:
    layer, seen, ends = Counter({tictactoe.Board(): 1}), {tictactoe.Board()}, Counter[float]()
    while layer:
        ahead = Counter[tictactoe.Board]()
        for board, ways in layer.items():
            payoffs = board.payoffs()
            if payoffs is not None:
                assert board.moves() == ()
                ends[payoffs[0]] += ways
            for move in board.moves():
                ahead[board.after(move)] += ways
        seen |= set(ahead)
        layer = ahead
    assert len(seen) == 5478
    assert ends == {1.0: 131184, -1.0: 77904, 0.0: 46080}
    assert sum(ends.values()) == 255168


@pytest.mark.parametrize("seat", [0, 1])
def test_the_perfect_player_never_loses_to_any_line_of_play(seat: int) -> None:
    rng, ends = random.Random(seat), Counter[float]()

    def follow(board: tictactoe.Board) -> None:
        payoffs = board.payoffs()
        if payoffs is not None:
            ends[payoffs[seat]] += 1
        elif board.mover == seat:
            follow(board.after(tictactoe.perfect(board, rng)))
        else:
            for move in board.moves():
                follow(board.after(move))

    for _ in range(5):  # it picks among the best moves
        follow(tictactoe.Board())
    assert ends[-1.0] == 0
    assert ends[1.0] > 0


def test_kuhn_has_the_value_of_the_literature_and_its_equilibrium_cannot_be_exploited() -> None:
    equilibrium = kuhn.EQUILIBRIUM
    assert kuhn.expected(equilibrium, equilibrium) == pytest.approx(-1 / 18)
    assert kuhn.best_response(equilibrium, 0) == pytest.approx(1 / 18)
    assert kuhn.best_response(equilibrium, 1) == pytest.approx(-1 / 18)
    assert kuhn.exploitability(equilibrium) == pytest.approx(0.0, abs=1e-12)
    assert len(kuhn.SETS[0]) == len(kuhn.SETS[1]) == 6


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1 / 3])
def test_the_whole_family_of_equilibria_is_recognised(alpha: float) -> None:
    first = {"jack": alpha, "king": 3 * alpha, "queen check bet": alpha + 1 / 3}
    assert kuhn.exploitability({**kuhn.EQUILIBRIUM, **first}) == pytest.approx(0.0, abs=1e-12)


def test_strategies_of_no_equilibrium_are_exploited() -> None:
    # Half and half everywhere: 11/24 is half of the NashConv that is known of the uniform strategy, 11/12.
    assert kuhn.exploitability({}) == pytest.approx(11 / 24)
    rng = random.Random(0)
    for _ in range(20):
        assert kuhn.exploitability({name: rng.random() for name in kuhn.EQUILIBRIUM}) > 0


def test_payoffs_of_kuhn() -> None:
    def play(cards: tuple[int, int], *moves: str) -> tuple[float, float] | None:
        hand = kuhn.Hand(cards)
        for move in moves:
            assert move in hand.moves()
            hand = hand.after(move)
        return hand.payoffs()

    assert play((2, 0)) is None
    assert play((2, 0), "check", "check") == (1, -1)
    assert play((0, 2), "check", "check") == (-1, 1)
    assert play((0, 2), "bet", "fold") == (1, -1)
    assert play((2, 0), "check", "bet", "fold") == (-1, 1)
    assert play((2, 0), "check", "bet", "call") == (2, -2)
    assert play((1, 2), "bet", "call") == (-2, 2)
    assert play((1, 2), "check", "bet") is None


def test_nobody_sees_the_other_card() -> None:
    for moves in ((), ("check",), ("bet",), ("check", "bet")):
        views = {tuple(kuhn.Hand((1, other), moves).view(0).values()) for other in (0, 2)}
        assert len(views) == 1


def columns(moves: str) -> connectfour.Board:
    board = connectfour.Board()
    for move in moves:
        assert move in board.moves(), (moves, move)
        board = board.after(move)
    return board


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("moves", ["1212121", "1122334", "12233434414"])
def test_connect_four_ends_with_a_line(moves: str, mirror: bool) -> None:
    moves = "".join(str(8 - int(move)) for move in moves) if mirror else moves
    assert columns(moves[:-1]).payoffs() is None
    board = columns(moves)
    assert board.payoffs() == (1.0, -1.0)
    assert board.moves() == ()


def naive_winner(board: connectfour.Board) -> str | None:
    """All lines of four, one after the other."""
    cell = {(x, y): mark for x, column in enumerate(board.columns) for y, mark in enumerate(column)}
    for (x, y), mark in cell.items():
        for dx, dy in ((1, 0), (0, 1), (1, 1), (1, -1)):
            if all(cell.get((x + step * dx, y + step * dy)) == mark for step in range(4)):
                return mark
    return None


def test_random_games_of_connect_four_agree_with_a_search_for_lines() -> None:
    rng, ends = random.Random(1), Counter[str | None]()
    for _ in range(150):
        board = connectfour.Board()
        while board.payoffs() is None:
            assert naive_winner(board) is None
            board = board.after(rng.choice(board.moves()))
        winner, payoffs = naive_winner(board), board.payoffs()
        assert payoffs == {"x": (1.0, -1.0), "o": (-1.0, 1.0), None: (0.0, 0.0)}[winner]
        ends[winner] += 1
    assert ends["x"] > ends["o"] > 0


@pytest.mark.parametrize("rules", [tictactoe.RULES, connectfour.RULES])
def test_random_openings_leave_a_game_to_play(rules: Rules) -> None:
    starts: set[Position] = set()
    for seed in range(30):
        position = opened(rules, random.Random(seed), 3)
        assert position.mover == 1
        assert all(position.after(move).payoffs() is None for move in position.moves())
        assert position == opened(rules, random.Random(seed), 3)
        starts.add(position)
    assert len(starts) > 10


def test_too_many_random_moves_are_refused() -> None:
    with pytest.raises(ConfigError, match="opening_plies 8"):
        opened(tictactoe.RULES, random.Random(0), 8)
