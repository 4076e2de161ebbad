"""GRPO and SFT on a server of the Tinker API that computes: learning, resuming, evaluations, weights, plain errors."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from atropos_tinker import saving
from atropos_tinker.service import Service
from tinker_support import groups, local_logprobs, make_plan, metrics, run

from atropos_cli.sdk import AtroposError, ConfigError, DataError
from atropos_cli.sdk.backends import ServerUnavailable
from atropos_cli.sdk.training import TrainerError

if TYPE_CHECKING:
    from tinker_server import TinkerServer

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def learnt(small: Path, env_file: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """(run folder, result, server) of one training."""
    from tinker_server import TinkerServer

    folder = tmp_path_factory.mktemp("learnt")
    server = TinkerServer(small, folder / "server").start()
    plan = make_plan(
        small, server.url, environment=f"{env_file}:Letters", steps=10, eval_every=5, save_every=4, evaluated=True
    )
    result = run(plan, folder / "run")
    return folder / "run", result, server


def test_grpo_learns_and_reports(learnt: tuple[Path, Any, Any]) -> None:
    folder, result, _ = learnt
    rows = metrics(folder)
    rewards = [row["reward"] for row in rows]
    assert sum(rewards[-3:]) > sum(rewards[:3]) + 0.5, rewards
    assert (result.steps, result.output, result.stopped) == (10, str(folder / "model"), None)
    for row in rows:
        assert {"loss", "grad_norm", "entropy", "learning_rate", "num_tokens", "step_time", "rows"} <= row.keys()
        # The server computes what the sampler said, so nothing is off-policy: ids and log-probabilities are in place.
        assert row["sampling/sampling_logp_difference/mean"] < 1e-4
        assert row["sampling/importance_sampling_ratio/mean"] == pytest.approx(1.0, abs=1e-3)
    evaluations = metrics(folder, "eval")
    assert [row["step"] for row in evaluations] == [0, 5, 10]
    assert evaluations[-1]["eval/letters/reward"] > evaluations[0]["eval/letters/reward"]


def test_the_checkpoints_sample_in_local(learnt: tuple[Path, Any, Any], small: Path) -> None:
    """The final adapter gives in `local` what the server sampled with: the log-probabilities of new samples agree."""
    import tinker

    folder, _, server = learnt
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["step-10", "step-8"]
    state = json.loads((folder / "model" / "tinker.json").read_text())
    config = json.loads((folder / "model" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(small.resolve())
    assert "q_proj" in config["target_modules"]
    assert "down_proj" in config["target_modules"]
    client = tinker.ServiceClient(base_url=server.url, api_key="tml-none").create_sampling_client(
        model_path=state["sampler"]
    )
    prompt = [12, 12]
    asked = tinker.SamplingParams(max_tokens=4, seed=1, stop=[1])
    (found,) = client.sample(tinker.ModelInput.from_ints(prompt), 1, asked).result().sequences
    assert local_logprobs(folder / "model", prompt, found.tokens) == pytest.approx(found.logprobs, abs=1e-4)
    base = local_logprobs(small, prompt, found.tokens)
    assert max(abs(a - b) for a, b in zip(base, found.logprobs, strict=True)) > 0.1


def test_a_finished_run_and_more_steps(learnt: tuple[Path, Any, Any], small: Path, env_file: str) -> None:
    folder, _, server = learnt
    plan = make_plan(small, server.url, environment=f"{env_file}:Letters", steps=12)
    said: list[str] = []
    assert run(plan, folder, resume=True, said=said).steps == 12
    assert any("resumed from step 10" in text for text in said)
    assert len({group["group_id"] for group in groups(folder)}) == len(groups(folder)) == 4 * 12


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from tinker_support import make_plan, run
plan = make_plan(Path({small!r}), {url!r}, environment={env!r}, steps=5, save_every=2)
print(run(plan, Path({folder!r}), resume={resume}).stopped)
"""


def _train(small: Path, url: str, env: str, folder: Path, *, resume: bool = False, **more: str) -> int:
    """Train five steps in a process of its own."""
    words = {"tests": str(Path(__file__).parent), "small": str(small), "url": url, "env": env, "folder": str(folder)}
    code = PROGRAM.format(**words, resume=resume)
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **more}, check=False, capture_output=True)
    return done.returncode


