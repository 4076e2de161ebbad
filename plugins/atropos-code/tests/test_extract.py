"""Which part of a reply is the program."""

from __future__ import annotations

import pytest
from atropos_code.extract import extract_code, extract_output
from atropos_code.rewards import code_game, code_runs, code_tests, code_tests_levels
from pydantic import JsonValue

from atropos_cli.sdk import JsonDict, Reward, Rollout, Task, assistant


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("```python\nx = 1\n```\nor better\n```py\nx = 2\n```\nbye", "x = 2\n"),
        ("```Python3 title\r\nx = 1\r\n```\r\n", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```python\nx = 1\n```\nwhich prints\n```\n1\n```", "x = 1\n"),
        ("```python\nx = 1\n```\n```bash\npython x.py\n```", "x = 1\n"),
        ("```bash\nls\n```", ""),
        ("~~~python\nx = 1\n~~~", "x = 1\n"),
        ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''\n"),
        ("1. like this:\n   ```python\n   if 1:\n       x = 1\n   ```", "if 1:\n    x = 1\n"),
        ("```python\nx = 1\n```\n```python\ny = ", "x = 1\n"),
        ("```python\nx = 1", "x = 1\n"),
        ("```python\n\n```", ""),
        ("x = 1", ""),
        ("", ""),
        ("<think>\n```python\nx = 1\n```\n</think>\n```python\nx = 2\n```", "x = 2\n"),
        ("<think>\n```python\nx = 1\n```\n</think>\nno code", ""),
        ("<think>\n```python\nx = 1\n```\n", ""),
        ("thoughts</think>```python\nx = 1\n```", "x = 1\n"),
        ("`x = 1` and ```x``` inline", ""),
    ],
)
def test_code(reply: str, code: str) -> None:
    assert extract_code(reply) == code


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("def f(): pass\n[DONE]\n\nYou are", "def f(): pass"),
        ("[BEGIN]\ndef f(): pass\n[DONE]", "def f(): pass"),
        ("    return 1\n[DONE]", "    return 1"),
        ("```python\nx = 1\n```\n[DONE]", "x = 1\n"),
        ("<think>x", ""),
    ],
)
def test_code_of_base_models(reply: str, code: str) -> None:
    assert extract_code(reply, done_marker=True) == code


@pytest.mark.parametrize(
    ("reply", "output"),
    [
        ("```output\n1\n2\n```", "1\n2\n"),
        ("First\n```\nno\n```\nthen\n```\nyes\n```", "yes\n"),
        ("it prints 4", None),
        ("<think>```\n4\n```", None),
        ("```\n\n```", ""),
        ("```output\n4", None),
    ],
)
def test_predicted_output(reply: str, output: str | None) -> None:
    assert extract_output(reply) == output


def test_many_open_fences_are_one_block() -> None:
    assert extract_code("```python\n" * 20_000).count("```python") == 19_999


def shown(reward: Reward, reply: str, layout: str = "chat", info: JsonDict | None = None) -> JsonValue:
    """What records show of a reply."""
    assert reward.extract is not None
    rollout = Rollout(id="r", task_id="t", messages=(assistant(reply),), info=info or {})
    return reward.extract(Task(id="t", info={"layout": layout, "prefix": "import math"}), rollout)


@pytest.mark.parametrize("reward", [code_runs, code_tests, code_tests_levels])
def test_records_show_the_code_as_the_reply_gives_it(reward: Reward) -> None:
    assert shown(reward, "So:\n```python\nx = 1\n```\nDone.") == "x = 1\n"
    assert shown(reward, "def f(): pass\n[DONE]\n\nYou are", "plain") == "def f(): pass"
    assert shown(reward, "def f(): pass\n[DONE]") is None
    assert reward.with_weight(0.5).extract is reward.extract


def test_records_show_both_players_moves() -> None:
    assert shown(code_game, "```python\nprint(4)\n```", info={"role": "proposer"}) == "print(4)\n"
    assert shown(code_game, "```\n4\n```", info={"role": "opponent", "prediction": "4\n"}) == "4\n"
    assert shown(code_game, "I do not know", info={"role": "opponent", "prediction": None}) is None
