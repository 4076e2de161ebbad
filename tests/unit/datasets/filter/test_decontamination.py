"""Evaluation data in training rows: wherever it stands, in whatever script, and what was not looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from records_support import run_filter, write_rows

from atropos_cli.datasets.filter.filtering import FilterJob
from atropos_cli.datasets.filter.report import FilterReport
from atropos_cli.datasets.filter.spec import FilterSpec
from atropos_cli.errors import DataError
from atropos_cli.io.readers import ReadLog
from atropos_cli.io.sources import find_sources

JA = "太郎は朝に七つの林檎を市場で買い、昼に三つを妹に渡しました。残りはいくつでしょうか。"
TH = "เด็กชายสมชายมีส้มสิบสองผลแบ่งให้เพื่อนสามคนเท่าๆ กัน แต่ละคนได้กี่ผล"
ZH = "小明有十二颗糖，分给三个朋友，每人几颗？"
AR = "ما هي عاصمة المملكة الأردنية الهاشمية ومتى تأسست؟"
POINTED = "مَا هِيَ عَاصِمَةُ المَمْلَكَةِ الأُرْدُنِيَّةِ الهَاشِمِيَّةِ وَمَتَى تَأَسَّسَتْ؟"
RU = "Сколько будет, если сложить все целые числа от одного до ста включительно и вычесть семь?"
MESSAGES = [{"role": "user", "content": "Name the largest moon of the planet Saturn, please."}]
EVALUATION: list[dict[str, Any]] = [
    {"question": JA},
    {"problem": TH},
    {"prompt": ZH},
    {"Question": "What is the boiling point of helium?", "Correct Answer": "4 K"},
    {"instruction": "Translate to Polish:", "input": "the grey dog"},
    {"messages": json.dumps(MESSAGES)},
    {"turns": ["Write a haiku about rust.", "Now make it rhyme with dust."]},
    {"data": {"paragraphs": [{"qas": [{"question": "Who founded the city of Alexandria?"}]}]}},
    {"prompt": [{"role": "system", "content": "You are helpful."}, {"role": "user", "content": RU}]},
    {"questionText": "Which river flows through the old town of Ljubljana?"},
    {"rows": [{"row_idx": 0, "row": {"question_ar": AR}}]},
    {"contents": [{"role": "user", "parts": [{"text": "Compute 17*3 and add nine."}]}]},
    {"dialog": [{"speaker": "user", "text": "How old is the oldest living olive tree?"}]},
]


NOT_TEXT = "hold token ids, images or other parts that are not text"


def said(*turns: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in turns]


def asked(text: str) -> list[dict[str, Any]]:
    return said(("user", text), ("assistant", "Well."))


def call(arguments: Any, result: str) -> list[dict[str, Any]]:
    function = {"name": "find", "arguments": json.dumps(arguments)}
    calls = [{"id": "c", "type": "function", "function": function}]
    asking = {"role": "assistant", "content": None, "tool_calls": calls}
    given = {"role": "tool", "tool_call_id": "c", "content": result}
    return [{"role": "user", "content": "Find one."}, asking, given, {"role": "assistant", "content": "Done."}]


FOUND = {
    "a later user turn": said(
        ("user", "やあ"), ("assistant", "はい"), ("user", f"問題です。{JA}"), ("assistant", "四つ")
    ),
    "the system message": said(("system", f"Task: {RU}"), ("user", "Go."), ("assistant", "x")),
    "a tool result": call({"q": "x"}, json.dumps({"found": [ZH]})),
    "arguments of a tool call": call({"q": ZH}, "nothing"),
    "the reply": said(("user", "Invent a question."), ("assistant", "Sure: who founded the city of Alexandria?")),
    "thinking": [*said(("user", "Go.")), {"role": "assistant", "content": "4", "reasoning": f"They ask {TH}"}],
    "a content part": said(("user", [{"type": "text", "text": f"Q: {JA}"}]), ("assistant", "x")),
    "a template, Thai": asked(f"ตอบคำถามต่อไปนี้: {TH} ขอบคุณ"),
    "a template, Chinese, other punctuation": asked(f"请解答：{ZH.replace('，', ',').replace('？', '?')}写步骤。"),
    "a template, in capitals": asked("Answer. WHAT IS THE BOILING POINT OF HELIUM? Thanks."),
    "full width": asked("Ｗｈａｔ ｉｓ ｔｈｅ ｂｏｉｌｉｎｇ ｐｏｉｎｔ ｏｆ ｈｅｌｉｕｍ？"),
    "instruction and input apart": asked("### Instruction:\nTranslate to Polish:\n\n### Input:\nthe grey dog\n"),
    "messages that were JSON text": asked("name the largest moon of the planet saturn please"),
    "a second turn": asked("Hi. Now make it rhyme with dust."),
    "vowel points": asked(f"أجب: {POINTED}"),
    "emphasis": asked("Which *river* flows through the **old** _town_ of Ljubljana?"),
    "tags and entities": asked("Which <b>river</b> flows&nbsp;through the<br>old town of <i>Ljubljana</i>?"),
    "a quotation": asked("> Which river flows\n> through the old town\n> of Ljubljana?"),
    "a comment": asked("Fix:\n// Which river flows through\n// the old town of Ljubljana?\nint x;"),
    "escaped line ends": asked("Q:\\nWhich river flows through the old town of Ljubljana?\\n"),
    "JSON with escapes behind words": call({}, "Found: " + json.dumps({"t": json.dumps(ZH)})),
    "Gemini's parts": asked("Please compute 17 * 3 and add nine."),
    "a speaker's text": asked("How old is the oldest living olive tree? Say."),
    "a part of a long question": asked(f"Реши: {RU[:80]}"),
}
CLEAN = {
    "the same ending, Thai": asked("ตอบคำถามต่อไปนี้: แม่ค้ามีมะม่วงยี่สิบผล ขายไปแปดผล แต่ละคนได้กี่ผล"),
    "the same ending, Japanese": asked("次の問題に答えてください。花子は本を三冊買いました。残りはいくつでしょうか。"),
    "other numbers, Chinese": asked("小红有九颗糖，分给三个朋友，每人几颗？"),
    "the same instruction": asked("### Instruction:\nTranslate to Polish:\n\n### Input:\nthe red cat\n"),
    "the same system message": said(("system", "You are helpful."), ("user", "Name a tree."), ("assistant", "Oak")),
    "a quotient in place of a product": asked("Compute 17/3 and add nine."),
    "another river": asked("Which *river* flows through the old town of Graz?"),
    "another capital": asked("ما هي عاصمة تونس؟"),
    "an answer": asked("At 4 K it is cold. Correct?"),
}


def run(rows: list[dict[str, Any]], evaluation: Path) -> tuple[FilterReport, set[str]]:
    lines: list[bytes] = []
    job = FilterJob(
        find_sources([str(write_rows(Path("in.jsonl"), *rows))]), FilterSpec(decontaminate=(str(evaluation),))
    )
    report = run_filter(job, ReadLog(), lambda line, record: lines.append(line))
    return report, {json.loads(line)["id"] for line in lines}


def test_decontamination_looks_everywhere(tmp_path: Path) -> None:
    evaluation = write_rows(tmp_path / "eval.jsonl", *EVALUATION)
    rows = [{"id": name, "messages": messages} for name, messages in {**FOUND, **CLEAN}.items()]
    report, kept = run(rows, evaluation)
    assert kept == set(CLEAN)
    assert report.warnings == []


def test_decontamination_says_where_it_did_not_look(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"question": "Why?"}, {"label": 3}, {"question": "Where does the sun go down?"}]
    evaluation = write_rows(tmp_path / "eval.jsonl", *rows)
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    report, kept = run(
        [
            {"id": "picture", "messages": said(("user", [picture]), ("assistant", "A cat."))},
            {"id": "why", "messages": asked("Why?")},
            {"id": "ids", "tokens": [[1, 2]], "masks": [[-100, 2]], "scores": [1]},
        ],
        evaluation,
    )
    assert kept == {"picture", "why", "ids"}
    assert report.warnings == [
        f"{evaluation}: 1 rows hold no text that was read: they were not looked for",
        "1 evaluation questions have fewer than 3 words: they were not looked for",
        f"2 rollouts {NOT_TEXT}: evaluation data in those was not looked for",
    ]


def test_a_template_that_is_taken_for_evaluation_data_is_told(tmp_path: Path) -> None:
    frame = "Solve the problem step by step and put the final answer of it into a box at the end"
    evaluation = write_rows(tmp_path / "eval.jsonl", {"prompt": f"Who was first? {frame}"})
    rows = [{"id": str(i), "messages": asked(f"Question {i}. {frame}")} for i in range(12)]
    report, kept = run(rows, evaluation)
    assert not kept
    assert [text for text in report.warnings if "12 of 12 finds are the same words" in text]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([{"label": 1, "idx": 4}], "no text was read from its 1 rows"),
        ([{"frage": "Wie hoch ist der Berg, und wer stieg als erster hinauf?"}], "their fields are frage"),
        ([{"messages": [{"role": "system", "content": "You are helpful."}]}], "no text was read"),
        ([], "no rows"),
    ],
)
def test_an_evaluation_file_without_text_is_an_error(rows: list[Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=text):
        run([{"id": "1", "messages": asked("Hi there.")}], write_rows(tmp_path / "eval.jsonl", *rows))
