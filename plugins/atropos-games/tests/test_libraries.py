"""Games of OpenSpiel and textarena in the real engine; and what is said where one cannot be played."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from atropos_games import kuhn
from atropos_games.environment import GamesConfig, GamesEnvironment
from games_support import play, random_player

from atropos_cli.sdk import ConfigError, Message, ScoredGroup


def pairs(groups: Sequence[ScoredGroup]) -> list[tuple[Any, Any]]:
    return [pair for group in groups for pair in zip(group.rollouts[::2], group.rollouts[1::2], strict=True)]


class TestOpenSpiel:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("pyspiel")

    @pytest.mark.parametrize("game", ["leduc_poker", "breakthrough(rows=6,columns=4)", "liars_dice"])
    def test_whole_games_are_played(self, tmp_path: Path, game: str) -> None:
        for first, second in pairs(play(tmp_path / "run", random_player(), game=f"openspiel:{game}", limit=2)):
            assert first.info["outcome"] in ("won", "lost", "drawn")
            assert first.reward == -second.reward
            assert abs(first.reward) <= 1
            assert first.messages[1].text != second.messages[1].text or "breakthrough" in game

    def test_a_deal_is_the_same_for_the_whole_group_and_again(self, tmp_path: Path) -> None:
        def hands(name: str) -> list[str]:
            groups = play(tmp_path / name, random_player(), game="openspiel:leduc_poker", limit=4)
            return [pair[0].messages[1].text for pair in pairs(groups)]

        found = hands("a")
        assert found == hands("b")
        assert found[0] == found[1]
        assert len(set(found)) > 1

    def test_its_kuhn_poker_pays_as_ours(self) -> None:
        import pyspiel

        spiel = pyspiel.load_game("kuhn_poker")
        rng = random.Random(0)
        for _ in range(100):
            cards, state, hand = rng.choice(kuhn.DEALS), spiel.new_initial_state(), None
            for card in cards:
                state.apply_action(card)
            hand = kuhn.Hand(cards)
            while not state.is_terminal():
                choice = rng.randrange(2)  # 0 passes: checks or folds; 1 bets or calls
                state.apply_action(choice)
                hand = hand.after(hand.moves()[choice])
            assert hand.payoffs() == tuple(state.returns())

    def test_exploitability_agrees_with_its_own(self) -> None:
        pytest.importorskip("open_spiel.python.algorithms.exploitability")
        import pyspiel
        from open_spiel.python import policy
        from open_spiel.python.algorithms.exploitability import exploitability

        game, rng = pyspiel.load_game("kuhn_poker"), random.Random(1)
        for _ in range(3):
            strategy = {name: rng.random() for name in kuhn.EQUILIBRIUM}
            table = policy.TabularPolicy(game)
            for name, bold in strategy.items():
                card, *history = name.split()
                bets = "".join("b" if move in ("bet", "call") else "p" for move in history)
                row = table.policy_for_key(f"{kuhn.CARDS.index(card)}{bets}")
                row[:] = [1 - bold, bold]
            assert kuhn.exploitability(strategy) == pytest.approx(exploitability(game, table))

    @pytest.mark.parametrize(
        ("game", "words"),
        [
            ("leduc_pokr", "has no game 'leduc_pokr'"),
            ("leduc_poker(sides=3)", "cannot load"),
            ("kuhn_poker(players=3)", "it has 3 players"),
            ("goofspiel", "move at the same time"),
            ("bargaining", "not the other's loss"),
        ],
    )
    def test_what_cannot_be_played_is_said(self, game: str, words: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(words)):
            GamesEnvironment(GamesConfig(game=f"openspiel:{game}"))


class TestTextarena:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("textarena")

    def test_a_game_is_played_with_its_own_texts(self, tmp_path: Path) -> None:
        def player(messages: Sequence[Message]) -> str:
            free = re.findall(r"\[(\d)\]", messages[-1].text)
            return f"[{free[-1]}]"

        groups = play(tmp_path / "run", player, game="textarena:TicTacToe-v0", limit=2)
        for first, second in pairs(groups):
            assert {first.info["outcome"], second.info["outcome"]} in ({"won", "lost"}, {"drawn"})
            assert first.messages[0].role == "user"
            assert len(first.messages) > 5

    def test_moves_in_a_wrong_format_are_kept_apart(self, tmp_path: Path) -> None:
        for game in ("TicTacToe-v0", "KuhnPoker-v0", "IndianPoker-v0"):
            groups = play(tmp_path / game, lambda messages: "I pass", game=f"textarena:{game}", limit=1, group_size=1)
            found = sorted((side.info["outcome"], side.reward) for side in groups[0].rollouts)
            assert found == [("lost_by_format", -1.5), ("won_by_format", 0.5)], game

    def test_games_at_the_same_time_do_not_share_their_random_numbers(self, tmp_path: Path) -> None:
        def cards(name: str, group_size: int) -> list[set[str]]:
            given = play(
                tmp_path / name,
                lambda messages: "[check]",
                game="textarena:KuhnPoker-v0",
                limit=3,
                group_size=group_size,
            )
            found = []
            for group in given:
                seen = {re.findall(r"card is: '?(\w)", side.messages[0].text)[0] for side in group.rollouts[::2]}
                found.append(seen)
            return found

        random.seed(5)
        before = random.getstate()
        many, one = cards("many", 4), cards("one", 1)
        assert all(len(found) == 1 for found in many)
        assert many == one
        assert random.getstate() == before

    @pytest.mark.parametrize(
        ("game", "words", "hint"),
        [
            ("TicTacTo-v0", "has no game 'TicTacTo-v0'", "TicTacToe-v0"),
            ("FrozenLake-v0", "is not a game of two players", ""),
            ("Klondike-v0", "is written for a later Python", "another game"),
            ("GuessWho-v0", "OPENROUTER_API_KEY", "another game"),
        ],
    )
    def test_what_cannot_be_played_is_said(
        self, monkeypatch: pytest.MonkeyPatch, game: str, words: str, hint: str
    ) -> None:
        monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
        with pytest.raises(ConfigError, match=re.escape(words)) as caught:
            GamesEnvironment(GamesConfig(game=f"textarena:{game}"))
        assert hint in str(caught.value.hint)

    def test_missing_word_lists_are_named(self) -> None:
        from atropos_games.arena import _unplayable

        missing = LookupError("Resource words not found. >>> import nltk >>> nltk.download('words') Attempted to load")
        error = _unplayable("Wordle-v0", missing)
        assert "NLTK data 'words'" in error.message
        assert error.hint == "python -m nltk.downloader words"

    def test_it_has_no_scripted_opponents(self) -> None:
        with pytest.raises(ConfigError, match="does not say which moves are legal"):
            GamesEnvironment(GamesConfig(game="textarena:TicTacToe-v0", opponent=("random",)))
