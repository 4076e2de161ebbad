"""The filter's rules, one by one and together, and the report's sums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from records_support import case_files, row, run_filter, write_rows

from atropos_cli.datasets.filter.filtering import FilterJob
from atropos_cli.datasets.filter.report import FilterReport
from atropos_cli.datasets.filter.spec import FilterSpec
from atropos_cli.errors import DataError
from atropos_cli.io.readers import ReadLog
from atropos_cli.io.sources import find_sources


class Run:
    """A filter over rows or files, with what came out."""

    def __init__(self, *rows: Any, group: bool = False, **spec: Any) -> None:
        paths = [str(item) for item in rows if isinstance(item, Path)]
        if not paths:
            paths = [str(write_rows(Path("in.jsonl"), *rows))]
        self.warnings: list[str] = []
        self.lines: list[bytes] = []
        self.report: FilterReport = run_filter(
            FilterJob(find_sources(paths), FilterSpec(**spec), group_rows=group),
            ReadLog(warn=self.warnings.append),
            lambda line, record: self.lines.append(line),
        )

    @property
    def rows(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]

    @property
    def scores(self) -> list[list[float]]:
        return [found["scores"] for found in self.rows]

    @property
    def dropped(self) -> dict[str, int]:
        return dict(self.report.dropped)


GROUP = row("q", "a", "bb", "ccc", "dddd", scores=[0, 0.5, 1, 0.5])


@pytest.mark.parametrize(
    ("spec", "scores", "dropped"),
    [
        ({"min_score": 0.5}, [0.5, 1, 0.5], {"score >= 0.5": 1}),
        ({"above": 0.5}, [1], {"score > 0.5": 3}),
        ({"max_score": 0.5}, [0, 0.5, 0.5], {"score <= 0.5": 1}),
        ({"below": 0.5}, [0], {"score < 0.5": 3}),
        ({"above": 0, "below": 1}, [0.5, 0.5], {"score > 0": 1, "score < 1": 1}),
        ({"top_k": 2}, [0.5, 1], {"top 2 of the group": 2}),
        ({"best_of_n": True}, [1], {"best of the group": 3}),
        ({"min_gap": 0.5}, [1], {"score > group's worst + 0.5": 3}),
        ({"min_chars": 2, "max_chars": 3}, [0.5, 1], {"characters >= 2": 1, "characters <= 3": 1}),
        ({"match": ("^[a-c]+$",), "no_match": ("cc",)}, [0, 0.5], {"match '^[a-c]+$'": 1, "no match 'cc'": 1}),
        ({"where": ("index > 1",)}, [1, 0.5], {"where index > 1": 2}),
        ({"max_tokens": 5}, None, {"token count unknown": 4}),
        ({"min_group": 4, "above": 0}, None, {"score > 0": 1, "groups of at least 4": 3}),
        ({"max_per_task": 2}, [0.5, 1], {"at most 2 a task": 2}),
        ({"max_per_task": 1, "cap_by": "first"}, [0], {"at most 1 a task": 3}),
    ],
)
def test_each_rule(spec: dict[str, Any], scores: list[float] | None, dropped: dict[str, int]) -> None:
    run = Run(GROUP, **spec)
    assert run.scores == ([] if scores is None else [scores])
    assert run.dropped == dropped
    assert run.report.total.rollouts_kept + sum(dropped.values()) == 4


def test_nothing_is_dropped_without_rules_and_lines_stay_as_they_are() -> None:
    Path("in.jsonl").write_bytes(b'  {"item_id":"q",  "messages":[[]], "scores":[1.50], "x": "\\u00e4"}  \r\n')
    assert Run(Path("in.jsonl")).lines == [b'{"item_id":"q",  "messages":[[]], "scores":[1.50], "x": "\\u00e4"}']


def test_words_and_tokens() -> None:
    rows = [
        {"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "w " * n}], "n": n}
        for n in range(1, 6)
    ]
    assert [found["n"] for found in Run(*rows, min_words=2, max_words=4).rows] == [2, 3, 4]
    raw = {"tokens": [[1, 2, 3], [1, 2, 3, 4]], "masks": [[-100, 2, 3], [-100, 2, 3, 4]], "scores": [1, 1]}
    assert Run(raw, max_tokens=2).rows[0]["tokens"] == [[1, 2, 3]]


def test_finish_reasons_and_truncation(tmp_path: Path) -> None:
    (path,) = case_files("B11", tmp_path)
    assert [found["item_id"] for found in Run(path, drop_truncated=True).rows] == ["1"]
    run = Run(path, finish_reasons=("stop", "length"))
    assert [found["item_id"] for found in run.rows] == ["1", "2"]
    assert run.dropped == {"finish reason content_filter": 1}


def test_groups_without_spread() -> None:
    rows = [
        row("equal", "a", "b", scores=[0.1 + 0.2, 0.3]),
        row("one", "a", scores=[1]),
        row("differs", "a", "b", scores=[0, 0.4]),
    ]
    run = Run(*rows, drop_equal=True)
    assert [found["item_id"] for found in run.rows] == ["differs"]
    assert run.dropped == {"all scores of the group equal": 2, "group of one: no spread": 1}
    assert Run(*rows, min_spread=0.4).scores == [[0, 0.4]]
    assert Run(*rows, min_spread=0.5).scores == []


def test_ties_of_best_of_n_go_to_the_shorter() -> None:
    assert (
        Run(row("q", "long text", "short", scores=[1, 1]), best_of_n=True).rows[0]["messages"][0][-1]["content"]
        == "short"
    )
    assert (
        Run(row("q", "long text", "short", scores=[1, 1]), top_k=1).rows[0]["messages"][0][-1]["content"] == "long text"
    )


def test_a05_a_non_finite_score_is_never_chosen(tmp_path: Path) -> None:
    (path,) = case_files("A05", tmp_path)
    run = Run(path, best_of_n=True)
    assert run.scores == [[1.0]]
    assert run.dropped == {"no score": 2}
    assert run.report.total.as_json()["score_mean"] == 1.0
    kept = Run(path).lines[0]
    assert b"NaN" not in kept
    assert b"Infinity" not in kept


def test_a25_odd_groups(tmp_path: Path) -> None:
    (path,) = case_files("A25", tmp_path)
    run = Run(path, min_score=0.5)
    assert [found["item_id"] for found in run.rows] == ["one"]
    assert run.dropped == {"empty group": 1, "no score": 1}
    assert any("r.jsonl:4: rollout 0 has no score" in text for text in run.warnings)
    run = Run(path, drop_equal=True)
    assert run.dropped["group of one: no spread"] == 1


def test_filters_by_score_need_scores() -> None:
    unscored = row("q", "a")
    del unscored["scores"]
    with pytest.raises(DataError, match="none of the 1 rollouts has a score") as caught:
        Run(unscored, min_score=0)
    assert "atropos score" in (caught.value.hint or "")
    assert len(Run(unscored, max_chars=10).rows) == 1


def test_e26_one_threshold_over_two_environments_warns(tmp_path: Path) -> None:
    (path,) = case_files("E26", tmp_path)
    (text,) = Run(path, min_score=0.5).report.warnings
    assert "2 environments" in text
    assert "math: 1 to 1" in text
    assert "game: 4200 to 4200" in text
    assert Run(path, where=("score > 0",)).report.warnings == []


def test_normalised_thresholds() -> None:
    rows = [
        row("1", "a", "b", scores=[0, 1], env="math"),
        row("2", "a", "b", scores=[0, 4200], env="game"),
        row("3", "a", "b", scores=[2100, 4200], env="game"),
    ]
    by_env = Run(*rows, min_score=0.5, normalize="env")
    assert by_env.scores == [[1], [4200], [2100, 4200]]
    assert by_env.report.warnings == []
    assert Run(*rows, min_score=0.5, normalize="group").scores == [[1], [4200], [4200]]
    equal = Run(row("1", "a", "b", scores=[3, 3]), min_score=0.5, normalize="group")
    assert equal.dropped == {"no spread to normalise by": 2}


def test_j18_the_report_states_operator_and_mean(tmp_path: Path) -> None:
    (path,) = case_files("J18", tmp_path)
    run = Run(path, above=0)
    assert run.report.rules == ["score > 0"]
    assert run.report.total.rollouts_kept == 2
    assert run.report.as_json()["score_mean"] == pytest.approx(0.3667, abs=1e-3)


def test_task_names_are_kept_and_counted() -> None:
    rows = [
        row("1", "a", "b", scores=[0, 1], bootcamp_names=["maze", "maze"]),
        row("2", "a", "b", scores=[0, 0], bootcamp_names=["sudoku", "sudoku"]),
    ]
    run = Run(*rows, min_score=1)
    assert run.rows[0]["bootcamp_names"] == ["maze"]
    tasks = run.report.as_json()["tasks"]
    assert (tasks["maze"]["rollouts_kept"], tasks["maze"]["retention"]) == (1, 0.5)
    assert (tasks["sudoku"]["rollouts"], tasks["sudoku"]["groups_kept"]) == (2, 0)


def test_side_lists_that_were_cut_are_named() -> None:
    run = Run({**GROUP, "mine": [1, 2, 3, 4]}, top_k=1)
    assert run.rows[0]["mine"] == [3]
    assert run.report.warnings == ["fields with one entry for each rollout were cut alike: mine"]


def test_exact_duplicates() -> None:
    rows = [row("1", "x", " x\n", "y", prompt="p"), row("2", "x", prompt="other")]
    run = Run(*rows, dedup="exact")
    assert [[m[-1]["content"] for m in found["messages"]] for found in run.rows] == [["x", "y"], ["x"]]
    assert run.dropped == {"duplicate": 1}
    assert Run(*rows, dedup="exact", dedup_scope="all").dropped == {"duplicate": 2}


def test_rollouts_with_the_same_words_but_other_tool_calls_are_no_duplicates() -> None:
    def chat(argument: str) -> list[dict[str, Any]]:
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": argument}}
        return [{"role": "user", "content": "p"}, {"role": "assistant", "content": None, "tool_calls": [call]}]

    raw = {"messages": [chat("1"), chat("2"), chat("1")], "scores": [1, 1, 1]}
    assert len(Run(raw, dedup="exact").rows[0]["messages"]) == 2


def test_near_duplicates() -> None:
    pytest.importorskip("datasketch")
    words = [f"word{i}" for i in range(200)]
    nearly = [*words[:198], "other", "end"]
    rows = [row("1", " ".join(words), " ".join(nearly), " ".join(reversed(words)))]
    run = Run(*rows, dedup="near")
    assert len(run.rows[0]["messages"]) == 2
    assert run.dropped == {"near duplicate": 1}
    assert Run(*rows, dedup="near", near_threshold=0.999).dropped == {}


def test_decontamination(tmp_path: Path) -> None:
    question = "A train leaves the station at nine and reaches the harbour two hours later with ninety passengers."
    files = [
        write_rows(tmp_path / "eval.jsonl", {"question": question, "answer": "90"}),
        write_rows(tmp_path / "short.jsonl", {"problem": "What is six times seven?"}),
    ]
    rows = [
        row("1", "a", prompt=f"Solve this: {question.upper()} Now!"),
        row("2", f"As in {question}", "clean", prompt="Tell a story."),
        row("3", "42", prompt="what is SIX times seven"),
        row("4", "90", prompt="A train leaves the station at nine and nobody knows why."),
    ]
    run = Run(*rows, decontaminate=tuple(map(str, files)))
    assert [found["item_id"] for found in run.rows] == ["2", "4"]
    assert run.rows[0]["messages"][0][-1]["content"] == "clean"
    assert run.dropped == {"evaluation data in the prompt": 2, "evaluation data in the completion": 1}
    told = run.report.decontamination
    assert told is not None
    assert (told["n"], told["texts"]) == (13, 3)
    assert told["matches"] == {str(files[0]): 2, str(files[1]): 1}


def test_caps_over_groups_and_balance() -> None:
    rows = [row(f"m{i}", "a", "b", scores=[i, i + 0.5], prompt="same", env="math") for i in range(3)]
    for found in rows:
        del found["item_id"]
    rows += [row("g", "a", scores=[9], env="game")]
    run = Run(*rows, max_per_task=3)
    assert run.scores == [[1.5], [2, 2.5], [9]]
    assert run.report.total.groups_kept == 3
    run = Run(*rows, balance="env")
    assert run.scores == [[2.5], [9]]
    assert run.dropped == {"balance of env": 5}
    seeds = {json.dumps(Run(*rows, max_per_task=1, cap_by="random", seed=seed).scores) for seed in range(12)}
    assert len(seeds) > 2
    assert (
        Run(*rows, max_per_task=1, cap_by="random", seed=1).lines
        == Run(*rows, max_per_task=1, cap_by="random", seed=1).lines
    )


def test_rows_of_one_rollout_can_be_grouped() -> None:
    rows = [{"prompt": f"p{i % 2}", "completion": f"c{i}", "score": i} for i in range(6)]
    assert [found["score"] for found in Run(*rows, group=True, best_of_n=True).rows] == [4, 5]
    assert [found["score"] for found in Run(*rows, best_of_n=True).rows] == [0, 1, 2, 3, 4, 5]
    run = Run(*rows, group=True, max_per_task=2)
    assert [found["score"] for found in run.rows] == [2, 4, 3, 5]
    assert run.report.total.groups_kept == 2


def test_preference_pairs_stay_whole() -> None:
    pair = {"prompt": "p", "chosen": "good", "rejected": "a much longer bad answer"}
    run = Run(pair, max_chars=10)
    assert run.rows == []
    assert run.dropped == {"characters <= 10": 1, "the other half of the pair was dropped": 1}
    assert len(Run(pair, max_chars=100).rows) == 1


def test_d03_pairs_of_the_same_text_are_found_in_a_finished_file() -> None:
    pairs = [{"prompt": "p", "chosen": "Four.", "rejected": text} for text in ("Four.", "Four.\n", "Five.")]
    pairs[2]["prompt"] = "another"
    run = Run(*pairs, dedup="exact")
    assert run.rows == [pairs[2]]


def test_rollouts_without_text_are_no_duplicates() -> None:
    rows = [{"task_id": "t", "passed": [True, False, True]}]
    assert Run(*rows, dedup="exact").rows == rows


def test_errors_of_an_expression_drop_the_rollout_and_are_told() -> None:
    run = Run(GROUP, where=("text > 3",))
    assert run.rows == []
    assert run.dropped == {"where text > 3: error": 4}
    assert any("in.jsonl:1" in text and "not supported" in text for text in run.warnings)


def test_output_of_the_first_run_is_the_same_as_of_the_second() -> None:
    first = Run(GROUP, top_k=2).lines
    Path("again.jsonl").write_bytes(b"\n".join(first) + b"\n")
    assert Run(Path("again.jsonl"), top_k=2).lines == first
