"""The tasks: what is on the desk, what is asked, the answer, and calls that lead to it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from atropos_cli.sdk import JsonDict

PEOPLE = ("Ada", "Bela", "Chen", "Dora", "Emil", "Fatma")
PRODUCTS = ("lamp", "chair", "desk", "shelf", "clock")
SUMMARY = "total.txt"


@dataclass(frozen=True)
class Problem:
    """answer: a number, or the text that the file `total.txt` must hold. calls: (tool, arguments), a way to it."""

    question: str
    answer: int | str
    calls: list[tuple[str, JsonDict]]
    orders: list[list[int | str]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)


def _calculator(rng: random.Random) -> Problem:
    a, b, c, m = rng.randint(1000, 99999), rng.randint(100, 9999), rng.randint(10, 9999), rng.randint(101, 997)
    question = f"Multiply {a} by {b}, add {c}, and give the remainder of the division by {m}."
    expression = f"({a} * {b} + {c}) % {m}"
    return Problem(question, (a * b + c) % m, [("calculate", {"expression": expression})])


def _database(rng: random.Random) -> Problem:
    orders: list[list[int | str]] = [
        [number, rng.choice(PEOPLE), rng.choice(PRODUCTS), rng.randint(1, 9), rng.randint(5, 200) * 25]
        for number in range(1, rng.randint(30, 60))
    ]
    person, product = str(orders[0][1]), str(orders[0][2])
    if rng.random() < 0.5:
        question = f"How many cents has {person} paid for all orders together?"
        where, amount = f"customer = '{person}'", "sum(pieces * cents)"
        answer = sum(int(row[3]) * int(row[4]) for row in orders if row[1] == person)
    else:
        question = f"How many pieces of the product {product} were ordered, all customers together?"
        where, amount = f"product = '{product}'", "sum(pieces)"
        answer = sum(int(row[3]) for row in orders if row[2] == product)
    select = f"SELECT {amount} FROM orders WHERE {where}"  # noqa: S608 - names and products are ours
    return Problem(question, answer, [("query", {"sql": select})], orders)


def _files(rng: random.Random) -> Problem:
    names = [f"{name}.txt" for name in rng.sample(("rent", "food", "books", "trains", "coffee"), 3)]
    amounts = {name: [rng.randint(1, 500) for _ in range(rng.randint(2, 5))] for name in names}
    files = {name: "\n".join(map(str, numbers)) + "\n" for name, numbers in amounts.items()}
    first, second = names[:2]
    answer = sum(amounts[first]) + sum(amounts[second])
    question = f"Add all numbers in the files {first} and {second}. Write the sum alone into the file {SUMMARY}."
    reads: list[tuple[str, JsonDict]] = [("read_file", {"name": name}) for name in (first, second)]
    write: tuple[str, JsonDict] = ("write_file", {"name": SUMMARY, "text": str(answer)})
    return Problem(question, str(answer), [*reads, write], files=files)


KINDS: dict[str, Callable[[random.Random], Problem]] = {
    "calculator": _calculator,
    "database": _database,
    "files": _files,
}


def problem_of(kind: str, key: str) -> Problem:
    """The problem of a kind, by its key alone."""
    return KINDS[kind](random.Random(key))
