"""Trackers: a real W&B offline run and real TensorBoard files; trouble with them never ends training."""

from __future__ import annotations

import _thread
import json
import math
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandblog
from atropos_tracking.eventfile import crc32c
from wandblog import wandb_ended, wandb_records

from atropos_cli import redaction
from atropos_cli.domain.refs import ComponentRef
from atropos_cli.domain.training import TrainPlan
from atropos_cli.plugins.discovery import get_registry
from atropos_cli.tracking import services as trackers
from atropos_cli.tracking.services import About, Trackers, read_ids
from atropos_cli.training.samples import Samples, read_samples

COLUMNS = ["step", "prompt", "completion", "extracted", "expected", "reward", "correct"]


def plan(*trackers: Any) -> TrainPlan:
    return TrainPlan(
        atropos_version="0", method="grpo", trainer=ComponentRef(name="x"), model="m", trackers=trackers, project="p"
    )


def open_trackers(plan: TrainPlan, folder: Path, say: Any, *, resume: bool = False, wait: bool = True) -> Trackers:
    config = {"digest": plan.digest, **plan.model_dump(mode="json")}
    about = About("train", folder, config, "train/step", resume, earlier_samples=lambda: read_samples(folder))
    return trackers.open_trackers(plan.tracking, about, get_registry(), say, wait=wait)


def train(folder: Path, steps: range, *trackers: str, code: int = 0, resume: bool = False) -> list[str]:
    """What a run does with its trackers; returns what was said."""
    said: list[str] = []
    opened = open_trackers(plan(*trackers), folder, said.append, resume=resume)
    samples = Samples(folder)
    for step in steps:
        opened.metrics(step, {"loss": 1 / step, "kl": None})
        row = {"prompt": "1+1=", "completion": f"{step}", "extracted": step if step % 2 else "no", "expected": "2"}
        opened.samples(step, samples.write(step, [{**row, "reward": 0.5, "correct": step == 2}]))
        opened.samples(step, samples.write(step, [row], suite="sums"))
    samples.close()
    opened.finish(code)
    return said


def tables(folder: Path, suite: str) -> dict[str, list[list[Any]]]:
    """Rows of the tables in each offline run directory, in the order they were logged."""
    found = {}
    for run in sorted((folder / "wandb").glob("offline-run-*")):
        parts = list(run.glob(f"files/media/table/samples/{suite}_*.table.json"))
        loaded = [json.loads(part.read_text()) for part in parts]
        assert all(part["columns"] == COLUMNS for part in loaded)
        found[run.name] = sorted((row for part in loaded for row in part["data"]), key=lambda row: row[0])
    return found


def test_nothing_is_opened_unless_asked_for(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; sys.path[:0] = sys.argv[2:]\n"
        "import test_services as t; t.train(Path(sys.argv[1]), range(1, 3))\n"
        "assert not {'wandb', 'tensorboard', 'torch'} & set(sys.modules)"
    )
    places = (Path(__file__).parent, Path(wandblog.__file__).parent)
    subprocess.run([sys.executable, "-c", code, tmp_path, *places], check=True, timeout=60)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["samples.jsonl"]


def test_wandb_offline_directories_hold_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("ATROPOS_OFFLINE", "1")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    assert train(tmp_path, range(1, 4), "wandb", code=130) == []
    first = read_ids(tmp_path)["wandb"]
    assert first["offline"] is True
    (rows,) = tables(tmp_path, "train").values()
    assert rows == [
        [1, "1+1=", "1", 1, "2", 0.5, False],
        [2, "1+1=", "2", "no", "2", 0.5, True],
        [3, "1+1=", "3", 3, "2", 0.5, False],
    ]
    # After a kill at step 3 the run goes on from step 2, under the same id, and no earlier row is lost.
    assert train(tmp_path, range(3, 5), "wandb", resume=True) == []
    assert read_ids(tmp_path)["wandb"] == first
    runs = tables(tmp_path, "train")
    assert len(runs) == 2
    # W&B puts -1 behind the name of the second one where both are of the same second.
    assert all(name.removesuffix("-1").endswith(first["id"]) for name in runs)
    assert [row[0] for row in runs[max(runs)]] == [1, 2, 3, 4]
    assert [row[0] for row in tables(tmp_path, "sums")[max(runs)]] == [1, 2, 3, 4]
    # The binary log of each run is whole by now, with the metrics and the tables: nothing waits in W&B's service.
    logs = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert len(logs) == 2
    for log in logs:
        assert wandb_ended(log)
        records = b"".join(wandb_records(log))
        assert b"loss" in records
        assert b"incremental-table-file" in records


