"""The model of a pipeline: placeholders, dependencies, order, mistakes, digests."""

from __future__ import annotations

from typing import Any

import pytest
from atropos_pipeline.each import expanded
from atropos_pipeline.model import Pipeline, PipelineFile, Place, problems_of, replaced, resolve
from pydantic import ValidationError

COMMANDS = ("gen", "filter", "sft-gen")
PLACE = Place(source="/p/flow.toml", here="/p", folder="/runs/x", cwd="/w")


def made(**steps: dict[str, Any]) -> PipelineFile:
    return PipelineFile.model_validate({"steps": steps})


def problems(**steps: dict[str, Any]) -> list[str]:
    return [f"{'.'.join(key)}: {text}" for key, text in problems_of(made(**steps), COMMANDS)]


GEN: dict[str, Any] = {"command": ["gen", "arithmetic", "-o", "{output}"]}


def ready(**steps: dict[str, Any]) -> Pipeline:
    file = made(**steps)
    assert problems_of(file, COMMANDS) == []
    return resolve(file, PLACE)


def test_placeholders_become_paths_inside_an_argument() -> None:
    found = ready(
        gen=GEN,
        kept={"command": ["filter", "{steps.gen.output}/groups.jsonl", "--x={here}/a b", "{folder}", "-o", "{output}"]},
    )
    assert found.step("gen").command == ("gen", "arithmetic", "-o", "/runs/x/gen")
    wanted = ("filter", "/runs/x/gen/groups.jsonl", "--x=/p/a b", "/runs/x", "-o", "/runs/x/kept.jsonl")
    assert found.step("kept").command == wanted
    assert found.step("kept").after == ("gen",)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{output}", "OUT"),
        ("a{output}b{output}", "aOUTbOUT"),
        ("{{output}}", "{output}"),
        ('{"output": 1}', '{"output": 1}'),
        ("{}", "{}"),
        ("{port}", "{port}"),
        ("${output}", "$OUT"),
        ("{ output }", "{ output }"),
    ],
)
def test_only_our_words_are_replaced(text: str, value: str) -> None:
    assert replaced(text, {"output": "OUT"}) == value


def test_what_is_put_in_is_not_looked_at_again() -> None:
    assert replaced("{output}", {"output": "{folder}", "folder": "no"}) == "{folder}"


def test_outputs() -> None:
    found = ready(
        a=GEN,
        b={"command": ["filter", "{steps.a.output}"]},
        c={"command": ["filter", "{steps.a.output}"], "output": "deep/c.parquet"},
        d={"command": ["filter", "{steps.a.output}"], "output": "{here}/d.jsonl"},
        e={"command": ["filter", "{steps.c.output}"], "output": "/abs/e.jsonl"},
    )
    assert [step.output for step in found.steps] == [
        "/runs/x/a",
        None,  # writes nothing we know of
        "/runs/x/deep/c.parquet",
        "/p/d.jsonl",
        "/abs/e.jsonl",
    ]


def test_the_order_is_the_files_where_it_can_be() -> None:
    found = ready(
        last={"command": ["filter", "{steps.b.output}", "{steps.a.output}"]}, b=GEN, a=GEN, c={**GEN, "after": ["last"]}
    )
    assert [step.name for step in found.steps] == ["b", "a", "last", "c"]
    assert found.following(["a"]) == {"a", "last", "c"}
    assert found.following(["c"]) == {"c"}


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ({"a": {"command": ["gne"]}}, "steps.a.command: 'gne' cannot be a step; did you mean 'gen'?"),
        ({"a": {"command": ["gen"], "after": ["b"]}}, "there is no step 'b'; there are: a"),
        ({"a": {"command": ["gen"], "after": ["a"]}}, "a step cannot come after itself"),
        ({"a": {"command": ["gen", "{output}"]}, "b": {"command": ["gen", "{steps.aa.output}"]}}, "did you mean 'a'?"),
        ({"a": {"command": ["gen", "{steps.a.output}"]}}, "is the step itself; write {output}"),
        ({"a": {"command": ["gen", "{steps.a}"]}}, "write {steps.NAME.output}"),
        ({"a": {"command": ["gen", "{steps.a.input}"]}}, "write {steps.NAME.output}"),
        ({"a b": {"command": ["gen"]}}, "step name 'a b' must be letters"),
        ({"../a": {"command": ["gen"]}}, "must be letters"),
        ({"a": {"command": ["gen"], "inputs": ["{output}"]}}, "only {folder} and {here} can stand in '{output}'"),
        ({"a": {"command": ["gen"], "output": "{steps.b.output}"}}, "only {folder} and {here}"),
        ({"a": GEN, "b": {**GEN, "output": "./x/../a"}}, "steps.b: it writes where step 'a' writes"),
        ({"a": GEN, "b": {**GEN, "output": "{folder}/a"}}, "steps.b: it writes where step 'a' writes"),
    ],
)
def test_mistakes_are_named(steps: dict[str, Any], text: str) -> None:
    found = problems(**steps)
    assert len(found) == 1
    assert text in found[0]


