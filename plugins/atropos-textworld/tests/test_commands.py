"""Any text becomes one safe line, or is refused."""

from __future__ import annotations

import string

import pytest
from atropos_textworld.commands import Refused, sanitise


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("open chest", "open chest"),
        ("  Take   the RED Apple ", "take the red apple"),
        ("> go north", "go north"),
        ('"go north."', "go north"),
        ("`go north`!", "go north"),
        ("**look**", "look"),
        ("take chef's knife", "take chef's knife"),
        ("put music-box on stand", "put music-box on stand"),
        ("examine café", "examine cafe"),
        ("ｌｏｏｋ", "look"),
        ("look\nsave", "look"),
        ("\n\n look", "look"),
        ("look\u2028save", "look"),
        ("look\x00", "look"),
        ("lo\x00ok", "look"),
        ("\x1b[2Jlook", "2jlook"),
        ("look/save", "look save"),
        ("examine key (old)", "examine key old"),
        ("take café\N{COMBINING ACUTE ACCENT}", "take cafe"),
    ],
)
def test_what_is_sent(text: str, command: str) -> None:
    assert sanitise(text) == command


@pytest.mark.parametrize("text", ["", " \n\t", "\x00", "> ", "☕", "---", "...", "'"])
def test_nothing_is_left(text: str) -> None:
    assert sanitise(text) == Refused("empty")


@pytest.mark.parametrize(
    "text",
    ["open box. take key", "open box; take key", "open box then take key", "bob, look", "a & b", "a | b"],
)
def test_two_commands_are_refused(text: str) -> None:
    assert sanitise(text) == Refused("chain")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "save",
            "restore",
            "quit",
            "q",
            "restart",
            "undo",
            "script",
            "script on",
            "transcript off",
            "verify",
            "version",
        ),
        *(
            "superbrief",
            "superbriefly",
            "brief",
            "verbose",
            "notify off",
            "restrict commands",
            "enable print state option",
        ),
        *("print_state", "print state", "disable print state option", "oops save", "o save"),
        *("tw-extra-infos description", "tw-trace-actions", "tw-print max_score", "TW-anything"),
        *("showme", "purloin key", "gonear kitchen", "test me", "tree", "abstract key to box"),
        *("SAVE", "s\x00ave", "> save", '"save."', "save game", "/save", "_save_"),
    ],
)
def test_commands_for_others_are_refused(text: str) -> None:
    assert sanitise(text) == Refused("system")


def test_whatever_comes_is_short_plain_and_stable() -> None:
    allowed = set(string.ascii_lowercase + string.digits + " '-")
    for code in [*range(0x3000), 0xD800, 0xFEFF, 0x1F600, 0xE0001]:
        for text in (chr(code), f"take {chr(code)} key", chr(code) * 300, f"look {chr(code)}"):
            command = sanitise(text)
            if isinstance(command, str):
                assert command, hex(code)
                assert len(command) <= 120, hex(code)
                assert set(command) <= allowed, hex(code)
                assert sanitise(command) == command, hex(code)
