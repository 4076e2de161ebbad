"""`atropos dpo-gen` on the command line: field cases, policies, conversations of several turns, KTO."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "datasets" / "convert"))

from convert_support import CHATML, TEMPLATES, make_tokenizer


def lines(path: str | Path) -> list[Any]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(text: str | None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def write(name: str, *rows: Any) -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def group(ident: str, replies: list[Any], scores: list[Any], prompt: str = "p") -> dict[str, Any]:
    chats = [reply if isinstance(reply, list) else [user(prompt), says(reply)] for reply in replies]
    return {"item_id": ident, "messages": chats, "scores": scores}


def sides(path: str = "o.jsonl") -> list[tuple[str, str]]:
    return [(row["chosen"][-1]["content"], row["rejected"][-1]["content"]) for row in lines(path)]


@pytest.fixture
def case(field_cases: dict[str, Any]) -> Callable[[str], dict[str, Any]]:
    """Write the files of a field case into the working directory."""

    def files(ident: str) -> dict[str, Any]:
        found: dict[str, Any] = field_cases[ident]
        for name, text in found["input"].get("files", {}).items():
            Path(name).write_bytes(text.encode())
        return found

    return files


def test_a05_scores_that_are_no_numbers_take_no_part(cli: Any, case: Any) -> None:
    case("A05")
    got = cli("dpo-gen", "r.jsonl", "-o", "o.jsonl", "--json")
    assert got.code == 1
    assert got.json["left_out_rollouts"] == {"score_not_finite": 2}
    assert "r.jsonl:1: the score at position 0, 2 is not finite" in got.stderr
    assert not Path("o.jsonl").exists()
    chats = [[user("p"), says(text)] for text in ("bad", "best", "worst")]
    for order in permutations(range(3)):
        scores = [float("nan"), 1.0, -1.0]
        row = {"item_id": "q", "messages": [chats[i] for i in order], "scores": [scores[i] for i in order]}
        write("r.jsonl", row)
        assert cli("dpo-gen", "r.jsonl", "-o", "o.jsonl", "--overwrite").code == 0
        assert sides() == [("best", "worst")]
    assert "NaN" not in Path("o.jsonl").read_text()


def test_d01_ties_are_counted_and_never_paired(cli: Any, case: Any) -> None:
    case("D01")
    got = cli("dpo-gen", "r.jsonl", "-o", "o.jsonl", "--policy", "all", "--json")
    assert sides() == [("a", "c"), ("b", "c")]
    assert (got.json["groups"], got.json["groups_with_pairs"], got.json["ties"]) == (3, 1, 2)
    got = cli("dpo-gen", "r.jsonl", "-o", "p.jsonl")
    assert sides("p.jsonl") == [("a", "c")]
    assert "groups 3, with pairs 1, ties 2" in got.stdout


def test_d02_a_score_that_is_no_number_in_any_order(cli: Any, case: Any) -> None:
    case("D02")
    got = cli("dpo-gen", "r.jsonl", "-o", "o.jsonl", "--json")
    assert sides() == [("z", "y")]
    assert got.json["left_out_rollouts"] == {"score_not_finite": 1}


def test_d03_identical_texts_are_never_paired(cli: Any, case: Any) -> None:
    case("D03")
    got = cli("dpo-gen", "r.jsonl", "-o", "o.jsonl", "--json")
    assert sides() == [("Four.", "Five.")]
    assert got.json["left_out_groups"] == {"identical": 2}
    # The same check for a file of finished pairs.
    pairs = [
        {"prompt": [user("p")], "chosen": [says(a)], "rejected": [says(b)]} for a, b in (("x ", "x\n"), ("x", "y"))
    ]
    write("pairs.jsonl", *pairs)
    got = cli("dpo-gen", "pairs.jsonl", "-o", "checked.jsonl", "--json")
    assert sides("checked.jsonl") == [("x", "y")]
    assert got.json["left_out_groups"] == {"identical": 1}


def test_d05_the_prompt_ends_before_a_reply(cli: Any, case: Any) -> None:
    case("D05")
    got = cli("dpo-gen", "p.jsonl", "-o", "o.jsonl", "--json")
    [row] = lines("o.jsonl")
    assert row["prompt"] == [user("Q"), says("A"), user("R")]
    assert (row["chosen"], row["rejected"]) == ([says("good")], [says("bad")])
    assert got.json["left_out_groups"] == {"identical": 1}
    assert got.json["left_out_pairs"] == {"prefix": 1}
    assert "p.jsonl:1: one side continues the other" in got.stderr


def test_d07_groups_of_different_prompts_are_refused(cli: Any, case: Any) -> None:
    case("D07")
    got = cli("dpo-gen", "r.jsonl", "-o", "o.jsonl", "--json")
    assert got.code == 1
    assert got.json["left_out_groups"] == {"prompts_differ": 2}
    got = cli("dpo-gen", "r.jsonl", "-o", "o.jsonl", "--same-prompt", "user")
    [row] = lines("o.jsonl")
    assert row["prompt"] == [{"role": "system", "content": "A"}, user("q")]
    assert sides() == [("x", "y")]
    assert "the prompt is the chosen side's" in got.stderr


def test_d08_the_lengths_of_both_sides_are_shown(cli: Any) -> None:
    rows = []
    for i in range(40):
        short, long = f"short {i:02}", f"long{i:02}" * 4
        rows.append(group(str(i), [short, long], [0, 1] if i < 36 else [1, 0], prompt=f"p{i}"))
    write("r.jsonl", *rows)
    got = cli("dpo-gen", "r.jsonl", "-o", "o.jsonl")
    assert "chosen is longer in 90 %" in got.stdout
    assert "the chosen side is the longer one in 90 % of the pairs" in got.stderr
    assert "warning" not in cli("dpo-gen", "r.jsonl", "-o", "w.jsonl", "--warn-longer", "0.95").stderr
    write("r.jsonl", *rows, group("near", ["about the same", "about the very same"], [0, 1]))
    got = cli("dpo-gen", "r.jsonl", "-o", "c.jsonl", "--max-length-ratio", "2", "--json")
    assert got.json["left_out_pairs"] == {"length_ratio": 40}
    assert len(lines("c.jsonl")) == 1


def test_d11_pairs_of_a_group_are_few_and_the_same_on_every_run(cli: Any, case: Any) -> None:
    case("D11")
    got = cli("dpo-gen", "r.jsonl", "-o", "o.jsonl", "--json")
    assert got.json["pairs_per_group"] == {"1": 2}
    runs = []
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        cli("dpo-gen", "r.jsonl", "-o", f"{name}.jsonl", "--policy", "all", "--seed", seed)
        runs.append(sides(f"{name}.jsonl"))
    assert [len(run) for run in runs] == [5, 5, 5]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    got = cli("dpo-gen", "r.jsonl", "-o", "x.jsonl", "--policy", "all", "--max-pairs", "16", "--json")
    assert got.json["pairs_per_group"] == {"1": 1, "16": 1}
    got = cli("dpo-gen", "r.jsonl", "-o", "y.jsonl", "--policy", "correct-wrong", "--json")
    assert got.json["rows"] == 5
    chosen = [pair[0] for pair in sides("y.jsonl")]
    assert len(set(chosen)) == len(chosen)


def test_d13_groups_of_one_completion(cli: Any, case: Any) -> None:
    case("D13")
    got = cli("dpo-gen", "r.jsonl", "-o", "o.jsonl")
    assert got.code == 1
    assert "error: 2 groups, all with one completion" in got.stderr
    assert "--group-size 8" in got.stderr
    assert "--group" in got.stderr
    assert not Path("o.jsonl").exists()


def test_policies_and_limits(cli: Any) -> None:
    write("r.jsonl", group("a", ["zero", "one", "half"], [0.0, 1.0, 0.5]))
    expected = {
        ("--margin", "1"): [("one", "zero")],
        ("--policy", "all", "--margin", "0.6"): [("one", "zero")],
        ("--policy", "correct-wrong", "--threshold", "0.5"): [("one", "zero")],
        ("--policy", "all"): [("one", "zero"), ("one", "half"), ("half", "zero")],
    }
    for i, (options, pairs) in enumerate(expected.items()):
        assert cli("dpo-gen", "r.jsonl", "-o", f"{i}.jsonl", *options).code == 0
        assert sides(f"{i}.jsonl") == pairs
    for options, reason in ((("--margin", "1.5"), "margin"), (("--min-chosen", "2"), "min_chosen")):
        got = cli("dpo-gen", "r.jsonl", "-o", "none.jsonl", "--json", *options)
        assert (got.code, got.json["left_out_groups"]) == (1, {reason: 1})
    got = cli("dpo-gen", "r.jsonl", "-o", "none.jsonl", "--policy", "correct-wrong", "--threshold", "5", "--json")
    assert got.json["left_out_groups"] == {"all_correct_or_all_wrong": 1}


def test_random_rejections_are_seeded(cli: Any) -> None:
    rows = [group(str(i), [f"r{j}" for j in range(8)], [9, *range(7)], prompt=f"p{i}") for i in range(20)]
    write("r.jsonl", *rows)
    runs = []
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        cli("dpo-gen", "r.jsonl", "-o", f"{name}.jsonl", "--policy", "best-random", "--seed", seed)
        runs.append(sides(f"{name}.jsonl"))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    assert {pair[0] for pair in runs[0]} == {"r0"}
    assert len({pair[1] for pair in runs[0]}) > 3


def test_rows_say_where_they_come_from(cli: Any) -> None:
    write("r.jsonl", group("a", ["x", "y"], [0.25, 0.75]))
    cli("dpo-gen", "r.jsonl", "-o", "o.jsonl")
    assert lines("o.jsonl") == [
        {
            "prompt": [user("p")],
            "chosen": [says("y")],
            "rejected": [says("x")],
            "rollout_chosen": "a/1",
            "rollout_rejected": "a/0",
            "score_chosen": 0.75,
            "score_rejected": 0.25,
            "task": "/a",
        }
    ]
    card = json.loads(Path("o.jsonl.card.json").read_text())
    assert (card["command"], card["counts"]["rows"], card["counts"]["mean_gap"]) == ("dpo-gen", 1, 0.5)


# Several turns -------------------------------------------------------------------------------------------------


def calling(ident: str, city: str) -> dict[str, Any]:
    function = {"name": "weather", "arguments": json.dumps({"city": city})}
    return says(None, tool_calls=[{"id": ident, "type": "function", "function": function}])


def test_pairs_begin_at_the_first_reply_that_differs(cli: Any) -> None:
    head = [user("q"), says("look"), user("you see a door")]
    good = [*head, says("open door"), user("it opens"), says("go north")]
    bad = [*head, says("kick door"), user("ouch")]
    write("r.jsonl", group("a", [[*bad, says("wait")], good], [0, 1]))
    got = cli("dpo-gen", "r.jsonl", "-o", "o.jsonl")
    [row] = lines("o.jsonl")
    assert row["prompt"] == head
    assert row["chosen"] == good[3:]
    assert row["rejected"] == [*bad[3:], says("wait")]
    assert "1 pairs hold messages of the user or tools on a side: TRL trains on them" in got.stderr
    cli("dpo-gen", "r.jsonl", "-o", "t.jsonl", "--completion", "turn")
    [row] = lines("t.jsonl")
    assert (row["chosen"], row["rejected"]) == ([says("open door")], [says("kick door")])


def test_ids_of_tool_calls_do_not_make_a_difference(cli: Any) -> None:
    def chat(ident: str, answer: str) -> list[dict[str, Any]]:
        result = {"role": "tool", "tool_call_id": ident, "content": "4 C"}
        return [user("weather?"), calling(ident, "Oslo"), result, says(answer)]

    write("r.jsonl", group("a", [chat("x1", "It is 4."), chat("y2", "It is 40.")], [1, 0]))
    assert cli("dpo-gen", "r.jsonl", "-o", "o.jsonl").code == 0
    [row] = lines("o.jsonl")
    assert len(row["prompt"]) == 3
    assert row["prompt"][1]["tool_calls"][0]["function"]["arguments"] == {"city": "Oslo"}
    assert (row["chosen"], row["rejected"]) == ([says("It is 4.")], [says("It is 40.")])
    # Different calls differ, whatever their texts.
    chats = [[user("w?"), calling("a", city)] for city in ("Oslo", "Rome")]
    write("c.jsonl", group("a", chats, [1, 0]))
    assert cli("dpo-gen", "c.jsonl", "-o", "c-out.jsonl").code == 0
    assert lines("c-out.jsonl")[0]["prompt"] == [user("w?")]


def test_what_the_environment_does_differently_is_no_preference(cli: Any) -> None:
    chats = [[user("q"), says("look"), user(f"you see {what}"), says(f"take {what}")] for what in ("gold", "mud")]
    write("r.jsonl", group("a", chats, [1, 0]))
    got = cli("dpo-gen", "r.jsonl", "-o", "o.jsonl", "--json")
    assert got.code == 1
    assert got.json["left_out_pairs"] == {"environment_differs": 1}


def test_when_the_worst_is_the_best_cut_short_the_next_is_taken(cli: Any) -> None:
    head = [user("q"), says("look"), user("a door")]
    chats = [[user("q"), says("look")], [*head, says("open")], [*head, says("wait")]]
    write("r.jsonl", group("a", chats, [0, 1, 0.5]))
    got = cli("dpo-gen", "r.jsonl", "-o", "o.jsonl", "--json")
    assert sides() == [("open", "wait")]
    assert got.json["left_out_pairs"] == {"prefix": 1}


def test_rows_of_one_rollout_are_joined_when_asked(cli: Any) -> None:
    rows = [{"id": f"q{i}", "messages": [user("q"), says(f"a{i}")], "score": i} for i in range(3)]
    write("r.jsonl", *rows)
    assert cli("dpo-gen", "r.jsonl", "-o", "o.jsonl").code == 1
    assert cli("dpo-gen", "r.jsonl", "-o", "o.jsonl", "--group").code == 0
    assert sides() == [("a2", "a0")]


def test_rollouts_that_were_cut_off_take_no_part(cli: Any) -> None:
    row = group("a", ["good", "cut", "bad"], [1, 0, 0.5])
    row["finish_reasons"] = ["stop", "length", "stop"]
    write("r.jsonl", row)
    got = cli("dpo-gen", "r.jsonl", "-o", "o.jsonl", "--json")
    assert sides() == [("good", "bad")]
    assert got.json["left_out_rollouts"] == {"truncated:length": 1}
    cli("dpo-gen", "r.jsonl", "-o", "k.jsonl", "--keep-truncated")
    assert sides("k.jsonl") == [("good", "cut")]


# Text, KTO, outputs --------------------------------------------------------------------------------------------


def test_text_rows(cli: Any, tmp_path: Path) -> None:
    write("r.jsonl", group("a", ["x", "y"], [1, 0]))
    assert cli("dpo-gen", "r.jsonl", "-o", "o.jsonl", "--text").code == 0
    [row] = lines("o.jsonl")
    assert (row["prompt"], row["chosen"], row["rejected"]) == ("p", "x", "y")
    template = ("--chat-template", str(TEMPLATES / "chatml.jinja"))
    assert cli("dpo-gen", "r.jsonl", "-o", "t.jsonl", "--text", *template).code == 0
    [row] = lines("t.jsonl")
    assert row["prompt"] == "<|im_start|>user\np<|im_end|>\n<|im_start|>assistant\n"
    assert (row["chosen"], row["rejected"]) == ("x<|im_end|>", "y<|im_end|>")
    system = [{"role": "system", "content": "S"}, user("q")]
    write("s.jsonl", group("a", [[*system, says("x")], [*system, says("y")]], [1, 0]))
    got = cli("dpo-gen", "s.jsonl", "-o", "s-out.jsonl", "--text")
    assert got.code == 1
    assert "several messages are one text only by a template" in got.stderr
    got = cli("dpo-gen", "s.jsonl", "-o", "s-out.jsonl", "--text", *template)
    assert lines("s-out.jsonl")[0]["prompt"].startswith("<|im_start|>system\nS<|im_end|>")


def test_long_pairs_are_left_out(cli: Any, tmp_path: Path) -> None:
    tokenizer = make_tokenizer(CHATML)
    tokenizer.chat_template = (TEMPLATES / "chatml.jinja").read_text()
    tokenizer.save_pretrained(str(tmp_path / "t"))
    write("r.jsonl", group("a", ["x", "the fox " * 50], [1, 0]), group("b", ["x", "y"], [1, 0], prompt="q"))
    got = cli("dpo-gen", "r.jsonl", "-o", "o.jsonl", "--tokenizer", str(tmp_path / "t"), "--max-tokens", "60", "--json")
    assert got.json["left_out_pairs"] == {"too_long": 1}
    assert sides() == [("x", "y")]


def test_kto_rows(cli: Any) -> None:
    write("r.jsonl", group("a", ["good", "bad", "good ", "meh"], [1, 0, 1, 0.5]), group("b", ["lone"], [0.2]))
    got = cli("dpo-gen", "r.jsonl", "-o", "o.jsonl", "--kto", "--json")
    rows = lines("o.jsonl")
    assert [(row["completion"][0]["content"], row["label"]) for row in rows] == [
        ("good", True),
        ("bad", False),
        ("meh", True),
        ("lone", False),
    ]
    assert rows[0]["prompt"] == [user("p")]
    assert got.json["labels"] == {"true": 2, "false": 2}
    assert got.json["left_out_rollouts"] == {"identical": 1}
    got = cli("dpo-gen", "r.jsonl", "-o", "t.jsonl", "--kto", "--threshold", "5")
    assert "all labels are false" in got.stderr


def test_output_is_split_by_task(cli: Any) -> None:
    write("r.jsonl", *[group(str(i), ["x", "y"], [1, 0], prompt=f"p{i}") for i in range(30)])
    assert cli("dpo-gen", "r.jsonl", "-o", "o.jsonl", "--validation", "0.3").code == 0
    train, validation = lines("o-train.jsonl"), lines("o-validation.jsonl")
    assert (len(train) + len(validation), bool(validation)) == (30, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--policy", "best-wurst"), "did you mean best-worst?"),
        (("--tiebreak", "x"), "--tiebreak: expected one of 'first', 'shorter' or 'longer', got 'x'"),
        (("--max-tokens", "100"), "--max-tokens needs --tokenizer"),
        (("--chat-template", "t.jinja"), "rows of messages are not rendered"),
    ],
)
def test_usage_errors(cli: Any, options: tuple[str, ...], message: str) -> None:
    write("r.jsonl", group("a", ["x", "y"], [1, 0]))
    got = cli("dpo-gen", "r.jsonl", "-o", "o.jsonl", *options)
    assert got.code == 2
    assert message in got.stderr


@pytest.mark.parametrize("command", ["dpo-gen", "sft-gen"])
@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"chosen": "Lima", "rejected": "Cusco"}, "no prompt under any of the usual names"),
        ({"system": "Be brief.", "chosen": [says("a")], "rejected": [says("b")]}, "no prompt"),
        ({"prompt": "one", "query": "two", "chosen": "a", "rejected": "b"}, "query: expected"),
        (
            {"chosen": "User: a\n\nBot: b\n\nBot: c", "rejected": "d"},
            "chosen: expected a transcript whose turns are clear",
        ),
    ],
)
def test_a_pair_without_a_clear_prompt_makes_no_row(row: dict[str, Any], words: str, command: str, cli: Any) -> None:
    result = cli(command, write("d.jsonl", row), "-o", "o.jsonl")
    assert result.code in (1, 6)
    assert words in result.stderr
    assert not Path("o.jsonl").exists()


def test_a_pair_has_its_whole_prompt(cli: Any) -> None:
    rows = [
        {"system": "S", "instruction": "Sort.", "input": "3 1", "chosen": "1 3", "rejected": "3 1"},
        {"chosen": "User: q\nBot: a", "rejected": "User: q\nBot: b"},
        {"history": [["q", "a"]], "question": "r", "chosen": "b", "rejected": "c"},
    ]
    assert cli("dpo-gen", write("d.jsonl", *rows), "-o", "o.jsonl").code == 0
    system = {"role": "system", "content": "S"}
    wanted = [[system, user("Sort.\n\n3 1")], [user("q")], [user("q"), says("a"), user("r")]]
    assert [row["prompt"] for row in lines("o.jsonl")] == wanted
    # What was written is read again as it is.
    assert cli("dpo-gen", "o.jsonl", "-o", "again.jsonl").code == 0
    assert [row["prompt"] for row in lines("again.jsonl")] == wanted
