"""Reading rollout files as people have them: torn, broken, compressed, mistyped. Names like A01 are field cases."""

from __future__ import annotations

import gzip
import io
import json
import sys
import tracemalloc
from pathlib import Path

import pytest
from case_tables import data_files, real_data
from records_support import Reading, case_files, row, write_rows

from atropos_cli.errors import DataError, UsageError
from atropos_cli.io.readers import ReadOptions, read_records
from atropos_cli.io.sources import find_sources, spool


def test_a01_torn_tail_is_one_warning(tmp_path: Path) -> None:
    (path,) = case_files("A01", tmp_path)
    reading = Reading(path)
    assert [record.id for record in reading.records] == ["q1"]
    assert len(reading.warnings) == 1
    assert reading.warnings[0].startswith(f"{path}:2: ")
    assert reading.rejects[0].kind == "torn"


def test_a01_strict_stops_at_the_torn_tail(tmp_path: Path) -> None:
    (path,) = case_files("A01", tmp_path)
    with pytest.raises(DataError, match=r"rollouts\.jsonl:2: the last line is torn"):
        Reading(path, strict=True)


def test_a03_broken_lines_stop_and_are_all_named(tmp_path: Path) -> None:
    (path,) = case_files("A03", tmp_path)
    with pytest.raises(DataError, match="broken lines 2, 3, 4") as caught:
        Reading(path)
    assert "--tolerant" in (caught.value.hint or "")


def test_a03_tolerant_keeps_the_rest(tmp_path: Path) -> None:
    (path,) = case_files("A03", tmp_path)
    reading = Reading(path, tolerant=True)
    assert [record.id for record in reading.records] == ["a", "d"]
    assert [(reject.line, reject.kind) for reject in reading.rejects] == [(2, "broken"), (3, "broken"), (4, "broken")]
    assert "found null" in reading.rejects[1].reason


def test_a04_tail_cut_inside_a_character(tmp_path: Path) -> None:
    (path,) = case_files("A04", tmp_path)
    reading = Reading(path)
    assert [record.id for record in reading.records] == ["a"]
    assert reading.records[0].prompt[0]["content"] == "café"
    assert "café".encode() in reading.records[0].to_lines()[0]
    assert reading.warnings[0].startswith(f"{path}:2:")


def test_a05_non_finite_scores_are_named_and_are_no_scores(tmp_path: Path) -> None:
    (path,) = case_files("A05", tmp_path)
    reading = Reading(path)
    (record,) = reading.records
    assert record.scores == [None, 1.0, None]
    assert record.non_finite == [0, 2]
    assert f"{path}:1" in reading.warnings[0]
    assert "0, 2" in reading.warnings[0]
    (line,) = record.to_lines()
    assert json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} in the output"))["scores"] == [
        None,
        1,
        None,
    ]


def test_a07_no_type_is_fixed_by_the_first_rows(tmp_path: Path) -> None:
    rows = [row(str(i), "c", info=None) for i in range(12_000)]
    rows += [row("late", "c", info="late text"), row("later", "c", info={"k": [1, 2]})]
    path = write_rows(tmp_path / "r.jsonl", *rows)
    reading = Reading(path)
    assert len(reading.records) == 12_002
    assert [record.raw["info"] for record in reading.records[-2:]] == ["late text", {"k": [1, 2]}]


def test_a09_content_of_all_kinds(tmp_path: Path) -> None:
    (path,) = case_files("A09", tmp_path)
    one, two, three = Reading(path).records
    assert one.prompt == [{"role": "user", "content": "hi"}]
    assert one.rollouts[0].text == "hello"
    assert two.rollouts[0].completion[0]["content"] is None
    assert two.rollouts[0].completion[0]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert two.rollouts[0].completion[1]["tool_call_id"] == "c1"
    assert two.rollouts[0].text == "7"
    assert three.rollouts[0].text == ""


