"""The tool-call parser: case table, more rows of the same kinds, hostile and random input."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import case_tables
import pytest

from atropos_cli import sdk
from atropos_cli.text.toolcalls import ToolParse, parse_tool_calls

FORMATS = ("hermes", "json", "openai", "python", "react")
CALL = '{"name":"f","arguments":{"a":1}}'
F1 = [("f", {"a": 1})]


@pytest.mark.parametrize("row", case_tables.params("toolcalls"))
def test_case(row: dict[str, Any]) -> None:
    parse = parse_tool_calls(row["output"], row["format"], tools=row.get("tools"))
    got = {
        "status": parse.status,
        "calls": [{"name": call.name, "arguments": call.arguments} for call in parse.calls],
        "warnings": list(parse.warnings),
        "error": parse.error,
        "strict_json_ok": parse.strict_json_ok,
        "validation_errors": list(parse.validation_errors),
    }
    assert {key: got[key] for key in row["expected"]} == row["expected"]


def tag(payload: str) -> str:
    return f"<tool_call>{payload}</tool_call>"


def check(parse: ToolParse, expected: str | list[tuple[str, dict[str, Any]]], warnings: str = "") -> None:
    if isinstance(expected, str):
        assert (parse.status, parse.error or "none") == ("none" if expected == "none" else "error", expected)
        assert parse.calls == ()
    else:
        assert parse.status == "ok", parse
        assert [(call.name, call.arguments) for call in parse.calls] == expected
        assert " ".join(parse.warnings) == warnings


HERMES: list[tuple[str, str, Any, str]] = [
    ("trailing comma", tag('{"name":"f","arguments":{"a":1,},}'), F1, "trailing_comma"),
    ("two repairs", tag("{'name':'f','arguments':{'a':1,}}"), F1, "python_literal trailing_comma"),
    ("double comma is no repair", tag('{"name":"f","arguments":{"a":1,,}}'), "invalid_json", ""),
    ("arguments as text", tag(r'{"name":"f","arguments":"{\"a\":1}"}'), F1, "arguments_string"),
    ("python text as arguments", tag('{"name":"f","arguments":"{\'a\': 1}"}'), F1, "arguments_string python_literal"),
    ("cut-off text as arguments", tag(r'{"name":"f","arguments":"{\"a\":"}'), "truncated", ""),
    ("empty text as arguments", tag('{"name":"f","arguments":" "}'), [("f", {})], "missing_arguments"),
    ("no end tag", f"<tool_call>{CALL}", F1, "missing_close_tag"),
    ("first end tag missing", f"<tool_call>{CALL}\n{tag(CALL)}", F1 * 2, "missing_close_tag"),
    ("no end tag, prose", f"<tool_call>{CALL} I wait now.", F1, "missing_close_tag"),
    ("brace missing", tag('{"name":"f","arguments":{"a":1}'), "invalid_json", ""),
    ("one brace too many", tag(CALL + "}"), F1, "trailing_text"),
    ("words before the brace", tag("json: " + CALL), F1, "leading_text"),
    ("comma between objects", tag(f"{CALL}, {CALL}"), F1 * 2, "multiple_objects"),
    ("one good, one cut off", tag(CALL) + '<tool_call>{"name":"g"', "truncated", ""),
    ("one good, one without a name", tag(CALL) + tag('{"arguments":{}}'), "missing_name", ""),
    ("no object", tag("7"), "invalid_json", ""),
    ("list of numbers", tag("[1]"), "not_an_object", ""),
    ("empty list", tag("[]"), "not_an_object", ""),
    ("nothing in the tag", tag(""), "invalid_json", ""),
    ("nothing after the tag", "<tool_call>", "truncated", ""),
    ("name missing", tag('{"arguments":{}}'), "missing_name", ""),
    ("name of spaces", tag('{"name":" ","arguments":{}}'), "missing_name", ""),
    ("number as arguments", tag('{"name":"f","arguments":3}'), "arguments_not_object", ""),
    ("infinite number", tag('{"name":"f","arguments":{"a":1e999}}'), "invalid_json", ""),
    ("half a surrogate pair", tag(r'{"name":"f","arguments":{"a":"\ud83d"}}'), [("f", {"a": "�"})], "lone_surrogate"),
    ("too many digits", tag('{"name":"f","arguments":{"a":' + "9" * 5000 + "}}"), "invalid_json", ""),
    ("nested too deep", tag('{"name":"f","arguments":{"a":' + "[" * 999 + "]" * 999 + "}}"), "too_deep", ""),
    ("lone end of thought", f"so {tag(CALL)}</think>no call", "none", ""),
    ("call after lone end of thought", f"{tag('{')}</think>{tag(CALL)}", F1, ""),
    ("two thoughts", f"<think>a</think>{tag(CALL)}<think>b</think>{tag(CALL)}", F1 * 2, ""),
    ("call, then cut off in thought", f"{tag(CALL)}<think>more {tag(CALL)}", F1, ""),
    ("capital tags", f"<THINK>{tag('{')}</Think>{tag(CALL)}", F1, ""),
    ("memory never closed", f"<memory>note {tag(CALL)}", F1, ""),
    (
        "thought inside a string",
        tag('{"name":"say","arguments":{"t":"<think>x</think><memory>"}}'),
        [("say", {"t": "<think>x</think><memory>"})],
        "",
    ),
    ("opening tag in the prompt, thought before", f"<think>x</think>{CALL}</tool_call>", F1, "missing_open_tag"),
    ("opening tag in the prompt, cut off", '{"name":"f","argu</tool_call>', "truncated", ""),
    ("end tag in prose", "Close it with </tool_call> then.", "none", ""),
    ("fence in the tag, no end", f"<tool_call>```json\n{CALL}\n```", F1, "code_fence missing_close_tag"),
]

JSON: list[tuple[str, str, Any, str]] = [
    ("list", f"[{CALL},{CALL}]", F1 * 2, "array_of_calls"),
    ("fence", f"```json\n{CALL}\n```", F1, "code_fence"),
    ("fence in prose", f"Now:\n```json\n{CALL}\n```", F1, "code_fence surrounding_text"),
    ("two objects", f"{CALL}\n{CALL}", F1 * 2, "multiple_objects"),
    ("name alone", '{"name":"think"}', [("think", {})], "missing_arguments"),
    ("name alone in prose", 'My {"name":"Bob"} is.', "none", ""),
    ("a person", '{"name":"Bob","age":4}', "none", ""),
    ("cut off", '{"name":"f","arguments":{"a":', "truncated", ""),
    ("cut off, not a call", '{"answer": 4', "none", ""),
    ("brace in prose", "a set {1, 2} and { more", "none", ""),
    ("broken object first", 'x {"a" 1} ' + CALL, F1, "surrounding_text"),
    ("inside a broken object", '{"x": ' + CALL + " oops}", "none", ""),
    ("unclosed quote before", 'say {"so. ' + "{'name':'f','arguments':{'a':1}}", F1, "python_literal surrounding_text"),
    ("inside a thought", f"<think>{CALL}</think>done", "none", ""),
    ("empty name", '{"name":"","arguments":{}}', "missing_name", ""),
    ("no name", '{"arguments":{}}', "missing_name", ""),
    ("NaN", '{"name":"f","arguments":{"a":NaN}}', "invalid_json", ""),
    ("Llama style", '{"name":"f","parameters":{"a":1}}', F1, "parameters_alias"),
]

PYTHON: list[tuple[str, str, Any, str]] = [
    ("list of calls", "[f(a=1), f(a=1)]", F1 * 2, ""),
    ("dotted name", "api.v1.get(x='y')", [("api.v1.get", {"x": "y"})], ""),
    ("comments", "# now\nf(a=1)  # done", F1, ""),
    ("indented", "    f(a=1)\n    f(a=1)", F1 * 2, ""),
    ("tuple is a list", "f(a=(1, 2))", [("f", {"a": [1, 2]})], ""),
    ("cut off in a string", "f(a='x", "truncated", ""),
    ("assignment", "y = f(a=1)", "not_a_call", ""),
    ("import", "import os", "not_a_call", ""),
    ("comprehension", "f(a=[x for x in y])", "non_literal_argument", ""),
    ("f-string", "f(a=f'{x}')", "non_literal_argument", ""),
    ("arithmetic", "f(a=2**99999)", "non_literal_argument", ""),
    ("stars", "f(**{'a': 1})", "non_literal_argument", ""),
    ("bytes", "f(a=b'x')", "non_json_argument", ""),
    ("set", "f(a={1})", "non_json_argument", ""),
    ("number as key", "f(a={1: 2})", "non_json_argument", ""),
    ("infinite", "f(a=1e999)", "non_json_argument", ""),
    ("enormous hexadecimal", "f(a=0x" + "f" * 9999 + ")", "non_json_argument", ""),
    ("twice the same", "f(a=1, a=2)", "duplicate_argument", ""),
    ("call of a result", "f(a=1)(b=2)", "not_a_call", ""),
    ("not Python", "please call f", "invalid_python", ""),
    ("wrong bracket", "f(a=[1)", "invalid_python", ""),
    ("deep", "f(a=" + "[" * 99 + "]" * 99 + ")", "too_deep", ""),
    ("long sum", "f(a=" + "1+" * 50000 + "1)", "invalid_python", ""),
]

REACT: list[tuple[str, str, Any, str]] = [
    ("named", 'Thought: t\nAction: f\nAction Input: {"a": 1}', F1, ""),
    ("name on the next line", 'Action:\nf\nAction Input:\n{"a": 1}', F1, ""),
    ("no input", "Action: f", [("f", {})], "missing_arguments"),
    ("input None", "Action: f\nAction Input: None", [("f", {})], "missing_arguments"),
    ("input is text", "Action: f\nAction Input: hello", "arguments_not_object", ""),
    ("input cut off", "Action: f\nAction Input:", "truncated", ""),
    ("words as a name", "Action: look around the room", "invalid_action", ""),
    ("fenced input", 'Action: f\nAction Input:\n```json\n{"a": 1}\n```', F1, "code_fence"),
    ("observation first", f"Observation: done\nAction:\n{CALL}", "none", ""),
    ("second action", f"Action:\n{CALL}\nAction:\n{CALL}", F1, "text_after_action"),
    ("inside a thought", f"<think>\nAction:\n{CALL}\n</think>\nDone.", "none", ""),
    ("after a lone end of thought", f"Action: x\n</think>\nAction:\n{CALL}", F1, ""),
    ("nothing after the label", "Action:", "truncated", ""),
]


@pytest.mark.parametrize(("text", "expected", "warnings"), [row[1:] for row in HERMES], ids=[row[0] for row in HERMES])
def test_hermes(text: str, expected: Any, warnings: str) -> None:
    check(parse_tool_calls(text), expected, warnings)


@pytest.mark.parametrize(("text", "expected", "warnings"), [row[1:] for row in JSON], ids=[row[0] for row in JSON])
def test_json(text: str, expected: Any, warnings: str) -> None:
    check(parse_tool_calls(text, "json"), expected, warnings)


@pytest.mark.parametrize(("code", "expected", "warnings"), [row[1:] for row in PYTHON], ids=[row[0] for row in PYTHON])
def test_python(code: str, expected: Any, warnings: str) -> None:
    check(parse_tool_calls(f"```python\n{code}\n```", "python"), expected, warnings)


@pytest.mark.parametrize(("text", "expected", "warnings"), [row[1:] for row in REACT], ids=[row[0] for row in REACT])
def test_react(text: str, expected: Any, warnings: str) -> None:
    check(parse_tool_calls(text, "react"), expected, warnings)


def openai(*functions: Any, **more: Any) -> dict[str, Any]:
    calls = [{"id": "c", "type": "function", "function": function} for function in functions]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def test_openai_mapping_and_errors() -> None:
    check(parse_tool_calls(openai({"name": "f", "arguments": '{"a":1}'}), "openai"), F1)
    check(parse_tool_calls(openai({"name": "f"}), "openai"), [("f", {})], "missing_arguments")
    check(parse_tool_calls(openai({"name": "f", "arguments": '{"a":'}), "openai"), "truncated")
    check(parse_tool_calls(openai({"name": "f", "arguments": '{"a":1} x'}), "openai"), "invalid_json")
    check(parse_tool_calls(openai({"name": "f", "arguments": "[1]"}), "openai"), "arguments_not_object")
    check(parse_tool_calls(openai({"arguments": "{}"}), "openai"), "missing_name")
    check(parse_tool_calls(openai("f"), "openai"), "not_an_object")
    check(parse_tool_calls({"tool_calls": "f"}, "openai"), "not_an_object")
    check(parse_tool_calls('{"tool_calls": [', "openai"), "truncated")
    check(parse_tool_calls("Hello.", "openai"), "none")
    check(parse_tool_calls(None, "openai"), "none")


def test_openai_calls_left_in_the_text() -> None:
    """Field case B24: a server whose parser failed leaves the call in the content."""
    message = {"role": "assistant", "content": tag(CALL)}
    plain = parse_tool_calls(message, "openai")
    assert (plain.status, plain.warnings) == ("none", ("tool_call_in_text",))
    check(parse_tool_calls(message, "openai", fallback="hermes"), F1, "tool_call_in_text")
    parts = {"role": "assistant", "content": [{"type": "text", "text": tag(CALL)}]}
    check(parse_tool_calls(parts, "openai", fallback="hermes"), F1, "tool_call_in_text")
    check(parse_tool_calls({"content": "Hi"}, "openai", fallback="hermes"), "none")


TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "unit": {"type": "string", "enum": ["C", "F"]}},
                "required": ["a"],
            },
        },
    }
]


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        ({"a": 1}, ()),
        ({"a": 1.0, "unit": "C"}, ()),
        ({}, ("missing:a",)),
        ({"a": "1"}, ("wrong_type:a",)),
        ({"a": True}, ("wrong_type:a",)),
        ({"a": 1, "unit": "K"}, ("not_in_enum:unit",)),
        ({"unit": "C", "b": 1}, ("missing:a", "unexpected:b")),
    ],
)
def test_schema_problems_are_reported_apart(arguments: dict[str, Any], problems: tuple[str, ...]) -> None:
    parse = parse_tool_calls(tag(json.dumps({"name": "f", "arguments": arguments})), tools=TOOLS)
    assert (parse.status, parse.error, parse.validation_errors) == ("ok", None, problems)


def test_positional_arguments_are_named_by_the_schema() -> None:
    check(parse_tool_calls("```python\nf(1)\n```", "python", tools=TOOLS), F1, "positional_arguments")
    check(parse_tool_calls("```python\nf(1, 'C', 2)\n```", "python", tools=TOOLS), "positional_arguments")
    check(parse_tool_calls("```python\nf(1, a=2)\n```", "python", tools=TOOLS), "duplicate_argument")


def test_as_tool_call_round_trip() -> None:
    call = parse_tool_calls(tag('{"name":"say","arguments":{"t":"é ☕"}}')).calls[0].as_tool_call("c1")
    assert (call.id, call.function.name, json.loads(call.function.arguments)) == ("c1", "say", {"t": "é ☕"})
    message = sdk.Message(role="assistant", content=None, tool_calls=(call,))
    check(parse_tool_calls(message.model_dump(), "openai"), [("say", {"t": "é ☕"})])


def test_unknown_format_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="hermez"):
        parse_tool_calls("x", "hermez")  # type: ignore[arg-type]


UNITS = [
    "<tool_call>{", "<tool_call>{}", tag(CALL), "<tool_call>" + CALL, "{", '{"', '{"a":', '{"a":1,', "[{", "{'\"",
    "{'", "</tool_call>", "{</tool_call>", '{"</tool_call>', "<memory>", "<think>", "</think>", "<think></think>",
    "```python\n", "```python\nf(x=1)\n```\n", "Action: a\n", "Action: a\nAction Input: {", "Observation:\n", " ",
    "\n", "\\", '{"\\', "[", '{"name":"f"}', '{"name":"x","arguments":', '"', '"""', "(", "{\t\n", '{"\\ud83d',
    "\ud83d", "\x00", '<tool_call>{"a":1',
]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS, ids=ascii)
def test_hostile_repetition_takes_linear_time(unit: str) -> None:
    """A quadratic reader needs minutes for these; the bound is on CPU seconds and generous."""
    text = unit * (200_000 // len(unit))
    begin = time.process_time()
    for name in FORMATS:
        for prefix in ("", "```python\n", '<tool_call>{"a":[', "Action:\n"):
            parse_tool_calls(prefix + text, name)
    assert time.process_time() - begin < 30


def test_one_megabyte_of_open_tags() -> None:
    begin = time.process_time()
    assert parse_tool_calls("<tool_call>{" * 83_334).error == "invalid_json"
    assert time.process_time() - begin < 10


def test_random_text_never_raises_and_results_can_be_written() -> None:
    rng = random.Random(5)
    pieces = [
        *UNITS, CALL, "</tool_call>", '"name"', '"arguments"', ":", ",", "}", "]", "f(x=1)", "\n```", "é",
        '{"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}', "Action:", "'", "True", "-1e5", "<remember>",
    ]  # fmt: skip
    seen = set()
    for _ in range(6000):
        text = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 12)))
        for name in FORMATS:
            parse = parse_tool_calls(text, name, tools=TOOLS, fallback=rng.choice([None, *FORMATS]))
            seen.add((name, parse.status))
            assert (parse.status == "ok") == bool(parse.calls)
            assert (parse.status == "error") == (parse.error is not None)
            for call in parse.calls:
                assert json.loads(call.as_tool_call().model_dump_json())["function"]["name"] == call.name
    assert len(seen) == 3 * len(FORMATS)  # each format met each outcome


