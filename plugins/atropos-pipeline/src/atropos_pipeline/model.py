"""Pipelines: steps of atropos commands that depend on each other, from a file to an ordered, resolved list.

    [steps.gen]
    command = ["gen", "arithmetic", "--output", "{output}"]

    [steps.kept]
    command = ["filter", "{steps.gen.output}", "-o", "{output}", "--min-reward", "1"]

A command is a list of arguments and is never read by a shell. Within an argument these words are replaced:
{output} the step's own output, {steps.NAME.output} that of an earlier step (which makes it a dependency),
{folder} the pipeline's folder, {here} the folder of the file. {{output}} stands for the text {output}.
Other braces stay as they are.
"""

from __future__ import annotations

import hashlib
import json
import os.path
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import PurePath

from pydantic import Field, field_validator

from atropos_cli.sdk import ConfigError, JsonDict
from atropos_cli.sdk.data import home
from atropos_cli.sdk.launchers import Frozen
from atropos_cli.sdk.secrets import looks_secret, names_a_secret

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
_WORD = r"output|folder|here|steps\.[^{}]*"
_PLACEHOLDER = re.compile(r"\{\{(?P<literal>" + _WORD + r")\}\}|\{(?P<word>" + _WORD + r")\}")
_FOLDER_COMMANDS = frozenset({"gen", "eval", "train"})
"""Commands whose output is a folder; the others write a file of lines."""

Path = tuple[str, ...]


