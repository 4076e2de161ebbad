"""`atropos view`: reading by position, filters, what the page is told, two runs compared."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.cli.view.library import BadRequest, Library
from atropos_cli.cli.view.payload import token_texts
from atropos_cli.cli.view.rows import Rows
from atropos_cli.cli.view.runs import Query, Run, Unreadable
from atropos_cli.errors import DataError
from atropos_cli.io.records import Record
from atropos_cli.io.sources import find_sources

from .view_support import ask, group, native, opened, words, write

CLI = Callable[..., Any]

LONG = 10**400
"""JSON's whole numbers may have any length; a float cannot hold this one."""

# Rows -----------------------------------------------------------------------------------------------------------


def rows_of(path: Path) -> Rows:
    (source,) = find_sources([str(path)])
    return Rows(source)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_rows_of_lines(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a":1}\n\n   \n{"b":"\xe2\x80\xa8"}' + end)
    rows = rows_of(path)
    assert [rows.row(i).strip() for i in range(len(rows))] == [b'{"a":1}', b'{"b":"\xe2\x80\xa8"}']
    assert [rows.number(i) for i in range(len(rows))] == [1, 4]


def test_rows_longer_than_a_chunk(tmp_path: Path) -> None:
    lines = [b'{"a":"' + bytes([65 + i]) * n + b'"}' for i, n in enumerate((9_000_000, 10, 5_000_000))]
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    rows = rows_of(path)
    assert [rows.row(i) for i in range(len(rows))] == lines


def test_rows_grow(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"a":1}\n{"b":')
    rows = rows_of(path)
    assert len(rows) == 2
    with path.open("ab") as file:
        file.write(b"2}\n{")
    rows.refresh()
    assert [rows.row(i) for i in range(len(rows))] == [b'{"a":1}', b'{"b":2}', b"{"]
    rows.refresh()
    assert [rows.number(i) for i in range(len(rows))] == [1, 2, 3]


@pytest.mark.parametrize("kind", ["array", "pretty", "gz", "gz array", "parquet"])
def test_rows_that_are_copied(tmp_path: Path, kind: str) -> None:
    values = [{"text": f"row {i}", "score": float(i)} for i in range(5)]
    path = tmp_path / "r.json"
    text = json.dumps(values, indent=2 if kind == "pretty" else None)
    if kind == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        path = path.with_suffix(".parquet")
        pq.write_table(pa.Table.from_pylist(values), path)
    elif kind.startswith("gz"):
        lines = text if kind == "gz array" else "".join(json.dumps(value) + "\n" for value in values)
        path.write_bytes(gzip.compress(lines.encode()))
    else:
        path.write_text(text)
    rows = rows_of(path)
    assert [json.loads(rows.row(i)) for i in range(len(rows))] == values
    assert [rows.number(i) for i in range(len(rows))] == [1, 2, 3, 4, 5]
    assert not rows.grows


# Runs -----------------------------------------------------------------------------------------------------------


def test_broken_rows_stand_in_their_place(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(
        json.dumps(group("a", [1])) + '\n{"item_id": "b", "sco\n[1]\n{"x": 1}\n' + json.dumps(group("c", [0])) + "\n"
    )
    run = Run("r", find_sources([str(path)]))
    kinds = [type(group) for _, group in run.groups()]
    assert kinds == [Record, Unreadable, Unreadable, Unreadable, Record]
    answer = ask(opened(path), "groups")
    assert [item.get("problem") is not None for item in answer["items"]] == [False, True, True, True, False]
    assert ask(opened(path), "group", n=1)["where"] == f"{path}:2"


def test_a_file_without_rollouts_is_refused(cli: CLI) -> None:
    done = cli("view", write(Path("r.jsonl"), {"question": "q", "answer": "a"}), "--export", "p.html")
    assert done.code == 6
    assert "r.jsonl:1" in done.stderr
    assert not Path("p.html").exists()
    assert cli("view", "nothing.jsonl").code == 6


def test_trials_of_a_task_stand_side_by_side(tmp_path: Path) -> None:
    def trial(task: int, number: int) -> dict[str, Any]:
        traj = [{"role": "user", "content": "q"}, {"role": "assistant", "content": f"{task}.{number}"}]
        return {"task_id": task, "trial": number, "reward": number / 2, "traj": traj}

    path = write(tmp_path / "r.jsonl", *(trial(task, number) for number in range(3) for task in range(4)))
    library = opened(path)
    assert ask(library, "run")["runs"][0]["groups"] == 4
    shown = ask(library, "group", n=2)
    assert [rollout["score"] for rollout in shown["rollouts"]] == [0.0, 0.5, 1.0]
    assert [words(rollout["messages"][0]) for rollout in shown["rollouts"]] == ["2.0", "2.1", "2.2"]
    assert len(Run("r", find_sources([str(path)]), group=False)) == 12


FAILURE = {"stage": "generate", "type": "Timeout", "message": "too slow"}


@pytest.fixture
def searched(tmp_path: Path) -> Library:
    return opened(
        write(
            tmp_path / "r.jsonl",
            native("alpha", [{"reward": 0.2, "stop_reason": "done"}, {"reward": 0.9, "stop_reason": "length"}]),
            native("beta", [{"reward": None, "failure": FAILURE}, {"reward": 0.5}], env="other/env"),
            native("gamma", [{"reward": 1.0, "messages": [{"role": "user", "content": "ask"}, {
                "role": "assistant", "content": 'A "Quoted" STRASSE é\u2028', "reasoning": "secret plan",
                "tool_calls": [{"id": "c", "function": {"name": "lookup", "arguments": '{"k": "zebra"}'}}],
            }]}]),
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, [0, 1, 2]),
        ({"q": "ALPHA"}, [0]),
        ({"q": "g-beta"}, [1]),
        ({"q": '"quoted" strasse É'}, [2]),
        ({"q": "secret"}, [2]),
        ({"q": "zebra"}, [2]),
        ({"q": "lookup"}, [2]),
        ({"q": "nowhere"}, []),
        ({"env": "other/env"}, [1]),
        ({"env": "oth"}, []),
        ({"stop": "length"}, [0]),
        ({"stop": "length", "high": 0.5}, []),  # one rollout was cut, another has the reward
        ({"low": 0.9}, [0, 2]),
        ({"low": 0.3, "high": 0.6}, [1]),
        ({"failed": 1}, [1]),
        ({"failed": 1, "q": "alpha"}, []),
    ],
)
def test_filters(searched: Library, query: dict[str, Any], wanted: list[int]) -> None:
    answer = ask(searched, "groups", **query)
    assert [item["n"] for item in answer["items"]] == wanted
    assert answer["next"] == answer["total"] == 3


def test_a_search_goes_on_where_it_stopped(tmp_path: Path) -> None:
    library = opened(write(tmp_path / "r.jsonl", *(group(f"t{i}", [i % 2]) for i in range(25))))
    found, at = [], 0
    while at < 25:
        answer = ask(library, "groups", low=1, limit=3, **{"from": at})
        found += [item["n"] for item in answer["items"]]
        assert len(answer["items"]) <= 3
        at = answer["next"]
    assert found == list(range(1, 25, 2))


def test_escaped_letters_are_found_too() -> None:
    assert Query(text="alpha").may_match(b'{"a": "\\u0061lpha"}')
    assert not Query(text="alpha").may_match(b'{"a": "beta"}')
    assert Query(text="ALpha").may_match(b'{"a": "AlPHA"}')


@pytest.mark.parametrize(
    ("what", "given"),
    [("group", {"n": 99}), ("group", {"n": -1}), ("group", {"n": "x"}), ("group", {"run": 7}), ("groups", {"low": "x"}),
     ("message", {"message": 999}), ("message", {"rollout": 5}),
     ("message", {"part": 9}), ("diff", {}), ("groups", {"from": 1 << 70})],
)  # fmt: skip
def test_bad_requests(searched: Library, what: str, given: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        ask(searched, what, **given)
    assert searched.answer("secrets", {}) is None


# Payloads -------------------------------------------------------------------------------------------------------


def test_long_texts_are_cut_and_can_be_had_whole(tmp_path: Path) -> None:
    text = "ab" * 50_000
    library = opened(write(tmp_path / "r.jsonl", group("a", [1.0], [text])))
    message = ask(library, "group", n=0)["rollouts"][0]["messages"][0]
    (part,) = message["parts"]
    assert (len(part["text"]), part["cut"]) == (20_000, 100_000)
    assert ask(library, "message", n=0, rollout=0, message=message["i"], part=0)["text"] == text


def test_a_huge_group_stays_within_its_budget(tmp_path: Path) -> None:
    library = opened(write(tmp_path / "r.jsonl", group("a", [1.0] * 300, ["x" * 40_000] * 300)))
    answer = ask(library, "group", n=0)
    assert (len(answer["rollouts"]), answer["total"]) == (64, 300)
    assert ask(library, "group", n=0, first=64)["rollouts"][0]["index"] == 64
    long = opened(
        write(
            tmp_path / "l.jsonl",
            native("a", [{"reward": 1, "messages": [{"role": "user", "content": "y" * 30_000}] * 399}]),
        )
    )
    assert len(json.dumps(ask(long, "group", n=0))) < 4_300_000


def test_tokens_with_masks_and_log_probabilities(tmp_path: Path) -> None:
    span = {"ids": [5, 6, 7], "mask": True, "logprobs": [-0.1, -0.2, -0.3]}
    messages = [
        {"role": "user", "content": "q", "tokens": {"ids": [1, 2]}},
        {"role": "assistant", "content": "a", "tokens": span},
    ]
    library = opened(write(tmp_path / "r.jsonl", native("a", [{"reward": 1.0, "messages": messages}])))
    assert ask(library, "group", n=0)["rollouts"][0]["tokens"] == {"total": 5, "trained": 3, "logprobs": True}
    (sequence,) = ask(library, "tokens", n=0, rollout=0)["sequences"]
    assert sequence == {
        "ids": [1, 2, 5, 6, 7], "mask": "00111", "logprobs": [0.0, 0.0, -0.1, -0.2, -0.3], "texts": None, "total": 5,
    }  # fmt: skip


def test_a_character_of_several_tokens_stands_once() -> None:
    pieces = {1: b"a", 2: "é".encode()[:1], 3: "é".encode()[1:], 4: b"\xf0"}

    def decode(ids: list[int]) -> str:
        return b"".join(pieces[i] for i in ids).decode("utf-8", "replace")

    assert token_texts([1, 2, 3, 1], decode) == ["a", "", "é", "a"]
    assert token_texts([1, 4], decode) == ["a", "\ufffd"]
    assert token_texts([9], decode) == ["<9>"]


def test_odd_objects_of_strangers_are_shown_somehow(tmp_path: Path) -> None:
    odd = [
        {
            "role": "assistant",
            "content": ["x", 1, {"type": "image_url"}, {"type": "text", "text": 5}],
            "reasoning": {"a": 1},
        },
        {"role": "assistant", "content": None, "tool_calls": ["x", {"function": 3}, {"function": {"name": 7}}]},
        {"role": "tool", "content": "r", "tool_call_id": 9, "name": ["n"]},
        {"role": "assistant", "tokens": {"ids": [], "mask": True}},
        {"role": "assistant", "tokens": None},
    ]
    path = write(
        tmp_path / "r.jsonl",
        native("a", [{"reward": 1.0, "messages": odd, "metrics": {"m": "x"}, "rewards": {"r": [1]}, "failure": {}}],
               advantages=["x"], model=4, turn=["t"]),
    )  # fmt: skip
    answer = ask(opened(path), "group", n=0)
    json.dumps(answer, allow_nan=False)
    assert len(answer["prompt"]) + len(answer["rollouts"][0]["messages"]) == 5
    assert ask(opened(path), "tokens", n=0, rollout=0) == {"sequences": []}


def test_numbers_that_no_float_can_hold(tmp_path: Path) -> None:
    huge = [{"reward": value, "metrics": {"m": LONG, "flag": True}, "rewards": {"r": LONG}} for value in (1e308, 1e308)]
    long = [{"reward": LONG, "usage": {"completion_tokens": LONG}}, {"reward": 0.5}]
    path = write(tmp_path / "a.jsonl", native("x", huge, advantages=[LONG, 1.0]), native("y", long, seed=LONG))
    other = write(tmp_path / "b.jsonl", native("x", [{"reward": -1e308}, {"reward": -1e308}]))
    library = opened(path, other)
    assert library.diff is not None
    library.diff.compare()
    first, second = ask(library, "groups")["items"]
    assert (first["mean"], second["scores"], second["mean"]) == (1e308, [None, 0.5], 0.5)
    rollout = ask(library, "group", run=0, n=0)["rollouts"][0]
    assert (rollout["metrics"], rollout["rewards"], rollout["advantage"]) == ({"flag": 1}, {}, None)
    ask(library, "group", run=0, n=1)
    told = ask(library, "diff", sort="order")
    assert json.dumps(told, allow_nan=False)
    assert told["rows"][0]["delta"] is None


def test_parts_that_only_pretend(tmp_path: Path) -> None:
    nested: dict[str, Any] = {"type": "tool_result", "content": []}
    for _ in range(50):
        nested = {"type": "tool_result", "content": [nested]}
    huge = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (60_000).to_bytes(4, "big") * 2
    urls = ["javascript:x()", "data:text/html,x", "http://[", "data:image/png;base64,AAAA"]
    urls.append("data:image/png;base64," + base64.b64encode(huge).decode())
    content = [nested, *({"type": "image_url", "image_url": {"url": url}} for url in urls)]
    broken = "<tool_call>{bad</tool_call>" * 5_000 + "<memory>never closed"
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": broken}]
    library = opened(write(tmp_path / "r.jsonl", native("a", [{"reward": 1.0, "messages": messages}])))
    shown = ask(library, "group", n=0)
    first, *images = shown["prompt"][0]["parts"]
    assert first["kind"] == "other"
    assert {tuple(sorted(image)) for image in images} == {("kind", "note")}, "nothing to load, nothing to follow"
    assert shown["rollouts"][0]["messages"][0]["parts"][0]["fault"] == "invalid_json"


# Comparing ------------------------------------------------------------------------------------------------------


def test_two_runs_on_the_same_tasks(tmp_path: Path) -> None:
    a = write(
        tmp_path / "a.jsonl",
        *(native(name, [{"reward": reward}]) for name, reward in [("x", 0.0), ("y", 1.0), ("z", 0.5), ("v", 1.0)]),
    )
    b = write(
        tmp_path / "b.jsonl",
        *(native(name, [{"reward": reward}]) for name, reward in [("w", 1.0), ("z", 0.5), ("y", 0.25), ("x", 0.5)]),
    )
    library = opened(a, b)
    assert ask(library, "diff") == {"ready": False, "done": 0, "total": 8}
    assert library.diff is not None
    library.diff.start()
    assert library.diff.ready.wait(5)
    answer = ask(library, "diff", sort="worse")
    assert answer["counts"].pop("runs") == [
        {"tasks": 4, "scored": 4, "failed": 0, "mean": 0.625}, {"tasks": 4, "scored": 4, "failed": 0, "mean": 0.5625},
    ]  # fmt: skip
    assert answer["counts"] == {
        "both": 3, "only_a": 1, "only_b": 1, "better": 1, "worse": 1, "same": 1,
        "mean_change": pytest.approx(-0.25 / 3),
    }  # fmt: skip
    assert [(row["task"], row["a"], row["b"], row["delta"]) for row in answer["rows"]] == [
        ("y", 1, 2, -0.75), ("z", 2, 1, 0.0), ("x", 0, 3, 0.5),
    ]  # fmt: skip
    assert [row["task"] for row in ask(library, "diff", sort="better")["rows"]] == ["x", "z", "y"]
    assert [row["task"] for row in ask(library, "diff", sort="order")["rows"]] == ["x", "y", "z", "v"]
    assert ask(library, "group", run=1, n=2)["task"] == "y"


def test_what_all_prompts_begin_with_is_shown_once(tmp_path: Path) -> None:
    def trial(question: str) -> dict[str, Any]:
        roles = [("system", "rules"), ("user", question), ("assistant", "same"), ("user", "bye")]
        return {"task_id": 1, "reward": 0, "traj": [{"role": role, "content": text} for role, text in roles]}

    shown = ask(opened(write(tmp_path / "r.jsonl", trial("hi"), trial("hello"))), "group", n=0)
    assert [words(message) for message in shown["prompt"]] == ["rules"]
    assert [[words(message) for message in rollout["messages"]] for rollout in shown["rollouts"]] == [
        ["hi", "same", "bye"],
        ["hello", "same", "bye"],
    ]
    alike = ask(opened(write(tmp_path / "s.jsonl", trial("hi"), trial("hi"))), "group", n=0)
    assert [words(message) for message in alike["prompt"]] == ["rules", "hi"], "replies are never taken for the prompt"
    assert alike["rollouts"][1]["messages"][0]["i"] == 2


def test_a_growing_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "groups.jsonl").touch()
    library = opened(run)
    assert ask(library, "run")["runs"][0]["groups"] == 0
    write(run / "groups.jsonl", native("a", [{"reward": 1.0}]))
    assert ask(library, "run")["runs"][0]["groups"] == 1
    assert ask(library, "groups")["items"][0]["task"] == "a"


def test_a_run_of_no_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no rows"):
        opened(write(tmp_path / "r.jsonl"))
