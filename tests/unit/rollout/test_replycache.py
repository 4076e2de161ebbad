"""Kept replies: what makes two requests the same, what is believed, and what several processes do to each other."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import Bench, CountingEnvironment, right, say, with_tokens

from atropos_cli.errors import DataError
from atropos_cli.ports.backend import Completion, GenerateRequest, Generation
from atropos_cli.rollout.replycache import FILE, ReplyCache
from atropos_cli.sdk import Message, user
from atropos_cli.sdk.backends import RateLimited, Sampling

ABOUT = {"model": "m"}


def cache(folder: Path, about: Any = ABOUT, megabytes: float = 100) -> ReplyCache:
    return ReplyCache(folder / "c", about, megabytes)


def ask(text: str = "hi", **changes: Any) -> GenerateRequest:
    return GenerateRequest(messages=(user(text),), seed=changes.pop("seed", 1), **changes)


def several(*texts: str, finish: str | None = "stop") -> Generation:
    return Generation(
        completions=tuple(
            Completion(message=Message(role="assistant", content=text), finish_reason=finish) for text in texts
        ),
        prompt_tokens=3,
    )


def texts(found: Generation | None) -> list[str] | None:
    return None if found is None else [one.message.text for one in found.completions]


def test_each_sample_is_a_row_of_its_own(tmp_path: Path) -> None:
    one = cache(tmp_path)
    one.keep(ask(n=3), several("a", "b", "c"))
    other = cache(tmp_path)
    assert texts(other.find(ask(n=3))) == ["a", "b", "c"]
    assert texts(other.find(ask(n=2))) == ["a", "b"]
    assert texts(other.find(ask(n=5))) == ["a", "b", "c"], "the rest is asked for one by one"
    assert texts(other.find(ask())) == ["a"]


OTHERS: list[dict[str, Any]] = [
    {"seed": 2},
    {"sampling": Sampling(temperature=0.5)},
    {"sampling": Sampling(stop=("x",))},
    {"sampling": Sampling(max_tokens=None)},
    {"tools": ({"type": "function"},)},
    {"prefill": "So"},
    {"prompt_ids": (1, 2)},
    {"logprobs": "off"},
]


@pytest.mark.parametrize("change", OTHERS, ids=lambda change: next(iter(change)))
def test_another_request_has_another_key(tmp_path: Path, change: dict[str, Any]) -> None:
    one = cache(tmp_path)
    one.keep(ask(), several("a"))
    assert one.find(ask(**change)) is None
    assert one.find(ask("hi ")) is None
    assert cache(tmp_path, {"model": "m", "weights": "2"}).find(ask()) is None
    assert texts(one.find(ask())) == ["a"]


def test_tokens_and_logprobs_come_back_as_they_were(tmp_path: Path) -> None:
    given = with_tokens("ok", (5, 6), (1, 2, 3))
    cache(tmp_path).keep(ask(), given)
    found = cache(tmp_path).find(ask())
    assert found == given.model_copy(update={"usage": None})
    assert found is not None
    assert found.completions[0].message.tokens is not None
    assert found.completions[0].message.tokens.logprobs == (-0.5, -0.5)


@pytest.mark.parametrize("finish", [None, "error"])
def test_a_reply_that_may_be_broken_off_is_not_kept(tmp_path: Path, finish: str | None) -> None:
    one = cache(tmp_path)
    one.keep(ask(), several("a", finish=finish))
    assert one.find(ask()) is None


USER = b'{"completions": [{"message": {"role": "user"}, "finish_reason": "stop"}]}'
NUMBER = b'{"completions": [{"message": {"role": "assistant", "content": 5}, "finish_reason": "stop"}]}'
ROWS = [b"", b"{", b"\xff\x00", b'{"completions": []}', USER, NUMBER, 7, "text"]


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_rows_that_cannot_be_read_are_passed_over(tmp_path: Path, row: Any, caplog: pytest.LogCaptureFixture) -> None:
    one = cache(tmp_path)
    one.keep(ask(n=2), several("a", "b"))
    one.keep(ask("other"), several("c"))
    one.close()
    with sqlite3.connect(tmp_path / "c" / FILE) as base:
        base.execute("UPDATE replies_1 SET reply = ? WHERE sample = 1", (row,))
    two = cache(tmp_path)
    assert texts(two.find(ask(n=2))) == ["a"]
    assert texts(two.find(ask("other"))) == ["c"]
    assert caplog.text.count("cannot be read") == 1
    two.keep(ask(n=2), several("x", "y"))
    assert texts(two.find(ask(n=2))) == ["a", "y"], "the first stays, the broken one is replaced"


@pytest.mark.parametrize("content", [b"no database at all" * 500, b"SQLite format 3\x00" + b"\xff" * 9000])
def test_a_damaged_file_costs_a_warning(bench: Bench, tmp_path: Path, content: bytes, caplog: Any) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / FILE).write_bytes(content)
    (tmp_path / "c" / FILE).chmod(0o600)
    ended = bench.run(bench.plan(execution={"cache_dir": str(tmp_path / "c")}))
    assert (ended.state, ended.groups_done) == ("finished", 4)
    assert caplog.text.count("delete it") == 1


def test_the_file_is_the_users_alone(tmp_path: Path) -> None:
    one = cache(tmp_path)
    one.keep(ask(), several("a"))
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "c").iterdir()}
    assert modes == {0o600}
    (tmp_path / "c" / FILE).chmod(0o666)
    with pytest.raises(DataError, match="written by others"):
        cache(tmp_path)


def test_links_and_files_in_the_way_are_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("precious")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="cannot be used"):
        cache(tmp_path)
    assert (tmp_path / "elsewhere").read_text() == "precious"
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be used"):
        ReplyCache(tmp_path / "file" / "c", ABOUT, 1)


def test_the_oldest_make_room(tmp_path: Path) -> None:
    small = cache(tmp_path, megabytes=0.2)
    for number in range(2500):
        small.keep(ask(str(number)), several("x" * 200))
    small.close()
    again = cache(tmp_path, megabytes=0.2)
    known = [number for number in range(2500) if again.find(ask(str(number))) is not None]
    assert known
    assert known[-1] == 2499
    assert known == list(range(known[0], 2500))
    assert len(known) * 200 < 200_000


WRITER = """
import sys
from pathlib import Path
from atropos_cli.rollout.replycache import ReplyCache
from atropos_cli.ports.backend import Completion, GenerateRequest, Generation
from atropos_cli.sdk import Message, user
cache = ReplyCache(Path(sys.argv[1]), {"model": "m"}, 100)
wrong = 0
for number in range(400):
    request = GenerateRequest(messages=(user(str(number)),), seed=1)
    found = cache.find(request)
    if found is None:
        message = Message(role="assistant", content=f"{number} by {sys.argv[2]}")
        cache.keep(request, Generation(completions=(Completion(message=message, finish_reason="stop"),)))
    else:
        wrong += not found.completions[0].message.text.startswith(f"{number} by ")
