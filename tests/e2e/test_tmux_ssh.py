"""`atropos tmux --host` through a real sshd on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_tmux.ssh import Remote

from atropos_cli.errors import LaunchError, UsageError

from .tmux_support import (  # noqa: F401 (fixtures)
    SOCKET,
    Sshd,
    command_lines,
    far_fixture,
    on_a_terminal,
    processes_with,
    sshd_fixture,
    wait_for,
)


def far_side(home: str) -> set[int]:
    """The far side's programs of this test."""
    return {*processes_with("atropos_tmux.remote")}.intersection(processes_with(home))


def test_a_run_on_another_machine(far: Callable[..., Any], sshd: Sshd, tmp_path: Path) -> None:
    run = tmp_path / "its run"
    gen = ["gen", "arithmetic", "--backend", "scripted", "--backend.replies", "Answer: 7", "--limit", "2"]
    started = far("run", "--name", "play", "--json", "--cwd", str(tmp_path), "--", *gen, "--output", "its run")
    assert started.code == 0, started.stderr
    assert started.json["id"] == "play"
    assert "finished: 2 of 2 groups" in far("logs", "-f", "play").stdout
    assert far("status", "play", "--json").json["exit_code"] == 0
    assert [job["id"] for job in far("list", "--json").json] == ["play"]
    assert len((run / "groups.jsonl").read_text().splitlines()) == 2
    assert far("stop", "play").code == 0


def test_everything_arrives_as_it_was_typed(
    far: Callable[..., Any], sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments of every kind go through ssh, sh, tmux and another sh."""
    home = sshd.folder / "home"
    lib = home / "lib"
    lib.mkdir()
    (home / "a b;").mkdir()
    (lib / "echo_module.py").write_text(
        textwrap.dedent(
            """
            import json, os

            def echo(words: list[str]) -> int:
                print(json.dumps([words, os.environ.get("SECRET_71"), os.getcwd()]))
                return 0
            """
        )
    )
    (lib / "echo_dist-1.0.dist-info").mkdir()
    (lib / "echo_dist-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-dist\nVersion: 1.0\n")
    points = "[atropos.commands]\necho = echo_module:echo\n"
    (lib / "echo_dist-1.0.dist-info" / "entry_points.txt").write_text(points)
    odd = [
        "two words",
        "$HOME",
        "`id`",
        "$(id)",
        "it's",
        '"q"',
        "a\nb",
        "ünï ☃",
        "end;",
        ";",
        "*",
        "",
        "\\",
        "ATROPOS_REQUEST",
    ]
    secret = "v$1 ' \"\n;ATROPOS_REQUEST"
    monkeypatch.setenv("SECRET_71", secret)
    given = ["--env", "SECRET_71", "--cwd", str(home / "a b;")]
    started = far("run", "--name", "odd; job", *given, "--json", "echo", *odd)
    assert started.code == 0, started.stderr
    words, value, folder = json.loads(far("logs", "-f", started.json["id"]).stdout)
    assert words == odd
    assert value == secret
    assert folder == str((home / "a b;").resolve())


def test_nothing_of_the_request_shows_on_a_command_line(
    far: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SECRET_72", "very-secret-72")
    gen = ["gen", "arithmetic", "--backend", "scripted", "--backend.replies", "x", "--backend.delay-s", "1", "-o", "r"]
    far("run", "--name", "long", "--env", "SECRET_72", "--cwd", str(tmp_path), "--", *gen)
    wait_for(lambda: processes_with("SECRET_72=very-secret-72"), "the job")
    assert "very-secret-72" not in command_lines()
    assert far("stop", "long", "--grace", "0").code == 0
    assert not processes_with("SECRET_72=very-secret-72")


def test_following_a_log_ends_with_the_connection(far: Callable[..., Any], sshd: Sshd, tmp_path: Path) -> None:
    gen = ["gen", "arithmetic", "--backend", "scripted", "--backend.replies", "x", "--backend.delay-s", "9", "-o", "r"]
    far("run", "--name", "idle", "--cwd", str(tmp_path), "--", *gen)
    args = ["tmux", "logs", "-f", "idle", "--host", "box", "--ssh-config", str(sshd.config), "--socket", SOCKET]
    local = subprocess.Popen(
        [sys.executable, "-m", "atropos_cli", *args, "--remote-python", sys.executable], stdout=subprocess.PIPE
    )
    assert local.stdout is not None
    assert b"arithmetic" in local.stdout.readline()
    home = f"HOME={sshd.folder}/home"
    assert far_side(home)
    local.kill()
    local.wait()
    for pid in processes_with(str(sshd.config)):
        subprocess.run(["kill", str(pid)])  # the ssh that the killed program left
    wait_for(lambda: not far_side(home), "the far side's end")
    assert far("stop", "idle", "--grace", "0").code == 0


def test_the_interpreter_is_found_by_the_command_on_the_path(cli: Callable[..., Any], sshd: Sshd) -> None:
    script = sshd.folder / "home" / "bin" / "atropos"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nraise SystemExit('never run')\n")
    script.chmod(0o755)
    text = (sshd.folder / "sshd_config").read_text().replace('"PATH=', f'"PATH={script.parent}:')
    (sshd.folder / "sshd_config").write_text(text)
    subprocess.run(["kill", "-HUP", (sshd.folder / "pid").read_text().strip()], check=True)
    place = ["--host", "box", "--ssh-config", str(sshd.config), "--socket", SOCKET]
    wait_for(lambda: cli("tmux", "list", *place, "--json").stdout.strip() == "[]", "the new PATH")


def test_attach_over_ssh(far: Callable[..., Any], sshd: Sshd, tmp_path: Path) -> None:
    gen = ["gen", "arithmetic", "--backend", "scripted", "--backend.replies", "x", "--backend.delay-s", "9", "-o", "r"]
    far("run", "--name", "seen", "--cwd", str(tmp_path), "--", *gen)
    args = ["tmux", "attach", "seen", "--host", "box", "--ssh-config", str(sshd.config), "--socket", SOCKET]
    shown, code = on_a_terminal(args, "arithmetic with scripted", b"\x02d")
    assert (code, "detached" in shown) == (0, True)
    assert far("stop", "seen", "--grace", "0").code == 0


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
def test_the_script_in_any_shell(shell: str, tmp_path: Path) -> None:
    """No python, an interpreter without atropos, and a good one; ~ is the home."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    bare = tmp_path / "bare python"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o755)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    codes = []
    for python in ("/no where/python", str(bare), "~/bare python"):
        script = Remote("box", python).script(["env", "list"])
        codes.append(subprocess.run([shell, "-s"], input=script, text=True, env=env, capture_output=True).returncode)
    assert codes == [94, 95, 95]
    good = Remote("box", sys.executable).script(["env", "list", "--json"])
    done = subprocess.run([shell, "-s"], input=good, text=True, env=env, capture_output=True)
    mark, _, answer = done.stdout.partition("\n")
    assert mark == "\x02atropos answers\x03"
    assert any(item["name"] == "arithmetic" for item in json.loads(answer))


def test_clear_errors(cli: Callable[..., Any], far: Callable[..., Any], sshd: Sshd, monkeypatch: Any) -> None:
    def listed(*place: str) -> Any:
        return cli("tmux", "list", "--ssh-config", str(sshd.config), *place)

    missing = listed("--host", "box", "--remote-python", "/no/python")
    assert (missing.code, "box has no /no/python" in missing.stderr) == (7, True)
    bare = sshd.folder / "home" / "python"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o755)
    without = listed("--host", "box", "--remote-python", "~/python")
    assert (without.code, "on box has no atropos" in without.stderr) == (7, True)
    assert "--remote-python" in without.stderr
    nowhere = far("run", "--cwd", "/no/where", "env", "list")
    assert (nowhere.code, "/no/where" in nowhere.stderr) == (7, True)
    unknown = far("status", "nope")
    assert (unknown.code, "there is no tmux job 'nope'" in unknown.stderr) == (7, True)
    closed = subprocess.run(["kill", (sshd.folder / "pid").read_text().strip()])
    assert closed.returncode == 0
    wait_for(lambda: "refused" in listed("--host", "box").stderr, "the refusal")
    assert listed("--host", "box").code == 7


