"""`atropos launch-sglang MODEL`, `atropos launch-vllm MODEL`: start inference servers, here, detached or in tmux."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.sdk import UsageError
from atropos_cli.sdk.commands import Command, ExitCode, JsonOption, Session, again, counted, end, with_flags
from atropos_cli.sdk.launchers import LaunchError
from atropos_cli.sdk.serving import Engine
from atropos_serving.commands.placing import Start, answered
from atropos_serving.options import option_table
from atropos_serving.settings import LAUNCH, LaunchOptions

if TYPE_CHECKING:
    from atropos_cli.sdk.launchers import JobPlan
    from atropos_cli.sdk.serving import Platform, ServerRecord
    from atropos_serving.program import Program
    from atropos_serving.servers import Servers

_ANY = "MODEL"
SHOWN = {"sglang": "SGLang", "vllm": "vLLM"}
Model = Annotated[
    str | None, typer.Argument(metavar="MODEL", help="Folder, or OWNER/NAME of the hub.", show_default=False)
]
Extra = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- OPTIONS", help="Options of the engine itself, verbatim.", show_default=False),
]


@dataclass(frozen=True)
class Given:
    """One call of the command. config: the file that --config names."""

    engine: Engine
    model: str
    extra: tuple[str, ...]
    options: LaunchOptions
    as_json: bool
    config: Path | None = None


def launch_command(engine: Engine) -> Any:
    """The command for one engine."""

    def launch(
        model: Model = None,
        extra: Extra = None,
        *,
        options: LaunchOptions,
        session: Session,
        config: Path | None,
        as_json: JsonOption = False,
    ) -> int:
        return _run(session, Given(engine, model or _ANY, tuple(extra or ()), options, as_json, config), model)

    launch.__doc__ = (
        f"Start {SHOWN[engine]} servers for a model and wait until they answer.\n\n"
        "Sizes and options are chosen from the GPUs and the model where they are not given; what stands behind -- goes "
        f"to the engine as it is. Section [launch] of a configuration file sets the same.\n\n"
        f"atropos launch-{engine} Qwen/Qwen3-8B --detach"
    )
    cls = type("LaunchCommand", (_LaunchCommand,), {"engine": engine})
    return with_flags(LAUNCH, LaunchOptions, cls=cls)(launch)


class _LaunchCommand(Command):
    """Says where an option of the engine belongs when it stands before the dashes."""

    engine: Engine

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            wanted = str(getattr(error, "option_name", ""))
            if wanted.replace("_", "-") in option_table(self.engine).names:
                raise UsageError(
                    f"{wanted} is an option of {SHOWN[self.engine]}, not of atropos",
                    hint=f"put it behind two dashes: atropos launch-{self.engine} MODEL -- {wanted} ...",
                ) from error
            raise


def _run(session: Session, call: Given, model: str | None) -> int:
    options = call.options
    if not options.slurm and options.nodes > 1:
        raise UsageError("--nodes is for --slurm", hint="add --slurm")
    if (code := answered(session, options, model, as_json=call.as_json)) is not None:
        return code
    if model is None and options.dry_run:
        session.out.note(f"{_ANY} stands for the model, which was not named")
    elif model is None:
        raise UsageError(
            "the model is missing", hint=f"atropos launch-{call.engine} OWNER/NAME, or a folder; --status lists servers"
        )
    if options.slurm:
        return _in_slurm(session, call)
    plan, planned = prepare(session, call, dry_run=options.dry_run)
    if options.dry_run:
        _show(session, call, plan, planned)
        return ExitCode.OK
    return _start(call, plan).here(session)


def prepare(
    session: Session, call: Given, *, dry_run: bool = False, place: tuple[Platform, int, int] | None = None
) -> tuple[JobPlan, Servers]:
    """Look at the machine and the model, choose, check. Says what a user should know of it.

    place: (what a node is, nodes, GPUs on each) when this machine is not the one that serves.
    """
    from atropos_cli.sdk.jobs import core_version
    from atropos_cli.sdk.launchers import JobPlan, Resources
    from atropos_cli.sdk.serving import Platform, default_name, detect_platform
    from atropos_serving.prepare import check_ports, look_up
    from atropos_serving.servers import ServerRequest, plan_servers

    here = place is None
    if place is None:
        machine = detect_platform()
        place = (machine, 1, len(machine.gpus))
        wanted = call.options.gpus or 0
        if dry_run and wanted > len(machine.gpus):
            session.out.note(f"{len(machine.gpus)} of {wanted} GPUs are here: planned for a machine that has them")
            place, here = (Platform("gpu"), 1, wanted), False
    platform, nodes, gpus = place
    request = ServerRequest(
        engine=call.engine,
        model=call.model,
        settings=call.options,
        extra=call.extra,
        nodes=nodes,
        gpus_per_node=gpus,
        platform=platform,
        info=None if call.model == _ANY else look_up(call.model, offline=offline(), ask_hub=gpus > 0),
        program=_program(session, call, here=here, dry_run=dry_run),
    )
    planned = plan_servers(request, strict=call.options.strict)
    for text in (*planned.notes, *([platform.problem] if platform.problem else [])):
        session.out.warning(text)
    if here:
        check_ports(call.options.port, len(planned.heads))
    plan = JobPlan(
        atropos_version=core_version,
        name=call.options.name or default_name(call.model),
        components=planned.components,
        resources=Resources(nodes=nodes, gpus_per_node=gpus),
        env=_divided(platform) if here else {},
        cwd=str(Path.cwd()),
        expose=call.options.host != "127.0.0.1",
        start_timeout=call.options.start_timeout,
    )
    return plan, planned


def _divided(platform: Platform) -> dict[str, str]:
    """Instances of divided GPUs have names only, and no numbers that CUDA counts."""
    named = any(gpu.mig for gpu in platform.gpus) and "CUDA_VISIBLE_DEVICES" not in os.environ
    return {"CUDA_VISIBLE_DEVICES": ",".join(platform.tokens)} if named else {}


def _program(session: Session, call: Given, *, here: bool, dry_run: bool) -> Program | None:
    """What starts the engine; None: its command, to be found on PATH where it runs."""
    from atropos_serving.program import find_program, unseen

    python = call.options.engine_python
    if not here and python is not None and shutil.which(python) is None:
        return unseen(call.engine, python)
    try:
        return find_program(call.engine, python)
    except LaunchError as error:
        if not dry_run:
            raise
        session.out.warning(error.message, error.hint)
        return None


def offline() -> bool:
    """Is the hub out of bounds?"""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def _start(call: Given, plan: JobPlan) -> Start:
    return Start(plan, call.options, lambda launcher: _record(call, plan.name, launcher), call.as_json)


def _record(call: Given, name: str, launcher: str) -> ServerRecord:
    import socket
    import time

    from atropos_cli.sdk.serving import ServerRecord
    from atropos_serving.probe import KEYS

    key = KEYS[call.engine]
    return ServerRecord(
        name=name,
        engine=call.engine,
        model=call.model,
        served_name=call.options.served_name or call.model,
        launcher=launcher,
        host=socket.gethostname(),
        started=time.time(),
        key_env=key if os.environ.get(key, "").strip() else None,
    )


def _show(session: Session, call: Given, plan: JobPlan, planned: Servers) -> None:
    """The dry run."""
    import shlex

    if call.as_json:
        session.out.json(
            {
                "plan": plan.model_dump(mode="json"),
                "tp": planned.layout.tp,
                "dp": planned.layout.dp,
                "defaults": planned.defaults.as_json(),
                "notes": list(planned.notes),
            }
        )
        return
    for item in plan.components:
        words = [f"{key}={shlex.quote(value)}" for key, value in item.env.items()]
        if item.gpus is not None:
            words.insert(0, f"CUDA_VISIBLE_DEVICES={','.join(map(str, item.gpus))}")
        port = f"  (port {item.port})" if item.port else ""
        session.out.data(f"{item.name}: {' '.join([*words, shlex.join(item.argv)])}{port}")
    end(session.out, f"would start {counted(len(plan.components), 'component')}", again(session.args))


def _in_slurm(session: Session, call: Given) -> int:
    """Serve in a batch job: sizes come from --gpus and --nodes, since this machine is not the one that serves."""
    from atropos_cli.sdk.serving import Platform, detect_platform

    options = call.options
    gpus = options.gpus or 0
    platform = Platform("gpu") if gpus else Platform("cpu", memory=detect_platform().memory)
    open_to_all = replace(call, options=options.replace(host="0.0.0.0", gpus=None))  # noqa: S104
    plan, _ = prepare(session, open_to_all, dry_run=True, place=(platform, options.nodes, gpus))
    return _start(open_to_all, plan).in_slurm(session, options.nodes, gpus, call.config)


sglang = launch_command("sglang")
vllm = launch_command("vllm")
