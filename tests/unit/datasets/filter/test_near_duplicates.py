"""Near-duplicates in several languages: almost every pair at the stated similarity is found."""

from __future__ import annotations

import random

import pytest

from atropos_cli.datasets.filter.dedup import NearDuplicates, band_rows, shingles
from atropos_cli.io.records import Record, StoredRollout

ALPHABETS = {
    "English": ("abcdefghijklmnopqrstuvwxyz", " "),
    "Russian": ("абвгдежзиклмнопрстуфхцчшщыэюя", " "),
    "Hindi": ("कखगघचछजझटठडढतथदधनपफबभमयरलवशसह", " "),
    "Chinese": ("".join(map(chr, range(0x4E00, 0x5600))), ""),
    "Thai": ("กขคฆงจฉชซญฎฏฐฑฒณดตถทธนบปผฝพฟภมยรลวศษสหฬอฮ", ""),
}


def is_new(near: NearDuplicates, text: str, task: str = "t") -> bool:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": text}]
    rollout = StoredRollout(messages=messages, score=None, raw={}, prompt_length=1)
    return near.is_new(Record(id="r", raw={}, format="messages", task_id=task, rollouts=[rollout]), rollout)


def jaccard(one: str, other: str) -> float:
    a, b = set(shingles(one)), set(shingles(other))
    return len(a & b) / len(a | b)


@pytest.mark.parametrize("language", ALPHABETS)
def test_near_duplicates_at_jaccard_09_are_found(language: str) -> None:
    letters, blank = ALPHABETS[language]
    rng = random.Random(language)
    found = pairs = 0
    while pairs < 100:
        text = ["".join(rng.choice(letters) for _ in range(rng.randint(3, 8) if blank else 1)) for _ in range(200)]
        other = list(text)
        for _ in range(rng.choice((2, 2, 4, 5))):
            other[rng.randrange(len(other))] = rng.choice(text)
        similarity = jaccard(blank.join(text), blank.join(other))
        if 0.78 <= similarity < 0.8:  # below the threshold, however little
            near = NearDuplicates(0.8, "all")
            assert is_new(near, blank.join(text))
            assert is_new(near, blank.join(other))
        if 0.89 <= similarity <= 0.92:
            pairs += 1
            near = NearDuplicates(0.8, "all")
            assert is_new(near, blank.join(text))
            found += not is_new(near, blank.join(other))
    assert found >= 0.99 * pairs


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("The Answer is 42.", "the answer is 42", True),
        ("答案是四十二。", "答案是四十二！", True),
        ("Ａｎｓｗｅｒ：４２", "answer: 42", True),
        ("The answer is -5.", "The answer is 5.", False),
        ("x = a + b", "x = a - b", False),
        ("ไม่ใช่", "ใช่", False),
        ("👍", "👎", False),
    ],
)
def test_near_duplicates_are_compared_by_words_and_symbols(one: str, other: str, same: bool) -> None:
    near = NearDuplicates(0.8, "task")
    assert is_new(near, one)
    assert is_new(near, other) is not same
    assert is_new(near, one, task="another")


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.8, 0.9, 1.0])
def test_bands_meet_at_the_threshold_itself(threshold: float) -> None:
    rows = band_rows(threshold, 128)
    assert 1 - (1 - threshold**rows) ** (128 // rows) >= 0.99