class Step(Frozen):
    """One step as the file has it."""

    command: tuple[str, ...] = Field(min_length=1, description="An atropos command and its arguments, one an item.")
    after: tuple[str, ...] = Field(default=(), description="Steps that must be done before, besides those it names.")
    output: str | None = Field(default=None, min_length=1, description="What it writes, relative to {folder}.")
    inputs: tuple[str, ...] = Field(default=(), description="Files it reads; a changed one makes the step run again.")
    env: dict[str, str] = Field(default_factory=dict, description="Environment variables of the step. No secrets.")
    resources: JsonDict = Field(default_factory=dict, description="What the step needs of a cluster.")
    each: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="Values by name; the step is made once for every combination, with {each.NAME}.",
    )

    @field_validator("command", "inputs")
    @classmethod
    def _no_null(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        if any("\0" in value for value in values):
            raise ValueError("an argument cannot hold a null character")
        return values


class PipelineFile(Frozen):
    """The whole file. env and resources hold for every step that does not say otherwise."""

    name: str | None = Field(default=None, description="Name of the pipeline; default: the file's.")
    env: dict[str, str] = Field(default_factory=dict, description="Environment variables of every step.")
    resources: JsonDict = Field(default_factory=dict, description="Resources of every step.")
    steps: dict[str, Step] = Field(min_length=1, description="The steps by name.")


class ReadyStep(Frozen):
    """A step with its placeholders replaced. `after` holds all it depends on.

    digest: of what the step does and of all before it; paths of the pipeline's folder are not part of it.
    """

    name: str
    command: tuple[str, ...]
    after: tuple[str, ...] = ()
    output: str | None = None
    inputs: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    resources: JsonDict = Field(default_factory=dict)
    digest: str


class Pipeline(Frozen):
    """A pipeline that can be carried out: steps in an order in which each comes after all it depends on."""

    schema_version: int = 1
    name: str
    source: str
    folder: str
    cwd: str
    steps: tuple[ReadyStep, ...]

    def step(self, name: str) -> ReadyStep:
        """Raises ConfigError for an unknown name."""
        for step in self.steps:
            if step.name == name:
                return step
        names = [step.name for step in self.steps]
        raise ConfigError(f"the pipeline has no step {name!r}", hint=_did_you_mean(name, names))

    def following(self, names: Iterable[str]) -> set[str]:
        """These steps and all that depend on them."""
        found = {self.step(name).name for name in names}
        for step in self.steps:
            if found.intersection(step.after):
                found.add(step.name)
        return found


class Place(Frozen):
    """Where a pipeline is carried out; all absolute. `here` is the folder of the file."""

    source: str
    here: str
    folder: str
    cwd: str


def problems_of(file: PipelineFile, commands: Iterable[str]) -> list[tuple[Path, str]]:
    """(key, message) of every mistake that the types cannot see. `commands`: those a step may be."""
    known, steps = list(commands), list(file.steps)
    found: list[tuple[Path, str]] = []
    variables: list[tuple[Path, dict[str, str]]] = [((), file.env)]
    variables += [(("steps", name), step.env) for name, step in file.steps.items()]
    for place, env in variables:
        for name, value in env.items():
            if value and (names_a_secret(name) or looks_secret(value)):
                text = f"the value of {name} looks like a secret, and would be written down: set it where it runs"
                found.append(((*place, "env", name), text))
    for name, step in file.steps.items():
        at: Path = ("steps", name)
        if not NAME.match(name):
            found.append((at, f"step name {name!r} must be letters, digits, - and _ (at most 64)"))
        if step.command[0] not in known:
            found.append(((*at, "command"), f"{step.command[0]!r} cannot be a step; {_one_of(step.command[0], known)}"))
        for other in step.after:
            if other not in steps:
                found.append(((*at, "after"), f"there is no step {other!r}; {_one_of(other, steps)}"))
            elif other == name:
                found.append(((*at, "after"), "a step cannot come after itself"))
        for argument in step.command[1:]:
            found += [((*at, "command"), text) for text in _wrong_words(argument, name, steps)]
        for text in (*step.inputs, step.output or ""):
            if any(match["word"] not in (None, "folder", "here") for match in _PLACEHOLDER.finditer(text)):
                found.append((at, f"only {{folder}} and {{here}} can stand in {text!r}"))
    if not found:
        found += _shared_outputs(file)
    if not found and (cycle := _cycle(file)):
        found.append((("steps", cycle[0]), f"the steps wait for each other: {' -> '.join(cycle)}"))
    return found


def resolve(file: PipelineFile, place: Place) -> Pipeline:
    """Replace the placeholders and put the steps in order. The file has no problems."""
    outputs = {name: _output(name, step, place) for name, step in file.steps.items()}
    digests: dict[str, str] = {}
    ready = []
    for name in _order(file):
        step, env = file.steps[name], {**file.env, **file.steps[name].env}
        after = dependencies(step)
        content = {"command": step.command, "output": step.output, "env": env, "after": [digests[n] for n in after]}
        digests[name] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        words = {"folder": place.folder, "here": place.here, "output": outputs[name]}
        words |= {f"steps.{other}.output": outputs[other] for other in file.steps}
        ready.append(
            ReadyStep(
                name=name,
                command=tuple(replaced(argument, words) for argument in step.command),
                after=after,
                output=outputs[name] if writes_output(step) else None,
                inputs=tuple(str(PurePath(place.here, home(replaced(text, words)))) for text in step.inputs),
                env=env,
                resources={**file.resources, **step.resources},
                digest=digests[name],
            )
        )
    name = file.name or PurePath(place.source).stem
    return Pipeline(name=name, source=place.source, folder=place.folder, cwd=place.cwd, steps=tuple(ready))


def replaced(text: str, words: Mapping[str, str]) -> str:
    """The text with its placeholders replaced, in one pass: replacements are not looked at again."""

    def value(match: re.Match[str]) -> str:
        return f"{{{match['literal']}}}" if match["literal"] is not None else words[match["word"]]

    return _PLACEHOLDER.sub(value, text)


def dependencies(step: Step) -> tuple[str, ...]:
    """The steps it names in `after` and in its arguments, each once."""
    named = [word.split(".")[1] for word in _words(step.command) if word.startswith("steps.")]
    return tuple(dict.fromkeys([*step.after, *named]))


def writes_output(step: Step) -> bool:
    """Does the step have an output that must be there when it ends?"""
    return step.output is not None or "output" in _words(step.command)


def _words(arguments: Iterable[str]) -> list[str]:
    return [match["word"] for text in arguments for match in _PLACEHOLDER.finditer(text) if match["word"] is not None]


def _output(name: str, step: Step, place: Place) -> str:
    default = name if step.command[0] in _FOLDER_COMMANDS else f"{name}.jsonl"
    words = {"folder": place.folder, "here": place.here}
    return str(PurePath(place.folder, replaced(step.output or default, words)))


def _shared_outputs(file: PipelineFile) -> list[tuple[Path, str]]:
    """Steps that would write over each other, or continue each other's run. One that depends on the other means it."""
    place = Place(source="/file", here="/here", folder="/folder", cwd="/")
    owners: dict[str, str] = {}
    found: list[tuple[Path, str]] = []
    for name, step in file.steps.items():
        if writes_output(step):
            first = owners.setdefault(os.path.normpath(_output(name, step, place)), name)
            if first != name and first not in dependencies(step) and name not in dependencies(file.steps[first]):
                found.append((("steps", name), f"it writes where step {first!r} writes; give one another output"))
    return found


def _wrong_words(argument: str, name: str, steps: list[str]) -> list[str]:
    found = []
    for word in _words([argument]):
        if not word.startswith("steps."):
            continue
        parts = word.split(".")
        if len(parts) != 3 or parts[2] != "output":
            found.append(f"{{{word}}} is not a placeholder; write {{steps.NAME.output}}")
        elif parts[1] == name:
            found.append(f"{{{word}}} is the step itself; write {{output}}")
        elif parts[1] not in steps:
            found.append(f"{{{word}}}: there is no step {parts[1]!r}; {_one_of(parts[1], steps)}")
    return found


def _order(file: PipelineFile) -> list[str]:
    """As in the file, except where a step depends on a later one."""
    order: list[str] = []
    waiting = list(file.steps)
    while waiting:
        ready = next((name for name in waiting if set(dependencies(file.steps[name])) <= set(order)), None)
        if ready is None:
            return order
        order.append(ready)
        waiting.remove(ready)
    return order


def _cycle(file: PipelineFile) -> list[str]:
    """One circle of steps, its first name again at its end; empty when there is none."""
    done = set(_order(file))
    left = [name for name in file.steps if name not in done]
    if not left:
        return []
    path = [left[0]]
    while True:
        name = next(other for other in dependencies(file.steps[path[-1]]) if other not in done)
        if name in path:
            return [*path[path.index(name) :], name]
        path.append(name)


def _one_of(name: str, known: list[str]) -> str:
    return _did_you_mean(name, known) or f"there are: {', '.join(known)}"


def _did_you_mean(name: str, known: list[str]) -> str | None:
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else None
