"""Replies, history, transcripts and options of the agent; no game and no model."""

from __future__ import annotations

from typing import Any

import pytest
from atropos_textworld.agent.history import History
from atropos_textworld.agent.options import AgentOptions
from atropos_textworld.agent.reply import for_history, read_reply
from atropos_textworld.agent.scoring import Outcome, OutcomeScorer, Spent, transcript
from atropos_textworld.agent.vrcli import UnscorableError
from atropos_textworld.config import TextWorldConfig
from atropos_textworld.replies import Malformed
from pydantic import ValidationError

from atropos_cli.sdk import FunctionCall, Message, TokenSpan, ToolCall, assistant, system, user

GOOD = (
    "<think>A door. It is closed.</think>\n<memory>The north door is closed.</memory>\n"
    '<tool_call>{"name": "execute_command", "arguments": {"command": "Open door.", '
    '"expected_outcome": "You open\\n the door."}}</tool_call>'
)


def test_a_reply_in_the_right_form() -> None:
    reply = read_reply(assistant(GOOD), None, memory=True)
    assert reply.command == "open door"
    assert reply.prediction == "You open the door."
    assert reply.thinking == "A door. It is closed."
    assert reply.memory.memory == "The north door is closed."
    assert reply.format == 1.0


def test_form_without_memory_is_right_when_none_was_asked_for() -> None:
    text = GOOD.replace("<memory>The north door is closed.</memory>\n", "")
    assert read_reply(assistant(text), None, memory=False).format == 1.0
    assert read_reply(assistant(text), None, memory=True).format < 0.5
    assert read_reply(assistant("open door"), None, memory=False).format == 0.0


def test_what_the_server_took_out_is_put_back() -> None:
    function = FunctionCall(name="execute_command", arguments='{"command": "look", "expected_outcome": "A room."}')
    message = Message(
        role="assistant",
        content="<memory>The north door is closed.</memory>",
        reasoning="hm",
        tool_calls=(ToolCall(id="1", function=function),),
    )
    reply = read_reply(message, None, memory=True)
    assert (reply.command, reply.prediction, reply.thinking, reply.format) == ("look", "A room.", "hm", 1.0)
    opened = read_reply(assistant(GOOD.removeprefix("<think>")), None, memory=True)
    assert (opened.thinking, opened.format) == ("A door. It is closed.", 1.0)


@pytest.mark.parametrize(
    ("text", "fault"),
    [("", "empty"), ("<think>on and on", "unclosed_think"), ("<tool_call>{]</tool_call>", "bad_tool_call")],
)
def test_a_reply_without_a_command_has_a_stated_fault(text: str, fault: Any) -> None:
    reply = read_reply(assistant(text), "look", memory=True)
    assert reply.found == Malformed(fault)
    assert reply.command is None
    assert reply.prediction == ""


def test_a_call_inside_thinking_predicts_nothing() -> None:
    inside = GOOD.partition("\n<tool_call>")[2]
    reply = read_reply(assistant(f"<think><tool_call>{inside}</think>> look"), None, memory=True)
    assert (reply.command, reply.prediction) == ("look", "")


def test_thinking_of_earlier_turns() -> None:
    message = assistant(GOOD).model_copy(update={"tokens": TokenSpan(ids=(1,)), "finish_reason": "stop"})
    kept, stripped, short = (for_history(message, how) for how in ("keep", "strip", "summary"))
    assert kept.text == GOOD
    assert stripped.text == GOOD.partition("</think>\n")[2]
    assert short.text == GOOD
    assert all(m.tokens is None and m.finish_reason is None for m in (kept, stripped, short))
    long = assistant("<think>" + "So it is. " * 100 + "I open it.</think>open door")
    text = for_history(long, "summary").text
    assert text.endswith("So it is. I open it.</think>\nopen door")
    assert len(text) < 250
    unclosed = assistant("<think>on and on")
    assert for_history(unclosed, "strip").text == "<think>on and on"
    apart = Message(role="assistant", content="look", reasoning="One. Two.")
    assert for_history(apart, "strip").reasoning is None
    assert for_history(apart, "summary").reasoning == "One. Two."


@pytest.mark.parametrize("marks", ["[THINK]{}[/THINK]", "◁think▷{}◁/think▷", "<seed:think>{}</seed:think>"])
def test_thinking_of_any_family_in_history_and_in_form(marks: str) -> None:
    thought, rest = GOOD.removeprefix("<think>").split("</think>", 1)
    reply = assistant(marks.format(thought) + rest)
    assert for_history(reply, "strip").text == rest.strip()
    assert for_history(reply, "summary").text == f"<think>{thought}</think>\n{rest.strip()}"
    read, plain = (read_reply(message, None, memory=True) for message in (reply, assistant(GOOD)))
    assert (read.thinking, read.format, read.command) == (plain.thinking, plain.format, plain.command)


