"""From names to models, and what is said when there is none."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_local.models import resolve
from atropos_local.runtime import pick_threads

from atropos_cli.models import sources
from atropos_cli.models.sources import SMOLLM2_HUB
from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.backends import FatalBackendError
from atropos_cli.sdk.models import cpu_count, wait_passively


@pytest.mark.parametrize("name", ["./no/such/folder", "/no/such.gguf", "~/nothing", "a b", "model.gguf", "a/b/c"])
def test_a_path_that_is_not_there(name: str) -> None:
    with pytest.raises(FatalBackendError, match="not found") as caught:
        resolve(name)
    assert name in caught.value.message
    assert "smollm2" in str(caught.value.hint)


def test_names_folders_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve("Qwen/Qwen2.5-0.5B").kind == "hub"
    (tmp_path / "mine").mkdir()
    with pytest.raises(FatalBackendError, match=r"no config\.json"):
        resolve(str(tmp_path / "mine"))
    (tmp_path / "mine" / "config.json").write_text("{}")
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    monkeypatch.chdir(tmp_path)
    assert (resolve("mine").kind, resolve("mine").label) == ("folder", "mine")
    assert (resolve("x.gguf").kind, resolve("x.gguf").label) == ("gguf", "x.gguf")


def test_smollm2_comes_from_the_hub_without_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise sources.PackageNotFoundError(name)

    monkeypatch.setattr(sources, "files", missing)
    source = resolve("SmolLM2")
    assert (source.kind, source.location) == ("hub", SMOLLM2_HUB)
    assert source.template


def test_waiting_threads_are_left_to_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atropos_cli.models.threads.sys.modules", {})
    monkeypatch.setattr("atropos_cli.models.threads.cpu_count", lambda: 2)
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KMP_BLOCKTIME", "1")
    wait_passively()
    assert "OMP_WAIT_POLICY" not in os.environ
    monkeypatch.delenv("KMP_BLOCKTIME")
    wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    assert cpu_count() >= 1


@pytest.mark.parametrize(
    ("cpus", "load", "wanted", "expected"),
    [(2, 0.3, None, 2), (2, 1.2, None, 1), (4, 9.0, None, 1), (64, 9.0, None, None), (2, 9.0, 2, 2)],
)
def test_threads_leave_busy_cpus_alone(
    monkeypatch: pytest.MonkeyPatch, cpus: int, load: float, wanted: int | None, expected: int | None
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("atropos_local.runtime.cpu_count", lambda: cpus)
    monkeypatch.setattr("atropos_local.runtime.os.getloadavg", lambda: (load, 0.0, 0.0))
    assert pick_threads(wanted) == expected
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert pick_threads(None) is None


async def fails(model: str | None, **options: Any) -> Any:
    from atropos_local.backend import LocalBackend, LocalConfig

    backend = LocalBackend(LocalConfig(**options), model=model)
    with pytest.raises((FatalBackendError, ConfigError)) as caught:
        await backend.open()
    await backend.close()
    assert await backend.probe() is False
    assert caught.value.hint
    return caught.value


@pytest.mark.model
async def test_no_model_is_named() -> None:
    assert "needs a model" in (await fails(None)).message


@pytest.mark.model
async def test_a_folder_without_a_tokenizer(tiny: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        shutil.copy(tiny / name, tmp_path / name)
    error = await fails(str(tmp_path))
    assert "tokenizer" in error.message
    assert "tokenizer.json" in error.hint


@pytest.mark.model
async def test_a_folder_without_weights(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").unlink()
    assert "cannot be loaded" in (await fails(str(tmp_path / "m"))).message


@pytest.mark.model
async def test_an_unknown_architecture(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": "not_there", "architectures": ["No"]}))
    assert "cannot be loaded" in (await fails(str(tmp_path / "m"))).message


@pytest.mark.model
async def test_a_folder_that_wants_to_run_its_own_code(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    own = {"AutoConfig": "evil.EvilConfig", "AutoModelForCausalLM": "evil.Evil"}
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": "evil", "auto_map": own}))
    (tmp_path / "m" / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    await fails(str(tmp_path / "m"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.model
async def test_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    error = await fails("somebody/some-model-that-is-nowhere")
    assert "hub cannot be reached" in error.message
    assert "smollm2" in error.hint


@pytest.mark.model
async def test_other_files_named_gguf(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"not a model at all")
    assert "as a GGUF file" in (await fails(str(tmp_path / "x.gguf"))).message


@pytest.mark.model
async def test_a_device_that_is_not_there(tiny: Path) -> None:
    error = await fails(str(tiny), device="cuda:77")
    assert "'cuda:77' cannot be used" in error.message


@pytest.mark.model
async def test_a_template_is_asked_for_when_the_model_has_none(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "m")
    (tmp_path / "m" / "chat_template.jinja").unlink()
    assert "no chat template" in (await fails(str(tmp_path / "m"))).message


@pytest.mark.model
def test_loads_at_the_same_time_leave_the_process_as_it_was(tmp_path: Path, make_model: Callable[..., Any]) -> None:
    """Whole, tied and half-precision models from several threads, and one that fails in between."""
    import torch
    from atropos_local.models import load, load_weights, resolve
    from tqdm.auto import tqdm
    from transformers import PreTrainedModel
    from transformers.utils import logging

    def shared() -> tuple[Any, ...]:
        device = torch.utils._device.CURRENT_DEVICE  # type: ignore[attr-defined]
        names = torch.get_default_dtype(), device, torch.linspace, torch.nn.init.normal_, logging.get_verbosity()
        return (*names, tqdm.__init__, PreTrainedModel.tie_weights)

    expected = {name: make_model(name, tie_word_embeddings=name == "tied") for name in ("plain", "tied", "broken")}
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"no weights")
    before, failed, wrong = shared(), [], []

    def work(name: str, dtype: torch.dtype) -> None:
        for _ in range(3):
            try:
                model = load(
                    resolve(str(tmp_path / name)), device=torch.device("cpu"), dtype=dtype, use_cache=False
                ).model
                load_weights(model, str(tmp_path / name))
            except FatalBackendError as error:
                failed.append((name, error.message))
                continue
            for key, tensor in model.state_dict().items():
                if not torch.equal(tensor, expected[name].state_dict()[key].to(dtype)):
                    wrong.append((name, key))

    kinds = [("plain", torch.float32), ("tied", torch.bfloat16), ("broken", torch.float32), ("plain", torch.float16)]
    threads = [threading.Thread(target=work, args=kind) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert {name for name, _ in failed} == {"broken"}
    assert all("cannot be loaded" in message for _, message in failed)
    assert shared() == before


@pytest.mark.model
@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (NotImplementedError("Cannot copy out of meta tensor; no data!"), "cannot be moved to device cpu: NotImpl"),
        (RuntimeError("CUDA error: device-side assert triggered"), "cannot be moved to device cpu: RuntimeError: CUDA"),
        (RuntimeError("No HIP GPUs are available"), "cannot be moved"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate"), "does not fit"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), "does not fit"),
        (MemoryError(), "does not fit"),
    ],
)
def test_an_error_is_named_by_what_it_was(raised: Exception, said: str) -> None:
    import torch
    from atropos_local.models import _place

    from atropos_cli.sdk.models import ModelSource

    class Model(torch.nn.Linear):
        def to(self, *args: Any, **options: Any) -> Any:
            raise raised

    source = ModelSource("folder", "m", "m")
    with pytest.raises(FatalBackendError) as caught:
        _place(Model(1, 1), source, torch.device("cpu"), torch.float32)
    assert said in caught.value.message


@pytest.mark.model
@pytest.mark.parametrize("lost", ["model.layers.0.mlp.up_proj.weight", "model.norm.weight", "lm_head.weight"])
async def test_a_model_without_some_weights_is_refused(tiny: Path, tmp_path: Path, lost: str) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(tiny, tmp_path / "m")
    weights = load_file(tmp_path / "m" / "model.safetensors")
    del weights[lost]
    save_file(weights, tmp_path / "m" / "model.safetensors", metadata={"format": "pt"})
    assert f"the first is {lost}" in (await fails(str(tmp_path / "m"))).message
