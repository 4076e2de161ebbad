"""A tmux server and an sshd of a test's own, and processes looked up in /proc."""

from __future__ import annotations

import contextlib
import getpass
import os
import pty
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SOCKET = "atropos-test"
SSHD = shutil.which("sshd") or next((p for p in ("/usr/sbin/sshd", "/usr/local/sbin/sshd") if Path(p).exists()), None)


def wait_for(check: Callable[[], object], what: str, seconds: float = 120.0) -> None:
    """Until the check is true; fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.05)


def processes_with(mark: str) -> list[int]:
    """Processes, zombies left out, whose environment or command line holds a text."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            data = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
            if state != "Z" and mark.encode() in data:
                found.append(int(folder.name))
    return found


def command_lines() -> str:
    """Every command line of this machine, as `ps` shows them to anybody."""
    lines = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                lines.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return "\n".join(lines)


def on_a_terminal(args: list[str], until: str, *keys: bytes) -> tuple[str, int]:
    """(what a terminal of 80 columns shows until it shows a text, exit code after these keys)."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    child = subprocess.Popen(
        [sys.executable, "-m", "atropos_cli", *args],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(slave)
    shown = ""
    deadline = time.monotonic() + 30
    while until not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([master], [], [], 0.2)[0]:
            shown += os.read(master, 1 << 16).decode(errors="replace")
    for byte in b"".join(keys):
        time.sleep(0.3)  # what comes at once is taken for a paste, and no key of it for a command
        os.write(master, bytes([byte]))
    ended = False
    while not ended or select.select([master], [], [], 0.2)[0]:
        ended = child.poll() is not None
        assert time.monotonic() < deadline, shown
        try:
            if select.select([master], [], [], 0.2)[0]:
                shown += os.read(master, 1 << 16).decode(errors="replace")
        except OSError:  # the other end is closed
            break
    os.close(master)
    return shown, child.wait(10)


@contextlib.contextmanager
def tmux_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a private tmux server's socket; the server ends with the test."""
    tmux = shutil.which("tmux")
    if tmux is None:
        pytest.skip("tmux is not installed")
    folder = Path(tempfile.mkdtemp(prefix="tx"))  # short: a socket's path may have 107 bytes
    monkeypatch.setenv("TMUX_TMPDIR", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    for name in ("TMUX", "TMUX_PANE"):
        monkeypatch.delenv(name, raising=False)
    try:
        yield folder
    finally:
        subprocess.run([tmux, "-L", SOCKET, "kill-server"], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Sshd:
    """A running sshd: `config` is an ssh_config that reaches it as `box`."""

    folder: Path
    config: Path
    known_hosts: Path


@contextlib.contextmanager
def ssh_server(tmux_folder: Path) -> Iterator[Sshd]:
    """An sshd on loopback with keys and port of its own, whose sessions see the test's folders."""
    if SSHD is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        pytest.skip("no OpenSSH server here (apt-get install openssh-server)")
    folder = Path(tempfile.mkdtemp(prefix="sshd"))
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    shutil.copy(folder / "user.pub", folder / "authorized_keys")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    home = folder / "home"
    home.mkdir()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    setenv = {"HOME": home, "PATH": path, "TMUX_TMPDIR": tmux_folder, "XDG_STATE_HOME": tmux_folder / "state"}
    setenv["PYTHONPATH"] = home / "lib"
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized_keys\n"
        f"PidFile {folder}/pid\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
        "SetEnv " + " ".join(f'"{name}={value}"' for name, value in setenv.items()) + "\n"
    )
    (folder / "ssh_config").write_text(
        f"Host box\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n  IdentityFile {folder}/user\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known_hosts\n  StrictHostKeyChecking yes\n"
    )
    key = (folder / "host.pub").read_text().split()[:2]
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {key[0]} {key[1]}\n")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd insists on it for root
    log = (folder / "log").open("wb")
    daemon = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    try:
        wait_for(lambda: _listens(port) or daemon.poll() is not None, "sshd")
        if daemon.poll() is not None:
            pytest.skip(f"sshd does not start here: {(folder / 'log').read_text()[-300:]}")
        yield Sshd(folder, folder / "ssh_config", folder / "known_hosts")
    finally:
        daemon.terminate()
        daemon.wait()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(name="sshd")
def sshd_fixture(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """A machine that is reached by ssh."""
    with tmux_server(monkeypatch) as folder, ssh_server(folder) as server:
        yield server


@pytest.fixture(name="far")
def far_fixture(cli: Callable[..., Any], sshd: Sshd) -> Callable[..., Any]:
    """atropos tmux VERB on the box."""
    place = ["--host", "box", "--ssh-config", str(sshd.config), "--remote-python", sys.executable, "--socket", SOCKET]
    return lambda verb, *args: cli("tmux", verb, *place, *args)
