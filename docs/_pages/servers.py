"""The launch commands: settings, what they become for each engine, defaults by GPU, parsers by model family."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from _pages.markdown import page, quoted, table

INTRO = """\
`atropos launch-sglang MODEL` and `atropos launch-vllm MODEL` start inference servers: in the foreground, with
`--detach` (outlives the session), with `--tmux`, or with `--slurm` (a batch job of `--nodes` nodes with `--gpus` GPUs
each). `atropos slurm submit --serve vllm|sglang` starts the same servers beside a command. Everything after `--` goes
to the engine unchanged, and overrides the settings here. [One GPU box](../how-to/one-gpu-box.md) shows their use."""
SIZES = """\
`--tp` GPUs share one copy of the model; `--dp` counts independent servers, each with a port of its own. Left out,
`--tp` is the smallest number that divides the model's attention heads and holds its weights in 70 % of the memory a
server may use, and `--dp` is as many as fit. Weights are measured by their files where the model is on this machine,
else worked out from `config.json`. When the model is not known, `--tp` is all GPUs of a node. A server larger than a
node spans several.

`--dp` counts servers because one that fails leaves the others alone, and because both engines refuse or mishandle
data parallelism over nodes for dense models. `gen` takes all addresses and asks the server with the fewest requests in
flight; a training hands new weights to each. Each server has a seed of its own (`--seed`, plus its number), since
servers alike would sample alike.

`--one-port` gives all copies one address, for clients that take one:

| copies | what runs |
|---|---|
| on one node | one server with `--data-parallel-size` (vLLM) or `--dp-size` (SGLang) |
| of SGLang on several nodes | the servers, and SGLang's router before them, if `sglang_router` is in its environment |
| of vLLM on several nodes | nothing: it is an error |

The router hands on neither new weights nor the token ids of chat replies, so do not train through it. `--dry-run`
shows what would run. `-- --enable-dp-attention --dp-size N` is passed on to SGLang: those copies share the GPUs of
`--tp`."""
FORMS = """\
| SGLang that is installed | command line |
|---|---|
| knows `sglang serve` | `sglang serve ...` |
| is older | `PYTHON -m sglang.launch_server ...`, and `--disable-cuda-graph` for `--eager` |
| cannot be seen from here (a SLURM job on nodes with other disks) | `sglang serve`; with `--engine-python` the module |

SGLang runs on CPUs after `-- --device cpu`, where its build can.

A server wants the key that is in `VLLM_API_KEY` or `SGLANG_API_KEY` when it starts; probes send it, and the programs of
a job to which the server belongs. Other clients name the variable: `--api-key-env VLLM_API_KEY`. SGLang takes a key as
an option only, so its Python gets it from `sglang_with_key.py`, where it shows neither in the list of processes nor in
the log. `-- --api-key` is refused: it would be in the plan."""
READY = """\
A server is ready when its `/health` answers with 200 and one completion has been made, since the first one may
compile for minutes. Then its capabilities are probed; the answers are in `server.json`, `--status --json` and the
output.

| capability | how it is asked |
|---|---|
| `token_ids` | a completion with `return_token_ids` (SGLang: also `/generate`) |
| `logprobs` | a completion with `logprobs` |
| `prompt_logprobs` | `prompt_logprobs` of vLLM, `logprob_start_len` of SGLang's `/generate` |
| `tools` | a chat request with a tool is answered, and a tool-call parser is set |

A server that ends by itself is a failure whatever its exit code: vLLM ends with 0 when its engine has died.
Everything it had started is ended with it, also processes that went into sessions of their own.

