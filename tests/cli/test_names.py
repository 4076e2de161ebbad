"""One rule for file names made from names (field case H16)."""

from __future__ import annotations

import itertools
import re
from datetime import datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from atropos_cli.console.names import LIMIT, default_run_folder, safe_name

HARD = [
    "org/name:latest",
    "org_name_latest",
    "http://127.0.0.1:1234/v1",
    "a/b",
    "a\\b",
    "a_b",
    "a b",
    "x" * 300,
    "x" * 301,
    "CON",
    "con",
    "con.txt",
    "nul",
    "lpt1",
    "x.",
    "x",
    ".x",
    "..",
    "",
    "TextWorld",
    "textworld",
    'a*?"<>|b',
    "naïve",
    "nai\u0308ve",
    "日本語",
    "a\nb",
    "-rf",
    "\ud800",
]


def fits_everywhere(name: str) -> bool:
    return (
        0 < len(name) <= LIMIT
        and re.fullmatch(r"[A-Za-z0-9._-]+", name) is not None
        and name[0] not in ".-"
        and name[-1] not in ". "
        and re.match(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", name.lower()) is None
    )


def test_hard_names_are_safe_and_never_share_a_file() -> None:
    made = {name: safe_name(name) for name in HARD}
    made[safe_name("a/b")] = safe_name(safe_name("a/b"))  # a name that looks like a made one
    for name, file in made.items():
        assert fits_everywhere(file), (name, file)
    for (one, first), (two, second) in itertools.combinations(made.items(), 2):
        assert first.lower() != second.lower(), (one, two)


def test_plain_names_stay_as_they_are() -> None:
    for name in ("textworld", "qwen3-0.6b", "a_b", "v1.2"):
        assert safe_name(name) == name
    assert safe_name("org/name:latest").startswith("org_name_latest-")


@given(st.text(max_size=120), st.text(max_size=120))
def test_any_two_names(one: str, two: str) -> None:
    assert fits_everywhere(safe_name(one))
    assert (safe_name(one).lower() == safe_name(two).lower()) == (one == two)


def test_the_default_folder_is_new() -> None:
    now = datetime(2026, 1, 2, 3, 4, 5)
    first = default_run_folder("textworld", now)
    assert first == Path("runs/textworld-20260102-030405")
    first.mkdir(parents=True)
    assert default_run_folder("textworld", now) == Path("runs/textworld-20260102-030405-2")
    assert default_run_folder("a/b", now).parent == Path("runs")
