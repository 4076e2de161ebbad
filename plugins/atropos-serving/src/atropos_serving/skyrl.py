"""SkyRL's server of the Tinker API as a component of a job.

It trains LoRA adapters of one model and samples from them. Database and checkpoints are in one folder: started again
on it, the server continues from every checkpoint that a training has made.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from atropos_cli.sdk import UsageError
from atropos_cli.sdk.commands import option
from atropos_cli.sdk.jobs import escape_placeholders
from atropos_cli.sdk.launchers import Component, LaunchError
from atropos_serving.settings import HOW, SERVER, PlaceOptions

PROGRAM = Path(__file__).with_name("skyrl_server.py")
HEALTH = "/api/v1/healthz"
_OURS = {
    "--base-model": "MODEL",
    "--backend": "--engine-backend",
    "--backend-config": "--engine-options",
    "--checkpoints-base": "--data",
    "--database-url": "--data",
    "--host": "--host",
    "--port": "--port",
}
_CACHE = "JAX_COMPILATION_CACHE_DIR"
_LOOK = "import importlib.util, sys; sys.exit(importlib.util.find_spec('skyrl') is None)"
_INSTALL = "pip install 'skyrl[tinker,jax]' in an environment of its own, and name it: --engine-python PYTHON"


class SkyrlOptions(PlaceOptions):
    """Options of `launch-skyrl`."""

    engine_python: str | None = option(
        None, "Python interpreter that has SkyRL; default: this one.", panel=SERVER, metavar="PYTHON"
    )
    engine_backend: Literal["jax", "fsdp", "megatron"] = option(
        "jax", "What computes: JAX, or SkyRL's trainer with vLLM on GPUs.", panel=SERVER
    )
    engine_options: dict[str, object] = option(
        {}, 'Options of that backend as JSON, e.g. {"tensor_parallel_size": 8}.', panel=SERVER, metavar="JSON"
    )
    lora_r: int = option(32, "Highest rank of the adapters (jax).", panel=SERVER, ge=1)
    adapters: int = option(4, "Adapters held at a time (jax); one is the model without any.", panel=SERVER, ge=2)
    batch: int = option(
        64, "Sequences computed at a time (jax): one size, since each other one is compiled first.", panel=SERVER, ge=1
    )
    data: Path | None = option(
        None, "Folder of its database and checkpoints; default: one of the server's name.", panel=SERVER, metavar="DIR"
    )
    host: Literal["127.0.0.1", "0.0.0.0"] = option(  # noqa: S104
        "127.0.0.1", "Address to listen on; 0.0.0.0 lets other hosts in, without a key.", panel=SERVER
    )
    port: int | None = option(None, "Its port; default: a free one.", panel=SERVER, ge=1, le=65535)
    start_timeout: float = option(1800.0, "Seconds until it must be ready.", panel=SERVER, gt=0)
    gpus: int = option(0, "GPUs of the job.", panel=HOW, ge=0)


def check_extra(extra: Sequence[str]) -> None:
    """Refuse options that belong to atropos itself. Raises UsageError."""
    for word in extra:
        name = word.partition("=")[0]
        if name in _OURS:
            raise UsageError(f"{name} behind -- is set by atropos", hint=f"give it {_OURS[name]}")


def find_python(given: str | None) -> str:
    """The interpreter that has SkyRL. Raises LaunchError."""
    python = sys.executable if given is None else shutil.which(str(Path(given).expanduser()))
    if python is None:
        raise LaunchError(f"--engine-python {given}: there is no such program", hint="give a Python interpreter")
    python = str(Path.cwd() / python)  # links stay: one is what makes a virtual environment
    found = subprocess.run([python, "-I", "-c", _LOOK], capture_output=True, check=False)  # noqa: S603 - chosen by the user
    if found.returncode:
        where = "here" if given is None else f"for --engine-python {given}"
        raise LaunchError(f"skyrl is not installed {where}", hint=_INSTALL)
    return python


def component(model: str, options: SkyrlOptions, data: Path, python: str, extra: Sequence[str]) -> Component:
    """The server. model: a folder, or a name on the hub."""
    folder = Path(model).expanduser()
    name = str(folder.resolve()) if folder.is_dir() else model
    words = ["-m", "skyrl.tinker.api", "--base-model", name, "--backend", options.engine_backend]
    words += ["--database-url", f"sqlite:///{data / 'tinker.db'}", "--checkpoints-base", str(data / "checkpoints")]
    words += ["--backend-config", json.dumps(engine_options(options)), *extra]
    places = ["--host", "0.0.0.0" if options.slurm else options.host, "--port", "{port}"]  # noqa: S104
    return Component(
        name="server0",
        role="service",
        argv=(python, str(PROGRAM), *map(escape_placeholders, words), *places),
        env=environment(options, data),
        ports=("http",),
        port=options.port,
        health=HEALTH,
    )


def engine_options(options: SkyrlOptions) -> Mapping[str, Any]:
    """The backend's options, those of the user last."""
    if options.engine_backend != "jax":
        return options.engine_options
    sizes = {"sample_max_num_sequences": options.batch, "train_micro_batch_size": options.batch}
    return {"max_lora_adapters": options.adapters, "max_lora_rank": options.lora_r, **sizes, **options.engine_options}


def environment(options: SkyrlOptions, data: Path) -> dict[str, str]:
    """JAX keeps its compiled programs, for the next start; where the user has a folder for it, there."""
    if options.engine_backend != "jax" or _CACHE in os.environ:
        return {}
    kept = escape_placeholders(str(data / "compiled"))
    return {_CACHE: kept, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
