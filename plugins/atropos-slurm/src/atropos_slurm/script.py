"""The batch script: directives, the profile's set-up lines, one exec. A pure function of job and profile."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.launchers import JobSpec, Resources, job_name, parse_memory, parse_time
from atropos_slurm.config import SlurmConfig
from atropos_slurm.site import site_options
from atropos_slurm.values import array_text, path_pattern, quoted, time_text

TEMPLATE = Path(__file__).with_name("job.sbatch.j2")


@dataclass(frozen=True, slots=True)
class Ready:
    """A job with everything decided: its directives in order (an empty value is a switch).

    left_out: what the environment says to sbatch and the job does not use, a line each.
    """

    name: str
    folder: Path
    output: str
    directives: dict[str, str]
    command: tuple[str, ...]
    setup: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    array: int | None = None


def resources_of(job: JobSpec, config: SlurmConfig) -> Resources:
    """What the job asks for, what it leaves open filled from the profile."""
    wanted = dict(job.resources)
    if (shards := wanted.pop("shards", None)) is not None:  # a task of an array finds its own by its number
        wanted["array"] = shards
    found = Resources.model_validate(wanted)
    changes: dict[str, int] = {}
    if found.time_s is None and config.time is not None:
        changes["time_s"] = parse_time(config.time)
    if found.cpus_per_node is None and config.cpus is not None:
        changes["cpus_per_node"] = config.cpus
    if found.mem_mb is None and config.mem is not None:
        changes["mem_mb"] = parse_memory(config.mem)
    filled: Resources = found.replace(**changes)
    return filled


def ready(
    job: JobSpec, config: SlurmConfig, *, most_tasks: int | None = None, environ: Mapping[str, str] | None = None
) -> Ready:
    """Decide everything. most_tasks: the cluster's limit for one array. environ: what sbatch would be given.

    Raises UsageError.
    """
    folder = Path(job.run)
    want = resources_of(job, config)
    output = path_pattern(str(folder / "slurm"), "the job's folder") + ("-%A_%a.out" if want.array else "-%j.out")
    directives = {
        "job-name": job_name(job.name),
        "output": output,
        "open-mode": "append",
        "export": "ALL",
        "nodes": str(want.nodes),
        "ntasks-per-node": "1",
        **_sizes(want, config),
        **{key: value for key in ("partition", "account", "qos", "constraint") if (value := getattr(config, key))},
        ("requeue" if want.requeue else "no-requeue"): "",
    }
    if job.cwd is not None:
        directives["chdir"] = job.cwd
    if want.signal_before_s is not None:
        directives["signal"] = f"B:USR1@{want.signal_before_s}"
    if want.array is not None:
        directives["array"] = array_text(want.array, want.array_limit, most_tasks)
    if job.after:
        directives["dependency"] = "afterok:" + ":".join(text.partition(";")[0] for text in job.after)
        directives["kill-on-invalid-dep"] = "yes"
    directives |= config.sbatch | job.options
    site, left_out = site_options(environ or {}, directives)
    directives |= site
    python = config.python or sys.executable
    words = job.command or (
        ("run", str(folder)) if "shards" in job.resources else ("run", str(folder / "job.json"), "--on", "slurm")
    )
    return Ready(
        name=directives["job-name"],
        folder=folder,
        output=output,
        directives=directives,
        command=(python, "-P", "-m", "atropos_cli", *words),
        setup=config.setup,
        left_out=tuple(left_out),
        array=want.array,
    )


def _sizes(want: Resources, config: SlurmConfig) -> dict[str, str]:
    sizes: dict[str, str] = {}
    if want.cpus_per_node is not None:
        sizes["cpus-per-task"] = str(want.cpus_per_node)
    if want.mem_mb is not None:
        sizes["mem"] = f"{want.mem_mb}M" if want.mem_mb else "0"
    if want.gpus_per_node:
        count = f"{config.gpu_type}:{want.gpus_per_node}" if config.gpu_type else str(want.gpus_per_node)
        sizes[config.gpus_as] = f"gpu:{count}" if config.gpus_as == "gres" else count
    if want.time_s is not None:
        sizes["time"] = time_text(want.time_s)
    return sizes


def render(job: Ready, template: str | None = None) -> str:
    """The text of the script. Raises ConfigError for a template that cannot be used."""
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - a shell script, and every value is quoted for it
    )
    path = Path(template).expanduser() if template else TEMPLATE
    values: Mapping[str, object] = {
        "directives": [
            f"--{key}" + (f"={quoted(value, f'sbatch option {key}')}" if value else "")
            for key, value in job.directives.items()
        ],
        "setup": job.setup,
        "command": shlex.join(job.command),
        "name": job.name,
        "folder": shlex.quote(str(job.folder)),
    }
    try:
        text = environment.from_string(path.read_text(encoding="utf-8")).render(values)
    except OSError as error:
        raise ConfigError(
            f"template {path} cannot be read: {error.strerror}", hint="see slurm.profiles.NAME"
        ) from error
    except jinja2.TemplateError as error:
        raise ConfigError(f"template {path}: {error}", hint=f"compare it with {TEMPLATE}") from error
    if not text.startswith("#!"):
        raise ConfigError(f"template {path} does not begin with #!", hint="its first line must be #!/bin/bash")
    return text.replace("\r\n", "\n").rstrip("\n") + "\n"
