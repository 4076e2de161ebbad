"""What a row asks: all parts of its prompt, in any form, and refusals that name the field that has no place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atropos_cli.io.formats import RowError, detect, read_as
from atropos_cli.io.formats.prompts import prompt_of
from atropos_cli.io.formats.transcripts import Ambiguous, turns_of
from atropos_cli.io.records import Record, text_of

ROLES = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}


def read(row: dict[str, Any]) -> Record:
    form = detect(row)
    assert form is not None, row
    return read_as(form, row, "r.jsonl", 1)


def told(row: dict[str, Any], index: int = 0) -> list[str]:
    """The messages of a rollout as "u:text"; a bar stands where the prompt ends."""
    rollout = read(row).rollouts[index]
    lines = [f"{message['role'][0]}:{text_of(message)}" for message in rollout.messages]
    return [*lines[: rollout.prompt_length], "|", *lines[rollout.prompt_length :]]


DIALOGUE = [{"role": "user", "content": "¿Hora?"}, {"role": "assistant", "content": "Las dos."}]


@pytest.mark.parametrize(
    ("row", "messages"),
    [
        ({"query": "Sum?", "chosen": "7", "rejected": "8"}, ["u:Sum?", "|", "a:7"]),
        (
            {"question": "Où ?", "context": ["Un texte.", "Un autre."], "response": "Ici."},
            ["u:Un texte.\n\nUn autre.\n\nOù ?", "|", "a:Ici."],
        ),
        (
            {"instruction": "Tee se.", "completions": [{"custom_system_prompt": "Ole lyhyt.", "response": "Valmis."}]},
            ["s:Ole lyhyt.", "u:Tee se.", "|", "a:Valmis."],
        ),
        (
            {"prompt": "Hvorfor?", "samples": [{"system": "Kort.", "text": "Derfor.", "score": 1}]},
            ["s:Kort.", "u:Hvorfor?", "|", "a:Derfor."],
        ),
        (
            {"messages": [{"role": "user", "parts": [{"text": "Kde?"}]}, {"role": "model", "parts": ["Tu", "a tam."]}]},
            ["u:Kde?", "|", "a:Tu\na tam."],
        ),
        (
            {"messages": [{"role": "user", "text": "Mikor?"}, {"role": "bot", "text": "Most."}]},
            ["u:Mikor?", "|", "a:Most."],
        ),
        (
            {"instruction": "Fasse zusammen.", "context": "Ein Text.", "chosen": "Kurz.", "rejected": "Lang."},
            ["u:Fasse zusammen.\n\nEin Text.", "|", "a:Kurz."],
        ),
        (
            {"system_prompt": "Kind.", "history": [["hi", "hello"]], "prompt": "bye", "completion": "ok"},
            ["s:Kind.", "u:hi", "a:hello", "u:bye", "|", "a:ok"],
        ),
        (
            {"instruction": "翻译", "input": "狗", "output": "dog", "system": "简短"},
            ["s:简短", "u:翻译\n\n狗", "|", "a:dog"],
        ),
        ({"system": "S", "messages": DIALOGUE}, ["s:S", "u:¿Hora?", "|", "a:Las dos."]),
        (
            {"history": DIALOGUE, "query": "¿Y ya?", "response": "Sí"},
            ["u:¿Hora?", "a:Las dos.", "u:¿Y ya?", "|", "a:Sí"],
        ),
        ({"problem": "p?", "messages": [{"role": "assistant", "content": "r"}]}, ["u:p?", "|", "a:r"]),
        (
            {"system": "S", "conversations": [{"from": "Human", "value": "q"}], "response": "r"},
            ["s:S", "u:q", "|", "a:r"],
        ),
        (
            {"system": "S", "problem": "p", "solution_a": {"solution": "x", "is_correct": True}},
            ["s:S", "u:p", "|", "a:x"],
        ),
        ({"system": "S", "question": "q", "responses": ["x", "y"]}, ["s:S", "u:q", "|", "a:x"]),
        ({"system": "S", "messages": [DIALOGUE, DIALOGUE], "scores": [1, 0]}, ["s:S", "u:¿Hora?", "|", "a:Las dos."]),
        ({"system": "S", "traj": DIALOGUE, "task_id": 3, "reward": 1}, ["s:S", "u:¿Hora?", "|", "a:Las dos."]),
        (
            {
                "prompt": "q",
                "chosen": [
                    {"role": "system", "content": "S"},
                    {"role": "user", "content": "q"},
                    {"role": "assistant", "content": "x"},
                ],
                "rejected": [
                    {"role": "system", "content": "S"},
                    {"role": "user", "content": "q"},
                    {"role": "assistant", "content": "y"},
                ],
            },
            ["s:S", "u:q", "|", "a:x"],
        ),
        (
            {"messages": [*DIALOGUE, {"role": "user", "content": "q"}], "prompt": "q", "chosen": "x", "rejected": "y"},
            ["u:¿Hora?", "a:Las dos.", "u:q", "|", "a:x"],
        ),
        ({"messages": DIALOGUE, "chosen": "x", "rejected": "y"}, ["u:¿Hora?", "|", "a:x"]),
        ({"user_prompt": "q", "document": "Text.", "completion": "x"}, ["u:Text.\n\nq", "|", "a:x"]),
        # What stands twice is said once.
        (
            {"prompt": "Solve: is 91 prime?", "question": "is 91 prime?", "completion": "no"},
            ["u:Solve: is 91 prime?", "|", "a:no"],
        ),
        (
            {"system": "S", "messages": [{"role": "developer", "content": "S  and more"}, *DIALOGUE]},
            ["d:S  and more", "u:¿Hora?", "|", "a:Las dos."],
        ),
    ],
)
def test_every_part_of_a_prompt_is_read(row: dict[str, Any], messages: list[str]) -> None:
    assert told(row) == messages


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"instruction": "Translate.", "messages": DIALOGUE}, "instruction"),
        ({"question": "another question", "prompt": "one question", "chosen": "a", "rejected": "b"}, "question"),
        (
            {"system": "A", "conversations": [{"from": "system", "value": "B"}, {"from": "human", "value": "q"}]},
            "system",
        ),
        ({"input": "dog", "messages": [{"role": "user", "content": "a hotdog"}, DIALOGUE[1]]}, "input"),
        ({"history": ["one", "two", "three"], "prompt": "q", "completion": "a"}, "history"),
        ({"history": "no turns", "prompt": "q", "completion": "a"}, "history"),
        ({"context": {"title": "t"}, "question": "q", "chosen": "a", "rejected": "b"}, "context"),
        ({"messages": DIALOGUE, "response": "another reply"}, "response"),
        ({"prompt": "Human: q\n\nAssistant: a", "completion": "b"}, "prompt"),
        ({"messages": "[{'role': 'user', 'content': 'q'}]"}, "messages"),
        ({"problem": "p", "generations": ["x"], "messages": DIALOGUE}, "messages"),
    ],
)
def test_a_text_that_has_no_place_is_refused_by_its_name(row: dict[str, Any], field: str) -> None:
    with pytest.raises(RowError) as caught:
        read(row)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("user", "assistant", "gap"),
    [
        ("User:", "Bot:", "\n"),
        ("Human:", "AI:", "\n\n"),
        ("USER:", "ASSISTANT:", "\n"),
        ("**User:**", "**Assistant:**", "\n\n"),
        ("### Human:", "### Assistant:", ""),
        ("### Instruction:", "### Response:", "\n\n"),
        ("[User]:", "[Assistant]:", "\n"),
        ("用户：", "助手：", "\n"),
        ("ユーザー：", "アシスタント：", "\n\n"),
        ("사용자:", "어시스턴트:", "\n"),
        ("Usuario:", "Asistente:", "\n"),
        ("Utilisateur :", "Assistant :", "\n\n"),
        ("Benutzer:", "Assistent:", "\n"),
        ("Пользователь:", "Ассистент:", "\n"),
        ("المستخدم:", "المساعد:", "\n\n"),
        ("उपयोगकर्ता:", "सहायक:", "\n"),
        ("<|im_start|>user", "<|im_end|>\n<|im_start|>assistant", "\n"),
        ("<start_of_turn>user", "<end_of_turn>\n<start_of_turn>model", "\n"),
    ],
)
def test_transcripts_are_turns(user: str, assistant: str, gap: str) -> None:
    turns = ["Note: one\nmore", "two: 2", "three", "four"]
    labels = [user, assistant, user, assistant]
    text = gap.join(
        f"{label}\n{turn}" if "<" in label else f"{label} {turn}" for label, turn in zip(labels, turns, strict=True)
    )
    if "<" in user:
        text = text.replace("\n<|im_start|>user\nthree", "<|im_end|>\n<|im_start|>user\nthree")
        text = text.replace("\n<start_of_turn>user\nthree", "<end_of_turn>\n<start_of_turn>user\nthree")
    wanted = [("user", turns[0]), ("assistant", turns[1]), ("user", turns[2]), ("assistant", turns[3])]
    assert turns_of(text) == wanted
    last = text.rindex("four")
    row = {"chosen": text, "rejected": text[:last] + "five"}
    assert told(row, 1) == [f"u:{turns[0]}", f"a:{turns[1]}", "u:three", "|", "a:five"]
    asked = {"prompt": text[:last].rstrip(), "completion": " four"}
    assert told(asked) == [f"u:{turns[0]}", f"a:{turns[1]}", "u:three", "|", "a:four"]


@pytest.mark.parametrize(
    ("prompt", "turns"),
    [
        ("Be kind.\n\nHuman: hi\n\nAssistant:", ["s:Be kind.", "u:hi"]),
        (
            "Below is a task.\n\n### Instruction:\nDo it\n\n### Input:\nthis\n\n### Response:\n",
            ["s:Below is a task.", "u:Do it\n\nthis"],
        ),
        ("system\nYou are Qwen.\nuser\n2+2?\nassistant\n", ["s:You are Qwen.", "u:2+2?"]),
        ("System: Brief.\nUser: a\nBot: b\nUser: c\nBot:", ["s:Brief.", "u:a", "a:b", "u:c"]),
        # These are one user's words.
        ("Question: 2+2?\nAnswer:", ["u:Question: 2+2?\nAnswer:"]),
        ("Human: is it a noun?", ["u:Human: is it a noun?"]),
        ("Go on.\nHuman: to be\nAssistant: or not", ["u:Go on.\nHuman: to be\nAssistant: or not"]),
    ],
)
def test_prompts_that_are_transcripts(prompt: str, turns: list[str]) -> None:
    assert [f"{m['role'][0]}:{m['content']}" for m in prompt_of({"prompt": prompt})] == turns


def test_question_and_answer_are_turns_only_where_there_is_one_of_each() -> None:
    assert turns_of("Pregunta: 2+2?\nRespuesta: 4", weak=True) == [("user", "2+2?"), ("assistant", "4")]
    assert turns_of("问：二加二？\n答：四", weak=True) == [("user", "二加二？"), ("assistant", "四")]
    assert turns_of("Q: a\nA: b\nQ: c\nA: d", weak=True) is None
    assert turns_of("Question: a\nAnswer: b") is None


@pytest.mark.parametrize(
    "text",
    [
        "Human: write\n\nAssistant: so:\nHuman: a\nAssistant: b",
        "User: a\n\nBot: b\n\nBot: c",
        "Human: a\n\nAssistant:\n\nHuman: c\n\nAssistant: d",
    ],
)
def test_transcripts_with_two_readings_are_refused(text: str) -> None:
    with pytest.raises(Ambiguous):
        turns_of(text)
    with pytest.raises(RowError) as caught:
        read({"chosen": text, "rejected": text + "!"})
    assert caught.value.field == "chosen"


@pytest.mark.parametrize(
    "reply",
    ["Human: hi\n\nAssistant: hello", "Sure:\nUser: a\nBot: b", '[{"role": "admin", "content": "x"}]', "AI: yes"],
)
def test_a_reply_may_show_a_dialogue(reply: str) -> None:
    assert told({"prompt": "Write one", "completion": reply}) == ["u:Write one", "|", f"a:{reply}"]


def test_code_blocks_of_a_transcript_hold_no_turns() -> None:
    text = "Human: show\n\nAssistant: ```\nHuman: x\n\nAssistant: y\n```\n\nHuman: thanks\n\nAssistant: sure"
    turns = turns_of(text)
    assert turns is not None
    assert [role for role, _ in turns] == ["user", "assistant", "user", "assistant"]


def test_labels_on_both_fields_are_taken_off() -> None:
    assert told({"prompt": "User: q", "chosen": "Bot: a", "rejected": "Bot: b"}) == ["u:q", "|", "a:a"]
    assert told({"prompt": "User: q", "chosen": "a", "rejected": "b"}) == ["u:User: q", "|", "a:a"]
    assert told({"question": "User: q", "completion": " a "}) == ["u:User: q", "|", "a: a "]


@pytest.mark.parametrize(
    "stored",
    [
        json.dumps(DIALOGUE),
        json.dumps([{"from": "human", "value": "¿Hora?"}, {"from": "gpt", "value": "Las dos."}], indent=1),
        json.dumps({"messages": DIALOGUE}),
        [["¿Hora?", "Las dos."]],
        [{"user": "¿Hora?", "assistant": "Las dos."}],
        "Usuario: ¿Hora?\nAsistente: Las dos.",
    ],
)
@pytest.mark.parametrize("field", ["messages", "conversations", "conversation", "traj"])
def test_conversations_in_any_form(field: str, stored: Any) -> None:
    if isinstance(stored, list) and field in ("messages", "traj") and isinstance(stored[0], list):
        stored = json.dumps(DIALOGUE)  # lists of lists are groups there
    assert told({field: stored, "score": 1}) == ["u:¿Hora?", "|", "a:Las dos."]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "utterance": "Q"},
        {"role": "assistant", "thought": "T", "action": "ls"},
        {"role": "system", "blocks": [{"text": "S"}]},
        {"from": "human", "message": "Q"},
        {"role": "user", "parts": [{"functionResponse": {"name": "f"}}]},
    ],
)
def test_a_message_whose_text_stands_under_an_unknown_name_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(RowError, match=r"messages\[0\]"):
        read({"messages": [message, *DIALOGUE]})


def test_json_text_in_pairs_and_prompts() -> None:
    other = [DIALOGUE[0], {"role": "assistant", "content": "Las tres."}]
    assert told({"chosen": json.dumps(DIALOGUE), "rejected": json.dumps(other)}, 1) == ["u:¿Hora?", "|", "a:Las tres."]
    assert told({"prompt": json.dumps(DIALOGUE[:1]), "completion": "x"}) == ["u:¿Hora?", "|", "a:x"]
    assert told({"text": "### Human: a### Assistant: b"}) == ["u:a", "|", "a:b"]
    assert told({"text": "Once: a tale"}) == ["|", "a:Once: a tale"]


@pytest.mark.parametrize("thoughts", [["2 and 2"], ["2 and 2", "is 4"], ["数える", "quatre"]])
def test_thoughts_told_as_messages_are_the_reasoning_of_the_reply(thoughts: list[str]) -> None:
    asked = {"role": "user", "content": "2+2?"}
    thinking = [{"role": "assistant", "channel": "analysis", "content": text} for text in thoughts]
    final = {"role": "assistant", "channel": "final", "content": "4"}
    reply = {"role": "assistant", "content": "4", "reasoning": "\n".join(thoughts)}
    assert read({"messages": [asked, *thinking, final]}).rollouts[0].messages == [asked, reply]


def test_a_thought_without_a_reply_is_no_text_to_train_on() -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "channel": "analysis", "content": "hm"}]
    reply = read({"messages": messages}).rollouts[0].messages[-1]
    assert reply == {"role": "assistant", "content": None, "reasoning": "hm"}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"content": "4", "reasoning_details": [{"type": "reasoning.text", "text": "2 and 2"}]}, ("4", "2 and 2")),
        (
            {"content": "4", "reasoning_details": [{"summary": "数"}, {"data": "x"}, {"text": "える"}]},
            ("4", "数\nえる"),
        ),
        ({"content": "4", "reasoning": "own", "reasoning_details": [{"text": "same"}]}, ("4", "own")),
        ({"content": None, "refusal": "I cannot help."}, ("I cannot help.", None)),
    ],
)
def test_what_servers_put_beside_the_content_is_read(said: dict[str, Any], expected: tuple[str, str | None]) -> None:
    row = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", **said}]}
    reply = read(row).rollouts[0].messages[-1]
    assert (reply["content"], reply.get("reasoning")) == expected
