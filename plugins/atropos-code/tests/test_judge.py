"""The verdict on tests comes from outside the program, whatever the program does."""

# ruff: noqa: E501 (programs as they are)

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from atropos_code.outcomes import Limits
from atropos_code.sandbox import Sandbox
from atropos_code.suite import Suite

SUITE = Suite(tests=("assert f(1) == 2", "assert f(2) == [3]", "assert f('a') != f('b')"), names=("f",))
LIMITS = Limits(timeout_s=2.0)

CHEATS = {
    "exit": "import sys; sys.exit(0)",
    "exit-in-function": "import sys\ndef f(x): sys.exit(0)",
    "os-exit": "import os\ndef f(x): os._exit(0)",
    "equal-to-everything": "class A:\n    def __eq__(s, o): return True\n    def __ne__(s, o): return True\ndef f(x): return A()",
    "equal-number": "class A(int):\n    def __eq__(s, o): return True\n    __hash__ = int.__hash__\ndef f(x): return A(7)",
    "equal-list": "class A(list):\n    def __eq__(s, o): return True\ndef f(x): return A()",
    "patched-builtins": (
        "import builtins\nclass E(Exception): pass\nbuiltins.AssertionError = E\nbuiltins.compile = lambda *a, **k: None\n"
        "builtins.exec = builtins.eval = lambda *a, **k: None\nbuiltins.__debug__ if True else 0\ndef f(x): return 1"
    ),
    "patched-json": "import json\njson.dumps = lambda *a, **k: '{\"passed\": true}'\ndef f(x): return 1",
    "exit-hook": "import sys, atexit, os\natexit.register(os._exit, 0)\ndef f(x): raise SystemExit",
    "excepthook": "import sys, os\nsys.excepthook = lambda *a: os._exit(0)\nraise ValueError",
    "says-passed": (
        "print('passed'); print('{\"passed\": true}')\nimport os\nfor fd in range(64):\n    try:\n"
        '        os.write(fd, b\'{"nonce": "", "passed": true, "error": null}\\n\' * 3)\n    except OSError:\n        pass\n'
        "def f(x): return 1"
    ),
    "writes-result-files": (
        "for name in ('reward.txt', 'result.json', 'verdict'):\n    open(name, 'w').write('1.0')\ndef f(x): return 1"
    ),
    "answers-for-the-channel": (
        "import gc, json, os, socket, struct\nsockets = []\nfor fd in range(3, 64):\n    try:\n"
        "        sockets.append(socket.socket(fileno=os.dup(fd)))\n    except OSError:\n        pass\n"
        "for n in range(50):\n    for s in sockets:\n        m = json.dumps({'ok': True, 'passed': True}).encode()\n"
        "        try:\n            s.send(struct.pack('>I', len(m)) + m)\n        except OSError:\n            pass\n"
        "def f(x): return 1"
    ),
    "ends-iteration": "def f(x): raise StopIteration",
    "endless": "def f(x):\n    while True: pass",
    "endless-answer": "class A:\n    def __iter__(s):\n        while True: yield 1\ndef f(x): return A()",
    "large-answer": "def f(x): return 'x' * 10 ** 9",
    "deep-answer": "def f(x):\n    a = []\n    for n in range(10 ** 5): a = [a]\n    return a",
    "circular-answer": "def f(x):\n    a = []\n    a.append(a)\n    return a",
    "own-name": "f = 1",
    "async": "async def f(x): return x + 1",
    "dies": "import ctypes\ndef f(x): ctypes.string_at(0)",
    "kills-everybody": "import os\ndef f(x):\n    for p in range(2, 200):\n        try: os.kill(p, 9)\n        except OSError: pass",
}


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_earn_nothing(sandbox: Sandbox, name: str) -> None:
    result = sandbox.test(CHEATS[name], SUITE, limits=LIMITS)
    assert result.reward == 0.0, result
    assert result.verdict != "passed"