@pytest.mark.parametrize(("number", "after", "stopped_at"), [("SIGKILL", 55, 2), ("SIGTERM", 20, 2)])
def test_broken_off_and_resumed(
    server: TinkerServer, small: Path, env_file: str, tmp_path: Path, number: str, after: int, stopped_at: int
) -> None:
    """Killed while a step rolls, resumed on a server that was started again: the numbers are those of one go."""
    from tinker_server import TinkerServer

    env = f"{env_file}:Letters"
    run(make_plan(small, server.url, environment=env, steps=5, save_every=2), tmp_path / "whole")
    folder = tmp_path / "broken"
    code = _train(small, server.url, env, folder, LETTERS_SIGNAL=number, LETTERS_SIGNAL_AFTER=str(after))
    assert code == (-signal.SIGKILL if number == "SIGKILL" else 0)
    again = TinkerServer(small, server.data).start()
    said: list[str] = []
    result = run(make_plan(small, again.url, environment=env, steps=5, save_every=2), folder, resume=True, said=said)
    again.stop()
    assert result.steps == 5
    assert any(f"resumed from step {stopped_at}" in text for text in said)
    whole, broken = metrics(tmp_path / "whole"), metrics(folder)
    assert [row["step"] for row in broken] == [1, 2, 3, 4, 5]
    for name in ("loss", "reward"):
        assert [row[name] for row in broken] == pytest.approx([row[name] for row in whole], abs=1e-4)
    assert len({group["group_id"] for group in groups(folder)}) == len(groups(folder)) == 20


def test_sft_learns_the_reply_and_its_end(server: TinkerServer, small: Path, tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    rows = [{"prompt": a + b, "completion": "42"} for a in "abcd" for b in "abcd"]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan = make_plan(small, server.url, method="sft", learns="demonstrations", data=(str(data),), steps=12)
    result = run(plan.replace(prompts_per_step=8), tmp_path / "run")
    losses = [row["loss"] for row in metrics(tmp_path / "run")]
    assert losses[-1] < losses[0] / 4, losses
    sent = [body for path, body in server.seen if path == "forward_backward"]
    weights = sent[0]["forward_backward_input"]["data"][0]["loss_fn_inputs"]["weights"]["data"]
    assert weights == [0.0, 1.0, 1.0, 1.0]  # of a, b, 4, 2, end: the reply and its end
    scored = local_logprobs(Path(result.output), [12, 13], [6, 4, 1])
    assert min(scored) > -0.7


def test_sft_passes_over_the_data_once(server: TinkerServer, small: Path, tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps({"prompt": "a", "completion": letter}) + "\n" for letter in "bcdefg0"))
    plan = make_plan(small, server.url, method="sft", learns="demonstrations", data=(str(data),))
    assert run(plan, tmp_path / "run").steps == 2
    sent = [body["forward_backward_input"]["data"] for path, body in server.seen if path == "forward_backward"]
    targets = sorted(item["loss_fn_inputs"]["target_tokens"]["data"][0] for batch in sent for item in batch)
    assert targets == [2, 13, 14, 15, 16, 17, 18]


def test_stored_groups_and_ppo(
    learnt: tuple[Path, Any, Any], server: TinkerServer, small: Path, tmp_path: Path
) -> None:
    """Two steps on each batch: the second one is off-policy, and the server clips by the numbers that were given."""
    data = str(learnt[0])
    options = {"loss": "ppo", "epsilon": 0.1, "epsilon_high": 0.3, "num_iterations": 2}
    run(make_plan(small, server.url, data=(data,), steps=4, config=options), tmp_path / "run")
    rows = metrics(tmp_path / "run")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert rows[0]["reward"] == rows[1]["reward"]
    sent = [body["forward_backward_input"] for path, body in server.seen if path == "forward_backward"]
    assert {one["loss_fn"] for one in sent} == {"ppo"}
    assert sent[0]["loss_fn_config"] == pytest.approx({"clip_low_threshold": 0.9, "clip_high_threshold": 1.3})
    assert "clip_ratio/region_mean" in rows[1]


