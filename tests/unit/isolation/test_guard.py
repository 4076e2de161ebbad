"""Text that is evaluated in a worker: only what cannot do anything but be read, found out where it is evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.isolation.inside.guard import why_not
from atropos_cli.isolation.spec import WorkerError, WorkerSpec
from atropos_cli.isolation.worker import IsolatedWorker

MODULE = str(Path(__file__).with_name("evaluating_module.py"))
FORGE = "[__import__('os').write(n, b'{\"value\": true}') for n in range(3, 64)]"


@pytest.fixture(scope="module")
def worker() -> Iterator[IsolatedWorker]:
    worker = IsolatedWorker(WorkerSpec("evaluating", MODULE, '{"sympy": true}', memory_mb=512))
    try:
        worker.start()
    except WorkerError as error:
        pytest.skip(str(error))
    yield worker
    worker.close()


def asked(worker: IsolatedWorker, by: str, text: str) -> tuple[Any, list[str]]:
    refused: list[str] = []
    try:
        return worker.ask_now({"by": by, "text": text}, seconds=20, refused=refused), refused
    except WorkerError as error:
        return str(error), refused


@pytest.mark.parametrize(
    "text",
    [
        "type('A', (list,), {'__eq__': lambda s, o: True})()",
        FORGE,
        "exec('import os; os._exit(0)')",
        "SECRET and expected",
        "[i for i in (26, 5)]",
        "(lambda: [26, 5])()",
        "().__class__.__base__.__subclasses__()",
        "f'{__import__(\"os\").getpid()}'",
        "[26, 5] if print(1) is None else 0",
        "(value := [26, 5])",
        "globals()['SECRET']",
        "open('/proc/self/environ').read()",
        "__builtins__",
        "breakpoint()",
        "getattr(1, 'real')",
        "[26, 5].copy()",
        "{**vars()}",
        "''.join(map(chr, [26, 5]))",
    ],
)
def test_a_text_that_could_act_is_refused_wherever_it_is_evaluated(worker: IsolatedWorker, text: str) -> None:
    for by in ("eval", "empty_eval", "compile"):
        value, refused = asked(worker, by, text)
        assert value is False, (by, value)
        assert refused, by
    value, refused = asked(worker, "exec", f"value = {text}")
    assert value is False
    assert refused


@pytest.mark.parametrize(
    "code",
    [
        "import os\nvalue = [26, 5]",
        "def f():\n    return [26, 5]\nvalue = f()",
        "class A(list):\n    __eq__ = lambda s, o: True\nvalue = A()",
        "for value in ([26, 5],):\n    pass",
        "import os\nos.write(5, b'{\"value\": true}')",
    ],
)
def test_programs_are_refused(worker: IsolatedWorker, code: str) -> None:
    for by in ("exec", "import"):
        value, refused = asked(worker, by, code)
        assert value is False
        assert refused


@pytest.mark.parametrize(
    ("by", "text"),
    [
        ("eval", "[26, 5]"),
        ("eval", "[2 * 13, 10 // 2]"),
        ("eval", "[-(-26), +5]"),
        ("eval", "[max(26, 3), round(5.2)]"),
        ("empty_eval", "[2 ** 4 + 10, 0x5]"),
        ("compile", "[26 if 2 > 1 else 0, 5]"),
        ("eval", "{**{}, 'a': [26, 5]}['a']"),
        ("eval", "{" + ", ".join(f"{key}: [26, {key - 24}]" for key in range(40)) + "}[29]"),
        ("eval", "[26, 5 if None is None else 6]"),
        ("scorers_names", "[max(26, 3), 5]"),
        ("own_names", "n"),
        ("own_names", "[max(n)]"),
        ("literal", "[26, 5]"),
        ("sympy", "26 + x_1 - x_1"),
        ("sympy", "sqrt(676)"),
        ("sympy", "factorial(4) + 2"),
        ("sympy", "52 * Rational(1, 2)"),
        ("named_tuple", "a b"),
    ],
)
def test_plain_expressions_are_evaluated_as_ever(worker: IsolatedWorker, by: str, text: str) -> None:
    assert asked(worker, by, text) == (True, [])


@pytest.mark.parametrize("text", ["n", "root", "k1", "[n[0], 5]", "max(n, root)", "1 and k1", "[26, n[1]]"])
def test_a_text_cannot_be_compared_with_the_scorers_own_variables(worker: IsolatedWorker, text: str) -> None:
    value, refused = asked(worker, "scorers_names", text)
    assert value is False
    assert "variable of the scorer" in refused[0]


@pytest.mark.parametrize("depth", [150, 900, 2000, 2900, 20_000])
@pytest.mark.parametrize("form", ["{minus}{code}", "{open}{code}{close}", "{nots}{code}", "{list}{code}{shut}"])
def test_depth_opens_no_way(worker: IsolatedWorker, depth: int, form: str) -> None:
    """Whatever breaks the parser, or does not: what is evaluated was looked at where it is."""
    code = "__import__('os').getpid() and SECRET"
    parts = {"minus": "-", "open": "(", "close": ")", "nots": "not ", "list": "[", "shut": "]"}
    text = form.format(code=code, **{name: part * depth for name, part in parts.items()})
    for by in ("eval", "sympy"):
        value, _ = asked(worker, by, text)
        assert value is False or "died" in str(value)


@pytest.mark.parametrize("text", ["Symbol('x').free_symbols", "sin.__globals__", "sin('__import__(\"os\").getpid()')"])
def test_sympy_evaluates_nothing_else(worker: IsolatedWorker, text: str) -> None:
    value, refused = asked(worker, "sympy", text)
    assert value is False
    assert refused


def test_what_nobody_has_to_distrust_may_evaluate_anything(worker: IsolatedWorker) -> None:
    request = {"by": "eval", "text": "[i for i in (26, 5)]"}
    assert worker.ask_now(request, seconds=10, trusted=True) is True


def test_a_step_that_is_not_known_is_refused() -> None:
    assert why_not(compile("1 + x", "", "eval")) is None
    assert "expected" in str(why_not(compile("expected", "", "eval")))
    assert "LOAD_ATTR" in str(why_not(compile("x.a1", "", "eval")))
    assert why_not(compile("x = 1", "", "exec")) is not None
