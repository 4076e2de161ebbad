"""What is left of the interpreter's output."""

from __future__ import annotations

from atropos_textworld.engine.observation import Observation, clean

STATUS = "\n>" + " " * 128 + "-= Bedroom =-3/15"
BANNER = (
    "\n\n\n\n                    ________  ________  __    __  ________        \n"
    "                   |        \\|        \\|  \\  |  \\|        \\       \n"
    "                    \\$$$$$$$$| $$$$$$$$| $$  | $$ \\$$$$$$$$       \n"
    "             | $$    \\$$$| $$    $$| $$  | $$| $$     | $$    $$\n"
    "              \\$$      \\$$  \\$$$$$$  \\$$   \\$$ \\$$$$$$$$ \\$$$$$$$ \n\n"
)


def test_banner_prompt_and_status_go() -> None:
    text = BANNER + "Find the key.\n\n-= Bedroom =-\nYou are in a bedroom.\n" + STATUS
    assert clean(text) == "Find the key.\n\n-= Bedroom =-\nYou are in a bedroom."


def test_score_notices_go_and_blank_lines_collapse() -> None:
    text = "\nYou take the key.\n\n\n\nYour score has just gone up by one point.\n\n\nDone.\n" + STATUS
    assert clean(text) == "You take the key.\n\nDone."
    assert clean("Ouch.\n\nYour score changed by minus two points.\n" + STATUS) == "Ouch."


def test_the_end_stays_as_one_line() -> None:
    menu = "\n\nYou scored 7 out of a possible 7, in 9 turns.\n\n\nWould you like to RESTART, RESTORE or"
    text = "\nYou put it down.\n\n\n" + " " * 55 + "*** The End ***" + menu + STATUS
    assert clean(text) == "You put it down.\n\n*** The End ***"
    assert clean(text.replace("The End", "You lost!")) == "You put it down.\n\n*** You lost! ***"


def test_ordinary_text_stays_as_it_is() -> None:
    for text in (
        "There is a box | a chest on the floor.",
        "It costs $5 or $$10. The sign says >>> exit <<<.",
        "You see:\n  a key\n  a lamp",
    ):
        assert clean(text + "\n" + STATUS) == text


def test_round_trip() -> None:
    observation = Observation("x", ("a", "b"), 2, won=True, acted=False)
    assert Observation.from_json(observation.as_json()) == observation
    assert observation.done
