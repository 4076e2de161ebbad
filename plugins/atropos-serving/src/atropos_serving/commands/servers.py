"""Servers that run: start one here or detached, wait for it, list, stop."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from atropos_cli.sdk import AtroposError, ConfigError, UsageError
from atropos_cli.sdk.backends import BackendError
from atropos_cli.sdk.commands import ExitCode, Session, counted, data_stream, end, shell
from atropos_cli.sdk.launchers import LaunchError
from atropos_cli.sdk.serving import TINKER, get

if TYPE_CHECKING:
    from atropos_cli.sdk.serving import ServerRecord

_TAIL = 12
_ERRORS = 6
_ERROR = re.compile(r"\b(?:error|exception|critical)\b|\w+(?:Error|Exception):", re.IGNORECASE)
_NOISE = re.compile(r"nanobind|leaked (?:function|type|instance|shared_memory)|resource_tracker|skipped remainder")
_LAUNCH_LOG = "launch.log"
_STOP_PATIENCE = 40.0


def run_here(session: Session, folder: Path, *, as_json: bool) -> int:
    """Serve in the foreground until Ctrl-C. Raises LaunchError or BackendError when it fails."""
    from atropos_cli.sdk.serving import read_server
    from atropos_serving.hold import STOPPED, serve

    def on_ready(found: ServerRecord) -> None:
        announce(session, found, as_json=as_json, how="Ctrl-C stops it.")

    def say(text: str) -> None:
        if not text.startswith("  ") and not text.startswith("the whole log"):
            session.out.note(text)

    code = serve(folder, say, on_ready)
    if code in STOPPED or code == 0:
        return ExitCode.INTERRUPTED
    raise failure(folder, read_server(folder))


def start_detached(folder: Path) -> Callable[[], bool]:
    """Start the launcher in a session of its own: the end of this terminal does not reach it. Returns: does it live?"""
    with (folder / _LAUNCH_LOG).open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", "-m", "atropos_serving.hold", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
        )
    return lambda: process.poll() is None


def wait_ready(session: Session, folder: Path, alive: Callable[[], bool], *, as_json: bool) -> int:
    """Wait for a detached server, with its launcher's words; Ctrl-C leaves it starting."""
    from atropos_cli.sdk.serving import read_server

    try:
        while True:
            living = alive()
            record = read_server(folder)
            if record is not None and record.state == "ready":
                announce(session, record, as_json=as_json, how=f"--stop --name {record.name} stops it.")
                return ExitCode.OK
            # Its launcher needs a moment to take the lock: until then the server seems to be gone.
            if record is None or record.state in ("failed", "stopped") or (record.state == "gone" and not living):
                break
            time.sleep(0.3)
    except KeyboardInterrupt:
        session.out.note(f"{folder.name} goes on starting; --stop --name {folder.name} stops it")
        raise
    if record is not None and record.state == "stopped":
        raise LaunchError(f"{folder.name} was stopped before it was ready")
    raise failure(folder, record)


def announce(session: Session, record: ServerRecord, *, as_json: bool, how: str) -> None:
    """A server is ready: its addresses on stdout, what it can on stderr."""
    if as_json:
        session.out.json(asdict(record))
        data_stream().flush()
        return
    for url in record.urls:
        session.out.data(url)
    data_stream().flush()
    seconds = (record.ready or record.started) - record.started
    headline = f"{record.name} is ready after {seconds:.0f} s: {abilities(record)}. {how}"
    end(session.out, headline, _generate(record))


def _generate(record: ServerRecord) -> str:
    """The command that generates against the servers."""
    urls = [word for url in record.urls for word in ("--base-url", url)]
    if record.engine == TINKER:
        model = Path(record.model)
        name = str(model.resolve()) if model.is_dir() else record.model
        return shell("train", "grpo", "--env", "ENV", "--trainer", "tinker", "--model", name, *urls)
    key = ["--api-key-env", record.key_env] if record.key_env else []
    return shell("gen", "ENV", *urls, *key)


