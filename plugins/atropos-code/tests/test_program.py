# ruff: noqa: E501 - a table of replies, a line each
"""Which program a reply gives, by what the task names: a table of replies, and what each is worth."""

from __future__ import annotations

import asyncio
import time

import pytest
from atropos_authoring import make_rollout
from atropos_code.extract import extract_code, extract_output
from atropos_code.rewards import code_runs, code_tests

from atropos_cli.sdk import Task

RIGHT = "def double(n):\n    return 2 * n\n"
WRONG = "def double(n):\n    return n\n"


def fenced(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}```\n"


REPLIES: list[tuple[str, str, int]] = [
    ("plain", fenced(RIGHT), 1),
    ("usage", "Solution:\n" + fenced(RIGHT) + "Usage:\n" + fenced("print(double(2))\n"), 1),
    ("usage2", fenced(RIGHT) + "Try it:\n" + fenced("for i in range(3):\n    print(double(i))\n", "py"), 1),
    (
        "pytest",
        fenced(RIGHT)
        + fenced(
            "import pytest\n\n@pytest.mark.parametrize('a,b',[(1,2)])\ndef test_double(a,b):\n    assert double(a) == b\n"
        ),
        1,
    ),
    ("import test", fenced(RIGHT) + fenced("from solution import double\nassert double(1)==2\n"), 1),
    ("doctest", fenced(RIGHT) + fenced(">>> double(2)\n4\n", "pycon"), 1),
    ("doctest as python", fenced(RIGHT) + fenced(">>> double(2)\n4\n"), 1),
    ("ipython", fenced(RIGHT) + fenced("In [1]: double(2)\nOut[1]: 4\n", "ipython"), 1),
    ("repl", fenced(RIGHT) + fenced(">>> double(2)\n4\n", "python-repl"), 1),
    ("console", fenced(RIGHT) + fenced("$ python a.py\n4\n", "console"), 1),
    ("output marked text", fenced(RIGHT) + "Output:\n" + fenced("4\n", "text"), 1),
    ("output unmarked both", fenced(RIGHT, "") + "Output:\n" + fenced("4\n", ""), 1),
    ("traceback", fenced(RIGHT) + fenced("Traceback (most recent call last):\n  File\n"), 1),
    ("bash", fenced(RIGHT) + fenced("python solution.py\n", "bash"), 1),
    ("two tries", fenced(WRONG) + "No. Fixed:\n" + fenced(RIGHT), 1),
    ("worse later", fenced(RIGHT) + "Better:\n" + fenced(WRONG), 0),
    ("js later", fenced(RIGHT) + "In JS:\n" + fenced("function double(n) { return n }\n", "js"), 1),
    ("signature first", "Signature:\n" + fenced("def double(n: int) -> int: ...\n") + fenced(RIGHT), 1),
    ("signature last", fenced(RIGHT) + "The signature is\n" + fenced("def double(n: int) -> int:\n    ...\n"), 1),
    ("head only last", fenced(RIGHT) + "As you see\n" + fenced("def double(n):   # O(1)\n"), 1),
    ("bare", RIGHT, 1),
    ("bare prose", "Here is the function:\n\n" + RIGHT + "\nThis doubles the number.", 1),
    ("bare prose name at end", RIGHT + "\nDone", 1),
    ("bare prose 2", "Sure! I will write it.\n\n" + RIGHT + "\nHope this helps!", 1),
    ("bare with import", "import math\n\n" + RIGHT, 1),
    ("bare wrong", "Here:\n" + WRONG, 0),
    ("bare with indent", "Answer:\n\n    def double(n):\n        return 2 * n\n\nGood.", 1),
    ("quoted fence", "> ```python\n> def double(n):\n>     return 2 * n\n> ```\n", 1),
    ("quoted bare", "> def double(n):\n>     return 2 * n\n", 1),
    ("quoted tight", ">```python\n>def double(n):\n>    return 2 * n\n>```\n", 1),
    ("list fence", "1. Code:\n   ```python\n   def double(n):\n       return 2 * n\n   ```\n2. Done", 1),
    ("list fence same line", "- ```python\n  def double(n):\n      return 2 * n\n  ```\n", 1),
    ("late fence", "Answer: ```python\n" + RIGHT + "```", 1),
    ("close behind code", "```python\ndef double(n):\n    return 2 * n```", 1),
    ("close behind code + text", "```python\ndef double(n):\n    return 2 * n```\nThat is it.", 1),
    ("html", '<pre><code class="language-python">def double(n):\n    return 2 * n\n</code></pre>', 1),
    (
        "html esc",
        "<pre><code>def double(n):\n    if n &lt; 0:\n        return 2 * n\n    return 2 * n\n</code></pre>",
        1,
    ),
    ("code tag", "<code>\n" + RIGHT + "</code>", 1),
    ("python tag", "<python>\n" + RIGHT + "</python>", 1),
    ("answer tag", "<answer>\n" + RIGHT + "</answer>", 1),
    ("answer tag fence", "<answer>\n" + fenced(RIGHT) + "</answer>", 1),
    ("solution tag", "<solution>" + RIGHT + "</solution>", 1),
    ("PYTHON brackets", "[PYTHON]\n" + RIGHT + "[/PYTHON]", 1),
    ("latex", "\\begin{lstlisting}[language=Python]\n" + RIGHT + "\\end{lstlisting}", 1),
    ("minted", "\\begin{minted}{python}\n" + RIGHT + "\\end{minted}", 1),
    ("verbatim", "\\begin{verbatim}\n" + RIGHT + "\\end{verbatim}", 1),
    ("jira", "{code:python}\n" + RIGHT + "{code}", 1),
    ("org", "#+BEGIN_SRC python\n" + RIGHT + "#+END_SRC", 1),
    ("rst", "Code:\n\n.. code-block:: python\n\n    def double(n):\n        return 2 * n\n\nDone.", 1),
    ("triple quotes", "'''python\n" + RIGHT + "'''", 1),
    ("triple dquotes", '"""python\n' + RIGHT + '"""', 1),
    ("tilde", "~~~python\n" + RIGHT + "~~~", 1),
    ("fullwidth ticks", "｀｀｀python\n" + RIGHT + "｀｀｀", 1),
    ("pythontag", "<|python_tag|>" + RIGHT + "<|eom_id|>", 1),
    ("json", '{"code": "def double(n):\\n    return 2 * n\\n"}', 1),
    ("json fence", fenced('{"solution": "def double(n):\\n    return 2 * n\\n"}\n', "json"), 1),
    ("inline lambda", "Use `double = lambda n: 2 * n` here.", 1),
    ("one line fence", "```python def double(n): return 2 * n```", 1),
    ("comments only", fenced("# def double(n): return 2*n\n"), 0),
    ("docstring only", fenced('"""def double(n):\n    return 2 * n\n"""\n'), 0),
    ("pass", fenced("def double(n):\n    pass\n"), 0),
    ("info braces", fenced(RIGHT, "{.python .numberLines}"), 1),
    ("info title", fenced(RIGHT, 'python title="a.py"'), 1),
    ("info colon", fenced(RIGHT, "python:solution.py"), 1),
    ("info py3.11", fenced(RIGHT, "python3.11"), 1),
    ("info Python caps", fenced(RIGHT, "Python"), 1),
    ("info filename", fenced(RIGHT, "solution.py"), 1),
    ("info plaintext", fenced(RIGHT, "plaintext"), 1),
    ("info code", fenced(RIGHT, "code"), 1),
    (
        "docstring fence indented",
        fenced('def double(n):\n    """Doubles.\n\n    ```\n    double(2)\n    ```\n    """\n    return 2 * n\n'),
        1,
    ),
    (
        "docstring fence col0",
        fenced('def double(n):\n    """Doubles.\n\n```\ndouble(2)\n```\n    """\n    return 2 * n\n'),
        1,
    ),
    (
        "docstring fence col0 python",
        fenced('def double(n):\n    """Doubles.\n\n```python\ndouble(2)\n```\n    """\n    return 2 * n\n'),
        1,
    ),
    (
        "docstring with doctest",
        fenced('def double(n):\n    """\n    >>> double(2)\n    4\n    """\n    return 2 * n\n'),
        1,
    ),
    ("string fence", fenced('def double(n):\n    s = "```"\n    return 2 * n\n'), 1),
    ("module doc fence", fenced('"""\n```\nx\n```\n"""\n' + RIGHT), 1),
    (
        "pieces",
        fenced("def times(a, b):\n    return a * b\n") + "and\n" + fenced("def double(n):\n    return times(n, 2)\n"),
        1,
    ),
    ("pieces import", fenced("from operator import mul\n") + fenced("def double(n):\n    return mul(n, 2)\n"), 1),
    (
        "after piece",
        fenced("FACTOR = 2\n")
        + "Then\n"
        + fenced("def double(n):\n    return FACTOR * n\n")
        + fenced("print(double(2))\n"),
        1,
    ),
    ("class", fenced("class Solution:\n    def double(self, n):\n        return 2 * n\n"), 0),
    (
        "class then function",
        fenced("class Solution:\n    def double(self, n):\n        return 2 * n\n")
        + fenced("double = Solution().double\n"),
        1,
    ),
    (
        "class then function2",
        fenced("class Solution:\n    def double(self, n):\n        return 2 * n\n\ndouble = Solution().double\n"),
        1,
    ),
    ("unclosed", "```python\n" + RIGHT, 1),
    ("unclosed after usage", fenced("print(double(1))\n") + "```python\n" + RIGHT, 1),
    ("if name", fenced(RIGHT + "\nif __name__ == '__main__':\n    print(double(2))\n"), 1),
    ("think", "<think>\n" + fenced(WRONG) + "</think>\n" + fenced(RIGHT), 1),
    ("think only", "<think>\n" + fenced(RIGHT) + "</think>\nI cannot.", 0),
    ("think open", "<think>\n" + fenced(RIGHT), 0),
    ("nbsp", fenced("def\u00a0double(n):\n\u00a0\u00a0\u00a0\u00a0return 2 * n\n"), 1),
    ("zero width", fenced("\u200bdef double(n):\n    return 2 * n\n"), 1),
    ("bom", fenced("\ufeffdef double(n):\n    return 2 * n\n"), 1),
    ("crlf", fenced(RIGHT).replace("\n", "\r\n"), 1),
    (
        "german",
        "Hier ist die Lösung:\n"
        + fenced(RIGHT)
        + "Beispiel:\n"
        + fenced("print(double(21))  # 42\n")
        + "Ausgabe:\n"
        + fenced("42\n", ""),
        1,
    ),
    (
        "chinese",
        "答案:\n" + fenced(RIGHT) + "输出:\n" + fenced("4\n", "") + "示例:\n" + fenced("print(double(2))\n"),
        1,
    ),
    ("async", fenced("double = lambda n: n * 2\n"), 1),
    ("annotated", fenced("from typing import Callable\ndouble: Callable[[int], int] = lambda n: n * 2\n"), 1),
    (
        "try",
        fenced(
            "try:\n    import numpy\nexcept ImportError:\n    numpy = None\nif True:\n    def double(n):\n        return 2*n\n"
        ),
        1,
    ),
    ("table prose", "| n | double |\n|---|---|\n| 1 | 2 |\n\n" + RIGHT, 1),
    ("explain between", RIGHT + "\nwhich is used as\n\nprint(double(2))\n", 1),
    ("bare two versions", WRONG + "\nThat is wrong, so:\n\n" + RIGHT, 1),
    ("syntax error last", fenced(RIGHT) + "Final:\n" + fenced("def double(n):\n    return 2 * * n\n"), 0),
    ("markdown bold", "**Solution**\n\n" + fenced(RIGHT) + "\n**Explanation**: `double(n)` returns 2n.\n", 1),
    ("inline call only", "Call `double(2)`.", 0),
    ("no code", "I do not know.", 0),
    ("diff", fenced(RIGHT) + fenced("-def double(n):\n+def double(x):\n", "diff"), 1),
    ("unmarked code, text after", fenced(RIGHT, "") + fenced("double(2) -> 4\n", ""), 1),
    ("nested ticks", "````markdown\n```python\n" + RIGHT + "```\n````\n", 1),
    ("details", "<details><summary>Code</summary>\n\n" + fenced(RIGHT) + "</details>", 1),
    ("tool call", '<tool_call>{"code": "x"}</tool_call>\n' + fenced(RIGHT), 1),
    ("tabs", "```python\ndef double(n):\n\treturn 2 * n\n```", 1),
    ("tab fence", "\t```python\n\tdef double(n):\n\t    return 2 * n\n\t```", 1),
    ("spaces closing", "```python\n" + RIGHT + "   ```   \n", 1),
    ("closing deeper bad", "  ```python\n  def double(n):\n      return 2 * n\n  ```\nok", 1),
    ("final answer tag", "<final_answer>\n" + RIGHT + "</final_answer>", 1),
    ("boxed", "\\boxed{\\text{see code}}\n" + fenced(RIGHT), 1),
    ("indented closing fence", "```python\n" + RIGHT + "    ```\nText", 1),
    ("old line ends", ("```python\n" + RIGHT + "```").replace("\n", "\r"), 1),
    ("another language without a mark", fenced(RIGHT) + fenced("def double(n)\n  2 * n\nend\n", ""), 1),
    ("another language with a mark", fenced(RIGHT) + fenced("def double(n)\n  2 * n\nend\n", "ruby"), 1),
    ("Russian, without a mark", "Решение:\n" + RIGHT + "\nЭта функция удваивает число.\n", 1),
    ("CDATA", "<code><![CDATA[\n" + RIGHT + "]]></code>", 1),
    ("decorated", fenced("import functools\n@functools.lru_cache\ndef double(n):\n    return 2 * n\n"), 1),
]