def test_history_slides_by_tokens_and_keeps_the_opening() -> None:
    history = History([system("rules"), user("first")], cap=100)
    assert [message.text for message in history.messages()] == ["rules", "first"]
    history.counted(20)
    sizes = []
    for turn in range(40):
        history.add(assistant(f"> go {turn}"), [user(f"room {turn}")])
        shown = history.messages()
        assert [message.text for message in shown[:2]] == ["rules", "first"]
        assert shown[-1].text == f"room {turn}"
        assert [message.role for message in shown[2:]] == ["assistant", "user"] * (len(shown) // 2 - 1)
        size = sum(len(message.text) + 16 for message in shown)
        history.counted(size)
        assert size <= 100 or len(shown) == 4
        sizes.append(len(shown))
    assert history.left_out >= 30


def test_history_left_out_is_not_taken_back() -> None:
    history = History([user("first")], cap=300)
    for turn in range(10):
        history.add(assistant("x" * 30), [user(f"{turn}")])
    history.counted(10_000)
    history.messages()
    left_out = history.left_out
    assert left_out == 9
    history.counted(1)
    assert len(history.messages()) == 3


def test_a_transcript_shows_the_newest_turns() -> None:
    turns = [("go north", "A hall."), ("", "Your reply is empty."), ("take key", "Taken.")]
    assert (
        transcript("A cell.", turns, 9)
        == "A cell.\n\n> go north\nA hall.\n\nYour reply is empty.\n\n> take key\nTaken."
    )
    assert transcript("A cell.", turns, 1) == "Your reply is empty.\n\n> take key\nTaken."
    assert transcript("A cell.", turns, 0) == "Taken."
    assert transcript("A cell.", [], 3) == "A cell."


class Bytes:
    """A model whose tokens are bytes, and which expects what its prefix says."""

    def __init__(self) -> None:
        self.passes: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    async def tokenize(self, text: str) -> tuple[int, ...]:
        return tuple(text.encode())

    async def score_logprobs(self, prefix: Any, y: Any) -> list[float]:
        self.passes.append((tuple(prefix), tuple(y)))
        told = bytes(prefix).partition(b"I expect: ")[2].partition(b"\n")[0]
        return [-0.5 if bytes([token]) in told else -2.0 for token in y]


SITUATION = Outcome("A cell.", "open door", "Opened.")


async def judge(predictions: list[str], **options: Any) -> tuple[Any, Bytes, Spent]:
    model, spent = Bytes(), Spent()
    repeat = options.pop("repeat", False)
    scorer = OutcomeScorer(AgentOptions(group_by="turn", vrcli="discrete", **options))
    return await scorer.judge(model, SITUATION, predictions, spent, repeat=repeat), model, spent


async def test_passes_differ_in_the_prediction_and_in_nothing_else() -> None:
    judged, model, spent = await judge(["Opened.", "zzz", "Opened."])
    assert len(model.passes) == spent.requests == 3
    assert spent.tokens == sum(len(prefix) + len(y) for prefix, y in model.passes)
    (base, y), *others = model.passes
    assert all(other_y == y == tuple(b"Opened.") for _, other_y in others)
    assert bytes(base).endswith(b"A cell.\n\n> open door\nWhat happens:\n")
    for (prefix, _), text in zip(others, (b"Opened.", b"zzz"), strict=True):
        assert bytes(prefix) == bytes(base).replace(b"What happens", b"I expect: " + text + b"\nWhat happens")
    assert judged.scores["Opened."].discrete == 1.0
    assert judged.scores["zzz"].improvement_pct == 0.0


async def test_no_prediction_is_exactly_zero_and_costs_no_pass() -> None:
    judged, model, _ = await judge(["Opened.", ""])
    assert len(model.passes) == 2
    assert judged.scores[""].improvement_pct == 0.0
    assert judged.noise is None
    again, model, _ = await judge(["Opened.", ""], repeat=True)
    assert len(model.passes) == 3
    assert again.noise == 0.0


async def test_outcomes_are_cut_to_the_same_tokens() -> None:
    _, model, _ = await judge(["Opened.", "zzz"], vrcli_tokens=3)
    assert {y for _, y in model.passes} == {tuple(b"Ope")}


async def test_an_outcome_without_tokens_cannot_be_scored() -> None:
    scorer = OutcomeScorer(AgentOptions(group_by="turn", vrcli="discrete"))
    with pytest.raises(UnscorableError, match="no tokens"):
        await scorer.judge(Bytes(), Outcome("A cell.", "wait", ""), ["x"], Spent())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"score_all": True}, "score_all: only used with group_by turn"),
        ({"memory": True, "vrcli": "discrete"}, "vrcli, memory: only used"),
        ({"group_by": "turn", "choose": "best"}, "needs score_all"),
        ({"group_by": "turn", "vrcli_thresholds": (2.0, 1.0, 3.0)}, "ascending"),
        ({"group_by": "turn", "vrcli": "discrete", "vrcli_weight": 0.95}, "more than 1"),
        ({"group_by": "turn", "vrcli_control": "null"}, "vrcli_control needs vrcli"),
        ({"group_by": "turn", "memory_summary": True}, "need memory"),
        ({"group_by": "turn", "scorer_model": "m"}, "needs scorer_url"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        TextWorldConfig(**options)