def abilities(record: ServerRecord) -> str:
    """What the server gives, in words."""
    found = record.capabilities
    if record.engine == TINKER:
        return f"it trains and samples {', '.join(found.get('models', ())) or record.model}"
    if found.get("refused"):
        return f"its abilities are not known, {found['refused']}"
    words = [
        ("" if found.get(key) else "no " if found.get(key) is False else "unknown: ") + text
        for key, text in (
            ("token_ids", "token ids"),
            ("logprobs", "logprobs"),
            ("prompt_logprobs", "prompt logprobs"),
            ("tools", "tool calls"),
        )
    ]
    return ", ".join(words)


def failure(folder: Path, record: ServerRecord | None) -> AtroposError:
    """Why the servers are down: the guilty one's last lines, its log, and what is known of such lines."""
    from atropos_cli.sdk.jobs import read_record
    from atropos_serving.diagnose import hint_of

    end = read_record(folder / "exit.json") or {}
    reason = (record.reason if record else None) or end.get("reason") or "the launcher ended without a word"
    guilty = end.get("component")
    log = folder / "logs" / "latest" / f"{guilty}.log" if guilty else folder / _LAUNCH_LOG
    with contextlib.suppress(OSError):
        log = log.resolve(strict=True)
    lines = _tail(log)
    text = "\n".join([f"{folder.name}: {reason}", *(f"  {line}" for line in lines), f"the whole log: {log}"])
    kind: type[AtroposError] = BackendError if record is not None and record.ready else LaunchError
    return kind(text, hint=hint_of(log) or "look into the log")


