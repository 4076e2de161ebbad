"""Inside the isolated worker: find bootcamps, make their tasks, verify replies.

Run by path; it imports nothing of atropos. Requests:

    {"do": "list"}                                                          -> [class name, ...]
    {"do": "make", "name": N, "params": P, "seed": S}    -> {"identity": JSON, "prompt": text, "gold": text or null}
    {"do": "verify", "name": N, "identity": JSON, "text": T, "format_score": X}    -> a number
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import random
from typing import Any

METHODS = ("case_generator", "prompt_func", "verify_score")
CLASSES: dict[str, Any] = {}


def load(settings: dict[str, Any]) -> None:
    """Import the package: the slow part of a start. Bootcamps read data by relative paths, so stand beside it."""
    os.chdir(settings["folder"])
    package = importlib.import_module(settings["package"])
    places = [package]
    for name in ("bootcamp",):
        try:
            places.append(importlib.import_module(f"{settings['package']}.{name}"))
        except ModuleNotFoundError as error:
            if error.name != f"{settings['package']}.{name}":
                raise
    for place in places:
        for name, value in vars(place).items():
            if inspect.isclass(value) and name.lower().endswith("bootcamp") and _complete(value):
                CLASSES.setdefault(name, value)


def _complete(cls: type) -> bool:
    """Whether it is a bootcamp, not the base class of all: that one has no tasks of its own."""
    if not all(callable(getattr(cls, method, None)) for method in METHODS):
        return False
    return cls.__name__.lower() != "basebootcamp" and not inspect.isabstract(cls)


def answer(request: dict[str, Any]) -> Any:
    """Do what a request asks for."""
    return {"list": bootcamps, "make": make, "verify": verify}[request["do"]](request)


def bootcamps(request: dict[str, Any]) -> list[str]:
    """The names of all classes found."""
    return sorted(CLASSES)


def make(request: dict[str, Any]) -> dict[str, Any]:
    """One task. Random numbers of the standard library and of numpy are seeded: bootcamps use either."""
    _seed(request["seed"])
    bootcamp = CLASSES[request["name"]](**request["params"])
    identity = bootcamp.case_generator()
    try:
        kept = json.loads(json.dumps(identity, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise TypeError(f"the bootcamp's case cannot be stored as JSON: {error}") from None
    gold = getattr(bootcamp, "gold_answer", None)
    text = gold(identity) if callable(gold) else None
    return {"identity": kept, "prompt": str(bootcamp.prompt_func(identity)), "gold": text}


def _seed(seed: int) -> None:
    random.seed(seed)
    try:
        import numpy
    except ModuleNotFoundError:
        return
    numpy.random.seed(seed % 2**32)


def verify(request: dict[str, Any]) -> float:
    """The bootcamp's own score of a whole reply: 1 when right, `format_score` when only the form is.

    Its penalties for short replies and for missing thinking are off, where it has them: they would turn a
    right reply into 0 without a word. The environment has options of its own for that.
    """
    function = CLASSES[request["name"]].verify_score
    known = inspect.signature(function).parameters
    wanted = {"format_score": request["format_score"], "short_penalty": False, "format_penalty": False}
    takes_all = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in known.values())
    options = {name: value for name, value in wanted.items() if takes_all or name in known}
    _seed(0)
    return float(function(request["text"], request["identity"], **options))