def test_a_login_shell_that_talks(far: Callable[..., Any], sshd: Sshd) -> None:
    """What .bashrc prints is no part of the answer."""
    (sshd.folder / "home/.bashrc").write_text(
        "echo '{\"welcome\": 1}'; echo more; printf 'no newline'; echo to you >&2\n"
    )
    listed = far("list", "--json")
    assert (listed.code, listed.json) == (0, [])
    assert "to you" in listed.stderr


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        ("echo quota exceeded; exit 0\n", 0, "quota exceeded"),
        ("echo closed for maintenance >&2; exit 3\n", 3, "closed for maintenance"),
        ("exec true\n", 0, "before atropos was started"),
        ("cat >/dev/null\n", 0, "before atropos was started"),  # it eats what is meant for atropos
    ],
)
def test_a_login_shell_that_ends_early(far: Callable[..., Any], sshd: Sshd, lines: str, code: int, said: str) -> None:
    (sshd.folder / "home/.bashrc").write_text(lines)
    for verb in (("list",), ("run", "--", "env", "list")):
        result = far(*verb)
        assert (result.code, result.stdout) == (7, "")
        assert said in result.stderr
        assert f"ended with code {code}" in result.stderr


def test_an_unknown_host_key_is_refused(cli: Callable[..., Any], sshd: Sshd) -> None:
    sshd.known_hosts.write_text("")
    result = cli("tmux", "list", "--host", "box", "--ssh-config", str(sshd.config))
    assert result.code == 7
    assert "Host key verification failed" in result.stderr
    assert "connect once by hand" in result.stderr


def test_a_key_that_is_not_accepted(cli: Callable[..., Any], sshd: Sshd) -> None:
    (sshd.folder / "authorized_keys").write_text("")
    result = cli("tmux", "list", "--host", "box", "--ssh-config", str(sshd.config))
    assert (result.code, "Permission denied" in result.stderr) == (7, True)


def test_no_ssh_and_no_tmux(cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = cli("tmux", "list", "--host", "box")
    assert (result.code, "ssh is not installed" in result.stderr) == (7, True)


@pytest.mark.parametrize("host", ["-oProxyCommand=id", "", "a\nb"])
def test_a_host_is_never_taken_for_an_option(host: str) -> None:
    with pytest.raises(UsageError):
        Remote(host)


def test_errors_of_ssh_carry_its_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host box\n  HostName host.invalid\n")
    if not Path("/usr/bin/ssh").exists():
        pytest.skip("no ssh")
    with pytest.raises(LaunchError, match="ssh to box failed") as failed:
        Remote("box", None, config).run(["env", "list"])
    assert failed.value.hint is not None
