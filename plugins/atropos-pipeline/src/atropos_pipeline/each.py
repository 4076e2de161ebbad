"""Experiment sets: a step with `each` becomes one step for every combination of its values.

    [steps.train]
    each = { preset = ["arithmetic", "aggressive"], seed = ["0", "1"] }
    command = ["train", "grpo", "--preset", "{each.preset}", "--seed", "{each.seed}", "--output", "{output}"]

    [steps.compare]
    command = ["analyze", "{steps.train.output}"]

The steps are train-arithmetic-0, train-arithmetic-1, and so on. A step that names `train` and has values for the same
names goes with those of the same values; any other comes after all of them. An argument with {steps.train.output}
becomes one argument for each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product

from atropos_pipeline.model import NAME, Path, PipelineFile, Step

_EACH = re.compile(r"\{each\.([^{}]*)\}")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")

Values = dict[str, str]


def expanded(file: PipelineFile) -> tuple[PipelineFile, list[tuple[Path, str]]]:
    """The file without `each`, and (key, message) of every mistake. Where there are some, the file is as it was."""
    found = [problem for name, step in file.steps.items() for problem in _problems(name, step)]
    made = {name: _named(name, step) for name, step in file.steps.items() if step.each}
    names = [made_name for steps in made.values() for made_name, _ in steps] + [n for n in file.steps if n not in made]
    for name in sorted({name for name in names if names.count(name) > 1 or len(name) > 64}):
        found.append((("steps",), f"`each` makes the step {name!r}, a name that is too long or there already"))
    if found or not made:
        return file, found
    steps: dict[str, Step] = {}
    for name, step in file.steps.items():
        for made_name, values in made.get(name, [(name, {})]):
            steps[made_name] = _filled(step, values, made)
    return file.replace(steps=steps), []


def _named(name: str, step: Step) -> list[tuple[str, Values]]:
    """The names of the steps that this one becomes, with their values."""
    found = []
    for combination in product(*step.each.values()):
        parts = [_NOT_IN_NAMES.sub("-", value).strip("-") for value in combination]
        found.append(("-".join([name, *parts]), dict(zip(step.each, combination, strict=True))))
    return found


def _filled(step: Step, values: Values, made: Mapping[str, Sequence[tuple[str, Values]]]) -> Step:
    """The step with these values, and with the steps that others have become."""
    partners = {name: _partners(values, steps) for name, steps in made.items()}

    def fill(text: str) -> str:
        return _EACH.sub(lambda match: values[match[1]], text)

    command: list[str] = []
    for argument in step.command:
        filled = [fill(argument)]
        for name, chosen in partners.items():
            word = f"{{steps.{name}.output}}"
            filled = (
                [text.replace(word, f"{{steps.{other}.output}}") for text in filled for other in chosen]
                if any(word in text for text in filled)
                else filled
            )
        command += filled
    after = [other for name in step.after for other in partners.get(name, [name])]
    filled_step: Step = step.replace(
        each={},
        command=tuple(command),
        after=tuple(after),
        output=None if step.output is None else fill(step.output),
        inputs=tuple(fill(text) for text in step.inputs),
        env={name: fill(text) for name, text in step.env.items()},
    )
    return filled_step


def _partners(values: Values, steps: Sequence[tuple[str, Values]]) -> list[str]:
    """Those with the same values of what both have; all, where they have nothing in common."""
    return [name for name, theirs in steps if all(values.get(key, theirs[key]) == theirs[key] for key in theirs)]


def _problems(name: str, step: Step) -> list[tuple[Path, str]]:
    at: Path = ("steps", name)
    found = []
    for key, values in step.each.items():
        if not _KEY.match(key):
            found.append(((*at, "each"), f"{key!r} must be letters, digits, - and _"))
        if not values or len(set(values)) < len(values):
            found.append(((*at, "each"), f"{key} needs values that differ"))
    texts = [*step.command, *step.inputs, step.output or "", *step.env.values()]
    for word in dict.fromkeys(word for text in texts for word in _EACH.findall(text)):
        if word not in step.each:
            known = ", ".join(step.each) or "nothing"
            found.append(((*at, "command"), f"{{each.{word}}} has no values: `each` of this step has {known}"))
    if step.each and not NAME.match(name):
        found.append((at, f"step name {name!r} must be letters, digits, - and _ (at most 64)"))
    return found
