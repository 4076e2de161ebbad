"""The plugin as atropos sees it, and what it says where vLLM is not installed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib.util import find_spec
from typing import Any

import atropos_vllm
import pytest


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)


def test_manifest_and_options_import_nothing_heavy() -> None:
    got = run("""
        import sys, atropos_vllm
        list(atropos_vllm.atropos_register_backends()), list(atropos_vllm.atropos_doctor())
        from atropos_vllm.options import VllmConfig
        import atropos_vllm.engine, atropos_vllm.loop, atropos_vllm.weights
        print(sorted({name.split(".")[0] for name in sys.modules} & {"torch", "transformers", "numpy", "vllm"}))
    """)
    assert got.stdout.strip() == "[]", got.stderr


def test_the_registry_knows_the_backend(atropos_registry: Any) -> None:
    assert atropos_registry.find("backend", "vllm").dist == "atropos-vllm"


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_without_vllm_options_can_be_read_and_the_error_names_the_extra(atropos_registry: Any) -> None:
    from atropos_cli.sdk import ConfigError

    backend = atropos_registry.find("backend", "vllm").load()
    assert "gpu_memory_utilization" in backend.Config.model_fields
    with pytest.raises(ConfigError, match="vllm, not installed here") as caught:
        backend(backend.Config(), model="m")
    assert "pip install 'atropos-vllm[vllm]'" in (caught.value.hint or "")


def test_doctor_says_whether_vllm_is_there() -> None:
    ((name, status, detail),) = atropos_vllm.atropos_doctor()
    assert name == "vllm: vllm"
    assert (status == "ok") is (find_spec("vllm") is not None)
    assert status == "ok" or "atropos-vllm[vllm]" in detail