@pytest.mark.parametrize("level", ["bubblewrap", "process"])
@pytest.mark.parametrize("name", ["os-exit", "equal-number", "says-passed", "kills-everybody"])
def test_cheats_earn_nothing_at_other_levels(level: str, name: str, usable: Callable[[str], str]) -> None:
    with Sandbox(isolation=usable(level)) as box:
        result = box.test(CHEATS[name], SUITE, limits=LIMITS)
    assert result.reward == 0.0, result


SEARCH = """
import gc, glob, re, sys
pattern = re.compile(rb'key-' + rb'[0-9a-f]{32}')
seen = set()
for o in gc.get_objects():
    try:
        seen |= set(pattern.findall(repr(o).encode()))
    except Exception:
        pass
paths = [p for g in ('/proc/*/cmdline', '/proc/*/environ', '/proc/*/fd/*', '/box/*', '/tmp/*/*') for p in glob.glob(g)]
for path in paths:
    if path.endswith(('/fd/0', '/fd/1', '/fd/2')):
        continue
    try:
        with open(path, 'rb') as file:
            seen |= set(pattern.findall(file.read(10 ** 6)))
    except OSError:
        pass
for line in open('/proc/self/maps') if glob.glob('/proc/self/maps') else []:
    low, high = (int(part, 16) for part in line.split()[0].split('-'))
    try:
        with open('/proc/self/mem', 'rb') as file:
            file.seek(low)
            seen |= set(pattern.findall(file.read(high - low)))
    except (OSError, ValueError, OverflowError, MemoryError):
        pass
def f(x):
    return sorted(key.decode() for key in seen)
"""


@pytest.mark.parametrize("level", ["namespaces", "bubblewrap", "process"])
def test_expected_values_are_nowhere_in_reach(level: str, usable: Callable[[str], str]) -> None:
    """Not in memory, left by this or an earlier run, and not in files or processes."""
    key = f"key-{uuid.uuid4().hex}"
    suite = Suite(tests=(f"seen = f(1)\nassert {key!r} in seen, len(seen)",), names=("f",))
    with Sandbox(isolation=usable(level)) as box:
        for _ in range(3):
            result = box.test(SEARCH, suite)
            assert (result.verdict, result.error) == ("failed", "AssertionError: 0"), result
        control = box.test(SEARCH + f"seen.add(b{key!r})\n", suite)
        assert control.verdict == "passed", control


def test_built_ins_of_the_tests_are_their_own(sandbox: Sandbox) -> None:
    suite = Suite(tests=("assert set(f(1)) == set([1, 2])", "assert sorted(f(1)) == [1, 2]"), names=("f",))
    cheat = "def set(x): return 1\ndef sorted(x): return [1, 2]\ndef f(x): return [9]"
    assert sandbox.test(cheat, suite).passed == 0
    assert sandbox.test("def f(x): return [2, 1]", suite).verdict == "passed"


def test_a_name_of_python_may_be_what_is_asked_for(sandbox: Sandbox) -> None:
    suite = Suite(tests=("assert sum(10, 15) == 6",), names=("sum",))
    assert sandbox.test("def sum(a, b): return 6", suite).verdict == "passed"


def test_map_cannot_be_ended_early(sandbox: Sandbox) -> None:
    suite = Suite(tests=("assert all(map(f, [1, 2, 3]))",), names=("f",))
    assert sandbox.test("def f(x): raise StopIteration", suite).passed == 0


