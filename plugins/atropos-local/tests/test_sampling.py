"""Sampling against plain arithmetic."""

from __future__ import annotations

import math

import pytest
from atropos_local.sampling import Choice, _truncate, choose, stream

from atropos_cli.sdk.backends import Sampling

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.model

PROBABILITIES = [0.4, 0.05, 0.3, 0.05, 0.2]


def logits(rows: int = 1) -> object:
    return torch.tensor([PROBABILITIES] * rows).log() + 3.0


def kept(**parameters: float) -> list[int]:
    weights = _truncate(torch.tensor([PROBABILITIES]), [Choice(**parameters)])  # type: ignore[arg-type]
    return [at for at, weight in enumerate(weights[0].tolist()) if weight > 0]


def test_left_out_parameters_mean_temperature_1_and_no_truncation() -> None:
    assert Choice.of(Sampling(temperature=None)) == Choice()
    assert Choice.of(Sampling(top_k=-1, min_p=0.0, top_p=1.0)) == Choice()
    assert not Choice.of(Sampling()).truncates


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"top_k": 1}, [0]),
        ({"top_k": 3}, [0, 2, 4]),
        ({"top_k": 99}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.39}, [0]),
        ({"top_p": 0.41}, [0, 2]),
        ({"top_p": 0.71}, [0, 2, 4]),
        ({"top_p": 1e-9}, [0]),
        ({"min_p": 0.6}, [0, 2]),
        ({"min_p": 1.0}, [0]),
        ({"top_k": 3, "top_p": 0.7}, [0, 2]),  # of the mass that top-k leaves
        ({"top_k": 3, "min_p": 0.6}, [0, 2]),
    ],
)
def test_truncation(parameters: dict[str, float], expected: list[int]) -> None:
    assert kept(**parameters) == expected


def test_rows_are_truncated_each_by_its_own_parameters() -> None:
    weights = _truncate(
        torch.tensor([PROBABILITIES] * 4), [Choice(top_k=1), Choice(top_p=0.41), Choice(min_p=0.6), Choice(top_k=4)]
    )
    assert [(row > 0).nonzero()[:, 0].tolist() for row in weights] == [[0], [0, 2], [0, 2], [0, 1, 2, 3, 4]]


def test_a_flat_distribution_larger_than_the_candidates() -> None:
    weights = torch.full((1, 5000), 1 / 5000)
    assert int((_truncate(weights, [Choice(top_p=0.5)]) > 0).sum()) in range(2499, 2502)


def test_greedy_takes_the_most_likely_and_reports_its_raw_logprob() -> None:
    tokens, logprobs = choose(logits(2), [Choice(temperature=0.0), Choice(temperature=1e-9)], [0.0, 0.0])
    assert tokens == [0, 0]
    assert logprobs == pytest.approx([math.log(0.4)] * 2, abs=1e-6)


def test_the_logprob_is_raw_whatever_the_temperature_and_truncation() -> None:
    choice = Choice(temperature=0.3, top_k=2, top_p=0.5)
    tokens, logprobs = choose(logits(), [choice], [0.1])
    assert tokens == [0]
    assert logprobs == pytest.approx([math.log(0.4)], abs=1e-6)


def test_the_inverse_of_the_cumulative_distribution() -> None:
    numbers = [0.0, 0.39, 0.41, 0.44, 0.46, 0.74, 0.76, 0.79, 0.81, 1.0 - 2**-53]
    tokens, _ = choose(logits(len(numbers)), [Choice()] * len(numbers), numbers)
    assert tokens == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_no_number_chooses_a_token_without_weight() -> None:
    row = torch.tensor([[-math.inf, 1.0, -math.inf, 2.0, -math.inf]])
    for number in (0.0, 0.5, 1.0 - 2**-53):
        assert choose(row, [Choice()], [number])[0][0] in (1, 3)
        assert choose(logits(), [Choice(top_k=2)], [number])[0][0] in (0, 2)


def test_frequencies_follow_temperature() -> None:
    numbers = stream(0, 0)
    count = 4000
    tokens, _ = choose(logits(count), [Choice(temperature=0.5)] * count, [numbers.random() for _ in range(count)])
    squared = [p * p for p in PROBABILITIES]
    for token, share in enumerate(squared):
        expected = share / sum(squared)
        assert tokens.count(token) / count == pytest.approx(expected, abs=4 * math.sqrt(0.25 / count))


def test_streams_differ_by_seed_and_sample_and_repeat() -> None:
    draws = {(seed, index): stream(seed, index).random() for seed in range(3) for index in range(3)}
    assert len(set(draws.values())) == 9
    assert stream(1, 2).random() == draws[1, 2]
    assert stream(None, 0).random() != stream(None, 0).random()


def test_rows_do_not_influence_each_other() -> None:
    torch.manual_seed(0)
    many = torch.randn(6, 50)
    choices = [Choice(), Choice(top_k=5), Choice(0.0), Choice(top_p=0.5), Choice(2.0, min_p=0.2), Choice(0.7)]
    numbers = [0.1, 0.9, 0.0, 0.5, 0.7, 0.3]
    together, _ = choose(many, choices, numbers)
    alone = [choose(many[row : row + 1], [choices[row]], [numbers[row]])[0][0] for row in range(6)]
    assert together == alone