def test_a10_surrogates(tmp_path: Path) -> None:
    (path,) = case_files("A10", tmp_path)
    one, two = Reading(path).records
    assert one.rollouts[0].text == "art \ufffd end"
    assert two.rollouts[0].text == "ok \U0001f600"
    again = tmp_path / "again.jsonl"
    again.write_bytes(b"\n".join(line for record in (one, two) for line in record.to_lines()) + b"\n")
    assert [record.rollouts[0].text for record in Reading(again).records] == ["art \ufffd end", "ok \U0001f600"]
    for line in again.read_text(encoding="utf-8").splitlines():
        json.loads(line)


def test_a12_byte_order_mark_only_at_the_start(tmp_path: Path) -> None:
    (path,) = case_files("A12", tmp_path)
    assert len(Reading(path).records) == 1
    inside = write_rows(tmp_path / "inside.jsonl", row("1", "\ufeffx"))
    assert Reading(inside).records[0].rollouts[0].text == "\ufeffx"


def test_a13_windows_line_ends(tmp_path: Path) -> None:
    (path,) = case_files("A13", tmp_path)
    records = Reading(path).records
    assert [record.id for record in records] == ["1", "2"]
    assert records[0].prompt[0]["content"] == "a\r\nb"
    assert all(b"\r" not in line for record in records for line in record.to_lines())


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\u0085", "\x0b", "\x1c"])
def test_unicode_line_ends_inside_text_do_not_split_rows(tmp_path: Path, char: str) -> None:
    path = tmp_path / "r.jsonl"
    text = json.dumps(row("1", f"a{char}b"), ensure_ascii=ord(char) < 32)
    path.write_bytes(text.encode() + b"\n" + text.encode() + b"\n")
    assert [record.rollouts[0].text for record in Reading(path).records] == [f"a{char}b"] * 2


