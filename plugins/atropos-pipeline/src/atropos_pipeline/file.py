"""Read a pipeline file (TOML or YAML) and say everything that is wrong with it, with the lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.config import ConfigFile, Origin, Problem, failures, raise_problems, read_config, suggest
from atropos_pipeline.each import expanded
from atropos_pipeline.model import Pipeline, PipelineFile, Place, Step, problems_of, resolve


def read_pipeline(path: Path, commands: Iterable[str]) -> tuple[PipelineFile, ConfigFile]:
    """The pipeline of a file. Raises ConfigError that lists every problem: unknown keys, cycles, missing steps."""
    if not path.is_file():
        raise ConfigError(f"there is no pipeline file {path}", hint="give a .toml or .yaml file with [steps.NAME]")
    file = read_config(path)
    try:
        pipeline = PipelineFile.model_validate(file.tree)
    except ValidationError as error:
        raise_problems([_problem(file, key, text) for key, text in failures(error, {})])
        raise  # not reached: a validation error has at least one failure
    pipeline, problems = expanded(pipeline)
    raise_problems([_problem(file, key, text) for key, text in problems or problems_of(pipeline, commands)])
    return pipeline, file


def open_pipeline(path: Path, folder: Path, commands: Iterable[str]) -> Pipeline:
    """Read the file and resolve it for a folder. Raises ConfigError, also for inputs that are not there."""
    content, file = read_pipeline(path, commands)
    source = path.resolve()
    place = Place(source=str(source), here=str(source.parent), folder=str(folder.resolve()), cwd=str(Path.cwd()))
    pipeline = resolve(content, place)
    written = {step.output for step in pipeline.steps}
    missing = [
        _problem(file, ("steps", step.name, "inputs"), f"there is no file {name}")
        for step in pipeline.steps
        for name in step.inputs
        if name not in written and not Path(name).exists()
    ]
    raise_problems(missing)
    return pipeline


def _problem(file: ConfigFile, key: Sequence[str], text: str) -> Problem:
    """A problem with its line; an unknown key comes with the key it was meant to be."""
    known = _known_keys(tuple(key))
    if known is not None and key[-1] not in known:
        close = suggest(key[-1], known)
        advice = f"did you mean {close}?" if close else f"known: {', '.join(known)}"
        text = f"unknown key ({advice})"
    origin = Origin("file", file.shown, file.line(tuple(key)))
    return Problem(origin, f"{'.'.join(key)}: {text}" if key else text)


def _known_keys(key: tuple[str, ...]) -> list[str] | None:
    """The keys that are allowed in this one's place; None where any may."""
    if len(key) == 1:
        return list(PipelineFile.model_fields)
    if len(key) == 3 and key[0] == "steps":
        return list(Step.model_fields)
    return None