# What goes wrong -----------------------------------------------------------------------------------------------------


def test_a_constant_reward(server: TinkerServer, small: Path, env_file: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="every advantage is 0"):
        run(make_plan(small, server.url, environment=f"{env_file}:Flat", steps=2), tmp_path / "run")
    assert not server.counts("optim_step")


def test_no_server(small: Path, env_file: str, tmp_path: Path) -> None:
    with pytest.raises(ServerUnavailable, match=r"127\.0\.0\.1:9 cannot be reached") as caught:
        run(make_plan(small, "http://127.0.0.1:9", environment=f"{env_file}:Letters", steps=2), tmp_path / "run")
    assert "launch-skyrl" in str(caught.value.hint)


@pytest.mark.parametrize("broken", ["healthz", "get_server_capabilities"])
def test_a_server_out_of_order_is_not_waited_for(
    server: TinkerServer, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """The client repeats a request that is answered by 500 for five minutes."""
    monkeypatch.setattr("atropos_tinker.service._TIMEOUT", 2.0)
    asked, wrong = server.get, (500, {"detail": "no"})
    monkeypatch.setattr(server, "get", lambda path: wrong if path == broken else asked(path))
    began = time.monotonic()
    with pytest.raises(ServerUnavailable, match="answers 500" if broken == "healthz" else "gave no session in 2 s"):
        Service(server.url, "NO_KEY", max_wait=1).connect()
    assert time.monotonic() - began < 30


def test_a_page_of_another_server(server: TinkerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atropos_tinker.service.get", lambda *_, **__: httpx.Response(200, html="<p>Welcome</p>"))
    with pytest.raises(ConfigError, match="does not speak the Tinker API"):
        Service(server.url, "NO_KEY").connect()


ODD = [None, {}, [], "x", {"supported_models": None}, {"supported_models": ["x"]}]
ODD += [{"supported_models": [{"model_name": "NAME", "max_context_length": value}]} for value in ("many", 1.5)]


@pytest.mark.parametrize("told", ODD, ids=str)
def test_odd_capabilities(
    server: TinkerServer, small: Path, env_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Any
) -> None:
    asked, text = server.get, json.dumps(told).replace("NAME", str(small))
    answer = (200, json.loads(text))
    monkeypatch.setattr(server, "get", lambda path: answer if path == "get_server_capabilities" else asked(path))
    with pytest.raises(AtroposError) as caught:
        run(make_plan(small, server.url, environment=f"{env_file}:Letters", steps=1), tmp_path / "run")
    assert caught.value.hint


def test_a_length_that_is_none(server: TinkerServer, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"supported_models": [{"model_name": name, "max_context_length": at} for name, at in (("a", -5), ("b", 0))]}
    monkeypatch.setattr(server, "get", lambda path: (200, told if path == "get_server_capabilities" else {}))
    service = Service(server.url, "NO_KEY")
    service.connect()
    assert service.contexts == {"a": None, "b": None}


def test_a_server_that_stops_answering(server: TinkerServer, small: Path, env_file: str, tmp_path: Path) -> None:
    """It ends in max_wait seconds, where the client alone would wait for hours; what was saved is there."""
    plan = make_plan(small, server.url, environment=f"{env_file}:Letters", steps=50, save_every=1)
    post = server.post

    def stopping(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "optim_step" and server.counts("optim_step") == 2:
            server.stop()
            server.silent.set()
            server.silent.wait(0)
        return post(path, body)

    server.post = stopping  # type: ignore[method-assign]
    with pytest.raises(AtroposError, match=r"does not answer|cannot be reached"):
        run(plan, tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / "step-2" / "tinker.json").exists()
    server.start()
    server.silent.clear()


def test_a_server_that_is_gone_is_not_waited_for_once_the_run_is_to_stop(
    server: TinkerServer, small: Path, env_file: str, tmp_path: Path
) -> None:
    """The run ends as one that was broken off, at the last step that was saved, however long it may wait."""
    access = {"base_url": server.url, "max_wait": 3600.0}
    plan = make_plan(small, server.url, environment=f"{env_file}:Letters", steps=50, save_every=2, access=access)
    post = server.post

    def stopping(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        answer = post(path, body)
        if path == "optim_step" and server.counts("optim_step") == 4:
            server.stop()
            os.kill(os.getpid(), signal.SIGTERM)
        return answer

    server.post = stopping  # type: ignore[method-assign]
    began, said = time.monotonic(), list[str]()
    result = run(plan, tmp_path / "run", said=said)
    assert time.monotonic() - began < 300
    assert (result.stopped, result.steps) == ("interrupted", 2)
    assert any("the steps after 2 are lost" in text for text in said)
    again = type(server)(small, server.data).start()
    access = {"base_url": again.url, "max_wait": 3.0}
    fields = {"environment": f"{env_file}:Letters", "steps": 50, "save_every": 2, "access": access}
    counted = again.post

    def four(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "optim_step" and again.counts("optim_step") == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return counted(path, body)

    again.post = four  # type: ignore[method-assign]
    result = run(make_plan(small, again.url, **fields), tmp_path / "run", resume=True, said=said)
    again.stop()
    server.start()
    assert any("resumed from step 2" in text for text in said)
    assert result.stopped == "interrupted"
    rows = [row["step"] for row in metrics(tmp_path / "run")]
    assert rows == list(range(1, result.steps + 1))
    assert len({group["group_id"] for group in groups(tmp_path / "run")}) == len(groups(tmp_path / "run"))


@pytest.mark.parametrize("at", ["post optim_step", "post save_weights_for_sampler", "get archive", "get download"])
def test_a_server_that_goes_while_a_checkpoint_is_saved(
    server: TinkerServer, small: Path, env_file: str, tmp_path: Path, at: str
) -> None:
    """At each of the requests: of a run that is to stop, the last whole checkpoint is what it ends with."""
    plan = make_plan(
        small,
        server.url,
        environment=f"{env_file}:Letters",
        steps=50,
        save_every=2,
        access={"base_url": server.url, "max_wait": 3600.0},
    )
    post, get, seen = server.post, server.get, list[str]()

    def goes(what: str) -> bool:
        gone = what == at and server.counts("optim_step") == 4 and "gone" not in seen
        seen.append(what)
        if gone:
            seen.append("gone")
            server.stop()
            os.kill(os.getpid(), signal.SIGTERM)
        return gone

    def posted(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        answer = post(path, body)
        goes(f"post {path}")
        return answer

    def got(path: str) -> tuple[int, Any]:
        answer = get(path)
        gone = goes(f"get {path.rpartition('/')[2]}")
        return (503, {}) if gone and path.endswith("download") else answer

    server.post, server.get = posted, got  # type: ignore[method-assign]
    said = list[str]()
    result = run(plan, tmp_path / "run", said=said)
    server.start()
    assert seen.count(at) >= 2, seen
    assert (result.stopped, result.steps) == ("interrupted", 2)
    assert any("the steps after 2 are lost" in text for text in said)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-2"]


def test_a_download_that_fails_for_a_while(server: TinkerServer, small: Path, env_file: str, tmp_path: Path) -> None:
    """It is made again: the run goes on as if nothing had been. The third time the connection breaks off."""
    get, failures = server.get, [429, 503, None]

    def busy(path: str) -> tuple[int, Any]:
        if not path.endswith("download") or not failures:
            return get(path)
        if (status := failures.pop(0)) is None:
            raise ConnectionResetError
        return status, {}

    server.get = busy  # type: ignore[method-assign]
    result = run(make_plan(small, server.url, environment=f"{env_file}:Letters", steps=2), tmp_path / "run")
    assert (failures, result.stopped, result.steps) == ([], None, 2)
    assert (tmp_path / "run" / "model" / "adapter_model.safetensors").stat().st_size > 1000


def test_a_download_that_breaks_off_late_is_made_again(server: TinkerServer) -> None:
    """One that takes longer than a server is waited for; the time begins when it fails."""
    tries = list[int]()

    def slow() -> None:
        tries.append(len(tries))
        if len(tries) == 1:
            time.sleep(1.2)
            raise httpx.ReadError("broken off")

    Service(server.url, "NO_KEY", max_wait=1.0).fetch(slow, server.url)
    assert tries == [0, 1]


@pytest.mark.parametrize(("status", "says"), [(403, "refuses a download"), (503, "cannot be reached")])
def test_a_download_that_the_server_refuses(
    server: TinkerServer, small: Path, env_file: str, tmp_path: Path, status: int, says: str
) -> None:
    get = server.get
    server.get = lambda path: (status, {}) if path.endswith("download") else get(path)  # type: ignore[method-assign]
    with pytest.raises(AtroposError, match=says) as caught:
        run(make_plan(small, server.url, environment=f"{env_file}:Letters", steps=2), tmp_path / "run")
    assert "--resume" in str(caught.value.hint)
    assert not list((tmp_path / "run" / "checkpoints").glob("*"))


def _serving(server: TinkerServer, *archives: Any) -> list[str]:
    """Change what is downloaded: the first archives by these functions, all further ones by the last one.

    Gives what was asked for.
    """
    get, left, asked = server.get, list(archives), list[str]()

    def other(path: str) -> tuple[int, Any]:
        status, found = get(path)
        if path.endswith("download"):
            asked.append(path)
            change = left.pop(0) if len(left) > 1 else left[0]
            found = change(found)
        return status, found

    server.get = other  # type: ignore[method-assign]
    return asked


def _whole(data: bytes) -> bytes:
    return data


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _changed(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes(255 - one for one in data[middle : middle + 40]) + data[middle + 40 :]


def _tar(*files: tuple[str, bytes, int]) -> Any:
    """An archive: name, data and the size that its header says; a size below zero makes a link."""

    def made(_: bytes) -> bytes:
        packed = io.BytesIO()
        for name, data, size in files:
            one = tarfile.TarInfo(name)
            one.size = max(size, 0)
            if size < 0:
                one.type, one.linkname = tarfile.SYMTYPE, data.decode()
            packed.write(one.tobuf(tarfile.GNU_FORMAT))
            if size >= 0:
                packed.write(data + bytes(-len(data) % 512))
        return packed.getvalue() + bytes(1024)

    return made


def test_a_download_that_is_cut_off_is_made_again(
    server: TinkerServer, small: Path, env_file: str, tmp_path: Path
) -> None:
    """Also where the length that the server says is that of the part."""
    asked = _serving(server, _cut, _changed, lambda data: b"", _whole)
    result = run(make_plan(small, server.url, environment=f"{env_file}:Letters", steps=1), tmp_path / "run")
    assert (len(asked), result.stopped, result.steps) == (4, None, 1)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_cut, "cannot be read"),
        (_changed, "cannot be read"),
        (lambda data: b"<html>sign in</html>", "cannot be read"),
        (_tar(("adapter_config.json", b"{}", 2)), "has no adapter_model.safetensors"),
        (_tar(("adapter_config.json", b"{}", 2), ("adapter_model.safetensors", b"x", 1 << 60)), "there is room for"),
        (_tar(("adapter_config.json", b"{}", 1 << 30)), "there is room for 1048576"),
        (
            _tar(("adapter_config.json", b"{}", 2), ("adapter_model.safetensors", b"/etc/passwd", -1)),
            "has no adapter_model.safetensors",
        ),
        (
            _tar(("adapter_config.json", b"[" * 99999, 99999), ("adapter_model.safetensors", b"xxxx", 4)),
            "adapter cannot be read",
        ),
        (
            _tar(
                ("adapter_config.json", b"{}", 2),
                ("adapter_model.safetensors", b"\x1a" + bytes(7) + b'{"a":{"data_offsets":[]}} ', 34),
            ),
            "adapter cannot be read",
        ),
    ],
    ids=["cut", "changed", "page", "lacks one", "vast", "vast config", "link", "deep", "offsets"],
)
def test_an_archive_that_is_none(
    server: TinkerServer, small: Path, env_file: str, tmp_path: Path, change: Any, says: str
) -> None:
    """The run ends soon and says why, the checkpoint before is whole, and nothing else is left."""
    _serving(server, _whole, change)
    access, began = {"base_url": server.url, "max_wait": 0.5}, time.monotonic()
    plan = make_plan(small, server.url, environment=f"{env_file}:Letters", steps=2, save_every=1, access=access)
    with pytest.raises(TrainerError, match=says) as caught:
        run(plan, tmp_path / "run")
    assert time.monotonic() - began < 60
    assert "--resume" in str(caught.value.hint)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-1"]


def test_what_a_killed_session_was_writing_is_removed(
    server: TinkerServer, small: Path, env_file: str, tmp_path: Path
) -> None:
    left = tmp_path / "run" / "checkpoints" / ".writing-step-7"
    plan = make_plan(small, server.url, environment=f"{env_file}:Letters", steps=1)
    run(plan, tmp_path / "run")
    left.mkdir()
    (left / "archive").write_bytes(b"half of it")
    assert run(plan.replace(steps=2), tmp_path / "run", resume=True).steps == 2
    assert not left.exists()


def test_a_model_that_cannot_be_copied_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "adapter_model.safetensors").write_bytes(b"weights")

    def full(_: str, target: str) -> None:
        Path(target).write_bytes(b"wei")
        raise OSError(28, "No space left on device", target)

    monkeypatch.setattr("shutil.copytree", partial(shutil.copytree, copy_function=full))
    with pytest.raises(TrainerError, match=r"model cannot be written: .*No space left"):
        saving.copy(tmp_path / "step-1", tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_the_key_does_not_go_along_to_another_server(
    server: TinkerServer, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tinker_server import TinkerServer

    monkeypatch.setenv("TINKER_API_KEY", "tml-secretword")
    other = TinkerServer(small, tmp_path / "other").start()
    other.get = lambda path: (200, b"archive")  # type: ignore[method-assign]
    server.get = lambda path: (302, f"{other.url}/api/v1/archive")  # type: ignore[method-assign]
    service = Service(server.url, "TINKER_API_KEY")
    saving._fetch(service, f"{server.url}/api/v1/archive", tmp_path / "archive")
    saving._fetch(service, f"{other.url}/api/v1/archive", tmp_path / "archive")
    other.stop()
    assert (tmp_path / "archive").read_bytes() == b"archive"
    assert (server.keys, other.keys) == ({"tml-secretword"}, {None})


def test_a_server_that_was_started_again_meanwhile(
    server: TinkerServer, small: Path, env_file: str, tmp_path: Path
) -> None:
    """It knows nothing of the run, and says so: a run that is to stop ends with what it has saved."""
    post = server.post

    def forgets(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "forward_backward" and server.counts("optim_step") == 2:
            if signals:
                os.kill(os.getpid(), signal.SIGTERM)
            return 404, {"detail": "Model not found"}
        return post(path, body)

    server.post = forgets  # type: ignore[method-assign]
    plan = make_plan(small, server.url, environment=f"{env_file}:Letters", steps=5, save_every=1)
    signals = False
    with pytest.raises(TrainerError, match="Model not found") as caught:
        run(plan, tmp_path / "run")
    assert "--resume" in str(caught.value.hint)
    signals, said = True, list[str]()
    server.seen.clear()
    result = run(plan, tmp_path / "other", said=said)
    assert (result.stopped, result.steps) == ("interrupted", 2)
    assert any("Model not found" in text for text in said)


def test_a_run_that_is_to_stop_waits_for_no_rollouts_of_a_server_that_is_gone(
    server: TinkerServer, small: Path, env_file: str, tmp_path: Path
) -> None:
    """Nor does one that is not: the rollouts would wait once more, for as long as those of any run."""
    post, once = server.post, threading.Lock()

    def going(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "asample" and server.counts("optim_step") == 1 and once.acquire(blocking=False):
            server.silent.set()
            server.stop()
            os.kill(os.getpid(), signal.SIGTERM)
        return post(path, body)

    server.post = going  # type: ignore[method-assign]
    access = {"base_url": server.url, "max_wait": 3600.0}
    plan = make_plan(small, server.url, environment=f"{env_file}:Letters", steps=5, save_every=1, access=access)
    began, said = time.monotonic(), list[str]()
    result = run(plan, tmp_path / "run", said=said)
    assert time.monotonic() - began < 40, said
    assert (result.stopped, result.steps) == ("interrupted", 1)
    server.start()


def test_a_slow_answer_with_no_patience(server: TinkerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """--max-wait 0: a server that answers is there, however long its work takes."""
    monkeypatch.setattr("atropos_tinker.service._LOOK_EVERY", 0.1)
    service = Service(server.url, "NO_KEY", max_wait=0)
    service.wait(lambda: time.sleep(1.5))
    server.stop()
    with pytest.raises(ServerUnavailable, match="does not answer"):
        service.wait(lambda: time.sleep(5))
    server.start()


def test_another_client(small: Path, env_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another protocol: said before a server is asked."""
    monkeypatch.setattr("atropos_tinker.service.version", lambda name: "0.38.0")
    with pytest.raises(ConfigError, match=r"tinker 0\.38\.0 is installed") as caught:
        run(make_plan(small, "http://127.0.0.1:9", environment=f"{env_file}:Letters", steps=2), tmp_path / "run")
    assert "tinker==0.24" in str(caught.value.hint)


def test_another_model(server: TinkerServer, small: Path, env_file: str, tmp_path: Path) -> None:
    options = {"base_model": "Qwen/Qwen3-8B"}
    plan = make_plan(small, server.url, environment=f"{env_file}:Letters", steps=2, config=options)
    with pytest.raises(ConfigError, match="does not have the model 'Qwen/Qwen3-8B'; it has: /"):
        run(plan, tmp_path / "run")


def test_a_server_without_the_checkpoint(server: TinkerServer, small: Path, env_file: str, tmp_path: Path) -> None:
    from tinker_server import TinkerServer

    env = f"{env_file}:Letters"
    run(make_plan(small, server.url, environment=env, steps=1), tmp_path / "run")
    other = TinkerServer(small, tmp_path / "other").start()
    with pytest.raises(TrainerError, match="does not continue from tinker://") as caught:
        run(make_plan(small, other.url, environment=env, steps=2), tmp_path / "run", resume=True)
    other.stop()
    assert "--data" in str(caught.value.hint)


def test_a_damaged_checkpoint(server: TinkerServer, small: Path, env_file: str, tmp_path: Path) -> None:
    env = f"{env_file}:Letters"
    run(make_plan(small, server.url, environment=env, steps=2, save_every=1), tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "step-2" / "tinker.json").write_text("{")
    with pytest.raises(DataError, match="step-2 is damaged") as caught:
        run(make_plan(small, server.url, environment=env, steps=3), tmp_path / "run", resume=True)
    assert "step-1" in str(caught.value.hint)


def test_a_refused_key(
    server: TinkerServer, small: Path, env_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-secretword")
    server.refuses = 401
    with pytest.raises(ConfigError, match="refuses the key") as caught:
        run(make_plan(small, server.url, environment=f"{env_file}:Letters", steps=2), tmp_path / "run")
    assert "secretword" not in f"{caught.value}{caught.value.hint}"
    assert "tml-secretword" in server.keys


def test_a_key_is_in_no_file(
    server: TinkerServer, small: Path, env_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-secretword")
    run(make_plan(small, server.url, environment=f"{env_file}:Letters", steps=1), tmp_path / "run")
    assert not [p for p in (tmp_path / "run").rglob("*") if p.is_file() and b"secretword" in p.read_bytes()]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": 0.7}, "temperature 1"),
        ({"config": {"lr_scheduler_type": "cosine"}, "steps": None}, "needs --steps"),
        ({"config": {"num_iterations": 2}, "save_every": 3}, "not a multiple of --num-iterations 2"),
    ],
)
def test_what_cannot_work_is_refused_before_a_server_is_asked(
    small: Path, env_file: str, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    plan = make_plan(small, "http://127.0.0.1:9", environment=f"{env_file}:Letters", **{"steps": 4, **fields})
    with pytest.raises(ConfigError, match=message):
        run(plan, tmp_path / "run")
