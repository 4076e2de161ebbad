"""What a run remembers of the groups that a trajectory server has acknowledged, and servers that answer oddly."""

from __future__ import annotations

import http.server
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support import Bench, CountingEnvironment

from atropos_cli.config.settings import GenSettings
from atropos_cli.domain.delivery import Delivery
from atropos_cli.errors import AtroposError, ConfigError, DataError, ServerUnavailable
from atropos_cli.rollout.delivery import JOURNAL, TOKEN_VARIABLE, Journal, Sender, connect
from atropos_cli.rollout.mixture import Mixture
from atropos_cli.rollout.planner import build_plan
from atropos_cli.sdk import Message, TokenSpan
from atropos_cli.sdk.backends import Completion, GenerateRequest, Generation


def test_a_journal_is_continued(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.add("a-0", "received")
    journal.close()
    again = Journal(tmp_path)
    assert (again.key, again.done) == (journal.key, {"a-0"})
    again.close()


def test_a_torn_line_counts_as_not_sent(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.add("a-0", "received")
    journal.close()
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"group": "a-1", "ans')
    again = Journal(tmp_path)
    again.add("a-2", "received")
    again.close()
    assert Journal(tmp_path).done == {"a-0", "a-2"}


def test_a_torn_first_line_is_a_new_journal(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_bytes(b'{"key": "1')
    assert Journal(tmp_path).done == set()
    assert len(Journal(tmp_path).key) == 16


def test_a_damaged_journal(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text('{"key": "1"}\nnonsense\n')
    with pytest.raises(DataError, match=r"delivered\.jsonl is damaged"):
        Journal(tmp_path)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://", "http://user:secret@host:8000"])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(ValidationError):
        Delivery(to=url)


def test_a_slash_at_the_end_of_a_url_means_nothing() -> None:
    assert Delivery(to="http://host:8000/").to == "http://host:8000"


@pytest.mark.parametrize("url", ["http://host:99999", "http://host:x", "http://host:8000/?a=1", "http://host:8000/#a"])
def test_a_url_that_no_client_can_use(url: str) -> None:
    with pytest.raises(ValidationError, match="expected http://HOST:PORT"):
        Delivery(to=url)


ANSWERS: dict[str, Any] = {
    "/register-env": {"status": "success", "env_id": 0, "wandb_name": "adding_0"},
    "/info": {"batch_size": 8},
    "/status-env": {"queue_size": 0, "current_step": 0},
    "/scored_data": {"status": "received"},
    "/disconnect-env": {"status": "success"},
}


@contextmanager
def answering(changes: dict[str, Any], bodies: list[dict[str, Any]] | None = None) -> Iterator[str]:
    """A server that answers with data or, as text, with something else; a number is a status. bodies: what it got."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if bodies is not None and got:
                bodies.append(json.loads(got))
            answer = {**ANSWERS, **changes}[self.path]
            answer = next(answer) if isinstance(answer, Iterator) else answer
            body = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(answer if isinstance(answer, int) else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815 - the name that it must have

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def known_tokens(request: GenerateRequest) -> Generation:
    message = Message(role="assistant", content="1", tokens=TokenSpan(ids=(1, 2), mask=True))
    return Generation(completions=(Completion(message=message, finish_reason="stop"),) * request.n, prompt_tokens=3)


def push(bench: Bench, url: str) -> None:
    bench.answer(known_tokens)
    bench.run(bench.plan(limit=2, delivery=Delivery(to=url)))


def answers(bench: Bench) -> list[str]:
    return [json.loads(line)["answer"] for line in (bench.folder / JOURNAL).read_text().splitlines()[1:]]


def test_members_of_a_mixture_are_environments_of_the_server(bench: Bench) -> None:
    bodies: list[dict[str, Any]] = []
    bench.registry.components["environment", "mix"] = Mixture
    bench.answer(known_tokens)
    of = {"of": ["adding:weight=2", "more=adding:group_size=3"]}
    with answering({}, bodies) as url:
        wanted = GenSettings(backend="fake", limit=6, group_size=2, delivery=Delivery(to=url, to_weight=10))
        bench.run(build_plan(wanted, "mix", of, bench.registry))  # type: ignore[arg-type]
    asked = {body["desired_name"]: body for body in bodies if "desired_name" in body}
    assert {name: (body["weight"], body["group_size"]) for name, body in asked.items()} == {
        "adding": (20.0, 2),
        "more": (10.0, 3),
    }
    sent = [len(body["tokens"]) for body in bodies if "tokens" in body]
    assert sorted(sent) == [2, 2, 2, 2, 3, 3]
    for name, count in (("adding", 4), ("more", 2)):
        lines = (bench.folder / f"delivered-{name}.jsonl").read_text().splitlines()
        assert [json.loads(line)["answer"] for line in lines[1:]] == ["received"] * count


def test_the_folder_of_a_trainer_that_registers_later_is_known(bench: Bench, tmp_path: Path) -> None:
    """Where the server says it; a server that does not say it means the first one still."""
    plan = bench.plan(limit=2, delivery=Delivery(to="http://127.0.0.1:9"))
    sender = Sender(plan, "adding", lambda kind, text: None, lambda: None)
    told: dict[str, Any] = {"queue_size": 0, "current_step": 0}
    status = itertools.chain(
        [{**told, "checkpoint_dir": "/b"}, {**told, "checkpoint_dir": None}], itertools.repeat(told)
    )
    first = {**ANSWERS["/register-env"], "checkpoint_dir": "/a"}
    with answering({"/register-env": first, "/status-env": status}) as url, connect(url) as client:
        sender._register(client)
        assert sender.trainer_folder == "/b"
        for _ in range(2):
            sender._looked = float("-inf")
            sender._look(client)
        assert sender.trainer_folder == "/b"


def test_groups_are_sent(bench: Bench) -> None:
    with answering({}) as url:
        push(bench, url)
    assert answers(bench) == ["received", "received"]


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/register-env", "<html>welcome</html>"),
        ("/register-env", {"status": "success"}),
        ("/info", {"batch_size": None}),
        ("/status-env", []),
        ("/scored_data", "ok"),
        ("/scored_data", {"status": "failure", "error": "no"}),
    ],
)
def test_a_server_of_another_kind_ends_the_run(bench: Bench, path: str, answer: object) -> None:
    with answering({path: answer}) as url, pytest.raises(ServerUnavailable, match="does not answer like a trajectory"):
        push(bench, url)
    assert answers(bench) == []


def test_a_group_that_is_too_large_for_the_server_does_not_end_the_run(bench: Bench) -> None:
    with answering({"/scored_data": 413}) as url:
        push(bench, url)
    assert answers(bench) == ["refused", "refused"]
    with answering({}) as url:
        bench.run(bench.plan(limit=2, delivery=Delivery(to=url)), resume=True)
    assert answers(bench) == ["refused", "refused", "received", "received"]


def test_a_server_that_is_full_is_asked_again_and_its_reason_is_shown(bench: Bench) -> None:
    with answering({"/scored_data": iter([503, 503, *[{"status": "received"}] * 2])}) as url:
        push(bench, url)
    assert answers(bench) == ["received", "received"]
    assert (bench.folder / "log.jsonl").read_text().count("answers 503: 503; groups are kept until it does") == 1


def test_an_error_that_nobody_foresaw_ends_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Journal, group: str, answer: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "add", full)
    with answering({}) as url, pytest.raises(AtroposError, match=r"groups cannot be sent to .*No space left"):
        push(bench, url)


@pytest.mark.parametrize("token", ["secret\n", " secret", "sécret"])
def test_a_token_that_no_header_can_carry(bench: Bench, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    with answering({}) as url, pytest.raises(ConfigError, match=f"{TOKEN_VARIABLE} holds a line break") as caught:
        push(bench, url)
    assert "cret" not in str(caught.value)


def test_a_server_that_wants_a_token_or_another_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering({"/register-env": 401}) as url:
        monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
        with pytest.raises(ConfigError, match="asks for a token"):
            push(bench, url)
        monkeypatch.setenv(TOKEN_VARIABLE, "another")
        with pytest.raises(ConfigError, match=f"refuses the token in {TOKEN_VARIABLE}"):
            push(Bench(bench.folder / "second"), url)


def test_rollouts_of_several_sequences_are_not_sent(bench: Bench) -> None:
    def restarted(request: GenerateRequest) -> Generation:
        span = TokenSpan(ids=(1, 2), mask=True, restart=len(request.messages) > 1)
        message = Message(role="assistant", content="1", tokens=span)
        return Generation(completions=(Completion(message=message, finish_reason="stop"),) * request.n, prompt_tokens=3)

    bench.use(CountingEnvironment)
    bench.answer(restarted)
    with answering({}) as url:
        bench.run(bench.plan(limit=2, delivery=Delivery(to=url)))
    assert answers(bench) == ["split", "split"]
    assert (bench.folder / "log.jsonl").read_text().count("several token sequences") == 1
