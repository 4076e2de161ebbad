"""The server of `atropos view` and its guards, and pages that need no server."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from atropos_view.page import payload
from atropos_view.page.about import about
from atropos_view.page.export import export
from atropos_view.page.index import RunIndex
from atropos_view.page.page import script_json
from atropos_view.page.server import ViewServer

from atropos_cli.errors import DataError

from .view_support import Exported, group, native, opened, words, write

CLI = Callable[..., Any]

# The server -----------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ViewServer]:
    found = ViewServer(opened(write(tmp_path / "r.jsonl", native("alpha", [{"reward": 0.2}]), group("b", [1.0]))))
    threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def fetch(
    server: ViewServer, path: str, *, method: str = "GET", host: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


def test_a_list_of_runs_and_the_runs_in_it(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    (root / "a").mkdir(parents=True)
    (root / "a" / "plan.json").write_text("{}")
    write(root / "a" / "groups.jsonl", native("alpha", [{"reward": 0.2}]))
    (root / "bare").mkdir()
    (root / "bare" / "plan.json").write_text('{"environment": {"name": "sums"}}')
    index = RunIndex([root], lambda folder: opened(folder))
    found = ViewServer(index)
    threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        base = f"/{found.secret}/"
        for name in ("", "runs.js", "runs.css", "style.css", "dom.js"):
            assert fetch(found, base + name)[0] == 200
        status, headers, body = fetch(found, f"{base}api/runs")
        runs = {Path(run["run"]).name: run for run in json.loads(body)["runs"]}
        assert (status, list(runs["a"]), runs["bare"]["state"]) == (200, list(runs["bare"]), "planned")
        connection = http.client.HTTPConnection("127.0.0.1", found.server_port, timeout=60)
        connection.request("GET", f"{base}api/runs", headers={"If-None-Match": headers["ETag"]})
        unchanged = connection.getresponse()
        assert (unchanged.status, unchanged.read()) == (304, b"")
        connection.close()
        page = f"{base}run/{runs['a']['key']}/"
        assert b'<a id="back" href="../../">' in fetch(found, page)[2]
        assert json.loads(fetch(found, f"{page}api/group?n=0")[2])["task"] == "alpha"
        for path in ("run/", "run/x", "run/x/", "run/x/api/run", "api/group?n=0", "app.js", f"run/{'.' * 2}/a/"):
            assert fetch(found, base + path)[0] == 404
        assert fetch(found, f"{page}curves")[0] == 404
        status, _, text = fetch(found, f"{base}run/{runs['bare']['key']}/")
        assert (status, b"Traceback" in text) == (404, False)
        assert (runs["a"]["groups"], runs["bare"]["groups"]) == (True, False)
        status, _, text = fetch(found, f"{base}run/{runs['bare']['key']}/api/run")
        assert (status, "without rollouts" in json.loads(text)["error"]) == (404, True)
        assert fetch(found, f"/wrong/run/{runs['a']['key']}/api/run")[0] == 404
    finally:
        found.shutdown()
        found.server_close()
        index.close()


def test_the_server_listens_on_this_machine_only(server: ViewServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert urlsplit(server.url).hostname == "127.0.0.1"
    assert len(server.secret) >= 20


def test_every_answer_carries_a_strict_policy(server: ViewServer) -> None:
    base = f"/{server.secret}/"
    for path in (
        base,
        f"{base}app.js",
        f"{base}style.css",
        f"{base}api/run",
        f"{base}api/group?n=99",
        "/",
        "/favicon.ico",
    ):
        _, headers, _ = fetch(server, path)
        policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in headers
    page = fetch(server, base)[2].decode()
    assert not re.search(r"https?://|<style|\son\w+=", page)


def test_without_the_secret_there_is_nothing(server: ViewServer) -> None:
    for path in (
        "/",
        "/api/run",
        f"/{server.secret[:-1]}/",
        f"/{server.secret}x/api/run",
        "/../etc/passwd",
        f"/{server.secret}/../../etc/passwd",
        f"/{server.secret}/assets/app.js",
        "//",
        "/%2e%2e/",
    ):
        assert fetch(server, path)[0] == 404, path


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:1", 200), ("localhost:8000", 200), ("[::1]:9", 200), ("LOCALHOST", 200), ("evil.example", 421),
     ("127.0.0.1.evil.example", 421), ("localhost.evil.example:80", 421), ("", 421), ("[", 400)],
)  # fmt: skip
def test_a_site_that_points_its_name_here_gets_nothing(server: ViewServer, host: str, status: int) -> None:
    assert fetch(server, f"/{server.secret}/api/run", host=host)[0] == status


def test_only_reading(server: ViewServer) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert fetch(server, f"/{server.secret}/api/run", method=method)[0] == 501
    assert fetch(server, f"/{server.secret}/", method="HEAD")[2] == b""


def test_answers_are_json(server: ViewServer) -> None:
    status, headers, body = fetch(server, f"/{server.secret}/api/groups?q=alpha")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert [item["task"] for item in json.loads(body)["items"]] == ["alpha"]
    status, _, body = fetch(server, f"/{server.secret}/api/group?n=x")
    assert (status, json.loads(body)) == (400, {"error": "n is not a whole number"})


def start(*arguments: str) -> subprocess.Popen[str]:
    code = "import sys; from atropos_cli.cli.app import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "view", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_runs_until_it_is_stopped(ending: int) -> None:
    write(Path("r.jsonl"), group("a", [1.0]))
    process = start("r.jsonl")
    assert process.stdout is not None
    url = urlsplit(process.stdout.readline().strip())
    connection = http.client.HTTPConnection(url.netloc, timeout=60)  # stays open while the server is stopped
    connection.request("GET", f"{url.path}api/run")
    assert json.loads(connection.getresponse().read())["runs"][0]["groups"] == 1
    began = time.monotonic()
    process.send_signal(ending)
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 5
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err


def test_other_machines_need_an_explicit_host() -> None:
    write(Path("r.jsonl"), group("a", [1.0]))
    process = start("r.jsonl", "--host", "0.0.0.0")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("http://0.0.0.0:")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "can be reached from other machines" in err


def test_a_taken_port(server: ViewServer, cli: CLI) -> None:
    done = cli("view", write(Path("r.jsonl"), group("a", [1.0])), "--port", str(server.server_port))
    assert done.code == 2
    assert f"port {server.server_port}" in done.stderr


# Pages without a server -----------------------------------------------------------------------------------------

EVIL = '</script><script>window.pwned=1</script><!--<script><img src=x onerror="window.pwned=1">\u2028\u202e\ud83d'


def test_an_exported_page_holds_its_data_safely(cli: CLI) -> None:
    path = write(Path("r.jsonl"), group(EVIL, [1.0], [EVIL], env=EVIL), group("b", [0.0]))
    done = cli("view", path, "--export", "page.html")
    assert (done.code, done.stdout) == (0, "")
    assert "wrote page.html: 2 groups" in done.stderr
    page = Exported(Path("page.html"))
    assert page.text.count("<script") == page.text.count("</script>") == 4
    assert "<img" not in page.text
    (block,) = page.all("g")
    assert words(block["0/0"]["rollouts"][0]["messages"][0]) == EVIL.replace("\ud83d", "\ufffd")
    assert not re.search(r'(?:src|href)="(?!#)', page.text)
    assert cli("view", path, "--export", "page.html").code == 6
    assert cli("view", path, "--export", "page.html", "--overwrite").code == 0
    assert [file.name for file in Path().iterdir() if file.name.startswith(".page")] == []


def test_an_exported_page_says_what_it_leaves_out(cli: CLI) -> None:
    path = write(Path("r.jsonl"), *(group(str(i), [1.0]) for i in range(7)))
    done = cli("view", path, "--export", "page.html", "--limit", "3")
    assert "3 groups of 7" in done.stderr
    page = Exported(Path("page.html"))
    assert (page.data["held"], page.data["total"], len(page.block("i0")["items"])) == (3, 7, 3)


def test_an_exported_page_holds_a_whole_run_in_blocks(cli: CLI) -> None:
    path = write(Path("r.jsonl"), *(group(f"t{i}", [i / 1200, 0.0], [f"reply {i}", "no"]) for i in range(1200)))
    done = cli("view", path, "--export", "page.html")
    assert "1,200 groups, 0" in done.stderr
    page = Exported(Path("page.html"))
    assert [block["groups"] for block in page.data["blocks"]] == [500, 500, 200]
    assert [item["n"] for block in page.all("i") for item in block["items"]] == list(range(1200))
    assert page.block("i1")["items"][0]["mean"] == pytest.approx(500 / 2400)
    assert words(page.block("g2")["0/1199"]["rollouts"][0]["messages"][-1]) == "reply 1199"
    assert len(page.text) < 400_000


def test_an_exported_comparison_says_what_it_compares(cli: CLI) -> None:
    a = write(Path("a.jsonl"), native("x", [{"reward": 0.0}]), native("y", [{"reward": 0.0}]))
    b = write(Path("b.jsonl"), native("x", [{"reward": 1.0}], model="other"))
    assert cli("view", a, "--diff", b, "--export", "page.html").code == 0
    page = Exported(Path("page.html"))
    assert [row["delta"] for row in page.block("i0")["rows"]] == [1.0, None]
    assert {"0/0", "1/0", "0/1"} == set(page.block("g0"))
    assert "<title>a.jsonl (m) compared with b.jsonl (other)</title>" in page.text
    assert [run["about"]["model"] for run in page.data["runs"]] == ["m", "other"]
    assert page.data["counts"]["runs"][1] == {"tasks": 1, "scored": 1, "failed": 0, "mean": 1.0}


def test_runs_tell_their_model_options_and_date(cli: CLI) -> None:
    for model in ("one", "two"):
        sample = ("gen", "arithmetic", "--backend", "scripted", "--backend.replies", "Answer: 7", "--limit", "2")
        assert cli(*sample, "--group-size", "2", "--model", model, "-o", f"runs/{model}").code == 0
    one, two = (about(run) for run in opened(Path("runs/one"), Path("runs/two")).runs)
    assert (one["model"], two["model"]) == ("one", "two")
    assert (one["env"], one["command"], one["state"]) == ("arithmetic", "gen", "finished")
    assert one["made"].endswith("+00:00")
    assert ["group_size", "2"] in one["options"]
    assert ["backend.replies", '[\n  "Answer: 7"\n]'] in one["options"]


def test_a_page_stays_below_its_size(tmp_path: Path) -> None:
    rows = [
        group(str(i), [1.0] * 8, [random.Random(8 * i + k).randbytes(9_000).hex() for k in range(8)]) for i in range(50)
    ]
    library = opened(write(tmp_path / "r.jsonl", *rows))
    assert 0 < export(library, tmp_path / "p.html", max_bytes=100_000).groups < 50
    made = export(library, tmp_path / "p.html")
    assert (made.groups, made.size) == (50, (tmp_path / "p.html").stat().st_size)


def test_tokens_beyond_a_budget_are_left_out(tmp_path: Path) -> None:
    ids = [random.Random(0).randrange(50_000) for _ in range(500)]
    messages = [{"role": "assistant", "content": "a", "tokens": {"ids": ids, "mask": True, "logprobs": [-0.5] * 500}}]
    rows = [native(str(i), [{"reward": 1.0, "messages": messages}]) for i in range(1001)]
    library = opened(write(tmp_path / "r.jsonl", *rows))
    made = export(library, tmp_path / "p.html", token_bytes=10)
    assert (made.groups, made.with_tokens) == (1001, 500)
    assert [bool(block["tokens"]) for block in Exported(tmp_path / "p.html").data["blocks"]] == [True, False, False]


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")
    library = opened(write(tmp_path / "r.jsonl", *(group(str(i), [1.0]) for i in range(5))))

    def full(position: int) -> Any:
        raise OSError(28, "No space left on device")

    library.runs[0].group = full
    with pytest.raises(DataError, match="No space left"):
        export(library, page)
    assert page.read_text() == "old"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["page.html", "r.jsonl"]


def test_a_page_that_is_broken_off_leaves_nothing(cli: CLI, monkeypatch: pytest.MonkeyPatch) -> None:
    write(Path("r.jsonl"), group("a", [1.0]))
    real = payload.group

    def ended(*given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return real(*given)

    monkeypatch.setattr(payload, "group", ended)
    assert cli("view", "r.jsonl", "--export", "page.html").code == 130
    assert [file.name for file in Path().iterdir() if "page" in file.name] == []


def test_a_page_never_takes_the_place_of_its_input(cli: CLI) -> None:
    before = write(Path("r.jsonl"), group("a", [1.0])).read_text()
    Path("link.jsonl").symlink_to("r.jsonl")
    for command, option in (("view", "--export"), ("analyze", "--html")):
        for name in ("r.jsonl", "link.jsonl"):
            got = cli(command, "r.jsonl", option, name, "--overwrite")
            assert (got.code, "is an input" in got.stderr) == (2, True)
        got = cli(command, "r.jsonl", option, "r.jsonl/x/page.html")
        assert (got.code, "r.jsonl is a file, not a folder" in got.stderr) == (6, True)
        got = cli(command, "r.jsonl", option, ".", "--overwrite")
        assert (got.code, ". is a folder" in got.stderr) == (6, True)
    assert Path("r.jsonl").read_text() == before


def test_script_json_has_no_markup() -> None:
    assert script_json({"a": "</script>&\u2028"}) == '{"a":"\\u003c/script\\u003e\\u0026\\u2028"}'
    assert json.loads(script_json({"<": "<!--"})) == {"<": "<!--"}


def test_a_tokenizer_that_is_not_there(cli: CLI) -> None:
    pytest.importorskip("transformers")
    path = write(Path("r.jsonl"), group("a", [1.0]))
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        done = cli("view", path, "--tokenizer", "./nowhere", "--export", "p.html")
    finally:
        del os.environ["HF_HUB_OFFLINE"]
    assert done.code in (3, 6)
    assert "nowhere" in done.stderr
