"""What surrounds a job on a real SLURM: proxies, the names of its GPUs, and data that changed before it is resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

from . import slurm_cluster
from .slurm_cells import TRAINER
from .slurm_cluster import Cluster
from .slurm_support import (  # noqa: F401
    client,
    groups,
    log,
    main,
    place_fixture,
    record,
    service,
    slurm,
    start,
)

pytestmark = slurm

DEAD = "http://127.0.0.1:9"
SHORT = ("--time", "5m", "--cpus-per-task", "1")


@pytest.fixture(scope="module", name="cluster")
def cluster_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose tasks see the GPUs that its file `mask` names, as a site's prolog may have it."""
    folder = tmp_path_factory.mktemp("slurm")
    prolog = folder / "prolog"
    prolog.write_text(
        f'#!/bin/sh\n[ -e {folder}/mask ] && echo "export CUDA_VISIBLE_DEVICES=$(cat {folder}/mask)"\n:\n'
    )
    prolog.chmod(0o755)
    with slurm_cluster.running(folder) as found:
        yield found


@pytest.fixture
def mask(cluster: Cluster) -> Iterator[Path]:
    """The file that says which GPUs tasks see."""
    file = cluster.folder / "mask"
    yield file
    file.unlink()


@pytest.fixture
def proxy() -> Iterator[str]:
    """A proxy that lets nobody through."""

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(403, "Forbidden by the site")
            self.send_header("content-length", "0")
            self.end_headers()

        do_GET = do_CONNECT = do_POST  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: tests read the output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def submit(cli: Any, run: str, *words: str) -> Any:
    return cli("slurm", "submit", *SHORT, "--wait", "--folder", run, "--", *words)


def test_servers_of_the_job_are_asked_directly(place: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever form the site gives its proxy: the health of the job's own server does not go through it."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, DEAD)
    monkeypatch.setenv("no_proxy", "example.org")
    job = cluster.wait(start(place, service("server0", 0), main("true")))
    assert (job["JobState"], record(place)["code"]) == ("COMPLETED", 0)


@pytest.mark.parametrize("direct", ["127.0.0.0/8", "localhost,127.0.0.1"])
def test_what_no_proxy_names_is_asked_directly(
    place: Path, cli: Any, monkeypatch: pytest.MonkeyPatch, direct: str
) -> None:
    monkeypatch.setenv("http_proxy", DEAD)
    monkeypatch.setenv("no_proxy", direct)
    with MockServer(models=("tiny",)) as server:
        words = ("gen", "./sums.py:Sums", "--base-url", server.base_url, "--limit", "2", "--group-size", "1")
        done = submit(cli, "run", *words)
    assert done.code == 0, done.stderr
    assert len(groups(place / "run")) == 2


def test_the_answer_of_a_proxy_is_said_to_be_the_proxys(
    place: Path, cli: Any, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    words = ("gen", "./sums.py:Sums", "--base-url", "http://models.invalid:8000/v1", "--model", "m", "--limit", "1")
    done = submit(cli, "run", *words, "--max-wait", "1")
    assert done.code not in (0, None)
    said = log(place / "run", "main")
    assert "proxy" in said
    assert "403" in said


@pytest.mark.parametrize(
    ("names", "gpu", "seen"),
    [("MIG-aaaa,MIG-bbbb", 1, "MIG-bbbb"), ("GPU-c0ffee,GPU-decade", 0, "GPU-c0ffee"), ("3,1", 0, "3")],
)
def test_a_component_gets_the_gpu_as_the_site_names_it(
    place: Path, cluster: Cluster, mask: Path, names: str, gpu: int, seen: str
) -> None:
    mask.write_text(names)
    show = main("sh", "-c", 'echo "gpus $CUDA_VISIBLE_DEVICES"').replace(gpus=(gpu,))
    cluster.wait(start(place, show, nodes=1))
    assert log(place, "main").strip() == f"gpus {seen}"


def test_fewer_gpus_than_the_plan_asks_for_are_named(place: Path, cluster: Cluster, mask: Path) -> None:
    mask.write_text("GPU-only")
    show = main("sh", "-c", "echo started").replace(gpus=(1,))
    job = cluster.wait(start(place, show, nodes=1))
    assert job["JobState"] == "FAILED"
    assert "GPU" in log(place, "main")
    assert "started" not in log(place, "main")


def test_a_training_is_resumed_with_its_own_rows(place: Path, cli: Any) -> None:
    """Other rows fail the job, with the flag that accepts them; rows in another order are other rows."""
    (place / "slow.py").write_text(TRAINER.replace("saved =", "rows = list(context.rows())\n        saved =", 1))
    rows = [{"prompt": f"{n}", "completion": f" {n}"} for n in range(8)]
    data = place / "rows.jsonl"

    def write(found: list[dict[str, str]]) -> None:
        data.write_text("".join(json.dumps(row) + "\n" for row in found))

    def train(steps: int, *more: str) -> Any:
        words = ("train", "sft", "--data", "rows.jsonl", "--model", "none", "--trainer", "./slow.py:Slow")
        return submit(cli, "run", *words, "--trainer.pause", "0.1", "--steps", str(steps), *more)

    write(rows)
    assert train(2).code == 0
    for changed in (rows[::-1], rows[1:]):
        write(changed)
        assert train(4).code != 0
        assert "--accept-changed-data" in log(place / "run", "main")
    assert train(4, "--accept-changed-data").code == 0
    events = [json.loads(line) for line in (place / "run" / "log.jsonl").read_text().splitlines()]
    assert [event for event in events if event["event"] == "warning" and "accepted" in event["message"]]
