"""The contracts that every environment and every reward keeps."""

# ruff: noqa: E501 (programs as they are)

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring import EnvironmentContract, RewardContract
from atropos_code.datasets import MbppEnvironment
from atropos_code.freeform import CodeExecEnvironment
from atropos_code.game import CodeGameEnvironment
from atropos_code.rewards import code_game, code_runs, code_tests, code_tests_levels

from atropos_cli.sdk import Message, Rollout, Task, assistant

MBPP_ROWS = [
    {
        "task_id": number,
        "text": f"Write a function to add {number}.",
        "code": f"def plus(x):\r\n  return x + {number}\r\n",
        "test_setup_code": "",
        "test_list": [f"assert plus({x}) == {x + number}" for x in range(3)],
    }
    for number in (2, 3, 601, 602, 603)
]
HUMANEVAL_ROWS = [
    {
        "task_id": f"HumanEval/{number}",
        "prompt": f'def half(x: int) -> int:\n    return x // 2\n\n\ndef shift(x: int) -> int:\n    """half(x) + {number}"""\n',
        "entry_point": "shift",
        "canonical_solution": f"    return half(x) + {number}\n",
        "test": f"def check(candidate):\n    assert candidate(4) == half(4) + {number}\n",
    }
    for number in range(3)
]
FUNCTION = "```python\ndef plus(x):\n    return x + 601\n```"
PROGRAM = "```python\nprint('ab' * 2)\n```"


@pytest.fixture(autouse=True)
def data(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> None:
    """Write the rows to a file that the environment's options name."""
    rows: Any = getattr(request.cls, "rows", None)
    if rows is not None:
        path: Path = tmp_path_factory.mktemp("data") / "rows.json"
        path.write_text(json.dumps(rows))
        request.cls.config = {**request.cls.options, "data_path": str(path)}


class TestMbpp(EnvironmentContract):
    environment = MbppEnvironment
    rows = MBPP_ROWS
    options: dict[str, Any] = {}  # noqa: RUF012
    replies = (FUNCTION, "no idea")


class TestMbppPlain(EnvironmentContract):
    environment = "mbpp"
    rows = MBPP_ROWS
    options = {"prompt_style": "plain", "few_shot": 2, "shown_tests": 1}  # noqa: RUF012
    replies = ("def plus(x):\n    return x + 601\n[DONE]\n",)


class TestHumanEval(EnvironmentContract):
    environment = "humaneval"
    rows = HUMANEVAL_ROWS
    options: dict[str, Any] = {}  # noqa: RUF012
    replies = ("```python\ndef shift(x):\n    return half(x)\n```", "```\n    return half(x)\n```")


class TestCodeExec(EnvironmentContract):
    environment = CodeExecEnvironment
    replies = (PROGRAM, "```python\n1/0\n```")


def play(messages: Sequence[Message]) -> str:
    """Propose a program; predict right when asked for the second time, in turn."""
    if "predict" in messages[0].text:
        return PROGRAM
    return "```output\nabab\n```"


class TestCodeGame(EnvironmentContract):
    environment = CodeGameEnvironment
    config = {"predictions": 2}  # noqa: RUF012

    def player(self) -> Any:
        return play


TESTED = Task(id="t", info={"tests": ["assert f(1) == 2", "assert f(2) == 3"], "names": ["f"]})
GOOD = "```python\ndef f(x):\n    return x + 1\n```"
WRONG = "```python\ndef f(x):\n    return 2\n```"
BROKEN = "```python\ndef f(x) return 2\n```"


class TestCodeTests(RewardContract):
    reward = code_tests
    cases = ((TESTED, [GOOD, WRONG, BROKEN, "f"], [1.0, 0.0, 0.0, 0.0]),)


class TestCodeTestsLevels(RewardContract):
    reward = code_tests_levels
    cases = ((TESTED, [GOOD, WRONG, BROKEN, "f"], [1.0, -1.0, -0.5, -0.5]),)


class TestCodeRuns(RewardContract):
    reward = code_runs
    cases = (
        (
            Task(id="t"),
            [PROGRAM, "```python\nx = 1\n```", BROKEN, "```python\n1/0\n```", "no"],
            [1.0, 0.5, -0.5, -1.0, -0.5],
        ),
    )


def played(**info: Any) -> Rollout:
    """A rollout of the game with what it found out."""
    return Rollout(id="r", task_id="t", messages=(assistant("x"),), info=info)


VALID = {"ran_ok": True, "deterministic": True, "output": "4\n"}


class TestCodeGameReward(RewardContract):
    reward = code_game
    cases = (
        (Task(id="t"), played(role="proposer", predictions=["5", None], **VALID), 1.0),
        (Task(id="t"), played(role="proposer", predictions=["5", "4"], **VALID), 0.0),
        (Task(id="t"), played(role="proposer", predictions=["4"], **VALID), -1.0),
        (Task(id="t"), played(role="proposer", **{**VALID, "output": ""}), -1.0),
        (Task(id="t"), played(role="opponent", prediction=" 4 ", **VALID), 1.0),
        (Task(id="t"), played(role="opponent", prediction=None, **VALID), -1.0),
        (
            Task(id="t", info={"proposer_reward": "learnability"}),
            played(role="proposer", predictions=["5", "4", "6", "7"], **VALID),
            0.75,
        ),
        (
            Task(id="t", info={"proposer_reward": "learnability"}),
            played(role="proposer", predictions=["5", "6"], **VALID),
            0.0,
        ),
    )