def test_a_step_that_follows_another_may_rewrite_its_output() -> None:
    follows = {"command": ["filter", "{steps.a.output}", "-o", "{output}", "--overwrite"], "output": "a"}
    assert problems(a=GEN, b=follows) == []
    assert problems(a=GEN, b={**GEN, "output": "a", "after": ["a"]}) == []


def test_a_circle_is_shown() -> None:
    (found,) = problems(
        a=GEN,
        b={"command": ["gen", "{steps.d.output}", "{steps.a.output}"]},
        c={"command": ["gen", "{steps.b.output}"]},
        d={"command": ["gen"], "after": ["c"]},
    )
    assert "the steps wait for each other: b -> d -> c -> b" in found


@pytest.mark.parametrize("command", [[], ["gen", "a\0b"], "gen arithmetic"])
def test_a_command_is_a_list_of_arguments(command: Any) -> None:
    with pytest.raises(ValidationError):
        made(a={"command": command})


def test_the_digest_is_that_of_the_work_and_of_all_before() -> None:
    steps: dict[str, dict[str, Any]] = {"a": GEN, "b": {"command": ["filter", "{steps.a.output}"]}, "c": GEN}
    base = {step.name: step.digest for step in ready(**steps).steps}
    moved = resolve(made(**steps), PLACE.replace(folder="/elsewhere", here="/q", cwd="/v"))
    assert {step.name: step.digest for step in moved.steps} == base
    more = {**steps, "a": {"command": [*GEN["command"], "--limit", "3"], "resources": {"nodes": 2}}}
    changed = {step.name: step.digest for step in ready(**more).steps}
    assert {name for name in base if changed[name] != base[name]} == {"a", "b"}
    sized = {step.name: step.digest for step in ready(**{**steps, "a": {**GEN, "resources": {"nodes": 2}}}).steps}
    assert sized == base  # how it is run is not what it does
    other = {step.name: step.digest for step in ready(**{**steps, "a": {**GEN, "env": {"X": "1"}}}).steps}
    assert {name for name in base if other[name] != base[name]} == {"a", "b"}


def test_defaults_of_the_file_hold_for_every_step() -> None:
    file = PipelineFile.model_validate(
        {
            "env": {"A": "1", "B": "1"},
            "resources": {"time": "1h", "nodes": 1},
            "steps": {"a": {**GEN, "env": {"B": "2"}, "resources": {"nodes": 2}}},
        }
    )
    (step,) = resolve(file, PLACE).steps
    assert step.env == {"A": "1", "B": "2"}
    assert step.resources == {"time": "1h", "nodes": 2}


TRAIN: dict[str, Any] = {
    "command": ["gen", "arithmetic", "--preset={each.preset}", "--seed", "{each.seed}", "-o", "{output}"],
    "each": {"preset": ["a b", "c"], "seed": ["0", "1"]},
}


def test_a_step_is_made_for_every_combination() -> None:
    file, wrong = expanded(
        made(
            train=TRAIN,
            rows={**TRAIN, "command": ["sft-gen", "{steps.train.output}", "-o", "{output}"]},
            best={
                "command": ["filter", "{steps.train.output}", "-o", "{output}"],
                "each": {"preset": ["c"]},
                "env": {"SET": "{each.preset}"},
            },
            last={"command": ["filter", "x", "{steps.rows.output}"], "after": ["train"]},
        )
    )
    assert wrong == []
    assert problems_of(file, COMMANDS) == []
    found = resolve(file, PLACE)
    assert [step.name for step in found.steps[:4]] == ["train-a-b-0", "train-a-b-1", "train-c-0", "train-c-1"]
    assert found.step("train-c-1").command == (
        "gen",
        "arithmetic",
        "--preset=c",
        "--seed",
        "1",
        "-o",
        "/runs/x/train-c-1",
    )
    assert found.step("rows-c-1").after == ("train-c-1",)
    assert found.step("best-c").command[1:3] == ("/runs/x/train-c-0", "/runs/x/train-c-1")
    assert found.step("best-c").env == {"SET": "c"}
    rows = tuple(f"/runs/x/rows-{name}.jsonl" for name in ("a-b-0", "a-b-1", "c-0", "c-1"))
    assert found.step("last").command == ("filter", "x", *rows)
    assert len(found.step("last").after) == 8


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({**TRAIN, "each": {"preset": ["a"]}}, "{each.seed} has no values"),
        ({**TRAIN, "each": {}}, "{each.preset} has no values"),
        ({**TRAIN, "each": {"preset": [], "seed": ["0"]}}, "preset needs values that differ"),
        ({**TRAIN, "each": {"preset": ["a", "a"], "seed": ["0"]}}, "preset needs values that differ"),
        ({**TRAIN, "each": {"preset": ["a b", "a/b"], "seed": ["0"]}}, "'train-a-b-0', a name that is too long"),
        ({**TRAIN, "each": {"preset": ["a" * 70], "seed": ["0"]}}, "a name that is too long"),
    ],
)
def test_values_that_cannot_be(step: dict[str, Any], words: str) -> None:
    file, wrong = expanded(made(train=step))
    assert any(words in text for _, text in wrong)
    assert file.steps["train"].each == {key: tuple(values) for key, values in step["each"].items()}