def test_odd_names_and_texts_cost_nobody_the_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("ATROPOS_OFFLINE", "1")
    opened = open_trackers(plan("wandb", "tensorboard"), tmp_path, pytest.fail)
    opened.metrics(1, {"half\ud800": 1.0, "": math.nan, "a\0b": math.inf, "x" * 3000: 2.0})
    opened.samples(1, [{"prompt": None, "suite": "a/b: c*?\0" + "y" * 300}])
    opened.summary(1, {"error": "half\ud800", "value": math.nan})
    opened.finish(0)
    (log,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert wandb_ended(log)
    assert "half\ufffd".encode() in b"".join(wandb_records(log))


def test_wandb_serves_other_runs_until_the_last_has_ended(tmp_path: Path, fake: Any) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
    one, two = (open_trackers(plan("wandb"), tmp_path / name, print) for name in "ab")
    one.finish(0)
    assert ("teardown",) not in fake.calls
    two.finish(0)
    assert fake.calls[-1] == ("teardown",)
    fake.run = "of somebody else in this program"
    open_trackers(plan("wandb"), tmp_path / "c", print).finish(0)
    assert fake.calls[-1] == ("finish", 0)


class FakeRun:
    """Stands in for a W&B run where a server is needed: records the calls."""

    def __init__(self, calls: list[Any], **given: Any) -> None:
        self.calls = calls
        self.url = "https://example.invalid/run"
        self.settings = types.SimpleNamespace(_offline=given["mode"] == "offline")
        calls.append(("init", given["id"], given["resume"], given["mode"]))

    def define_metric(self, *args: Any, **given: Any) -> None: ...

    def log(self, values: dict[str, Any]) -> None:
        self.calls.append(("log", values))

    def finish(self, exit_code: int) -> None:
        self.calls.append(("finish", exit_code))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    calls: list[Any] = []
    module: Any = types.SimpleNamespace(
        calls=calls,
        init=lambda **given: FakeRun(calls, **given),
        login=lambda **given: True,
        teardown=lambda: calls.append(("teardown",)),
        Settings=lambda **given: given,
    )
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setattr("atropos_tracking.wandb._using", set())
    for name in ("WANDB_MODE", "ATROPOS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    return module


def test_one_id_for_all_rollouts_and_finish_with_the_exit_code(tmp_path: Path, fake: Any) -> None:
    """Field case F13."""
    for rollout, code in enumerate((130, 8, 0)):
        opened = open_trackers(plan("wandb"), tmp_path, print, resume=rollout > 0)
        opened.metrics(rollout + 1, {"loss": 0.5, "kl": None})
        opened.finish(code)
        opened.finish(code)  # once is enough
    run_id = read_ids(tmp_path)["wandb"]["id"]
    assert [call for call in fake.calls if call[0] in ("init", "finish")] == [
        ("init", run_id, "allow", "online"),
        ("finish", 130),
        ("init", run_id, "allow", "online"),
        ("finish", 8),
        ("init", run_id, "allow", "online"),
        ("finish", 0),
    ]
    assert fake.calls[1] == ("log", {"train/step": 1, "loss": 0.5})
    assert read_ids(tmp_path)["wandb"]["url"] == "https://example.invalid/run"


def test_the_id_outlives_a_kill_during_the_start(tmp_path: Path, fake: Any) -> None:
    def killed(**given: Any) -> None:
        _thread.interrupt_main()  # Ctrl-C, while the run waits
        time.sleep(5)

    fake.init = killed
    with pytest.raises(KeyboardInterrupt):
        open_trackers(plan("wandb"), tmp_path, print)
    run_id = read_ids(tmp_path)["wandb"]["id"]
    fake.init = lambda **given: FakeRun(fake.calls, **given)
    open_trackers(plan("wandb"), tmp_path, print, resume=True)
    assert fake.calls == [("init", run_id, "allow", "online")]


def test_a_new_run_gets_a_new_id(tmp_path: Path, fake: Any) -> None:
    open_trackers(plan("wandb"), tmp_path, print)
    open_trackers(plan("wandb"), tmp_path, print)
    assert fake.calls[0][1] != fake.calls[1][1]


def test_without_a_key_or_a_network_the_run_is_kept_offline(tmp_path: Path, fake: Any) -> None:
    said: list[str] = []
    fake.login = lambda **given: False
    open_trackers(plan("wandb"), tmp_path, said.append)
    assert fake.calls[-1][3] == "offline"
    assert len(said) == 1
    assert "no API key" in said[0]

    def unreachable(**given: Any) -> Any:
        if given["mode"] == "online":
            raise OSError("no route to host")
        return FakeRun(fake.calls, **given)

    fake.login, fake.init = (lambda **given: True), unreachable
    open_trackers(plan("wandb"), tmp_path, said.append)
    assert fake.calls[-1][3] == "offline"
    assert said[1:] == ["wandb cannot be reached (OSError): the run is recorded below its folder"]


def test_a_missing_package_is_said_once_and_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    said = train(tmp_path, range(1, 4), "wandb")
    assert said == ["wandb is left out: wandb is not installed (pip install 'atropos-tracking[wandb]')"]


def test_a_tracker_that_fails_is_left_out_and_the_others_go_on(tmp_path: Path, fake: Any) -> None:
    said: list[str] = []
    opened = open_trackers(plan("wandb", "tensorboard"), tmp_path, said.append)

    def broken(self: Any, values: Any) -> None:
        raise RuntimeError("disk quota\nexceeded")

    fake_run = FakeRun.log
    FakeRun.log = broken  # type: ignore[method-assign]
    try:
        for step in (1, 2, 3):
            opened.metrics(step, {"loss": 0.5})
    finally:
        FakeRun.log = fake_run  # type: ignore[method-assign]
    assert said == ["wandb is left out from here: RuntimeError: disk quota exceeded; training goes on"]
    assert opened.names == ["tensorboard"]


def test_tensorboard_files_hold_the_scalars(tmp_path: Path) -> None:
    assert train(tmp_path, range(1, 4), "tensorboard") == []
    assert train(tmp_path, range(3, 5), "tensorboard", resume=True) == []
    assert crc32c(b"123456789") == 0xE3069283
    files = sorted((tmp_path / "tensorboard").iterdir())
    events = b"".join(file.read_bytes() for file in files)
    assert b"loss" in events
    assert b"samples/train" in events
    assert b"samples/sums" in events
    assert b"expected `'2'`" in events


def test_tensorboard_reads_the_files_and_shows_no_step_twice(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(tmp_path, range(1, 5), "tensorboard")
    train(tmp_path, range(3, 6), "tensorboard", resume=True)  # killed behind a checkpoint of step 2
    read = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    points = [(event.step, event.value) for event in read.Scalars("loss")]
    assert points == [(step, pytest.approx(1 / step)) for step in range(1, 6)]
    (*_, shown) = read.Tensors("samples/train/text_summary")
    assert "completion:\n\n    5" in shown.tensor_proto.string_val[0].decode()


_released = threading.Event()


def _hangs(*args: Any, **given: Any) -> None:
    _released.wait(30)


@pytest.fixture
def let_go() -> Iterator[None]:
    """What hangs goes on when the test is over: it may hold standard output, which the next test needs."""
    before = set(threading.enumerate())
    _released.clear()
    yield
    _released.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)


@pytest.mark.parametrize("where", ["import", "init", "log", "log after a while", "finish"])
def test_a_tracker_that_hangs_holds_training_no_longer_than_stated(
    tmp_path: Path, fake: Any, monkeypatch: pytest.MonkeyPatch, let_go: None, where: str
) -> None:
    for name, seconds in {"OPENING": 0.5, "PATIENCE": 0.3, "CALL": 0.4, "ENDING": 0.5}.items():
        monkeypatch.setattr(trackers, name, seconds)
    if where == "import":
        monkeypatch.setattr("importlib.import_module", _hangs)
    elif where == "init":
        fake.init = _hangs
    elif where == "finish":
        monkeypatch.setattr(FakeRun, "finish", _hangs)
    elif where == "log":
        monkeypatch.setattr(FakeRun, "log", _hangs)
    began = time.monotonic()
    said: list[str] = []
    opened = open_trackers(plan("wandb"), tmp_path, said.append)
    for step in range(1, 100):
        if where == "log after a while" and step == 50:
            monkeypatch.setattr(FakeRun, "log", _hangs)
        opened.metrics(step, {"loss": 0.5})
        time.sleep(0.01)
    opened.finish(0)
    assert time.monotonic() - began < 12
    (words,) = said
    assert {"import": "did not open", "init": "did not open", "finish": "did not end"}.get(
        where, "not answered"
    ) in words


def test_a_slow_tracker_works_behind_training_and_gets_everything_in_order(
    tmp_path: Path, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "PATIENCE", 0.1)
    quick = FakeRun.log
    monkeypatch.setattr(FakeRun, "log", lambda self, values: (time.sleep(0.05), quick(self, values)))
    opened = open_trackers(plan("wandb"), tmp_path, pytest.fail)
    began = time.monotonic()
    for step in range(1, 21):
        opened.metrics(step, {"loss": 0.5})
    assert time.monotonic() - began < 0.95
    opened.finish(0)
    assert [call[1]["train/step"] for call in fake.calls if call[0] == "log"] == list(range(1, 21))
    assert fake.calls[-2:] == [("finish", 0), ("teardown",)]


def test_what_a_tracker_is_sent_holds_no_secret(tmp_path: Path, fake: Any) -> None:
    given: list[Any] = []
    fake.init = lambda **values: (given.append(values), FakeRun(fake.calls, **values))[1]
    for secret in ("key-of-mine-1", "hunter2", "\u00fcber-geheim"):
        redaction.learn(secret)
        secret_plan = plan("wandb").model_copy(update={"project": f"p {secret}", "data": (f"s3://a/{secret}",)})
        opened = open_trackers(secret_plan, tmp_path, pytest.fail)
        fake.Table = lambda **columns: types.SimpleNamespace(add_data=lambda *row: fake.calls.append(row))
        opened.samples(1, [{"prompt": f"say {secret}", "completion": [secret]}])
        opened.finish(0)
        assert secret not in f"{given} {fake.calls}"
    redaction.begin({})
