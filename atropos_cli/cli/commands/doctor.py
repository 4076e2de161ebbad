"""`atropos doctor`: is everything here that a run needs? Looks only; imports no model library."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from atropos_cli.config.commands import CommandOptions, option
from atropos_cli.console.commands import JsonOption, with_flags
from atropos_cli.console.ending import counted, end, shell
from atropos_cli.console.session import Session
from atropos_cli.errors import ConfigError, ExitCode
from atropos_cli.network import get
from atropos_cli.ports.serving import ENGINES
from atropos_cli.serving.defaults import defaults_for
from atropos_cli.serving.platforms import Platform, detect
from atropos_cli.serving.trainprofiles import training_profile

if TYPE_CHECKING:
    from atropos_cli.plugins.records import CheckStatus

NEEDED = ("typer", "rich", "pluggy", "pydantic", "aiohttp", "httpx", "pyyaml")
USEFUL = ("zstandard", "torch", "transformers", "trl", "vllm", "sglang", "textworld")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, how it stands, what was found."""

    name: str
    status: CheckStatus
    detail: str


class DoctorOptions(CommandOptions):
    """What is looked at besides this machine."""

    base_urls: tuple[str, ...] = option((), "Also ask this server.", flag="base-url", metavar="URL")
    runs: Path = option(Path("runs"), "Folder that runs are written to.", metavar="DIR")


@with_flags("doctor", DoctorOptions)
def doctor(*, options: DoctorOptions, session: Session, as_json: JsonOption = False) -> int:
    """Check this installation. Exit code 1 when a check fails."""
    session.examine_plugins()
    machine = detect()
    findings = [*system(), *packages(), run_folder(options.runs), *hardware(machine), *tools(), *plugins(session)]
    findings += [server(url) for url in options.base_urls]
    failed = [finding for finding in findings if finding.status == "fail"]
    if as_json:
        defaults = {engine: defaults_for(machine, engine).as_json() for engine in ENGINES}
        shown = {"ok": not failed, "checks": [asdict(finding) for finding in findings]}
        training = training_profile(machine).as_json()
        session.out.json({**shown, "platform": machine.as_json(), "defaults": {**defaults, "train": training}})
    else:
        session.out.table([(finding.status, f"{finding.name}: {finding.detail}") for finding in findings])
        warned = sum(finding.status == "warn" for finding in findings)
        headline = f"{counted(len(findings), 'check')}: {len(failed)} failed, {counted(warned, 'warning')}"
        following = f"{failed[0].name}: {failed[0].detail}" if failed else shell("env", "list")
        end(session.out, headline, following)
    return ExitCode.FAILED if failed else ExitCode.OK


def system() -> Iterator[Finding]:
    """The interpreter and ourselves."""
    import atropos_cli

    yield Finding("atropos-cli", "ok", f"{atropos_cli.__version__} ({Path(atropos_cli.__file__).parent})")
    old = sys.version_info < (3, 11)
    yield Finding(
        "python", "fail" if old else "ok", f"{platform.python_version()} ({sys.executable}), {platform.platform()}"
    )


def packages() -> Iterator[Finding]:
    """Versions by the metadata of the distributions; nothing is imported."""
    for name in NEEDED:
        version = _version(name)
        yield Finding(name, "ok" if version else "fail", version or f"not installed: pip install {name}")
    for name in USEFUL:
        version = _version(name)
        yield Finding(name, "ok" if version else "info", version or "not installed (optional)")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def run_folder(runs: Path) -> Finding:
    """Can we write where runs go? Looks at the closest folder that exists, and leaves nothing behind."""
    place = runs.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Finding("run folder", "fail", f"cannot write to {place}: {error.strerror or error}")
    status: CheckStatus = "warn" if free < 1 << 30 else "ok"
    return Finding("run folder", status, f"{runs} ({free / 1e9:.1f} GB free)")


def hardware(machine: Platform) -> Iterator[Finding]:
    """GPUs, CPUs and what the launch commands and trainings choose for them."""
    memory = "" if machine.memory is None else f", {machine.memory / (1 << 30):.0f} GiB of memory"
    yield Finding("cpu", "ok", f"{machine.cpus:g} CPUs{memory}")
    yield gpu(machine)
    for engine in ENGINES:
        if engine == "sglang" and machine.profile == "cpu":
            continue
        chosen = defaults_for(machine, engine)
        parts = [f"dtype {chosen.dtype}", f"attention {chosen.attention_backend or 'as the engine chooses'}"]
        if chosen.memory_fraction is not None or machine.gpus:
            parts.append(f"memory {chosen.memory_fraction or 'as the engine chooses'}")
        parts.append(f"{chosen.max_requests or 'any number of'} requests at once")
        note = f" ({chosen.note})" if chosen.note else ""
        yield Finding(f"launch-{engine}", "info", ", ".join(parts) + note)
    yield Finding("train", "info", training_profile(machine).describe())
    where = machine.slurm
    if where.job is not None:
        counts = [f"{where.nodes} nodes"] if where.nodes else []
        counts += [f"{where.gpus} GPUs here"] if where.gpus is not None else []
        yield Finding("slurm job", "ok", ", ".join([where.job, *counts]))


