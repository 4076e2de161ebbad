"""The rows of each output format, made of samples: pure functions.

messages             {messages: [...], tools?}                      TRL, OpenAI, Axolotl
prompt-completion    {prompt: [...], completion: [...], tools?}     TRL; the completion is the last assistant turn
sharegpt             {conversations: [{from, value}], tools?}       LLaMA-Factory, Axolotl
preference           {prompt, chosen, rejected}                     TRL's DPO
unpaired             {prompt, completion, label}                    TRL's KTO
preference-sharegpt  {conversations, chosen, rejected}              LLaMA-Factory's DPO; each side is one turn

tools is the JSON text of the list: TRL, LLaMA-Factory and every version of `datasets` take that.
"""

from __future__ import annotations

from collections.abc import Sequence

from atropos_cli.datasets.convert.samples import clean, is_cut
from atropos_cli.datasets.convert.turns import BadMessage, objects_of, plain_text
from atropos_cli.domain.finish import finish_of
from atropos_cli.io.jsonvalue import dump
from atropos_cli.io.records import Message, Row

SHAREGPT_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "human",
    "assistant": "gpt",
    "tool": "observation",
}
"""Our roles as ShareGPT names them; an assistant's tool call is `function_call`."""

_HUMAN_SIDE = frozenset({"human", "observation"})


def tools_column(tools: Sequence[Row] | None) -> Row:
    """The column `tools`; none without tools."""
    return {"tools": dump(list(tools)).decode()} if tools else {}


def messages_row(messages: Sequence[Message], *, arguments_as_text: bool = False) -> Row:
    return {"messages": [clean(message, arguments_as_text=arguments_as_text) for message in messages]}


def prompt_completion_row(messages: Sequence[Message], *, arguments_as_text: bool = False) -> Row:
    """The completion is the last message."""
    made = [clean(message, arguments_as_text=arguments_as_text) for message in messages]
    return {"prompt": made[:-1], "completion": made[-1:]}


def preference_row(
    prompt: Sequence[Message],
    chosen: Sequence[Message],
    rejected: Sequence[Message],
    *,
    arguments_as_text: bool = False,
) -> Row:
    """chosen and rejected hold the messages after the prompt."""
    sides = {"prompt": prompt, "chosen": chosen, "rejected": rejected}
    return {
        name: [clean(message, arguments_as_text=arguments_as_text) for message in side] for name, side in sides.items()
    }


def unpaired_row(
    prompt: Sequence[Message], completion: Sequence[Message], label: bool, *, arguments_as_text: bool = False
) -> Row:
    made = [[clean(m, arguments_as_text=arguments_as_text) for m in side] for side in (prompt, completion)]
    return {"prompt": made[0], "completion": made[1], "label": label}


def sharegpt_row(messages: Sequence[Message]) -> Row:
    """Results of parallel calls become one observation, joined by newlines. Raises BadMessage.

    LLaMA-Factory wants human and observation at odd places and gpt and function_call at even ones, so a text beside
    a tool call, or two turns of one side in a row, cannot be written.
    """
    turns: list[Row] = []
    for message in messages:
        text = plain_text(message)
        if message.get("reasoning"):
            raise BadMessage("sharegpt_thinking", "ShareGPT has no place for thinking beside the text")
        calls = message.get("tool_calls")
        if calls:
            if text.strip():
                raise BadMessage("sharegpt_call_beside_text", "a message holds a text and a tool call")
            functions = [call["function"] for call in objects_of(calls)]
            value = functions[0] if len(functions) == 1 else functions
            turns.append({"from": "function_call", "value": dump(value).decode()})
        elif message["role"] == "tool" and turns and turns[-1]["from"] == "observation":
            turns[-1]["value"] += f"\n{text}"
        else:
            turns.append({"from": SHAREGPT_ROLES[message["role"]], "value": text})
        if message.get("weight", 1) != 1:
            turns[-1]["weight"] = message["weight"]
        if is_cut(message):
            turns[-1]["finish_reason"] = finish_of(message["finish_reason"])
    body = turns[1:] if turns and turns[0]["from"] == "system" else turns
    for place, turn in enumerate(body):
        if (turn["from"] in _HUMAN_SIDE) != (place % 2 == 0) or turn["from"] == "system":
            raise BadMessage("sharegpt_turn_order", f"turn {place + 1} of the conversation is {turn['from']!r}")
    return {"conversations": turns}


def preference_sharegpt_row(prompt: Sequence[Message], chosen: Sequence[Message], rejected: Sequence[Message]) -> Row:
    """Raises BadMessage for a side of several messages: LLaMA-Factory has one turn for each."""
    if len(chosen) != 1 or len(rejected) != 1:
        raise BadMessage("sharegpt_several_turns", "a side of a pair has several messages; --completion turn has one")
    good, bad = (sharegpt_row([*prompt, *side])["conversations"] for side in (chosen, rejected))
    return {"conversations": good[:-1], "chosen": good[-1], "rejected": bad[-1]}
