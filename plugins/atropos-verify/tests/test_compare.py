"""Equality of answers: structure, units, exactness; symbolic work in the real worker."""

from __future__ import annotations

import asyncio
import random
import time
from fractions import Fraction

import pytest
from atropos_verify.arithmetic import TooLarge, evaluate
from atropos_verify.compare import same_answer
from atropos_verify.latex import clean
from atropos_verify.numerals import spell
from atropos_verify.pool import shared_pool
from atropos_verify.quantity import quantity
from atropos_verify.verdict import NeedsWorker, defer, in_worker

SAME = [
    ("(3,4)", "x=3, y=4"),
    ("(2,-1)", "y=-1 \\text{ and } x=2"),
    ("a=2, b=5", "(2,5)"),
    ("\\frac12", "\\cos 60^\\circ"),
    ("\\sqrt{2}", "2\\sin(45°)"),
    ("\\frac34", "\\sin^2 60^\\circ"),
    ("(0,1)", "0<x<1"),
    ("(0,1)", "1>x>0"),
    ("[0,1)", "0\\le x<1"),
    ("(-\\infty,0]", "x\\le 0"),
    ("(3,\\infty)", "x>3"),
    ("(-\\infty,2)\\cup(3,\\infty)", "x<2 \\text{ or } x>3"),
    ("(-\\infty,2)\\cup(3,\\infty)", "(3,\\infty)\\cup(-\\infty,2)"),
    ("x \\in [-2,7]", "[-2,7]"),
    ("x \\in [-2,7]", "-2\\le x\\le 7"),
    ("1 \\pm \\sqrt{19}", "1-\\sqrt{19}, 1+\\sqrt{19}"),
    ("\\{1\\pm\\sqrt{5},-2\\}", "-2,1+\\sqrt5,1-\\sqrt5"),
    ("5", "x=5"),
    ("72", "48+24=72"),
    ("\\frac13", "0.\\overline{3}"),
    ("72", "\\$72"),
    ("100", "1e2"),
    ("\\$18.90", "18.9"),
    ("\\$36", "36 dollars"),
    ("10,\\!080", "10080"),
    ("\\begin{pmatrix} -7 \\\\ 16 \\end{pmatrix}", "(-7,16)"),
    ("\\begin{pmatrix} -1/3 \\\\ 2/3 \\end{pmatrix}", "\\begin{bmatrix} -\\frac13 \\\\ \\frac{2}{3} \\end{bmatrix}"),
    ("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "\\left[\\begin{array}{cc}1 & 2\\\\ 3 & 4\\end{array}\\right]"),
    ("y = 2x + 3", "2x+3"),
    ("y = 2x + 3", "f(x)=3+2x"),
    ("5x - 7y + 11z + 4 = 0", "10x-14y+22z+8=0"),
    ("\\text{4:30 p.m.}", "4:30"),
    ("\\text{Evelyn}", "Evelyn"),
    ("\\text{(B)}", "\\text{B}"),
    ("(B)", "B) 12"),
    ("\\left( 3, \\frac{\\pi}{2} \\right)", "(3,\\pi/2)"),
    ("864 \\mbox{ inches}^2", "864"),
    ("15\\mbox{ cm}^2", "15 square centimeters"),
    ("\\frac{270}7\\text{ degrees}", "\\frac{270}{7}^\\circ"),
    ("204_5", "204"),
    ("12 \\text{ ways}", "12 different ways"),
    ("2k+2", "2(k+1)"),
    ("\\cot x", "1/\\tan x"),
    ("\\emptyset", "\\varnothing"),
    ("3, 5, 7", "7, 5, and 3"),
    ("3,5", "\\{5,3\\}"),
    ("1,-2", "x=1\\text{ or }x=-2"),
    ("2^{10}", "1024"),
    ("120", "5!"),
    ("50", "50\\%"),
    ("2", "\\log_{10} 100"),
    ("(2,12) \\cup (12,102)", "(2,102)\\setminus\\{12\\}"),
    ("\\frac{3}{2}", "1\\frac12"),
    ("137 \\frac{1}{2}", "137.5"),
    ("7", "$7.$"),
    ("-7", "−7"),
    ("\\text{east}", "East."),
    ("6-5i", "-5i+6"),
    ("\\dfrac{1}{9}", "\\frac19"),
    ("0.15", ".15"),
    ("\\frac{\\sqrt{21}}{5}", "\\sqrt{21}/5"),
    ("8", "8 \\text{ (units)}"),
]

DIFFERENT = [
    ("(0,1)", "0\\le x<1"),
    ("(0,1)", "[0,1]"),
    ("(-\\infty,2)\\cup(3,\\infty)", "(3,\\infty)"),
    ("1 \\pm \\sqrt{19}", "1+\\sqrt{19}"),
    ("5", "a+b=5"),
    ("5", "2x=10"),
    ("x=5", "y=5"),
    ("72", "48+24"),
    ("72", "6\\cdot 12"),
    ("72", "\\sqrt{16}+68"),
    ("\\frac13", "0.333333"),
    ("2e-7", "1e-7"),
    ("\\pi", "3.141592653589793"),
    ("\\sqrt{3}", "1.7320508075688772"),
    ("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "\\begin{pmatrix}1&3\\\\2&4\\end{pmatrix}"),
    ("5x - 7y + 11z + 4 = 0", "5x-7y+11z=4"),
    ("\\text{4:30 p.m.}", "4:30 a.m."),
    ("\\text{(B)}", "C"),
    ("B", "\\text{Bob}"),
    ("(1,2)", "(2,1)"),
    ("(1,2)", "x=2,y=1"),
    ("(1,2)", "y=1,x=2"),
    ("\\frac12", "\\cos 60"),
    ("(1,2)", "P=1,Q=2"),
    ("(15,-29)", "15,-29"),
    ("48\\text{ cm}", "48 kg"),
    ("48\\text{ cm}", "0.48 m"),
    ("15\\mbox{ cm}^2", "15 cm"),
    ("\\$6", "6 cents"),
    ("0.5", "50\\%"),
    ("50\\%", "0.5"),
    ("204_5", "204_6"),
    ("3", "11_2"),
    ("p - q", "q-p"),
    ("\\emptyset", "\\{0\\}"),
    ("3", "x>3"),
    ("3", "(3,4)"),
    ("13", "12,13"),
    ("12,13", "13"),
    ("5", "5!"),
    ("\\text{even}", "\\text{The function is even}"),
    ("10", "10^{10^{10}}"),
    ("x", "-x"),
    ("x^2", "x"),
    ("12", "a dozen"),
    ("\\frac{1}{2}", "0.500001"),
    ("30^\\circ", "\\frac{\\pi}{6}"),
    ("7", ""),
    ("7", "\\frac{7}{0}"),
    ("1", "99999999!"),
]


def verdict(gold: str, answer: str) -> bool:
    pool = shared_pool()
    return asyncio.run(pool.run(lambda: same_answer(gold, answer, in_worker(pool, 30.0))))


@pytest.mark.parametrize(("gold", "answer"), SAME)
def test_same(gold: str, answer: str) -> None:
    assert verdict(gold, answer)


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_different(gold: str, answer: str) -> None:
    assert not verdict(gold, answer)


@pytest.mark.parametrize(
    ("text", "value", "unevaluated"),
    [
        ("1,000,000", 1_000_000, False),
        (".5", Fraction(1, 2), False),
        ("1e-3", Fraction(1, 1000), False),
        ("1.5\\times10^{-3}", Fraction(3, 2000), False),
        ("-\\frac{24}{25}", Fraction(-24, 25), False),
        ("2 3/4", Fraction(11, 4), False),
        ("-2 3/4", Fraction(-11, 4), False),
        ("2^{2^3}", 256, False),
        ("\\binom{5}{2}", 10, False),
        ("3\\times 10", 30, True),
        ("(2)(3)", 6, True),
        ("1/2/3", Fraction(1, 6), True),
        ("\\frac{48+24}{1}", 72, True),
        ("2^{-1}", Fraction(1, 2), False),
        ("(-1)^{99999999}", -1, False),
    ],
)
def test_arithmetic(text: str, value: Fraction, unevaluated: bool) -> None:
    result = evaluate(text)
    assert result is not None
    assert (result.value, result.unevaluated) == (value, unevaluated)


@pytest.mark.parametrize(
    "text", ["x", "", "1,23", "1 234", "1/0", "1.", "3!!", "(1", "-" * 300 + "1", "2^{1/2}", "0^{-1}"]
)
def test_not_arithmetic(text: str) -> None:
    assert evaluate(text) is None


@pytest.mark.parametrize(
    "text", ["9^{9^{9^{9}}}", "99999!", "1e9999", "9" * 2000, "10^{10^{10}}", "((9^{999})^{999})^{999}"]
)
def test_too_large_is_found_out_at_once(text: str) -> None:
    begin = time.process_time()
    with pytest.raises(TooLarge):
        evaluate(text)
    assert time.process_time() - begin < 1


def test_spelling_of_numbers() -> None:
    values = [Fraction(72), Fraction(301, 100), Fraction(-5), Fraction(1, 3), Fraction(-1, 8), Fraction(1, 10**6)]
    assert [spell(value) for value in values] == ["72", "3.01", "-5", "1/3", "-0.125", "0.000001"]


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("48\\,\\mathrm{cm}", 48, "cm"),
        ("\\$32,\\!348", 32348, "$"),
        ("64 \\text{ percent}", 64, "%"),
        ("30^{\\circ}", 30, "°"),
        ("25 \\text{ sq. cm}", 25, "cm^2"),
        ("5 \\text{ cubic feet}", 5, "ft^3"),
        ("80 \\text{ miles per hour}", 80, "mph"),
        ("11,\\! 111,\\! 111,\\! 100", 11_111_111_100, ""),
        ("1½", Fraction(3, 2), ""),
        ("10¹²", 10**12, ""),
        ("100\\text{ square units}", 100, ""),
    ],
)
def test_quantities(text: str, number: Fraction, unit: str) -> None:
    found = quantity(clean(text))
    assert found is not None
    assert (found.value, found.unit) == (number, unit)