| exit code | of a launch command |
|---|---|
| 0 | `--detach`, `--tmux`, `--slurm`: it is ready; `--status`: it answers; `--stop`: it is stopped |
| 1 | `--status --name`: it is not ready, or does not answer |
| 2 | sizes that cannot be, a port above 65535, an option that belongs elsewhere |
| 5 | it was ready and failed later (in the foreground) |
| 7 | it did not become ready: not installed, out of memory, port taken, too large; the log's last lines are shown |
| 130 | stopped by Ctrl-C or SIGTERM (in the foreground) |"""
FOLDER = """\
`~/.local/state/atropos/servers/NAME` (`XDG_STATE_HOME` moves it) holds `server.json` (state, addresses,
capabilities), `job.json` (the plan with all command lines), `logs/latest/serverK.log`, `events.jsonl`,
`endpoints/serverK.json` and `exit.json`. Without `--port` a free port between 20000 and 30000 is picked; the
addresses are printed and recorded there."""
ALWAYS = """\
Set always, for data that a trainer can use: vLLM's `--logprobs-mode processed_logprobs` (of the distribution that was
sampled from, after temperature and top-p), and `--generation-config vllm` or SGLang's `--sampling-defaults openai`,
so that a sampling parameter which a request leaves out is neutral and not one of `generation_config.json`."""
SAMPLES: dict[str, Any] = {
    "tp": 2,
    "one_port": True,
    "host": "0.0.0.0",
    "port": 9000,
    "dtype": "float16",
    "context": 4096,
    "max_requests": 16,
    "memory_fraction": 0.5,
    "attention_backend": "NAME",
    "eager": True,
    "seed": 7,
    "served_name": "NAME",
    "tool_parser": "hermes",
    "reasoning_parser": "qwen3",
}


def pages() -> Iterator[tuple[str, str]]:
    """reference/servers.md."""
    yield (
        "servers.md",
        page(
            "Servers",
            INTRO,
            f"## Settings\n\n{_settings()}",
            f"## Sizes\n\n{SIZES}",
            f"## Versions, CPUs and keys\n\n{FORMS}",
            f"## What a setting becomes\n\n{_mapping()}\n\n{ALWAYS}",
            f"## Defaults by GPU\n\n{_defaults()}",
            f"## Parsers by model family\n\n{_families()}",
            f"## Ready, and failed\n\n{READY}",
            f"## The server's folder\n\n{FOLDER}",
            f"## Options that changed\n\n{_gone()}",
        ),
    )


def _settings() -> str:
    from atropos_serving.settings import LaunchSettings

    from atropos_cli.config.options import options_of

    rows = [
        (
            f"`--{option.flag}`",
            f"`{option.key}`",
            f"`ATROPOS_LAUNCH__{option.key.upper()}`",
            quoted(option.type_text),
            quoted(option.default_text),
            option.description + (f" ({option.range})" if option.range else ""),
        )
        for option in options_of(LaunchSettings)
    ]
    return table(("flag", "key in `[launch]`", "variable", "type", "default", "meaning"), rows)


def _words(engine: Any, **settings: Any) -> list[str]:
    from atropos_serving.servers import ServerRequest, plan_servers
    from atropos_serving.settings import LaunchSettings

    from atropos_cli.serving.platforms import Gpu, Platform

    gpus = tuple(Gpu(n, "NVIDIA H100", 81559, 0, (9, 0), "", "", token=str(n)) for n in range(2))
    have = LaunchSettings(**{"tp": 1, **settings})
    request = ServerRequest(engine, "MODEL", have, (), 1, 2, Platform("h100", gpus, 2))
    component = plan_servers(request).components[0]
    port = str(component.port) if component.port else "{port}"
    return [port if word == "{port}" else word for word in component.argv[2:]]


def _mapping() -> str:
    rows = []
    for key, value in SAMPLES.items():
        cells = [f"`--{key.replace('_', '-')}" + ("`" if value is True else f" {value}`")]
        for engine in ("sglang", "vllm"):
            cells.append(_difference(_words(engine), _words(engine, **{key: value})))
        rows.append(tuple(cells))
    return table(("setting", "SGLang", "vLLM"), rows)


def _difference(before: list[str], after: list[str]) -> str:
    """The options of `after` that are not in `before` with the same value."""
    known = set(_pairs(before))
    return " ".join(f"`{' '.join(pair)}`" for pair in _pairs(after) if pair not in known)


def _pairs(words: list[str]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for word in words:
        if word.startswith("--"):
            found.append((word,))
        elif found and len(found[-1]) == 1:
            found[-1] = (found[-1][0], word)
    return found


def _defaults() -> str:
    from atropos_cli.serving.defaults import defaults_for
    from atropos_cli.serving.platforms import Gpu, Platform

    machines = {
        "V100": ("v100", (7, 0)),
        "A100": ("a100", (8, 0)),
        "H100": ("h100", (9, 0)),
        "H200": ("h200", (9, 0)),
        "B200": ("b200", (10, 0)),
        "another, 8.0 and later": ("gpu", (8, 9)),
    }
    rows = []
    for name, (profile, capability) in machines.items():
        machine = Platform(profile, (Gpu(0, name, 1, 0, capability, "", ""),))
        rows.append(_default_row(name, [defaults_for(machine, engine) for engine in ("sglang", "vllm")]))
    for name, profile in (("none", "cpu"), ("ROCm", "rocm")):
        rows.append(_default_row(name, [defaults_for(Platform(profile), engine) for engine in ("sglang", "vllm")]))
    header = ("GPU", "dtype", "attention (SGLang, vLLM)", "memory (SGLang, vLLM)", "requests at once", "note (vLLM)")
    return table(header, rows)


def _default_row(name: str, found: list[Any]) -> tuple[str, ...]:
    def both(values: list[Any]) -> str:
        return ", ".join("engine's" if value is None else str(value) for value in values)

    kinds = list(dict.fromkeys(item.dtype for item in found))
    return (
        name,
        ", ".join(kinds),
        both([item.attention_backend for item in found]),
        both([item.memory_fraction for item in found]),
        str(found[1].max_requests or "engine's"),
        found[1].note,
    )


def _families() -> str:
    from atropos_serving.families import FAMILIES

    rows = []
    for family in FAMILIES:
        names = [family.sglang.tool, family.vllm.tool, family.sglang.reasoning, family.vllm.reasoning]
        rows.append((f"`{family.pattern}`", *(quoted(name) for name in names)))
    header = ("name matches", "tools: SGLang", "tools: vLLM", "thinking: SGLang", "thinking: vLLM")
    note = "The first row that matches counts. Other models get no parser; `--tool-parser NAME` sets one."
    return f"{table(header, rows)}\n\n{note}"


def _gone() -> str:
    from atropos_serving.options import GONE, option_table

    from atropos_cli.ports.serving import ENGINES

    rows = [
        (engine, f"`{old}`", f"`{new}`" if new.startswith("--") else new)
        for engine in ENGINES
        for old, new in GONE[engine].items()
    ]
    versions = " and ".join(f"{engine} {option_table(engine).version}" for engine in ENGINES)
    note = (
        f"Options behind `--` are checked against the parsers of {versions}: an unknown one is a warning with the "
        "closest names, and an error with `--strict`."
    )
    return f"{note}\n\n{table(('engine', 'older name', 'write'), rows)}"
