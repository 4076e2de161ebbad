"""The model of a pipeline: placeholders, dependencies, order, mistakes, digests."""

from __future__ import annotations

from typing import Any

import pytest
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
    ],
)
def test_mistakes_are_named(steps: dict[str, Any], text: str) -> None:
    found = problems(**steps)
    assert len(found) == 1
    assert text in found[0]


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
