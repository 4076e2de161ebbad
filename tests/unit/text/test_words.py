"""Words in any script: lengths, n-grams and the form in which texts are compared."""

from __future__ import annotations

import pytest

from atropos_cli.text.words import WORD, normal_text, units, weight, word_grams, words


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("I don't know 3.14, do you?", 6),
        ("snake_case __init__ ... -- !", 2),
        ("l’été dernier", 2),
        ("हिन्दी में लिखा है", 4),
        ("தமிழ் மொழி", 2),
        ("한국어 단어 두 개", 4),
        ("می‌شود گفت", 2),
        ("园丁种了七行花", 7),
        ("コーヒーを飲む", 4),
        ("ภาษาไทย", 7),
        ("ខ្មែរ", 3),
        ("Python编程3天", 5),
        ("end.Next", 2),
        ("мы кто-то", 3),
        ("", 0),
        ("…!?。", 0),
    ],
)
def test_words_are_unicode_words(text: str, count: int) -> None:
    assert len(words(text)) == count


@pytest.mark.parametrize("text", ["I don't know 3.14, do you? x_1 = a-b*c (2)", "**bold** \\(x^2\\) 1,000 'q'"])
def test_plain_text_is_cut_alike_beside_any_other_sign(text: str) -> None:
    assert words(f"é {text}")[1:] == words(text)
    assert units(f"é {text}")[1:] == units(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ＡＢＣ　１２", "abc 12"),
        ("Straße", "STRASSE"),
        ("Fla\u0308che", "fläche"),
        ("๔๒ คน", "42 คน"),
        ("d\u00adis\u200bt", "dist"),
        ("it’s", "IT'S"),
        ("ｶﾞﾗｽ", "ガラス"),
        ("5 − 3", "5 - 3"),
    ],
)
def test_texts_that_readers_do_not_tell_apart_are_alike(one: str, other: str) -> None:
    assert normal_text(one) == normal_text(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("3 - 2", "3 + 2"), ("(1+2)*3", "1+(2*3)"), ("a<b", "a>b"), ("2×3", "2÷3"), ("é 5", "è 5"), ("कि", "की")],
)
def test_what_changes_a_formula_or_a_word_stays(one: str, other: str) -> None:
    assert units(normal_text(one)) != units(normal_text(other))


def test_n_grams_of_scripts_without_blanks_are_as_long_as_those_of_words() -> None:
    assert list(word_grams(words("a b c d"), 3)) == [("a", "b", "c"), ("b", "c", "d")]
    assert [len(gram) for gram in word_grams(words("园丁种了七行花"), 3)] == [6, 6]
    assert next(len(gram) for gram in word_grams(words("ภาษาไทยวันนี้"), 3)) == 9
    assert [gram[0] for gram in word_grams(words("one 二三 four"), 3)] == ["one"]
    assert list(word_grams(words("二三"), 2)) == []
    assert [weight(unit) for unit in ("word", "字", "ก", "+", "ع", "カード")] == [WORD, 3, 2, 0, WORD, WORD]
