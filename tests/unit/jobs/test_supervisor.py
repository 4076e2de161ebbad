"""The supervisor on this machine, with real programs: order, exit codes, and that nothing survives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.domain.job import Component, JobPlan, Resources, Warmup
from atropos_cli.jobs.folder import write_job
from atropos_cli.jobs.network import NoPort, Ports
from atropos_cli.jobs.node import CannotStart, visible_gpus
from atropos_cli.jobs.placing import LocalPlacer
from atropos_cli.jobs.processes import marked
from atropos_cli.jobs.srun import per_node
from atropos_cli.jobs.supervisor import run_job

PROGRAMS = str(Path(__file__).parents[2] / "e2e" / "slurm_programs.py")


def service(
    name: str = "server0", *, warm: float = 0, die: float = 0, code: int = 0, dead: float = 0, **more: Any
) -> Component:
    argv = (sys.executable, "-u", PROGRAMS, "server", "{port}", str(warm), str(die), str(code), str(dead))
    made = {"ports": ("http",), "health": "/health", "warmup": Warmup(path="/warm"), **more}
    return Component(name=name, role="service", argv=argv, **made)


def main(*argv: str, **more: Any) -> Component:
    return Component(name="main", role="main", argv=argv, **more)


def run(folder: Path, *components: Component, **settings: Any) -> tuple[int, dict[str, Any], list[str]]:
    """(exit code, exit.json, lines for people)."""
    plan = JobPlan(atropos_version="0", name="test", components=components, grace=5, drain=5, **settings)
    write_job(plan, folder)
    said: list[str] = []
    code = run_job(plan, folder, LocalPlacer(), said.append)
    return code, json.loads((folder / "exit.json").read_text()), said


def log(folder: Path, name: str) -> str:
    return (folder / "logs" / "latest" / f"{name}.log").read_text()


def left(folder: Path) -> list[int]:
    """Living processes of components of the job."""
    names = [item["name"] for item in json.loads((folder / "job.json").read_text())["components"]]
    return [pid for name in names for pid in marked("_ATROPOS_COMPONENT", f"{folder.resolve()}/{name}")]


@pytest.fixture(autouse=True)
def _nothing_survives(tmp_path: Path) -> Iterator[None]:
    yield
    deadline = time.monotonic() + 5
    while (pids := left(tmp_path) if (tmp_path / "job.json").exists() else []) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not pids


def later(condition: Callable[[], bool], action: Callable[[], None]) -> None:
    """Do something from a thread as soon as a condition holds."""

    def wait() -> None:
        deadline = time.monotonic() + 30
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.05)
        action()

    threading.Thread(target=wait, daemon=True).start()


def test_main_runs_when_the_services_are_ready_and_they_stop_behind_it(tmp_path: Path) -> None:
    code, ended, _ = run(
        tmp_path,
        service(warm=0.5),
        main(sys.executable, "-c", "import sys; print(sys.argv[1:])", "{endpoint:server0}", "{run}", "{{port}}", ""),
    )
    assert (code, ended["reason"]) == (0, "finished")
    endpoint = json.loads((tmp_path / "endpoints" / "server0.json").read_text())
    port = endpoint["ports"]["http"]
    assert log(tmp_path, "main").strip() == str([f"127.0.0.1:{port}", str(tmp_path.resolve()), "{port}", ""])
    assert 20000 <= port < 30000
    assert log(tmp_path, "server0").splitlines() == ["asked /warm", "stopped politely"]
    assert json.loads((tmp_path / "status" / "server0.json").read_text())["leftovers"] == 1
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == [
        "job_started", "start", "ready", "start", "ended", "stop", "ended", "exit",
    ]  # fmt: skip


def test_services_of_the_job_are_reached_without_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "login.test")
    monkeypatch.delenv("no_proxy", raising=False)
    show = "import os, sys; print(os.environ['no_proxy'], os.environ['NO_PROXY'])"
    code, _, _ = run(tmp_path, service(), main(sys.executable, "-c", show, "{endpoint:server0}"))
    assert code == 0
    assert log(tmp_path, "main").split() == ["login.test,127.0.0.1"] * 2


def test_tasks_run_before_and_behind_main(tmp_path: Path) -> None:
    order = tmp_path / "order"
    note = "echo $0 >> " + str(order)
    before = Component(name="fetch", role="task", argv=("sh", "-c", note, "fetch"))
    behind = Component(name="merge", role="task", argv=("sh", "-c", note, "merge"), after=("main",))
    assert run(tmp_path, behind, main("sh", "-c", note, "main"), before)[0] == 0
    assert order.read_text().split() == ["fetch", "main", "merge"]


def test_a_task_that_fails_ends_the_job_with_its_code(tmp_path: Path) -> None:
    before = Component(name="fetch", role="task", argv=("sh", "-c", "exit 4"))
    code, ended, _ = run(tmp_path, before, main("true"))
    assert (code, ended["component"], ended["components"]) == (4, "fetch", {"fetch": 4})


def test_what_stands_behind_main_is_left_out_when_main_fails(tmp_path: Path) -> None:
    behind = Component(name="merge", role="task", argv=("true",), after=("main",))
    code, ended, _ = run(tmp_path, main("sh", "-c", "exit 3"), behind)
    assert (code, ended["components"]) == (3, {"main": 3})


STUBBORN = """
import signal, sys, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(time.monotonic()))
while len(told) < int(sys.argv[1]): time.sleep(0.05)
print(len(told))
sys.exit(130)
"""


def test_main_is_told_again_when_a_service_has_failed(tmp_path: Path) -> None:
    """It would finish its work first, and what it waits for will never come."""
    began = time.monotonic()
    plan = JobPlan(
        atropos_version="0",
        name="test",
        components=(service(die=2), main(sys.executable, "-c", STUBBORN, "2")),
        grace=30,
        drain=30,
    )
    write_job(plan, tmp_path)
    assert run_job(plan, tmp_path, LocalPlacer()) == 70
    assert json.loads((tmp_path / "exit.json").read_text())["components"]["main"] == 130
    assert time.monotonic() - began < 15


def test_main_is_told_once_when_the_job_is_stopped(tmp_path: Path) -> None:
    """The second time would mean: drop what you have."""
    later(lambda: (tmp_path / "endpoints" / "main.json").exists(), lambda: (time.sleep(1), os.kill(os.getpid(), 10)))
    code, ended, _ = run(tmp_path, main(sys.executable, "-c", STUBBORN, "2"))  # drain: 5 s
    assert ended["components"]["main"] == 137, "it was killed, still waiting for the second"
    assert code == 128 + signal.SIGUSR1, "what is killed because it was slow can go on, as what ended by itself"


def helper(*argv: str) -> Component:
    where = {"PEER": "{endpoint:main}"}
    return Component(name="main1", role="helper", argv=argv, env=where)


def test_helpers_run_beside_main_and_know_its_address(tmp_path: Path) -> None:
    """Main waits for a file that its helper writes; the job is done when both are."""
    found = tmp_path / "found"
    first = main("sh", "-c", f"until test -s {found}; do sleep 0.05; done", ports=("rendezvous",))
    second = helper("sh", "-c", f"echo $PEER > {found}; sleep 0.5; echo late > {tmp_path / 'late'}")
    code, ended, _ = run(tmp_path, second, first)
    assert (code, ended["components"]) == (0, {"main": 0, "main1": 0})
    port = json.loads((tmp_path / "endpoints" / "main.json").read_text())["ports"]["rendezvous"]
    assert found.read_text().strip() == f"127.0.0.1:{port}"
    assert (tmp_path / "late").exists()


def test_a_helper_that_fails_ends_main_and_the_job(tmp_path: Path) -> None:
    code, ended, _ = run(tmp_path, main("sleep", "60", ports=("rendezvous",)), helper("sh", "-c", "exit 8"))
    assert (code, ended["component"]) == (8, "main1")


def test_when_both_fail_mains_code_says_why(tmp_path: Path) -> None:
    slow = main("sh", "-c", "sleep 1; exit 3", ports=("rendezvous",))
    code, ended, _ = run(tmp_path, slow, helper("sh", "-c", "exit 8"))
    assert (code, ended["component"], ended["components"]) == (3, "main", {"main1": 8, "main": 3})


@pytest.mark.parametrize("ending", [0, 1])
def test_a_service_that_ends_is_a_failure_whatever_its_code(tmp_path: Path, ending: int) -> None:
    code, ended, said = run(tmp_path, service(die=1, code=ending), main("sleep", "60"))
    assert (code, ended["component"]) == (70, "server0")
    assert any("engine died" in line for line in said)


def test_the_server_is_blamed_when_the_client_notices_first(tmp_path: Path) -> None:
    client = main(sys.executable, "-u", PROGRAMS, "client", "http://{endpoint:server0}/")
    code, ended, _ = run(tmp_path, service(die=1.5), client)
    assert (code, ended["component"]) == (70, "server0")


def test_a_healthy_server_is_not_blamed(tmp_path: Path) -> None:
    code, ended, _ = run(tmp_path, service(), main("sh", "-c", "exit 3"))
    assert (code, ended["component"]) == (3, "main")


def test_b08_a_crash_at_the_start_is_seen_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    broken = service().replace(argv=("sh", "-c", "sleep 1; echo CUDA out of memory; exit 1"))
    code, ended, said = run(tmp_path, broken, main("true"), start_timeout=600)
    assert time.monotonic() - began < 20
    assert (code, ended["reason"]) == (70, "service server0 ended with 1 while it started")
    assert any("CUDA out of memory" in line for line in said)
    assert any(str(tmp_path / "logs" / "attempt_1" / "server0.log") in line for line in said)


def test_a_service_that_never_becomes_healthy(tmp_path: Path) -> None:
    code, ended, _ = run(tmp_path, service(warm=99), main("true"), start_timeout=1.5)
    assert code == 75
    assert "server0 waits for GET /health to answer with 200" in ended["reason"]


def test_a_refused_warm_up_names_the_answer(tmp_path: Path) -> None:
    argv = (sys.executable, "-m", "atropos_authoring.mock_server", "--port", "{port}", "--flavor", "vllm")
    warmup = Warmup(path="/v1/completions", json_body={"model": "another", "prompt": "x", "max_tokens": 1})
    code, ended, _ = run(tmp_path, service(warmup=warmup).replace(argv=argv), main("true"))
    assert code == 70
    assert "POST /v1/completions was refused: 404" in ended["reason"]


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    code, ended, _ = run(tmp_path, main("/no/such/program"))
    assert (code, ended["reason"]) == (
        127,
        "main ended with 127: cannot start '/no/such/program': No such file or directory",
    )


def test_an_order_by_reference(tmp_path: Path) -> None:
    """A rank that needs the address of another waits until that is published, not until it is healthy."""
    other = service("rank1", health=None, warmup=None).replace(
        argv=("sh", "-c", "echo $0; sleep 60", "{endpoint:server0.dist.host} {endpoint:server0.dist.port}")
    )
    wait = service(warm=1, ports=("http", "dist"))
    assert run(tmp_path, other, wait, main("true"))[0] == 0
    port = json.loads((tmp_path / "endpoints" / "server0.json").read_text())["ports"]["dist"]
    assert log(tmp_path, "rank1").strip() == f"127.0.0.1 {port}"


def test_a_signal_stops_main_first_and_all(tmp_path: Path) -> None:
    stubborn = "trap 'echo saved; exit 130' TERM; echo up; while :; do sleep 0.1; done"
    started = tmp_path / "logs" / "attempt_1" / "main.log"
    later(lambda: started.exists() and "up" in started.read_text(), lambda: os.kill(os.getpid(), signal.SIGTERM))
    code, ended, _ = run(tmp_path, service(), main("sh", "-c", stubborn))
    assert (code, ended["reason"], ended["components"]) == (143, "stopped by SIGTERM", {"main": 130, "server0": 0})
    assert "saved" in log(tmp_path, "main")


def test_who_ignores_the_stop_is_killed_with_its_children(tmp_path: Path) -> None:
    deaf = "trap '' TERM; sleep 600 & setsid sleep 600 & echo up; while :; do sleep 0.1; done"
    started = tmp_path / "logs" / "attempt_1" / "main.log"
    later(lambda: started.exists() and "up" in started.read_text(), lambda: os.kill(os.getpid(), signal.SIGTERM))
    plan = JobPlan(atropos_version="0", name="test", components=(main("sh", "-c", deaf),), grace=1, drain=1)
    write_job(plan, tmp_path)
    assert run_job(plan, tmp_path, LocalPlacer()) == 143


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_g12_whoever_ends_the_supervisor_nothing_is_left(tmp_path: Path, number: signal.Signals) -> None:
    """The server has a child in a session of its own; SIGKILL of the supervisor reaches it by its parents."""
    plan = JobPlan(atropos_version="0", name="test", components=(service(),), grace=5)
    path = write_job(plan, tmp_path)
    process = subprocess.Popen([sys.executable, "-m", "atropos_cli", "run", str(path)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while '"ready"' not in (events.read_text() if (events := tmp_path / "events.jsonl").exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert len(left(tmp_path)) >= 2
    process.send_signal(number)
    assert process.wait(20) == (128 + number if number != signal.SIGKILL else -signal.SIGKILL)


def test_a_service_that_says_it_is_dead_ends_the_job_while_it_lives_on(tmp_path: Path) -> None:
    began = time.monotonic()
    code, ended, said = run(tmp_path, service(dead=2, dead_status=503), main("sleep", "60"))
    assert (code, ended["component"]) == (70, "server0")
    assert "the engine of server0 has died (GET /health answers 503)" in ended["reason"]
    assert time.monotonic() - began < 15
    assert "stopped politely" not in log(tmp_path, "server0")
    assert any("has died" in line for line in said)


def test_a_busy_answer_means_death_only_where_the_component_says_so(tmp_path: Path) -> None:
    code, ended, _ = run(tmp_path, service(dead=0.5), main("sleep", "6"))
    assert (code, ended["reason"]) == (0, "finished")


@pytest.mark.parametrize("victim", ["pid", "parent"])
def test_kill_9_of_a_service_or_its_parent(tmp_path: Path, victim: str) -> None:
    path = tmp_path / "endpoints" / "server0.json"
    started = tmp_path / "logs" / "attempt_1" / "main.log"
    later(started.exists, lambda: os.kill(json.loads(path.read_text())[victim], signal.SIGKILL))
    code, ended, _ = run(tmp_path, service(), main("sleep", "60"))
    assert (code, ended["component"]) == (70, "server0")


def test_each_attempt_has_its_logs(tmp_path: Path) -> None:
    run(tmp_path, main("echo", "one"))
    run(tmp_path, main("echo", "two"))
    assert (tmp_path / "logs" / "attempt_1" / "main.log").read_text() == "one\n"
    assert log(tmp_path, "main") == "two\n"
    assert json.loads((tmp_path / "exit.json").read_text())["attempt"] == 2


class Requeueing(LocalPlacer):
    """A placer of a cluster that can queue jobs again."""

    def __init__(self, restarts: int) -> None:
        super().__init__()
        self.restarts = restarts
        self.requeued = 0

    def requeue(self) -> None:
        self.requeued += 1


@pytest.mark.parametrize(("restarts", "ending", "again"), [(0, 130, 1), (2, 130, 0), (0, 5, 0), (0, 0, 0)])
def test_the_time_limit_queues_again_what_is_not_done(tmp_path: Path, restarts: int, ending: int, again: int) -> None:
    program = f"trap 'exit {ending}' TERM; echo up; while :; do sleep 0.1; done"
    started = tmp_path / "logs" / "attempt_1" / "main.log"
    later(lambda: started.exists() and "up" in started.read_text(), lambda: os.kill(os.getpid(), signal.SIGUSR1))
    plan = JobPlan(atropos_version="0", name="test", components=(main("sh", "-c", program),), max_requeues=2, drain=5)
    write_job(plan, tmp_path)
    placer = Requeueing(restarts)
    assert run_job(plan, tmp_path, placer) == (ending if ending in (0, 5) else 138)
    assert placer.requeued == again
    assert json.loads((tmp_path / "exit.json").read_text())["requeued"] == bool(again)


def test_g14_gpus_are_a_part_of_the_given_ones_in_their_spelling() -> None:
    given = {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}
    assert visible_gpus([0, 1], given) == "4,5"
    assert visible_gpus([2, 3], given) == "6,7"
    assert visible_gpus([1], {"CUDA_VISIBLE_DEVICES": "GPU-aa,GPU-bb"}) == "GPU-bb"
    assert visible_gpus([], given) == ""
    assert visible_gpus([2], {"SLURM_GPUS_ON_NODE": "3"}) == "2"
    assert visible_gpus([3], {}) == "3"
    for environ in (given, {"SLURM_GPUS_ON_NODE": "4"}, {"CUDA_VISIBLE_DEVICES": ""}):
        with pytest.raises(CannotStart, match="wants GPU 4"):
            visible_gpus([4], environ)


def test_g10_two_components_never_get_the_same_port() -> None:
    one, two = Ports("job", "server0"), Ports("job", "server0")
    ports = [one.pick(), two.pick(), one.pick(), two.pick()]
    assert len(set(ports)) == 4
    with pytest.raises(NoPort, match=f"port {ports[0]} is taken"):
        two.take(ports[0])
    one.close()
    assert two.take(ports[0]) == ports[0]
    two.close()


def test_numbers_per_node() -> None:
    assert per_node("4(x2),8", 3) == [4, 4, 8]
    assert per_node("16", 2) == [16, 16]
    assert per_node("", 2) == [1, 1]


def test_more_nodes_than_one_on_this_machine(tmp_path: Path) -> None:
    plan = JobPlan(atropos_version="0", name="test", components=(main("true", node=1),), resources=Resources(nodes=2))
    write_job(plan, tmp_path)
    assert run_job(plan, tmp_path, LocalPlacer(2)) == 0