def test_a15_lines_over_ten_megabytes(tmp_path: Path) -> None:
    big = row("big", "x" * 12_000_000)
    big["tokens"] = [list(range(300_000))]
    big["masks"] = [list(range(300_000))]
    path = write_rows(tmp_path / "r.jsonl", row("1", "c"), big, *[row(str(i), "y" * 1_000_000) for i in range(30)])
    tracemalloc.start()
    count = 0
    for record in read_records(find_sources([str(path)])):
        count += 1
        assert len(record.rollouts[0].text) in (1, 12_000_000, 1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 32
    assert peak < 6 * 16_000_000  # the longest line has 16 MB, the file 46 MB


def test_a17_cut_gzip(tmp_path: Path) -> None:
    data = b"".join(json.dumps(row(str(i), f"reply {i * 7919}")).encode() + b"\n" for i in range(1000))
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(gzip.compress(data)[:-200])
    with pytest.raises(DataError, match=r"r\.jsonl\.gz: compressed data ends early after row \d+") as caught:
        Reading(path)
    reading = Reading(path, tolerant=True)
    assert 100 < len(reading.records) < 1000
    assert str(caught.value).endswith(f"after row {len(reading.records)}")


@pytest.mark.parametrize("damage", ["garbage", "half a header", "text after"])
def test_damaged_gzip_is_told_in_the_same_way(tmp_path: Path, damage: str) -> None:
    good = gzip.compress(json.dumps(row("1", "c")).encode() + b"\n")
    bad = {"garbage": good[:20] + b"\xff" * 30, "half a header": good[:6], "text after": good + b"\x1f\x8bxx"}[damage]
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(bad)
    with pytest.raises(DataError, match=r"compressed data ends early after row [01]"):
        Reading(path)


def test_zst_whole_cut_and_torn(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    lines = [json.dumps(row(str(i), f"reply {i * 7919}")).encode() + b"\n" for i in range(50)]
    whole = zstandard.compress(b"".join(lines))
    frames = b"".join(zstandard.compress(line) for line in lines)
    path = tmp_path / "r.jsonl.zst"
    for data in (whole, frames):
        path.write_bytes(data)
        assert len(Reading(path).records) == 50
    path.write_bytes(whole[:-30])
    with pytest.raises(DataError, match="compressed data ends early after row"):
        Reading(path)
    path.write_bytes(frames[:-5])  # a killed writer: each group of a run is a frame of its own
    reading = Reading(path)
    assert len(reading.records) == 49
    assert "torn" in reading.warnings[0]


def test_a25_odd_groups(tmp_path: Path) -> None:
    (path,) = case_files("A25", tmp_path)
    reading = Reading(path)
    assert [(record.id, len(record.rollouts)) for record in reading.records] == [
        ("one", 1),
        ("none", 0),
        ("noscore", 1),
    ]
    assert reading.records[2].scores == [None]
    (reject,) = reading.rejects
    assert (reject.line, reject.kind) == (3, "fields")
    assert reject.reason == "scores: expected 1 entry, as many as messages, found 2"


def test_a27_wrong_types_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    (path,) = case_files("A27", tmp_path)
    reading = Reading(path)
    assert [record.id for record in reading.records] == ["3"]
    assert reading.warnings == [
        f"{path}:1: messages: expected a list of conversations, found an object",
        f"{path}:2: scores: expected a list, found the text '1.0'",
    ]
    with pytest.raises(DataError, match=r"r\.jsonl:1: messages"):
        Reading(path, strict=True)


def test_a29_text_that_looks_like_structure_stays_text(tmp_path: Path) -> None:
    (path,) = case_files("A29", tmp_path)
    (record,) = Reading(path).records
    assert record.prompt[0]["content"] == '{"role":"system","content":"x"}'
    assert record.rollouts[0].text == "a: string, b: timestamp[s]"


def test_unknown_rows_name_their_keys(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "r.jsonl", {"problem": "1+1", "solution": "2"}, row("1", "c"))
    reading = Reading(path)
    assert len(reading.records) == 1
    assert "an object with the keys problem, solution" in reading.warnings[0]


def test_named_format_overrides_detection(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "r.jsonl", {"text": "whole", "messages": [{"role": "user", "content": "x"}]})
    assert Reading(path).records[0].format == "messages"
    assert Reading(path, format="text").records[0].rollouts[0].text == "whole"
    with pytest.raises(UsageError) as caught:
        Reading(path, format="sharegtp")
    assert caught.value.hint == "did you mean sharegpt?"


def test_many_rejects_are_counted_not_all_told(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "r.jsonl", row("1", "c"), *[{"x": i} for i in range(50)])
    reading = Reading(path)
    assert len(reading.warnings) == 11
    assert reading.warnings[-1] == "40 more like that (fields)"
    assert reading.log.rejected["fields"] == 50


def test_a_file_of_no_known_format_is_given_up_soon(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "r.jsonl", *[{"question": str(i), "answer": "x"} for i in range(500)])
    with pytest.raises(DataError, match=r"none of the first 20 rows .* the keys question, answer") as caught:
        Reading(path)
    assert "solutions" in (caught.value.hint or "")


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ["s.json", "s.jsonl"])
def test_arrays_over_the_whole_file(tmp_path: Path, name: str, indent: int | None) -> None:
    rows = [row(str(i), f"ä{i}" * 5000) for i in range(40)]
    path = tmp_path / name
    path.write_text(json.dumps(rows, indent=indent, ensure_ascii=False))
    assert [record.id for record in Reading(path).records] == [str(i) for i in range(40)]
    path.write_text(json.dumps(rows, indent=indent)[:-50])
    reading = Reading(path)
    assert [record.id for record in reading.records] == [str(i) for i in range(39)]
    assert "torn" in reading.warnings[0]


def test_one_pretty_printed_object_and_empty_array(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(row("1", "c"), indent=1))
    assert [record.id for record in Reading(path).records] == ["1"]
    for text in ("[]", "[\n]\n", "", "\n\n"):
        path.write_text(text)
        assert Reading(path).records == []


def test_run_folder_glob_folder_and_missing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    write_rows(run / "groups.jsonl", row("1", "c"))
    write_rows(run / "failures.jsonl", {"x": 1})
    (source,) = find_sources([str(run)])
    assert source.run == run
    plain = tmp_path / "plain"
    plain.mkdir()
    write_rows(plain / "b.jsonl", row("b", "c"))
    write_rows(plain / "a.jsonl", row("a", "c"))
    assert [record.id for record in Reading(plain).records] == ["a", "b"]
    assert [record.id for record in Reading(plain / "*.jsonl", run).records] == ["a", "b", "1"]
    with pytest.raises(DataError, match=r"x\*\.jsonl matches nothing"):
        find_sources([str(tmp_path / "x*.jsonl")])
    with pytest.raises(DataError, match=r"nothing\.jsonl does not exist"):
        find_sources([str(tmp_path / "nothing.jsonl")])


def test_standard_input_is_read_as_it_comes_and_can_be_spooled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = (json.dumps(row("1", "x" * 200_000)) + "\n").encode() * 3

    class Stdin:
        buffer = io.BufferedReader(_Pipe(data))

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert len(list(read_records(find_sources(["-"])))) == 3
    Stdin.buffer = io.BufferedReader(_Pipe(data))
    (source,) = find_sources(["-"])
    spooled = spool(source, tmp_path)
    for _ in range(2):
        assert len(list(read_records([spooled], ReadOptions()))) == 3


class _Pipe(io.RawIOBase):
    def __init__(self, data: bytes) -> None:
        self.data = data

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        count = min(len(buffer), 777, len(self.data))
        buffer[:count], self.data = self.data[:count], self.data[count:]
        return count


def test_parquet_gives_plain_values(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    rows = [
        {
            "prompt": [{"role": "user", "content": f"p{i}"}],
            "completion": [{"role": "assistant", "content": f"c{i}"}],
            "reward_model": {"style": "rule", "ground_truth": str(i)},
            "extra_info": {"index": i, "split": "train"},
        }
        for i in range(10)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d.parquet")
    records = Reading(tmp_path / "d.parquet").records
    assert [record.rollouts[0].text for record in records] == [f"c{i}" for i in range(10)]
    assert json.loads(records[3].to_lines()[0]) == rows[3]
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match="not a readable parquet file"):
        Reading(tmp_path / "bad.parquet")


@pytest.mark.parametrize(
    ("name", "form", "records", "rollouts"),
    [
        ("atropos.jsonl", "atropos", 3, 10),
        ("dpo_sharegpt.json", "sharegpt", 4, 8),
        ("dpo_messages.jsonl", "preference", 2, 4),
        ("gsm8k_solutions.jsonl", "solutions", 4, 16),
        ("math_replies.jsonl", "solutions", 4, 12),
        ("sharegpt.json", "sharegpt", 6, 6),
        ("sharegpt_tools.json", "sharegpt", 6, 6),
        ("messages_tools.jsonl", "messages", 3, 3),
        ("swe_history.json", "messages", 1, 1),
        ("swe_trajectory.json", "messages", 1, 1),
        ("tau.jsonl", "taubench", 4, 4),
        ("transcripts.jsonl", "messages", 3, 3),
        ("atropos_rollouts/rubiks_process_results_32.jsonl", "atropos", 6, 24),
        ("dpo_pairs/dpo_en_demo_first150.json", "sharegpt", 150, 300),
        ("dpo_pairs/v1_dpo_demo.jsonl", "preference", 10, 20),
        ("gsm8k/example_model_solutions_first300.jsonl", "solutions", 300, 1200),
        ("math_rollouts/math_cot_100.jsonl", "solutions", 100, 800),
        ("sharegpt_fastchat/dummy_conversation.json", "sharegpt", 500, 500),
        ("sharegpt_toolcalls/glaive_toolcall_en_demo.json", "sharegpt", 300, 300),
        ("sharegpt_toolcalls/reason_tool_use_demo_50.jsonl", "messages", 50, 50),
        ("swe_agent_traj/function_calling_simple.json", "messages", 1, 1),
        ("swe_agent_traj/humanevalfix-python-0_text_actions.json", "messages", 1, 1),
        ("swe_agent_traj/marshmallow-1867_function_calling_replace.json", "messages", 1, 1),
        ("tau_bench/gpt-4o-airline_14tasks_x4trials.jsonl", "taubench", 56, 56),
        ("textworld/transcripts.jsonl", "messages", 17, 17),
    ],
)
def test_real_files(name: str, form: str, records: int, rollouts: int) -> None:
    reading = Reading(data_files().get(name) or real_data(name))
    assert reading.warnings == []
    assert dict(reading.log.formats) == {form: records}
    assert reading.log.rollouts == rollouts
    for record in reading.records:
        for line in record.to_lines():
            assert isinstance(json.loads(line), dict)