def worth(code: str) -> int:
    """Does the program double numbers? The replies above are our own, so they may run here."""
    scope: dict[str, object] = {"__name__": "program"}
    try:
        exec(code, scope)
        return int([scope["double"](n) for n in (2, -1)] == [4, -2])  # type: ignore[operator]
    except Exception:
        return 0


@pytest.mark.parametrize(("name", "reply", "expected"), REPLIES, ids=[row[0] for row in REPLIES])
def test_of_several_blocks_the_last_that_defines_what_the_task_names(
    name: str, reply: str, expected: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert worth(extract_code(reply, names=["double"])) == expected


HELPER, USER = "def f(x):\n    return x + 1\n", "def g(x):\n    return f(x) * 2\n"


@pytest.mark.parametrize(
    ("reply", "names", "parts"),
    [
        (fenced(HELPER) + fenced(USER), ["g"], [HELPER, USER]),
        (fenced(HELPER) + fenced(USER) + fenced("print(g(1))\n"), ["f", "g"], [HELPER, USER]),
        (fenced(HELPER + USER) + fenced(HELPER), ["f", "g"], [HELPER + USER, HELPER]),
        (fenced(HELPER) + fenced(HELPER + USER), ["g"], [HELPER + USER]),
        (fenced("class S:\n    x = 1\n") + fenced("s = S()\n"), ["S"], ["class S:\n    x = 1\n"]),
        (f"Helper:\n{HELPER}\nthen\n\n{USER}\nDone.", ["g"], []),
    ],
)
def test_a_program_in_several_blocks_is_put_together(reply: str, names: list[str], parts: list[str]) -> None:
    code = extract_code(reply, names=names)
    if parts:
        assert code == "\n".join(parts)
    else:
        assert [name in code for name in ("def f", "def g", "then", "Done")] == [True, True, False, False]


FREE = "print(6 * 7)\n"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (fenced(FREE, "") + "Output:\n" + fenced("42\n", ""), FREE),
        (fenced(FREE, "") + "Ausgabe:\n" + fenced("x = 1\n", ""), FREE),
        (fenced(FREE, "") + "It shows\n" + fenced("Hello\n", ""), FREE),
        (fenced(FREE, "") + fenced("[1, 2, 3]\n", ""), FREE),
        (fenced(FREE) + fenced(">>> 6 * 7\n42\n"), FREE),
        (fenced(FREE) + fenced("# that is all\n"), FREE),
        (fenced(FREE) + fenced("42\n"), FREE),
        (fenced("def main():\n    print(1)\n") + fenced("main()\n"), "def main():\n    print(1)\n\nmain()\n"),
        (fenced("# print(1)\n"), ""),
        (fenced('"""print(1)"""\n'), ""),
        (fenced("'a'\n# b\n"), ""),
        (fenced("print(1\n"), "print(1\n"),
        ("> ```python\n> print(1)\n> ```\n", "print(1)\n"),
    ],
)
def test_comments_sessions_and_outputs_are_no_programs(reply: str, code: str) -> None:
    assert extract_code(reply) == code