cache.close()
sys.exit(wrong)
"""


def test_several_processes_share_it_and_one_may_be_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "c")]
    running = [subprocess.Popen([*command, str(number)], stderr=subprocess.PIPE) for number in range(3)]
    victim = subprocess.Popen([*command, "9"], stderr=subprocess.PIPE)
    while not (tmp_path / "c" / FILE).exists():
        assert victim.poll() is None
    victim.kill()
    victim.communicate()
    for process in running:
        _, errors = process.communicate()
        assert (process.returncode, errors) == (0, b"")
    with sqlite3.connect(tmp_path / "c" / FILE) as base:
        assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert base.execute("SELECT count(*) FROM replies_1").fetchone() == (400,)


def run_twice(bench: Bench, tmp_path: Path, **settings: Any) -> tuple[Any, Any, int]:
    """Two runs in two folders with one cache; the summaries, and the requests of the second."""
    plan = bench.plan(execution={"cache_dir": str(tmp_path / "c")}, **settings)
    first = bench.run(plan)
    before = bench.groups()
    bench.folder = tmp_path / "again"
    second = bench.run(plan)

    def content(groups: list[Any]) -> Any:
        for group in groups:
            for rollout in group["rollouts"]:
                rollout["usage"]["requests"] = 0
        return sorted(groups, key=lambda group: group["group_id"])

    assert content(before) == content(bench.groups())
    return first, second, len(bench.requests)


def test_a_second_run_asks_for_nothing(bench: Bench, tmp_path: Path) -> None:
    count = iter(range(1000))
    bench.answer(lambda request: several(*(f"reply {next(count)}" for _ in range(request.n))))
    first, second, requests = run_twice(bench, tmp_path, group_size=8)
    assert requests == 0
    assert "cache_hits" not in first.usage["fake-model"]
    assert second.usage == {"fake-model": {"cache_hits": 32}}
    replies = {rollout["messages"][-1]["content"] for group in bench.groups() for rollout in group["rollouts"]}
    assert len(replies) == 32, "eight rollouts of a group are eight replies"


def test_nor_does_one_of_several_turns(bench: Bench, tmp_path: Path) -> None:
    bench.use(CountingEnvironment)
    count = iter(range(1000))
    bench.answer(lambda request: several(*(f"reply {next(count)}" for _ in range(request.n))))
    assert run_twice(bench, tmp_path, group_size=4)[2] == 0


def test_nor_where_the_server_ignores_n(bench: Bench, tmp_path: Path) -> None:
    count = iter(range(1000))
    bench.answer(lambda request: several(f"reply {next(count)}"))
    assert run_twice(bench, tmp_path, group_size=4)[2] == 0


def test_a_larger_group_asks_for_the_rest_alone(bench: Bench, tmp_path: Path) -> None:
    count = iter(range(1000))
    bench.answer(lambda request: several(*(f"reply {next(count)}" for _ in range(request.n))))
    bench.run(bench.plan(execution={"cache_dir": str(tmp_path / "c")}, group_size=2))
    bench.folder = tmp_path / "again"
    bench.run(bench.plan(execution={"cache_dir": str(tmp_path / "c")}, group_size=5))
    assert [request.n for request in bench.requests] == [1] * 12
    replies = {rollout["messages"][-1]["content"] for group in bench.groups() for rollout in group["rollouts"]}
    assert len(replies) == 20


def test_failures_are_not_kept(bench: Bench, tmp_path: Path) -> None:
    failing = iter([True, False] * 100)

    def answer(request: GenerateRequest) -> Generation:
        if next(failing):
            raise RateLimited("429")
        return right(request)

    bench.answer(answer)
    plan = bench.plan(execution={"cache_dir": str(tmp_path / "c"), "workers": 1}, limit=1)
    assert bench.run(plan).groups_done == 1
    with sqlite3.connect(tmp_path / "c" / FILE) as base:
        assert base.execute("SELECT count(*) FROM replies_1").fetchone() == (2,)


def test_no_secret_is_stored(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-key-of-mine")
    bench.answer(lambda request: say("ok", n=request.n))
    bench.run(bench.plan(execution={"cache_dir": str(tmp_path / "c")}))
    stored = list((tmp_path / "c").iterdir())
    assert FILE in {path.name for path in stored}
    for path in stored:
        assert b"sk-secret-key-of-mine" not in path.read_bytes()
        assert os.getuid() == path.stat().st_uid