def test_cut_off_calls_are_never_completed() -> None:
    whole = tag('{"name":"f","arguments":{"a":[1,{"b":"x y"}],"c":null}}')
    end = whole.index("</tool_call>")
    for cut in range(len("<tool_call>"), end):
        assert parse_tool_calls(whole[:cut]).error == "truncated", whole[:cut]
    for cut in range(end, len(whole)):
        assert parse_tool_calls(whole[:cut]).status == "ok"


def test_nothing_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "open('made', 'w')"
    for text in (
        f"```python\nf(x={code})\n```", f"```python\n{code}\n```", tag("{'name': " + code + "}"),
        tag("{'name': 'f', 'arguments': {'a': __import__('os').mkdir('made')}}"), f"Action: f\nAction Input: {code}",
    ):  # fmt: skip
        for name in FORMATS:
            parse_tool_calls(text, name)
    assert list(tmp_path.iterdir()) == []


OFFERED = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}}}]


@pytest.mark.parametrize(
    "text",
    [
        tag(CALL),
        f"Action: {CALL}",
        "Action: f\nAction Input: {'a': 1}".replace("'", '"'),
        "```python\nf(a=1)\n```",
        f"I call it: {CALL}",
        f'{{"tool_calls": [{CALL}]}}',
        f'<think>I need f.</think>\n{{"role": "assistant", "content": null, "tool_calls": [{{"function": {CALL}}}]}}',
        f'```json\n{{"tool_calls": [{{"id": "1", "type": "function", "function": {CALL}}}]}}\n```',
    ],
)
def test_auto_finds_every_format(text: str) -> None:
    parse = parse_tool_calls(text, "auto", tools=OFFERED)
    assert [(call.name, call.arguments) for call in parse.calls] == F1
    assert not parse.validation_errors


