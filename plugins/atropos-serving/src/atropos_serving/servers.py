"""Servers as components of a job: one per copy of the model, and one more per further node of a copy.

servers = plan_servers(ServerRequest("vllm", "Qwen/Qwen3-8B", platform=detect_platform()))
servers.components      for a JobPlan
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from atropos_cli.sdk import UsageError
from atropos_cli.sdk.jobs import escape_placeholders
from atropos_cli.sdk.launchers import Component, LaunchError, Warmup
from atropos_cli.sdk.serving import Defaults, Engine, Platform, cpu_cache_gib, defaults_for, fronts
from atropos_serving.command import Call, Rank, check_extra, server_words
from atropos_serving.layout import Layout, Room, Slice, joined, plan_layout
from atropos_serving.modelinfo import ModelInfo
from atropos_serving.options import problems
from atropos_serving.probe import KEYS
from atropos_serving.program import Program, unseen
from atropos_serving.settings import LaunchSettings

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ROUTER = "router"
ROUTER_NOTE = "SGLang's router loses the token ids of chat replies and takes no new weights: not for training"
VLLM_ENGINE_DEAD = 503
"""What vLLM's API server answers to /health when its engine has died. SGLang's says it also while it drains."""


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """The model to serve, and where.

    extra: options for the engine, verbatim. nodes and gpus_per_node: of the allocation. platform: what one of its
    nodes is. info: what is known of the model. program: what starts the engine (None: its command on PATH there).
    """

    engine: Engine
    model: str
    settings: LaunchSettings = field(default_factory=LaunchSettings)
    extra: tuple[str, ...] = ()
    nodes: int = 1
    gpus_per_node: int = 0
    platform: Platform = field(default_factory=lambda: Platform("gpu"))
    info: ModelInfo | None = None
    program: Program | None = None

    @property
    def starts(self) -> Program:
        return self.program or unseen(self.engine)


@dataclass(frozen=True, slots=True)
class Servers:
    """components: one per process group. notes: for the user."""

    components: tuple[Component, ...]
    layout: Layout
    defaults: Defaults
    notes: tuple[str, ...]

    @property
    def heads(self) -> tuple[Component, ...]:
        """Those that clients ask: the router alone where there is one."""
        return fronts(self.components)


def plan_servers(request: ServerRequest, *, strict: bool = False) -> Servers:
    """Choose sizes and options, check them, make the components.

    Raises UsageError for what cannot be (with strict also for options that the engine's table lacks), LaunchError
    for an engine that needs a GPU where there is none, and for a model that does not fit.
    """
    check_extra(request.engine, request.extra)
    request = _on_cpus(request)
    defaults = defaults_for(request.platform, request.engine)
    room = _room(request, defaults)
    if request.engine == "sglang" and not room.gpus and not _says_cpu(request.extra):
        raise LaunchError(
            "SGLang needs a GPU, and none can be used here" + _why(request.platform),
            hint="atropos doctor shows this machine; a build of SGLang for CPUs: -- --device cpu; or launch-vllm",
        )
    layout = plan_layout(room, request.info, tp=request.settings.tp, dp=request.settings.dp)
    if layout.tp > 1 and any(gpu.mig for gpu in request.platform.gpus):
        raise UsageError(
            f"a server over {layout.tp} GPUs: of divided GPUs (MIG) one process sees a single instance",
            hint="--tp 1 --dp N starts a server on each; a model that does not fit needs a whole GPU",
        )
    routed = False
    if request.settings.one_port and layout.dp > 1:
        routed = _needs_router(request, layout)
        layout = layout if routed else joined(layout)
    components = [
        component
        for number, part in enumerate(layout.slices)
        for component in _server(request, defaults, layout, number, part)
    ]
    if routed:
        components.append(_router(request, components))
    wrong = _option_problems(request, components)
    if wrong and strict:
        raise UsageError("\n".join(wrong), hint="without --strict these are warnings")
    notes = (*layout.notes, *([defaults.note] if defaults.note else []), *([ROUTER_NOTE] if routed else []), *wrong)
    return Servers(tuple(components), layout, defaults, notes)


def _room(request: ServerRequest, defaults: Defaults) -> Room:
    wanted = request.settings.gpus
    if wanted is not None and request.gpus_per_node and wanted > request.gpus_per_node:
        raise UsageError(
            f"--gpus {wanted}: only {request.gpus_per_node} can be used here" + _why(request.platform),
            hint=f"--gpus {request.gpus_per_node}",
        )
    if wanted and not request.gpus_per_node:
        raise LaunchError(f"--gpus {wanted}: no GPU can be used here" + _why(request.platform), hint="atropos doctor")
    fraction = request.settings.memory_fraction or defaults.memory_fraction or 0.88
    gpus = request.gpus_per_node if wanted is None else wanted
    return Room(request.nodes, gpus, request.platform.gpu_memory_mib or None, fraction)


def _why(platform: Platform) -> str:
    if platform.problem:
        return f" ({platform.problem})"
    if not platform.gpus and platform.slurm.sbatch and not platform.slurm.job:
        return " (this looks like a login node: the GPUs are on the compute nodes)"
    return ""


def _says_cpu(extra: Sequence[str]) -> bool:
    """Is SGLang told to compute on CPUs?"""
    return "--device=cpu" in extra or ("--device", "cpu") in pairwise(extra)


def _on_cpus(request: ServerRequest) -> ServerRequest:
    """Without the GPUs of the machine where the user wants none of them."""
    if request.engine != "sglang" or not _says_cpu(request.extra):
        return request
    return replace(request, platform=Platform("cpu", memory=request.platform.memory), gpus_per_node=0)


def _server(
    request: ServerRequest, defaults: Defaults, layout: Layout, number: int, part: Slice
) -> Iterator[Component]:
    """The components of one server, rank 0 first."""
    head = f"server{number}"
    span = len(part.parts)
    have = request.settings
    cpu = layout.tp == 0
    copies = layout.dp if len(layout.slices) == 1 else 1
    routed = layout.dp > 1 and have.one_port and copies == 1
    listen = "0.0.0.0" if request.nodes > 1 and have.host in LOOPBACK else have.host  # noqa: S104
    extra = [escape_placeholders(word) for word in request.extra]
    for rank, (node, gpus) in enumerate(part.parts):
        place = Rank(rank, span) if rank == 0 else Rank(rank, span, f"{{endpoint:{head}.dist.host}}", _dist(head))
        call = Call(
            engine=request.engine,
            model=escape_placeholders(request.model),
            settings=have.replace(seed=have.seed + number),  # alike, the servers would sample alike
            defaults=defaults,
            tp=layout.tp,
            listen=listen,
            program=request.starts,
            rank=place,
            cpu=cpu,
            dp=copies,
        )
        # SGLang answers on rank 0 only, but opens a port on every rank; vLLM's other ranks open none.
        first = rank == 0
        yield Component(
            name=head if first else f"{head}-rank{rank}",
            role="service",
            argv=tuple(server_words(call, extra)),
            env=_environment(request, cpu=cpu),
            node=node,
            gpus=None if cpu else gpus,
            ports=_ports(request.engine, first=first, span=span),
            port=have.port + number if have.port is not None and first and not routed else None,
            health="/health" if first else None,
            dead_status=VLLM_ENGINE_DEAD if first and request.engine == "vllm" else None,
            warmup=_warmup(have.served_name or request.model) if first else None,
            key_env=KEYS[request.engine] if first else None,
        )


def _needs_router(request: ServerRequest, layout: Layout) -> bool:
    """Is it the only way to one port? Raises UsageError where it would be, and is not there.

    The engine's own data parallelism hands everything on, but within a node.
    """
    nodes = {node for part in layout.slices for node, _ in part.parts}
    if len(nodes) == 1:
        return False
    if request.engine == "sglang" and request.starts.router:
        return True
    raise UsageError(
        f"--one-port: {layout.dp} servers on {len(nodes)} nodes cannot be one",
        hint="leave it out: gen takes an address for each"
        + ("; or SGLang's router there: pip install sglang-router" if request.engine == "sglang" else ""),
    )


def _router(request: ServerRequest, servers: Sequence[Component]) -> Component:
    """SGLang's router before all servers."""
    have = request.settings
    behind = [item.name for item in servers if item.health]
    urls = [f"http://{{endpoint:{name}}}" for name in behind]
    listen = "0.0.0.0" if request.nodes > 1 and have.host in LOOPBACK else have.host  # noqa: S104
    words = ["-m", "sglang_router.launch_router", "--host", listen, "--port", "{port}", "--worker-urls", *urls]
    words += ["--prometheus-port", "{port:metrics}", "--worker-startup-timeout-secs", "36000"]
    return Component(
        name=ROUTER,
        role="service",
        argv=(request.starts.python or "python3", *words),
        gpus=None if servers[0].gpus is None else (),
        ports=("http", "metrics"),
        port=have.port,
        health="/readiness",
        warmup=_warmup(have.served_name or request.model),
        key_env=KEYS[request.engine],
    )


def _dist(head: str) -> str:
    return f"{{endpoint:{head}.dist.port}}"


def _ports(engine: Engine, *, first: bool, span: int) -> tuple[str, ...]:
    if not first:
        return ("http",) if engine == "sglang" else ()
    extra = ("dist",) if span > 1 else ("nccl",) if engine == "sglang" else ()
    return ("http", *extra)


def _environment(request: ServerRequest, *, cpu: bool) -> dict[str, str]:
    if request.engine != "vllm" or not cpu:
        return {}
    # Bound to cores by vLLM itself, the threads of two servers would share the same ones.
    return {"VLLM_CPU_KVCACHE_SPACE": str(cpu_cache_gib(request.platform)), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def _warmup(model: str) -> Warmup:
    """The first request compiles kernels and may take minutes: it is part of the start."""
    return Warmup(
        path="/v1/completions", json_body={"model": model, "prompt": "Hello", "max_tokens": 2, "temperature": 0}
    )


def _option_problems(request: ServerRequest, components: Sequence[Component]) -> list[str]:
    """What the engine's table says of the command line of the first server."""
    skip = len(request.starts.words)
    words = ["1" if word in ("{port}", "{port:nccl}", "{port:dist}") else word for word in components[0].argv[skip:]]
    return problems(request.engine, words)