def _tail(log: Path) -> list[str]:
    """The last lines, without what Python's libraries say at every exit, and errors that stand further up."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 65536))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    kept = [line[:400] for line in lines if line.strip() and not _NOISE.search(line)]
    above = [line for line in kept[:-_TAIL] if _ERROR.search(line)][-_ERRORS:]
    return [*above, *(["..."] if above else []), *kept[-_TAIL:]]


# --status and --stop -------------------------------------------------------------------------------------------------


def show_status(session: Session, name: str | None, *, as_json: bool) -> int:
    """All servers, or one of them: exit code 1 unless that one is ready and answers."""
    from atropos_cli.sdk.serving import all_servers, default_name
    from atropos_serving.commands.batch import current

    records = all_servers()
    if name is not None:
        records = [record for record in records if record.name in (name, default_name(name))]
        if not records:
            raise UsageError(f"there is no server {name!r}", hint="atropos launch-vllm --status lists all")
    records = [current(session, record) for record in records]
    rows = [(record, answers(record)) for record in records]
    if as_json:
        data = [{**asdict(record), "answers": healthy} for record, healthy in rows]
        session.out.json(data[0] if name is not None else data)
    elif not rows:
        end(session.out, "no servers", shell("launch-vllm", "MODEL"))
    else:
        table = [
            (item.name, _state(item, healthy), item.engine, item.model, " ".join(item.urls) or (item.reason or ""))
            for item, healthy in rows
        ]
        session.out.table(table, header=("name", "state", "engine", "model", "address"))
        if name is not None and rows[0][0].state == "ready":
            session.out.note(abilities(rows[0][0]))
        ready = [item for item, healthy in rows if item.state == "ready" and healthy]
        end(session.out, f"{len(ready)} of {counted(len(rows), 'server')} ready", _following(rows[0][0], ready))
    down = name is not None and not all(item.state == "ready" and healthy for item, healthy in rows)
    return ExitCode.FAILED if down else ExitCode.OK


def _following(first: ServerRecord, ready: list[ServerRecord]) -> str:
    """What to do with servers in this state."""
    if ready:
        return _generate(ready[0])
    if first.state == "starting":
        return status_command(first)
    return shell(f"launch-{first.engine}", first.model)


def status_command(record: ServerRecord) -> str:
    """Shows how the server stands."""
    return shell(f"launch-{record.engine}", "--status", "--name", record.name)


def _state(record: ServerRecord, healthy: bool | None) -> str:
    return "no answer" if record.state == "ready" and healthy is False else record.state


def answers(record: ServerRecord) -> bool | None:
    """Do all addresses answer with 200? None for a server that is not ready."""
    if record.state != "ready":
        return None
    for url in record.urls:
        root = url.removesuffix("/").removesuffix("/v1")
        try:
            path = {"vllm": "health", TINKER: "api/v1/healthz"}.get(record.engine, "ready")
            status = get(f"{root}/{path}", timeout=5).status_code
        except (OSError, ConfigError):
            return False
        # Older ones of SGLang have no /ready: 404, or 401 where they want a key.
        if status != 200 and not (status in (401, 404) and record.engine == "sglang"):
            return False
    return True


def stop_server(session: Session, name: str | None, *, as_json: bool) -> int:
    """Stop a server and everything it started; without a name the only one that runs."""
    from atropos_cli.sdk.serving import all_servers, default_name, read_server, server_folder
    from atropos_serving.commands.batch import current

    active = [
        record for record in (current(session, item) for item in all_servers()) if record.state in ("starting", "ready")
    ]
    if name is None:
        if len(active) != 1:
            names = ", ".join(record.name for record in active)
            raise UsageError(
                f"{len(active)} servers run: {names}" if active else "no server runs",
                hint="--stop --name NAME" if active else None,
            )
        name = active[0].name
    found = [record for record in all_servers() if record.name in (name, default_name(name))]
    if not found:
        raise UsageError(f"there is no server {name!r}", hint="atropos launch-vllm --status lists all")
    record = found[0]
    if record.launcher == "slurm":
        return _stop_job(session, record, as_json=as_json)
    if record.host != socket.gethostname():
        raise LaunchError(f"{record.name} runs on {record.host}, not here", hint=f"stop it there: ssh {record.host}")
    folder = server_folder(record.name)
    seconds = _end(record, folder)
    after = read_server(folder) or record
    if as_json:
        session.out.json(asdict(after))
    elif seconds is None:
        end(session.out, f"{record.name} does not run ({after.state})", status_command(record))
    else:
        end(session.out, f"{record.name} stopped after {seconds:.1f} s", status_command(record))
    return ExitCode.OK


def _stop_job(session: Session, record: ServerRecord, *, as_json: bool) -> int:
    """Cancel the batch job of a server if it runs or waits, whatever its record says."""
    from atropos_cli.sdk.jobs import cancel_job, make_launcher, read_submitted
    from atropos_cli.sdk.serving import server_folder, write_record
    from atropos_serving.commands.batch import job_of, judged

    folder = server_folder(record.name)
    job = job_of(session, record)
    if job["state"] == "unknown":
        raise LaunchError(f"{record.name} was not stopped (job {record.job_id}): {job['reason'] or 'nothing is known'}")
    if job["state"] in ("pending", "running"):
        cancel_job(read_submitted(folder), make_launcher(session, "slurm"))
        record = record.replace(state="stopped")
    else:
        record = judged(record, job)
    write_record(folder, record)
    if as_json:
        session.out.json(asdict(record))
    else:
        end(session.out, f"{record.name} {record.state} (job {record.job_id})", status_command(record))
    return ExitCode.OK


def _end(record: ServerRecord, folder: Path) -> float | None:
    """Stop the launcher that holds the folder; None when none does."""
    from atropos_cli.sdk.serving import running

    if not running(folder):
        return None
    begun = time.monotonic()
    for number, patience in ((signal.SIGTERM, _STOP_PATIENCE), (signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, number)
        while running(folder) and time.monotonic() - begun < patience:
            time.sleep(0.1)
        if not running(folder):
            return time.monotonic() - begun
    raise LaunchError(f"{record.name} (pid {record.pid}) does not stop", hint=f"see {folder}")