def gpu(machine: Platform) -> Finding:
    """The GPUs that this process may use, or why there are none."""
    if not machine.gpus:
        if machine.problem is not None:
            return Finding("gpu", "warn", machine.problem)
        if machine.all_gpus:
            return Finding("gpu", "warn", f"CUDA_VISIBLE_DEVICES hides all {machine.all_gpus} GPUs")
        login = machine.slurm.sbatch is not None and machine.slurm.job is None
        return Finding("gpu", "info", "none here; a login node has none" if login else "none (no nvidia-smi)")
    first = machine.gpus[0]
    kinds = {(item.name, item.memory_mib) for item in machine.gpus}
    capability = "?" if first.capability is None else "{}.{}".format(*first.capability)
    bf16 = {True: "bfloat16", False: "no bfloat16", None: "bfloat16 unknown"}[machine.bf16]
    names = " + ".join(f"{name} ({memory / 1024:.0f} GiB)" for name, memory in sorted(kinds))
    text = f"{len(machine.gpus)} x {names}, compute capability {capability}, {bf16}, driver {first.driver}"
    hidden = machine.all_gpus - len(machine.gpus)
    text += f"; {hidden} more hidden by CUDA_VISIBLE_DEVICES" if hidden else ""
    text += f"; profile {machine.profile}"
    if any(item.mig for item in machine.gpus):
        text += "; MIG is on: the memory is that of whole GPUs"
    return Finding(
        "gpu", "warn" if machine.problem else "ok", text + (f"; {machine.problem}" if machine.problem else "")
    )


def tools() -> Iterator[Finding]:
    """What launches jobs."""
    for tool, arguments, use in (("tmux", "-V", "atropos tmux"), ("sbatch", "--version", "SLURM")):
        path = shutil.which(tool)
        if path is None:
            yield Finding(tool, "info", f"not found (needed for {use})")
        else:
            yield Finding(tool, "ok", _first_line([path, arguments]) or path)


def _first_line(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.strip().splitlines()
    return lines[0] + (f" and {len(lines) - 1} more" if len(lines) > 1 else "") if lines else None


def plugins(session: Session) -> Iterator[Finding]:
    """Broken plugins, and the checks that plugins bring."""
    registry = session.registry
    for plugin in registry.plugins:
        broken = [f for f in registry.failures if (f.entry_point, f.dist) == (plugin.entry_point, plugin.dist)]
        name = f"plugin {plugin.entry_point}"
        if plugin.disabled:
            yield Finding(name, "info", f"{plugin.dist} {plugin.version}, disabled")
        elif not broken:
            yield Finding(name, "ok", f"{plugin.dist} {plugin.version}, {plugin.components} components")
        for failure in broken:
            yield Finding(name, "fail", failure.message + (f"; hint: {failure.hint}" if failure.hint else ""))
    for check in registry.doctor():
        own = check.name == check.plugin or check.name.startswith((f"{check.plugin}:", f"{check.plugin} "))
        yield Finding(check.name if own else f"{check.plugin}: {check.name}", check.status, check.detail)


def server(url: str) -> Finding:
    """Does an OpenAI-compatible server answer GET /models, and with which models?"""
    name = f"server {url}"
    # A key goes only where it belongs: OPENAI_API_KEY to its own host, ATROPOS_API_KEY where the user points us.
    openai = urlsplit(url).hostname == "api.openai.com"
    key = os.environ.get("OPENAI_API_KEY") if openai else os.environ.get("ATROPOS_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        answer = get(f"{url.rstrip('/')}/models", headers=headers, timeout=5.0)
    except (OSError, ConfigError) as error:
        return Finding(name, "fail", f"no answer: {error}")
    if answer.status_code != 200:
        return Finding(name, "fail", f"GET /models: status {answer.status_code}")
    try:
        models = [str(item["id"]) for item in answer.json()["data"]]
    except (ValueError, KeyError, TypeError):
        return Finding(name, "fail", "GET /models: not the answer of an OpenAI-compatible server")
    return Finding(name, "ok", f"models: {', '.join(models) or 'none'}")
