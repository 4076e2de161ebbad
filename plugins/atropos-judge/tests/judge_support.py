"""Shared by the tests of atropos-judge: an environment, judges that ask a mock server, rows of the shared cases."""

from __future__ import annotations

from typing import Any

import case_tables
from atropos_authoring.mock_server import MockServer
from atropos_judge.config import JudgeConfig
from atropos_judge.judge import Judge

from atropos_cli.sdk import Rollout, Task, assistant, user

ENVIRONMENT = '''
from atropos_cli.sdk import Config, Environment, Task, user

class Options(Config):
    count: int = 6

class Tasks(Environment):
    """Numbered questions."""
    name = "tasks"
    Config = Options
    splits = ("train", "test")
    def tasks(self, split):
        return [Task(id=f"t{i}", prompt=(user(f"question {i}"),), answer=str(i)) for i in range(self.config.count)]
'''


GOOD_OR_BAD = f"{__file__}:good_or_bad"


def good_or_bad(messages: Any, request: Any) -> str:
    """What a scripted judge says: 10 of 10 to a reply with "good" in it."""
    reply = messages[0].text.rpartition("The reply to judge:")[2]
    return "Score: 10" if "good" in reply.partition("Say in a few")[0] else "Score: 0"


def case(identifier: str) -> dict[str, Any]:
    """A row of the table of reported cases."""
    return case_tables.field_case(identifier)


def judge_at(server: MockServer, name: str = "judge", **options: Any) -> Judge:
    """A judge that asks this server."""
    config = JudgeConfig(model="judge-model", base_url=server.base_url, **options)
    found = Judge(name).configured(config)
    assert isinstance(found, Judge)
    return found


def flags(server: MockServer, *more: str) -> list[str]:
    """The flags of a run whose judge asks this server, and whose model says the same thing every time."""
    model = [] if "--judge.model" in more else ["--judge.model", "judge-model"]
    judge = ["--reward", "judge", *model, "--judge.base-url", server.base_url]
    return ["--backend", "scripted", "--backend.replies", "a reply", *judge, *more]


def make_rollout(text: str = "a reply", number: int = 0) -> Rollout:
    return Rollout(id=f"r{number}", task_id="t", messages=(user("a question"), assistant(text)))


def make_task(answer: Any = None) -> Task:
    return Task(id="t", prompt=(user("a question"),), answer=answer)
