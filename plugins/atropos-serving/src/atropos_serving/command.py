"""The command lines of `sglang serve` and `vllm serve`. Pure: the same request gives the same words.

Long option names only: SGLang refuses or misreads abbreviations. What the user adds stands last and verbatim,
so it wins over ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from atropos_cli.sdk import UsageError
from atropos_cli.sdk.serving import Defaults, Engine
from atropos_serving.families import parsers_for
from atropos_serving.probe import KEYS
from atropos_serving.program import Program
from atropos_serving.settings import LaunchSettings

_OURS = {
    "--host": "--host",
    "--port": "--port",
    "--tp-size": "--tp",
    "--tensor-parallel-size": "--tp",
    "-tp": "--tp",
    "--served-model-name": "--served-name",
    "--model-path": "MODEL",
    "--model": "MODEL",
    "--nnodes": "--nodes of slurm submit",
    "--node-rank": "--nodes of slurm submit",
    "--dist-init-addr": "--nodes of slurm submit",
    "--nccl-init-addr": "--nodes of slurm submit",
    "--master-addr": "--nodes of slurm submit",
    "--master-port": "--nodes of slurm submit",
    "--headless": "--nodes of slurm submit",
}
"""Options that atropos must know itself, and where it takes them."""
_COPIES = frozenset({"--dp-size", "--data-parallel-size", "-dp"})
"""Copies of the model, which need GPUs of their own. With SGLang's --enable-dp-attention they divide those of --tp."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One process group of a server: rank 0 answers requests. span: nodes of the server. rendezvous: of rank 0."""

    number: int = 0
    span: int = 1
    rendezvous_host: str = "{host}"
    rendezvous_port: str = "{port:dist}"


@dataclass(frozen=True, slots=True)
class Call:
    """One server's call. listen: address to bind. dp: copies of the model behind its one port."""

    engine: Engine
    model: str
    settings: LaunchSettings
    defaults: Defaults
    tp: int
    listen: str
    program: Program
    rank: Rank = field(default_factory=Rank)
    cpu: bool = False
    dp: int = 1


def server_words(call: Call, extra: Sequence[str]) -> list[str]:
    """The whole command line; ports are placeholders. extra: of the user, placeholders in it already escaped."""
    words = _sglang(call) if call.engine == "sglang" else _vllm(call)
    return [*call.program.words, *words, *extra]


def check_extra(engine: Engine, extra: Sequence[str]) -> None:
    """Refuse options that belong to atropos itself, and secrets. Raises UsageError."""
    for word in extra:
        name = word.partition("=")[0].replace("_", "-")
        if name in _OURS:
            raise UsageError(f"{name} behind -- is set by atropos", hint=f"give it {_OURS[name]}")
        if name in ("--api-key", "--admin-api-key"):
            raise UsageError(
                f"{name} would be visible in the plan and in the process list",
                hint=f"put the key into the variable {KEYS[engine]}: the server wants it, probes and clients send it",
            )
    names = [word.partition("=")[0].replace("_", "-") for word in extra]
    if "--enable-dp-attention" not in names:
        for name in _COPIES.intersection(names):
            raise UsageError(f"{name} behind -- is set by atropos", hint="give it --dp N --one-port")


def _sglang(call: Call) -> list[str]:
    have = call.settings
    words = ["--model-path", call.model, "--host", call.listen, "--port", "{port}"]
    words += ["--tp-size", str(max(call.tp, 1)), *_copies(call, "--dp-size"), "--random-seed", str(have.seed)]
    # A request that leaves a sampling parameter out means the neutral value, not the one of generation_config.json.
    words += ["--sampling-defaults", "openai"]
    words += _chosen(call, "--context-length", "--max-running-requests", "--mem-fraction-static")
    if call.rank.span == 1:
        words += ["--nccl-port", "{port:nccl}"]
    else:
        words += ["--nnodes", str(call.rank.span), "--node-rank", str(call.rank.number)]
        words += ["--dist-init-addr", f"{call.rank.rendezvous_host}:{call.rank.rendezvous_port}"]
    tool, reasoning = _parsers(call)
    words += _option("--tool-call-parser", tool) + _option("--reasoning-parser", reasoning)
    if call.defaults.attention_backend:  # a GPU too old for the kernels of FlashInfer
        words += ["--sampling-backend", "pytorch"]
    if _eager(call):
        new = ["--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled"]
        words += ["--disable-cuda-graph"] if call.program.old else new
    return words


def _vllm(call: Call) -> list[str]:
    have = call.settings
    words = [call.model, "--host", call.listen]
    words += ["--port", "{port}"] if call.rank.number == 0 else []
    words += ["--tensor-parallel-size", str(max(call.tp, 1)), *_copies(call, "--data-parallel-size")]
    words += ["--seed", str(have.seed)]
    words += _chosen(call, "--max-model-len", "--max-num-seqs", None if call.cpu else "--gpu-memory-utilization")
    # The logprobs of what was sampled from, after temperature and top-p: what training compares with. Sampling
    # parameters that a request leaves out are neutral, not those of generation_config.json.
    words += ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "20", "--generation-config", "vllm"]
    if call.rank.span > 1:
        words += ["--nnodes", str(call.rank.span), "--node-rank", str(call.rank.number)]
        words += ["--master-addr", call.rank.rendezvous_host, "--master-port", call.rank.rendezvous_port]
        words += ["--headless"] if call.rank.number else []
    tool, reasoning = _parsers(call)
    if tool:
        words += ["--enable-auto-tool-choice", "--tool-call-parser", tool]
    words += _option("--reasoning-parser", reasoning)
    return words + (["--enforce-eager"] if _eager(call) else [])


def _chosen(call: Call, context: str, requests: str, memory: str | None) -> list[str]:
    """Options that both engines have, by their names here: the setting, else the default, else nothing."""
    have, default = call.settings, call.defaults
    words = ["--dtype", have.dtype or default.dtype]
    words += _option("--served-model-name", have.served_name)
    words += _option(context, have.context)
    words += _option(requests, have.max_requests or default.max_requests)
    if memory is not None:
        words += _option(memory, have.memory_fraction or default.memory_fraction)
    return words + _option("--attention-backend", have.attention_backend or default.attention_backend)


def _copies(call: Call, name: str) -> list[str]:
    return [name, str(call.dp)] if call.dp > 1 else []


def _option(name: str, value: str | float | None) -> list[str]:
    return [] if value is None else [name, str(value)]


def _eager(call: Call) -> bool:
    return call.defaults.eager if call.settings.eager is None else call.settings.eager


def _parsers(call: Call) -> tuple[str | None, str | None]:
    """(tool parser, reasoning parser) after `auto` and `none`."""
    family = parsers_for(call.settings.served_name or call.model, call.engine)
    if family.tool is None:
        family = parsers_for(call.model, call.engine)

    def pick(setting: str, known: str | None) -> str | None:
        return {"auto": known, "none": None}.get(setting, setting)

    return pick(call.settings.tool_parser, family.tool), pick(call.settings.reasoning_parser, family.reasoning)
