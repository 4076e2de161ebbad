"""Merge the entries of all sources per option, check them, and keep each value's origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from atropos_cli.config.explain import failures, option_at, shown
from atropos_cli.config.options import Option, choice_text, parse_text
from atropos_cli.config.problems import DEFAULT, Origin, Problem, raise_problems, suggest
from atropos_cli.config.sources import Bucket, Collected, Entry

Place = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class Resolved:
    """The merged configuration.

    given: per bucket, the values that some source gave, nested as the model has them; defaults are left out.
    models: per bucket, the validated model. origins: by (bucket, path), for given values only.
    """

    buckets: tuple[Bucket, ...]
    given: dict[str, dict[str, Any]]
    models: dict[str, BaseModel]
    origins: dict[Place, Origin]

    def origin(self, bucket: str, path: tuple[str, ...]) -> Origin:
        """Where a value comes from."""
        return self.origins.get((bucket, path), DEFAULT)

    def value(self, bucket: str, path: tuple[str, ...]) -> Any:
        """The value in force, defaults included."""
        value: Any = self.models[bucket]
        for part in path:
            if isinstance(value, BaseModel):
                names = {field.alias or name: name for name, field in type(value).model_fields.items()}
                value = getattr(value, names[part])
            else:
                return None  # below an optional section that is not there
        return value


def resolve(buckets: Sequence[Bucket], collected: Collected) -> Resolved:
    """Merge and validate. Raises one ConfigError or UsageError that lists every problem."""
    problems = list(collected.problems)
    origins: dict[Place, Origin] = {}
    failed: set[Place] = set()
    given: dict[str, dict[str, Any]] = {bucket.name: {} for bucket in buckets}
    by_name = {bucket.name: bucket for bucket in buckets}
    winners: dict[Place, Entry] = {(entry.bucket, entry.path): entry for entry in collected.entries}
    for place, entry in winners.items():
        bucket = by_name[entry.bucket]
        option = bucket.by_path[entry.path]
        try:
            value = parse_text(option, entry.value) if entry.text else _check_plain(option, entry.value)
        except ValueError as error:
            problems.append(Problem(entry.origin, _message(bucket, entry.path, entry.origin, str(error))))
            failed.add(place)
            continue
        origins[place] = entry.origin
        _put(given[entry.bucket], entry.path, value)
    models: dict[str, BaseModel] = {}
    for bucket in buckets:
        if bucket.model is None:
            continue
        try:
            models[bucket.name] = bucket.model.model_validate(given[bucket.name])
        except ValidationError as error:
            problems.extend(_explain(error, bucket, winners, failed))
    raise_problems(problems)
    return Resolved(tuple(buckets), given, models, origins)


def _check_plain(option: Option, value: Any) -> Any:
    """Refuse true and false where a number is expected: pydantic would take them as 1 and 0."""
    if isinstance(value, bool) and option.core in (int, float):
        wanted = "an integer" if option.core is int else "a number"
        raise ValueError(f"expected {wanted}, got {shown(value)}")
    return value


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        tree = tree.setdefault(part, {})
    tree[path[-1]] = value


def _explain(error: ValidationError, bucket: Bucket, winners: dict[Place, Entry], failed: set[Place]) -> list[Problem]:
    found = []
    for path, text in failures(error, bucket.by_path):
        if (bucket.name, path) in failed:
            continue  # said already
        place = path
        while place and (bucket.name, place) not in winners:
            place = place[:-1]
        entry = winners.get((bucket.name, place))
        origin = DEFAULT if entry is None else entry.origin
        hint = _required_hint(bucket, path) if text == "is required" else _near_choice(bucket, entry)
        found.append(Problem(origin, _message(bucket, path, origin, text), hint))
    return found


def _near_choice(bucket: Bucket, entry: Entry | None) -> str | None:
    """The choice that a wrong value is most like."""
    choices = [choice_text(choice) for choice in bucket.by_path[entry.path].choices] if entry is not None else []
    if entry is None or not choices:
        return None
    given = [entry.value] if isinstance(entry.value, str) else entry.value
    wrong = [item for item in given if item not in choices] if isinstance(given, list | tuple) else []
    close = suggest(str(wrong[0]), choices) if wrong else None
    return f"did you mean {close}?" if close is not None else None


def _message(bucket: Bucket, path: tuple[str, ...], origin: Origin, text: str) -> str:
    """What is wrong, with as much of the option's name as the origin does not say itself."""
    if origin.kind in ("flag", "environment variable"):
        option = option_at(bucket.by_path, path)
        inner = path[len(option.path) :] if option is not None else ()
        if not inner:
            return text
        where = f"value {int(inner[0]) + 1}" if inner[0].isdigit() else ".".join(inner)
        return f"{where}: {text}"
    key = ".".join(path)
    if origin.kind == "default":
        return f"{bucket.label}: option {key!r} {text}" if path else f"{bucket.label}: {text}"
    if not path:
        return f"{bucket.label}: {text}"
    return f"{key} of {bucket.label}: {text}" if bucket.section else f"{key}: {text}"


def _required_hint(bucket: Bucket, path: tuple[str, ...]) -> str:
    option = bucket.by_path.get(path)
    if bucket.section is None:
        return f"give --{'-'.join(path[-1:]).replace('_', '-')}"
    if option is None or option.secret:
        return f"set the variable ATROPOS_{bucket.prefix}{'__'.join(path).upper()}"
    flag = f"{bucket.names[0]}.{option.flag}" if bucket.table == "reward" else option.flag
    return f"give the flag --{flag}, or the key {'.'.join(path)!r} in section [{bucket.section}]"
