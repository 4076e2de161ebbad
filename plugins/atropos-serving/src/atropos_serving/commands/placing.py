"""What the commands that start servers share: the questions about those that run, and the ways to start one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atropos_cli.sdk import UsageError
from atropos_cli.sdk.commands import ExitCode, Session, end
from atropos_cli.sdk.launchers import LaunchError
from atropos_serving.settings import PlaceOptions

if TYPE_CHECKING:
    from atropos_cli.sdk.launchers import JobPlan
    from atropos_cli.sdk.serving import ServerRecord


def answered(session: Session, options: PlaceOptions, model: str | None, *, as_json: bool) -> int | None:
    """Do what is asked of servers that run; None where one is to be started. Raises UsageError."""
    from atropos_serving.commands import servers

    if sum((options.status, options.stop, options.detach, options.tmux, options.slurm)) > 1:
        raise UsageError("--status, --stop, --detach, --tmux and --slurm exclude each other")
    if not options.slurm and (options.time or options.profile):
        raise UsageError("--time and --profile are for --slurm", hint="add --slurm")
    if options.dry_run and options.stop:
        raise UsageError("--dry-run shows what would be started, and --stop stops", hint="leave one of them out")
    if options.status:
        return servers.show_status(session, options.name or model, as_json=as_json)
    if options.stop:
        return servers.stop_server(session, options.name or model, as_json=as_json)
    if options.held is not None:
        return servers.run_here(session, options.held, as_json=as_json)
    return None


@dataclass(frozen=True)
class Start:
    """A server to be started. make: its record, by launcher."""

    plan: JobPlan
    options: PlaceOptions
    make: Callable[[str], ServerRecord]
    as_json: bool

    def here(self, session: Session) -> int:
        """In the foreground, detached, or in tmux. Raises LaunchError when the name is in use."""
        from atropos_serving.commands import servers

        options = self.options
        folder, record = self._note("tmux" if options.tmux else "local")
        if not (options.tmux or options.detach):
            return servers.run_here(session, folder, as_json=self.as_json)
        alive = self._in_tmux(session, folder, record) if options.tmux else servers.start_detached(folder)
        if not options.wait:
            return _begun(session, record)
        return servers.wait_ready(session, folder, alive, as_json=self.as_json)

    def in_slurm(self, session: Session, nodes: int, gpus: int, config: Path | None) -> int:
        """As a batch job. Raises LaunchError when the name is in use."""
        from atropos_cli.sdk.serving import read_server, server_folder, write_record
        from atropos_serving.commands import batch

        options = self.options
        folder = server_folder(self.plan.name)
        before = read_server(folder)
        before = None if before is None else batch.current(session, before)
        if before is not None and before.state in ("starting", "ready") and not options.dry_run:
            raise LaunchError(f"a server {folder.name!r} is {before.state} already", hint="give another --name")
        place = batch.Batch(nodes, gpus, options.time, options.profile, config)
        number = batch.submit(session, self.plan, folder, place, dry_run=options.dry_run, as_json=self.as_json)
        if number is None:
            return ExitCode.OK
        record = self.make("slurm").replace(job_id=number, host="")
        write_record(folder, record)
        return batch.wait_ready(session, folder, as_json=self.as_json) if options.wait else _begun(session, record)

    def _note(self, launcher: str) -> tuple[Path, ServerRecord]:
        """Write the server's folder."""
        from atropos_cli.sdk.jobs import write_job
        from atropos_cli.sdk.serving import running, server_folder, taken, write_record

        folder = server_folder(self.plan.name)
        if running(folder):
            raise taken(folder)
        write_job(self.plan, folder)
        record = self.make(launcher)
        write_record(folder, record)
        return folder, record

    def _in_tmux(self, session: Session, folder: Path, record: ServerRecord) -> Callable[[], bool]:
        """Run the noted server in the foreground of a tmux session. Returns: does it live?"""
        from atropos_cli.sdk.jobs import make_launcher
        from atropos_cli.sdk.launchers import JobSpec

        command = (f"launch-{record.engine}", "--held", str(folder))
        job = JobSpec(name=f"server-{record.name}", run=str(folder), command=command, cwd=str(Path.cwd()))
        launcher = make_launcher(session, "tmux")
        number = launcher.submit(job)
        session.out.note(f"atropos tmux attach {number} shows it")
        return lambda: launcher.status(number).state in ("pending", "running")


def _begun(session: Session, record: ServerRecord) -> ExitCode:
    from atropos_serving.commands.servers import status_command

    end(session.out, f"{record.name} is starting", status_command(record))
    return ExitCode.OK
