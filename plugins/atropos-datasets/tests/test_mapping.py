"""Fields, gold answers, ids, prompts, options."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring import run_environment
from atropos_datasets.choices import gold_index, options_of, positional
from atropos_datasets.environment import CHOICE, THINKING, DatasetConfig, DatasetEnvironment
from atropos_datasets.ready import Gsm8k, Math500, MultipleChoice
from dataset_support import field_case, lines, listed, tasks
from pydantic import ValidationError

from atropos_cli.sdk import DataError, Environment


def test_i09_other_field_names(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    field_case("I09", path)
    with pytest.raises(DataError, match=r"no field 'question' .*its fields: problem, solution") as caught:
        tasks(path, prompt_field="question")
    assert caught.value.hint == "--prompt-field problem --answer-field solution"
    with pytest.raises(DataError, match="no field 'answer'") as caught:
        tasks(path, prompt_field="problem")
    assert caught.value.hint == "--answer-field solution"
    (task,) = listed(path, prompt_field="problem", answer_field="solution")
    assert (task.prompt[0].text, task.answer) == ("1+1?", "2")


def test_i11_objects_missing_and_repeated_ids(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    field_case("I11", path)
    first, second, third = listed(path, answer_field="ground_truth", id_field="id")
    assert first.answer == {"grid": [[0, 1], [0, 0]], "start": [0, 0]}
    assert first.prompt[0].text == "\N{CJK UNIFIED IDEOGRAPH-8FF7}\N{CJK UNIFIED IDEOGRAPH-5BAB}"
    assert first.id.startswith("row-")
    assert (second.id, second.answer) == ("7", [1, 2])
    assert (third.id, third.answer) == ("7-row2", "z")
    assert listed(path, answer_field="ground_truth", id_field="id")[0].id == first.id


def test_ids_stay_unique_whatever_stands_there(tmp_path: Path) -> None:
    ids: list[Any] = ["a", "a", "a-row1", 7, "7", None, None, ""]
    path = lines(tmp_path / "d", [{"prompt": "p", "answer": 1, "id": value} for value in ids])
    found = [task.id for task in listed(path, id_field="id")]
    assert found[:5] == ["a", "a-row1", "a-row1-row2", "7", "7-row4"]
    assert len(set(found)) == 8


def test_i05_nested_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    rows = [
        {
            "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": f"q{n}"}],
            "reward_model": {"style": "rule", "ground_truth": str(n)},
            "extra_info": {"index": n, "split": "train"},
        }
        for n in range(10)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d.parquet")
    options: dict[str, Any] = {"answer_field": "reward_model.ground_truth", "info_fields": ("extra_info",)}
    found = listed(tmp_path / "d.parquet", **options)
    assert [message.role for message in found[3].prompt] == ["system", "user"]
    assert (found[3].prompt[1].text, found[3].answer) == ("q3", "3")
    assert found[3].info == {"task_name": found[3].info["task_name"], "extra_info": {"index": 3, "split": "train"}}
    with pytest.raises(DataError, match=r"row 0: there is no field 'reward_model\.truth'"):
        listed(tmp_path / "d.parquet", answer_field="reward_model.truth")


def test_i07_a_part_is_a_part(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    field_case("I07", path)
    found = listed(path, answer_field="", id_field="id", data_split="[:5]")
    assert [task.id for task in found] == ["0", "1", "2", "3", "4"]
    assert {task.answer for task in found} == {None}
    assert len(listed(path, answer_field="")) > 5


@pytest.mark.parametrize(
    ("options", "gold"),
    [
        ({}, "2 #### 1 = 1\n#### 72 "),
        ({"answer_prefix": "####"}, "72"),
        ({"answer_regex": r"#### (\d+)"}, "72"),
        ({"answer_prefix": "####", "answer_regex": r"\d"}, "2"),
    ],
)
def test_the_gold_answer(options: dict[str, Any], gold: str, tmp_path: Path) -> None:
    path = lines(tmp_path / "d", [{"prompt": "p", "answer": "2 #### 1 = 1\n#### 72 "}])
    (task,) = listed(path, **options)
    assert task.answer == gold
    assert task.info.get("answer_text") == ("2 #### 1 = 1\n#### 72 " if options else None)


def test_a_gold_answer_that_cannot_be_cut_out(tmp_path: Path) -> None:
    path = lines(tmp_path / "d", [{"prompt": "p", "answer": "72"}])
    with pytest.raises(DataError, match=r"d:1: the answer has no '####'"):
        tasks(path, answer_prefix="####")
    with pytest.raises(DataError, match="does not match"):
        tasks(path, answer_regex="x")


@pytest.mark.parametrize("options", [{"answer_regex": "("}, {"prompt_template": "no place"}, {"few_shot": -1}])
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DatasetConfig(**options)


def test_a_chat_with_everything(tmp_path: Path) -> None:
    path = lines(tmp_path / "d", [{"prompt": f"p{n} {{prompt}}", "answer": n} for n in range(4)])
    found = listed(path, few_shot=2, thinking=True, system_prompt="Be brief.", prompt_template="<{prompt}|{x}>")
    texts = [[message.text for message in task.prompt] for task in found]
    assert texts[3][0] == f"Be brief.\n\n{THINKING}"
    assert texts[3][1:] == ["<p0 {prompt}|{x}>", "0", "<p1 {prompt}|{x}>", "1", "<p3 {prompt}|{x}>"]
    for n, own in enumerate(texts):
        assert not any(text.startswith(f"<p{n} ") for text in own[:-1])
        assert len(own) == 6


def test_plain_prompts(tmp_path: Path) -> None:
    path = lines(tmp_path / "d", [{"prompt": f"p{n}", "answer": n} for n in range(3)])
    (prompt,) = listed(path, prompt_style="plain", few_shot=1, system_prompt="S")[0].prompt
    assert prompt.text == "S\n\nQuestion: p1\nAnswer: 1\n\nQuestion: p0\nAnswer:"


def test_examples_from_another_file(tmp_path: Path) -> None:
    path = lines(tmp_path / "d", [{"prompt": "p", "answer": 1, "solution": "1 is 1"}])
    other = lines(tmp_path / "o", [{"prompt": f"o{n}", "answer": n, "solution": f"it is {n}"} for n in range(3)])
    (task,) = listed(path, few_shot=2, few_shot_path=str(other), few_shot_field="solution")
    assert [message.text for message in task.prompt] == ["o0", "it is 0", "o1", "it is 1", "p"]
    with pytest.raises(DataError, match="too few for 4 examples"):
        tasks(path, few_shot=4, few_shot_path=str(other))
    with pytest.raises(DataError, match="1 rows are too few for 1 examples"):
        tasks(path, few_shot=1)


def test_j11_the_gold_letter_follows_the_shuffled_options(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    field_case("J11", path)
    found = listed(path, cls=MultipleChoice)
    assert found == listed(path, cls=MultipleChoice)
    for n, task in enumerate(found):
        options: Any = task.info["choices"]
        assert options["ABCD".index(str(task.answer))] == f"right{n}"
        assert sorted(options) == sorted(["w1", "w2", "w3", f"right{n}"])
        assert f"{task.answer}. right{n}" in task.prompt[-1].text
        assert task.prompt[0].text == CHOICE
    assert max(Counter(task.answer for task in found).values()) < 12
    assert listed(path, cls=MultipleChoice, choice_seed=1) != found
    assert {task.answer for task in listed(path, cls=MultipleChoice, shuffle_choices=False)} == {"D"}


def test_j11_always_d_scores_as_chance(tmp_path: Path) -> None:
    rows = [{"question": f"q{n}", "choices": ["w1", "w2", "w3", f"r{n}"], "answer": 3} for n in range(400)]
    path = lines(tmp_path / "d.jsonl", rows)

    def rate(folder: str, **options: Any) -> tuple[float, dict[str, float]]:
        groups = run_environment(
            MultipleChoice,
            folder=tmp_path / folder,
            replies=("The answer is (D).",),
            config={"path": str(path), **options},
            limit=400,
            group_size=1,
            rewards=("choice",),
        )
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        shares = {f"gold_{x}": sum(r.metrics[f"gold_{x}"] for r in rollouts) / 400 for x in "ABCD"}
        return sum(rollout.reward or 0 for rollout in rollouts) / 400, shares

    score, shares = rate("shuffled")
    assert 0.18 < score < 0.32
    assert shares["gold_D"] == pytest.approx(score)
    assert sum(shares.values()) == pytest.approx(1)
    assert rate("stored", shuffle_choices=False)[0] == 1.0


@pytest.mark.parametrize(
    ("choices", "answer", "index"),
    [
        (["a", "b", "c"], 2, 2),
        (["a", "b", "c"], "b", 1),
        (["x", "y", "z"], "C", 2),
        (["x", "y", "z"], "(b)", 1),
        (["1", "2", "0"], "0", 2),
        (["1", "2", "0"], 0, 0),
        ({"text": ["x", "y"], "label": ["A", "B"]}, "B", 1),
        ({"text": ["x", "y"], "label": ["1", "2"]}, "1", 0),
        ({"text": ["x", "y"], "label": [1, 2]}, 2, 1),
    ],
)
def test_the_gold_option(choices: Any, answer: Any, index: int) -> None:
    assert gold_index(answer, *options_of(choices)) == index


@pytest.mark.parametrize("answer", [3, -1, "D", "other", "", None, True, 1.5, ["a"]])
def test_gold_options_that_are_not_there(answer: Any, tmp_path: Path) -> None:
    path = lines(tmp_path / "d", [{"question": "q", "choices": ["a", "b", "c"], "answer": answer}])
    with pytest.raises(DataError, match="d:1: "):
        tasks(path, cls=MultipleChoice)


@pytest.mark.parametrize(
    "choices", [[], ["a"], "ab", None, ["a", None], {"text": ["a", "b"], "label": ["A"]}, [["a"], "b"]]
)
def test_options_that_are_none(choices: Any, tmp_path: Path) -> None:
    path = lines(tmp_path / "d", [{"question": "q", "choices": choices, "answer": 0}])
    with pytest.raises(DataError, match="d:1: field 'choices'"):
        tasks(path, cls=MultipleChoice)


@pytest.mark.parametrize(
    ("option", "stays"),
    [
        ("All of the above", True),
        ("none of these", True),
        ("Both A and B", True),
        ("Neither (1) nor (2)", True),
        ("A and C", True),
        ("the above-mentioned law", False),
        ("both and neither", False),
        ("A man and a woman", False),
        ("all of them", False),
    ],
)
def test_options_that_speak_of_others_keep_the_order(option: str, stays: bool, tmp_path: Path) -> None:
    assert positional(["x", option]) is stays
    rows = [{"question": f"q{n}", "choices": ["a", "b", option], "answer": 2} for n in range(30)]
    found = listed(lines(tmp_path / "d", rows), cls=MultipleChoice)
    assert ({task.answer for task in found} == {"C"}) is stays


@pytest.mark.parametrize(
    ("gold", "verdict"), [("#### 1,000", None), ("#### -3.5", None), ("#### many", False), ("7", None)]
)
def test_a_gold_answer_that_is_no_number(gold: str, verdict: bool | None, tmp_path: Path) -> None:
    path = lines(tmp_path / "d", [{"question": "q", "answer": gold}])
    environment = Gsm8k(Gsm8k.Config(path=str(path)))
    assert environment.validate(environment.tasks("test")[0]) is verdict


def test_the_splits_of_ready_names() -> None:
    ready: list[tuple[type[Environment], set[str]]] = [(Gsm8k, {"train", "test"}), (Math500, {"test"})]
    assert all(set(cls.splits) == splits for cls, splits in ready)


def test_replies_begin_with_the_prefill(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"prompt": "1+1?", "answer": "2"}\n')
    environment = DatasetEnvironment(DatasetConfig(path=str(path), prefill="<think>\n"))
    assert environment.episode(environment.tasks("train")[0]).prefill == "<think>\n"


@pytest.mark.parametrize(
    ("row", "options", "prompt"),
    [
        ({"instruction": "Translate.", "input": "dog"}, {"prompt_field": "instruction"}, ["u:Translate.\n\ndog"]),
        ({"question": "Who?", "context": "Bob."}, {"prompt_field": "question"}, ["u:Bob.\n\nWho?"]),
        ({"prompt": "q", "system": "S", "history": [["a", "b"]]}, {}, ["s:S", "u:a", "a:b", "u:q"]),
        ({"prompt": "q", "system": "S"}, {"system_prompt": "Think."}, ["s:Think.\n\nS", "u:q"]),
        ({"prompt": "q", "context": "kept"}, {"info_fields": ("context",)}, ["u:q"]),
        ({"prompt": '[{"from": "human", "value": "q"}]'}, {}, ["u:q"]),
        ({"prompt": "\n\nHuman: a\n\nAssistant: b\n\nHuman: q\n\nAssistant:"}, {}, ["u:a", "a:b", "u:q"]),
        ({"prompt": "q", "system": "S", "options": ["x", "y"]}, {"choices_field": "options"}, None),
        ({"ask": {"text": "q"}, "system": "S"}, {"prompt_field": "ask.text"}, ["s:S", "u:q"]),
    ],
)
def test_every_part_of_a_prompt_is_asked(
    row: dict[str, Any], options: dict[str, Any], prompt: list[str] | None, tmp_path: Path
) -> None:
    (task,) = listed(lines(tmp_path / "d.jsonl", [{**row, "answer": "x"}]), **options)
    asked = [f"{message.role[0]}:{message.text}" for message in task.prompt]
    if prompt is None:
        assert asked[0].endswith("\n\nS")
        assert "A. " in asked[1]
    else:
        assert asked == prompt


@pytest.mark.parametrize(
    ("row", "options", "words"),
    [
        ({"prompt": "q", "history": "unclear"}, {}, r"history: expected earlier turns.*--info-fields"),
        ({"prompt": "q", "history": [["a", "b"]]}, {"prompt_style": "plain"}, "earlier turns"),
        ({"prompt": "User: a\n\nBot: b\n\nBot: c"}, {}, "the prompt is not clear"),
    ],
)
def test_a_part_that_cannot_be_asked_is_refused(
    row: dict[str, Any], options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=words):
        tasks(lines(tmp_path / "d.jsonl", [{**row, "answer": "x"}]), **options)


def test_a_file_under_a_scheme(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    path = lines(tmp_path / "d.jsonl", [{"prompt": "q", "answer": "x"}])
    assert len(DatasetEnvironment(DatasetEnvironment.Config(path=f"file://{path}")).tasks("train")) == 1
    with pytest.raises(DataError, match="does not exist"):
        DatasetEnvironment(DatasetEnvironment.Config(path=f"file://{path}.gone")).tasks("train")