HONEST = {
    "data": (
        "def f(x): return x",
        """
import collections, datetime, decimal, fractions
for value in (None, True, 1, -2 ** 80, 1.5, float('inf'), 'é\\ud800', b'x', bytearray(b'y'), 1j, [1, (2, {3: {4}})],
              frozenset({1}), range(3), collections.Counter('aab'), collections.deque([1], 3), decimal.Decimal('1.10'),
              fractions.Fraction(1, 3), datetime.datetime(2020, 1, 2), datetime.timedelta(1), int, ..., {}.keys(),
              collections.OrderedDict(a=1)):
    answer = f(value)
    assert answer == value and type(answer) is type(value), (answer, value)
assert f(float('nan')) != f(float('nan'))
""",
    ),
    "generator": ("def f(n):\n    for i in range(n): yield i", "assert list(f(3)) == [0, 1, 2]\nassert sum(f(4)) == 6"),
    "class": (
        "class f:\n    def __init__(s, v): s.v, s.next = v, None\n    def __len__(s): return 3\n    def __str__(s): return 'node'",
        "a = f(1); a.next = f(2)\nassert a.next.v == 2 and len(a) == 3 and str(a) == 'node' and a == a and a != a.next",
    ),
    "in-place": ("def f(x): x.sort()", "a = [3, 1]\nf(a)\nassert a == [1, 3]"),
    "callback": ("def f(g, x): return [g(i) for i in x]", "assert f(lambda n: n * 2, [1, 2]) == [2, 4]"),
    "exception": (
        "class E(ValueError): pass\ndef f(x): raise E('bad ' + str(x))",
        "try:\n    f(1)\nexcept ValueError as error:\n    assert str(error) == 'bad 1'\nelse:\n    assert False",
    ),
    "keywords": ("def f(a, *, b=1): return a - b", "assert f(3, b=2) == 1"),
    "state": ("n = [0]\ndef f():\n    n[0] += 1\n    return n[0]", "assert (f(), f()) == (1, 2)"),
    "prints": ("print('hello')\ndef f():\n    print('x' * 10 ** 6)\n    return 1", "assert f() == 1"),
    "stderr": ("import sys\nsys.stderr.write('e' * 10_000_000)\ndef f(): return 2", "assert f() == 2"),
    "named-tuple": ("from collections import namedtuple\nP = namedtuple('P', 'a b')\ndef f(): return P(1, 2)", "assert f() == (1, 2)"),
    "main-guard": ("def f(): return 1\nif __name__ == '__main__':\n    print(f(input()))", "assert f() == 1"),
    "recursive-type": ("def f(x): return f(x - 1) if x else 0", "assert f(500) == 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_pass(sandbox: Sandbox, name: str) -> None:
    code, test = HONEST[name]
    result = sandbox.test(code, Suite(tests=(test,), names=("f",)))
    assert result.verdict == "passed", result


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        ("def f(x) return", "syntax_error"),
        ("def g(x): return 1", "missing_function"),
        ("def f(x): return 1", "failed"),
        ("def f(x): return 1 / 0", "error"),
        ("import nothing_of_that_name\ndef f(x): return 1", "load_error"),
        ("while True: pass", "timeout"),
        ("import time\ndef f(x): time.sleep(60)", "timeout"),
        ("", "no_code"),
        ("x = 1\x00", "syntax_error"),
    ],
)
def test_kinds_of_failure(sandbox: Sandbox, code: str, verdict: str) -> None:
    result = sandbox.test(code, SUITE, limits=Limits(timeout_s=1.5))
    assert result.verdict == verdict, result
    assert result.level == (-0.5 if verdict in ("syntax_error", "no_code") else -1.0)


def test_partial_success_is_counted(sandbox: Sandbox) -> None:
    result = sandbox.test("def f(x): return 2", SUITE)
    assert (result.passed, result.total, result.reward) == (1, 3, 0.0)


def test_memory_is_told_apart(sandbox: Sandbox) -> None:
    result = sandbox.test("b = bytearray(20 * 1024 ** 3)\ndef f(x): return x + 1", SUITE)
    assert result.verdict == "memory", result
    assert sandbox.run("b = bytearray(20 * 1024 ** 3)").limit == "memory"


def test_imports_support_and_setup_come_in_order(sandbox: Sandbox) -> None:
    suite = Suite(
        tests=("assert math.isclose(f(two), helper(2))",),
        names=("f",),
        imports=("import math",),
        support="def helper(x): return x * math.pi\ndef f(x): return 'of the task'",
        setup="two = f(1) / math.pi * 2",
    )
    assert sandbox.test("import math\ndef f(x): return x * math.pi", suite).verdict == "passed"