def test_auto_takes_marked_calls_before_text_that_may_be_prose() -> None:
    text = "```python\nf(a=2)\n```\n" + tag(CALL)
    assert parse_tool_calls(text, "auto", tools=OFFERED).calls[0].arguments == {"a": 1}


def test_auto_takes_what_the_server_has_parsed_first() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    message = {"content": tag('{"name":"g","arguments":{}}'), "tool_calls": [call]}
    assert [call.name for call in parse_tool_calls(message, "auto", tools=OFFERED).calls] == ["f"]
    assert [call.name for call in parse_tool_calls({"content": tag(CALL)}, "auto", tools=OFFERED).calls] == ["f"]


@pytest.mark.parametrize(
    "answer",
    [
        "The answer is 4.",
        "```python\nprint(2 + 2)\n```",
        "```python\nx = f\n```",
        '{"name": "Ada", "arguments": {"for": "peace"}}',
        "Action: I went home.",
        '{"tool_calls": []}',
        '{"tool_calls": [{"name": "g", "arguments": {}}]}',
        'A log has {"tool_calls": [{"name": "f", "arguments": {"a": 1}}]} in it.',
    ],
)
def test_auto_takes_no_answer_for_a_call(answer: str) -> None:
    assert parse_tool_calls(answer, "auto", tools=OFFERED).status == "none"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('<tool_call>{"name":"f","arguments":{"a":1', "truncated"),
        ("<tool_call>f(1)</tool_call>", "invalid_json"),
        ("```python\nf(a=now())\n```", "non_literal_argument"),
        ('Action: f\nAction Input: {"a": }', "invalid_json"),
        ('{"tool_calls": [{"name": "f", "arguments": {"a": 1}', "truncated"),
        ('{"tool_calls": ["f"]}', "not_an_object"),
    ],
)
def test_auto_reports_a_broken_call(text: str, error: str) -> None:
    parse = parse_tool_calls(text, "auto", tools=OFFERED)
    assert (parse.status, parse.error) == ("error", error)