@pytest.mark.parametrize("text", ["4t", "5m", "7\\pi", "\\text{even}", "A", "x=5", "3 hours and 20 minutes", "a_1"])
def test_not_quantities(text: str) -> None:
    assert quantity(clean(text)) is None


def test_random_answers_never_break_the_comparison() -> None:
    rng = random.Random(3)
    pieces = [
        "1",
        "23",
        "x",
        "+",
        "-",
        "/",
        "^",
        "_",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "\\frac",
        "\\sqrt",
        "\\text{",
        "\\{",
        "\\}",
        ",",
        "=",
        "<",
        "\\le",
        "\\pm",
        "\\cup",
        "\\in",
        "\\infty",
        "\\begin{pmatrix}",
        "\\end{pmatrix}",
        "&",
        "\\\\",
        "%",
        "$",
        "\\$",
        ".",
        "1,000",
        "½",
        "−",
        "!",
        " ",
        " or ",
        "A",
        "(B)",
        "4:30",
        "^\\circ",
        "0.\\overline{3}",
        "1e5",
        "|",
        "\\!",
        "\\left(",
        "\\langle",
        "cm",
        "\\binom",
        "\ud83d",
        "\x00",
        "**",
        "9^{9^9}",
    ]
    asked = 0
    for _ in range(8000):
        gold = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 8)))
        answer = gold if rng.random() < 0.1 else "".join(rng.choice(pieces) for _ in range(rng.randint(1, 10)))
        try:
            verdict_now = same_answer(gold, answer, defer)
        except NeedsWorker:
            asked += 1
            continue
        assert isinstance(verdict_now, bool)
        assert verdict_now or gold != answer or not gold.strip()
    assert 0 < asked < 8000