def test_an_indented_fence_is_part_of_the_text() -> None:
    assert extract_output("```output\na\n    ```\nb\n```") == "a\n    ```\nb\n"
    assert extract_output("1. It prints\n   ```\n   4\n   ```\n") == "4\n"


def test_rewards_judge_the_program_that_is_meant() -> None:
    """Through the sandbox, as records are scored."""
    task = Task(id="t", info={"tests": ["assert double(2) == 4", "assert double(-1) == -2"], "names": ["double"]})
    replies = [
        fenced(RIGHT) + "Usage:\n" + fenced("print(double(2))\n"),
        RIGHT + "\nThis doubles.",
        fenced("# " + RIGHT.replace("\n", "\n# ") + "\n"),
        fenced(RIGHT) + "Better:\n" + fenced(WRONG),
    ]
    rollouts = [make_rollout(reply, number=number) for number, reply in enumerate(replies)]
    assert asyncio.run(code_tests(task, rollouts)) == [1.0, 1.0, 0.0, 0.0]
    comment = make_rollout(fenced("# print(1)\n"))
    assert asyncio.run(code_runs(Task(id="t"), [comment])) == [-0.5]


HOSTILE = {
    "fences": "```python\n" * 20_000,
    "strings without end": "```python\nx = '''\n" + "```\n" * 20_000,
    "quotes": "> " * 50_000 + "x",
    "tags": "<code>" * 50_000,
    "tags closed early": "</code>" + "<pre><code>" * 30_000,
    "backticks": "`" * 200_000,
    "inline code": "`abcdefghij " * 20_000,
    "brackets": "```python\n" + "(" * 50_000 + "\n```",
    "signs": "```python\nx = " + "-" * 100_000 + "1\n```",
    "attributes": "```python\nx = a" + ".b" * 100_000 + "\n```",
    "definitions that break": "def f(x):\nblah blah\n" * 10_000,
    "assignments that break": "a = 1 2\n" * 20_000,
    "JSON": '{"code": ' + "[" * 100_000,
    "a chain of blocks": "".join(fenced(f"def g{i}(n):\n    return g{i - 1}(n)\n") for i in range(500)),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_replies_cost_no_more_than_their_length(kind: str) -> None:
    begin = time.process_time()
    extract_code(HOSTILE[kind], names=["double"])
    assert time.process_time() - begin < 5
