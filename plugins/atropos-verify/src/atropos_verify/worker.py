"""The child process that does what may hang, crash or eat memory. It is killed from outside.

A module for the sdk's worker processes; it imports nothing of atropos. main() gets the path of a file that keeps
libraries from evaluating what could do more than be read: sympy makes numbers of text that way. A request holds
`seconds`, its deadline, and one of:

    {"kind": "math", "gold": LaTeX, "answer": LaTeX}             -> {"value": bool}
    {"kind": "regex", "pattern": P, "flags": n, "text": T, "full": bool}  -> {"value": bool}
    {"kind": "schema", "schema": S, "value": V}                  -> {"value": bool}
    {"kind": "load", "for": kind}                                -> {"value": true}

A reply may be {"error": "gold" | "missing" | "memory" | "failed", "message": ...} instead.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import sys
from typing import Any

ADDRESS_SPACE = 16 << 30


class Refusal(Exception):
    """A reply that is an error. kind: gold (the reference is bad), missing (a package), failed."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@functools.lru_cache(maxsize=64)
def parsed(latex: str) -> tuple[Any, ...]:
    """What math-verify makes of an expression; empty when it cannot read it. Its own timeouts are off."""
    from math_verify import LatexExtractionConfig, parse

    found = parse(f"${latex}$", extraction_config=[LatexExtractionConfig()], parsing_timeout=None)
    return tuple(found) if any(not isinstance(item, str) for item in found) else ()


def math(request: dict[str, Any]) -> bool:
    """Exact: rounded to 30 places instead of 6, so that 1e-7 is not 2e-7 and 0.333333 is not 1/3."""
    from math_verify import verify

    gold = parsed(request["gold"])
    if not gold:
        raise Refusal("gold", f"the gold answer {request['gold'][:200]!r} cannot be read as mathematics")
    answer = parsed(request["answer"])
    if not answer:
        return False
    if verify(list(gold), list(answer), float_rounding=30, numeric_precision=50, timeout_seconds=None):
        return True
    return _same_complex(gold[0], answer[0])


def _same_complex(gold: Any, answer: Any) -> bool:
    """Constants with an imaginary unit, which math-verify takes for a variable: e^{i pi/3} and its Cartesian form."""
    import sympy  # type: ignore[import-untyped]

    names = {symbol.name for side in (gold, answer) for symbol in getattr(side, "free_symbols", ())}
    if "i" not in names or not names <= {"i", "e"}:
        return False
    units = {
        symbol: {"i": sympy.I, "e": sympy.E}[symbol.name] for side in (gold, answer) for symbol in side.free_symbols
    }
    try:
        gap = sympy.sympify(gold - answer).subs(units)
        return bool(sympy.simplify(sympy.expand_complex(gap)) == 0)
    except (TypeError, ValueError, AttributeError):
        return False


def regex(request: dict[str, Any]) -> bool:
    try:
        pattern = re.compile(request["pattern"], request["flags"])
    except re.error as error:
        raise Refusal(
            "gold", f"the pattern {request['pattern'][:200]!r} is not a regular expression: {error}"
        ) from None
    match = pattern.fullmatch(request["text"]) if request["full"] else pattern.search(request["text"])
    return match is not None


def schema(request: dict[str, Any]) -> bool:
    from jsonschema import SchemaError, validators
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    kind = validators.validator_for(request["schema"], default=validators.validator_for({}))
    try:
        kind.check_schema(request["schema"])
        return bool(kind(request["schema"], registry=Registry()).is_valid(request["value"]))
    except SchemaError as error:
        raise Refusal("gold", f"the schema is not valid: {error.message[:200]}") from None
    except Unresolvable as error:
        raise Refusal("gold", f"the schema refers to what it does not hold: {error}") from None


def load(request: dict[str, Any]) -> bool:
    """Import what a kind of request needs, before its deadline runs."""
    for name in PACKAGES[request["for"]]:
        importlib.import_module(name)
    return True


PACKAGES = {"math": ["math_verify"], "regex": [], "schema": ["jsonschema", "referencing"]}
KINDS = {"math": math, "regex": regex, "schema": schema, "load": load}


GUARD: Any = None


def guard(path: str) -> Any:
    """The guard, loaded and at work."""
    spec = importlib.util.spec_from_file_location("guard", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.watch()
    return module


def answer(request: dict[str, Any]) -> dict[str, Any]:
    limit(int(request["seconds"]) + 10)
    GUARD.reasons.clear()
    try:
        value = KINDS[request["kind"]](request)
        if GUARD.reasons:
            return {"error": "failed", "message": f"a part of it was not evaluated: {GUARD.reasons[0]}"}
        return {"value": value}
    except Refusal as refusal:
        return {"error": refusal.kind, "message": str(refusal)}
    except ModuleNotFoundError as error:
        return {"error": "missing", "message": str(error.name)}
    except RecursionError:
        return {"value": False}
    except MemoryError:
        return {"error": "memory", "message": "no memory was left"}
    except Exception as error:  # noqa: BLE001 - whatever a library raises is this request's failure
        return {"error": "failed", "message": f"{type(error).__name__}: {str(error)[:300]}"}


def limit(cpu_seconds: int) -> None:
    """Bound the work on the next request, in case nobody is left to kill this process."""
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + cpu_seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def main(channel: Any, guard_path: str) -> None:
    """Answer until the parent is gone."""
    import logging
    import resource

    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE if hard < 0 else min(hard, ADDRESS_SPACE), hard))
    sys.set_int_max_str_digits(0)
    global GUARD
    GUARD = guard(guard_path)
    while (request := channel.receive()) is not None:
        channel.send({"id": request["id"], **answer(request)})
