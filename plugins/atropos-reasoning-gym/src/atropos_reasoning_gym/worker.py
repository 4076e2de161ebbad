"""Inside the isolated worker: make entries of reasoning-gym, and score answers to them.

Run by path; it imports nothing of atropos. Requests:

    {"do": "families"}                                           -> {name: has a curriculum}
    {"do": "set up", "family": F, "seed": S, "config": C, "level": L, "mode": M}
                                         -> null; the data set is made and kept, or the package's error comes back
    {"do": "entry", "family": F, "seed": S, "index": I, "config": C, "level": L, "mode": M}
                                                        -> {"question", "answer", "metadata", "config", "level"}
    {"do": "score", "family": F, "seed": S, "config": C, "answer": T, "entry": packed}    -> a number

Values that JSON cannot keep (tuples, keys that are not text, fractions) are packed as {"(": [...]},
{"{": [[k, v], ...]} and {"/": [p, q]}.
"""

from __future__ import annotations

import functools
import json
from fractions import Fraction
from typing import Any

SIZE = 500
"""Entries of one data set of the package; a higher index comes from a further one."""


def load(settings: dict[str, Any]) -> None:
    """Import the package: the slow part of a start."""
    import reasoning_gym  # noqa: F401


def answer(request: dict[str, Any]) -> Any:
    """Do what a request asks for."""
    kinds = {"families": families, "set up": set_up, "entry": entry, "score": score}
    return kinds[request["do"]](request)


def families(request: dict[str, Any]) -> dict[str, bool]:
    """All families but the composite of others; True where difficulty has levels."""
    from reasoning_gym.factory import CURRICULA, DATASETS

    return {name: name in CURRICULA for name in sorted(DATASETS) if name != "composite"}


def set_up(request: dict[str, Any]) -> None:
    """Make the data set, so that a wrong option is found before the first task, and keep it: some take long."""
    dataset(request["family"], request["seed"], _config(request)[0])


def entry(request: dict[str, Any]) -> dict[str, Any]:
    """One entry: the package's own `create_dataset(family, seed=seed, size=500, **config)[index]`."""
    config, level = _config(request)
    chunk, index = divmod(request["index"], SIZE)
    # The package seeds entry i of a data set with seed + i: so chunks are continuous and do not repeat entries.
    made = dataset(request["family"], (request["seed"] + chunk * SIZE) % 2**32, config)[index]
    return {
        "question": made["question"],
        "answer": made["answer"],
        "metadata": pack(made["metadata"]),
        "config": json.loads(config),
        "level": level,
    }


def score(request: dict[str, Any]) -> float:
    """The package's score of an answer, a number from 0 to 1."""
    made = unpack(request["entry"])
    scorer = dataset(request["family"], request["seed"], json.dumps(request["config"], sort_keys=True))
    return float(scorer.score_answer(answer=request["answer"], entry=made))


@functools.lru_cache(maxsize=512)
def dataset(family: str, seed: int, config: str) -> Any:
    """A data set of the package, kept: some read files when they are made."""
    import reasoning_gym

    return reasoning_gym.create_dataset(family, **{"size": SIZE, **unpack(json.loads(config)), "seed": seed})


def _config(request: dict[str, Any]) -> tuple[str, int | None]:
    """(the options of the data set as JSON, the level they have): those of the level, then the user's own."""
    options, level = dict(request["config"]), None
    if request["level"] is not None:
        leveled_options, level = leveled(request["family"], request["level"], request["mode"])
        options = {**leveled_options, **options}
    return json.dumps(options, sort_keys=True), level


@functools.lru_cache(maxsize=512)
def leveled(family: str, level: int, mode: str) -> tuple[dict[str, Any], int | None]:
    """What the package's curriculum sets at a level, packed, and the level.

    Some curricula make options that their own family refuses; then the next lower level that works counts,
    else the default options, as for a family without levels: level None.
    """
    from reasoning_gym.factory import has_curriculum

    if has_curriculum(family):
        for lower in range(level, -1, -1):
            options = _at_level(family, lower, mode)
            try:
                dataset(family, 0, json.dumps(options, sort_keys=True))
            except (AssertionError, ValueError, TypeError):
                continue
            return options, lower
    return {}, None


def _at_level(family: str, level: int, mode: str) -> dict[str, Any]:
    from reasoning_gym.coaching.base_curriculum import DefaultCurriculumContext, RangeAttributeMode
    from reasoning_gym.factory import create_curriculum

    curriculum = create_curriculum(family)
    curriculum.set_global_level(level)
    made = curriculum.generate_configuration(context=DefaultCurriculumContext(mode=RangeAttributeMode(mode)))
    names: set[str] = set()
    for attribute in curriculum.attributes.values():
        fields = (getattr(attribute, key, None) for key in ("field_name", "lower_field_name", "upper_field_name"))
        names.update(name for name in fields if name)
    packed: dict[str, Any] = pack({name: getattr(made, name) for name in sorted(names)})
    return packed


def pack(value: Any) -> Any:
    """A value as JSON, tuples and keys that are not text included."""
    if isinstance(value, tuple):
        return {"(": [pack(item) for item in value]}
    if isinstance(value, list):
        return [pack(item) for item in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and not set(value) & set("({/"):
            return {key: pack(item) for key, item in value.items()}
        return {"{": [[pack(key), pack(item)] for key, item in value.items()]}
    if value is None or type(value) in (str, int, float, bool):
        return value
    for kind in (str, float, int):
        # Texts of an enumeration, and numbers of numpy.
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, Fraction):
        return {"/": [value.numerator, value.denominator]}
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a {type(value).__name__} in the metadata cannot be stored")


def unpack(value: Any) -> Any:
    """The value that was packed."""
    if isinstance(value, list):
        return [unpack(item) for item in value]
    if isinstance(value, dict):
        if list(value) == ["("]:
            return tuple(unpack(item) for item in value["("])
        if list(value) == ["{"]:
            return {unpack(key): unpack(item) for key, item in value["{"]}
        if list(value) == ["/"]:
            return Fraction(*value["/"])
        return {key: unpack(item) for key, item in value.items()}
    return value
