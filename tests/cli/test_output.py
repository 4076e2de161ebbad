"""What a run looks like on a terminal, in a log file, and in a pipe (field cases H13, H14)."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.cli.progress import PLAIN_EVERY, PlainReporter, Speed, duration, plain_line, progress_parts
from atropos_cli.console.output import Output, printable
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.refs import ComponentRef
from atropos_cli.domain.run import RunSummary
from atropos_cli.rollout.report import Snapshot

PROGRAM = [sys.executable, "-c", "from atropos_cli.cli.app import main; main()"]


def snapshot(done: int, seconds: float, **changes: Any) -> Snapshot:
    values: dict[str, Any] = {
        "groups_done": done,
        "groups_failed": 0,
        "groups_total": 100,
        "rollouts": done * 2,
        "rollouts_failed": 0,
        "requests_in_flight": 1,
        "completion_tokens": done * 50,
        "seconds": seconds,
        "paused": None,
        "rollouts_done": done * 2,
        "requests_done": done * 2,
    }
    return Snapshot(**{**values, **changes})


def make_plan() -> Plan:
    return Plan(
        atropos_version="0",
        environment=ComponentRef(name="sums"),
        backend=ComponentRef(name="scripted"),
        model="m",
        group_size=2,
    )


def summary(**changes: Any) -> RunSummary:
    return RunSummary(**{"state": "finished", "plan_digest": "d", "env": "sums", "model": "m", **changes})


def test_plain_lines_come_now_and_then_only() -> None:
    now = 0.0
    stream = io.StringIO()
    reporter = PlainReporter("out", stream, clock=lambda: now)
    reporter.started(make_plan(), 100, 3)
    for step in range(101):
        now = step * 0.5
        reporter.progress(snapshot(step, now))
    reporter.event("retry", "server\r busy\x1b[2J")
    reporter.event("retry", "server\r busy\x1b[2J")
    reporter.finished(
        summary(groups_done=100, rollouts=200, rollouts_failed=2, failures={"generate": 2}, reward_mean=0.5)
    )
    reporter.conclude()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "sums with m: 100 tasks (3 done before), 2 rollouts each, 8 workers -> out"
    assert len([line for line in lines if "tokens/s" in line]) == 50 // PLAIN_EVERY
    assert len([line for line in lines if "busy" in line]) == 1
    expected = "20/100 groups, 40/200 rollouts, 40 requests, 1 in flight, 100 tokens/s, 10s, ETA 40s"
    assert expected in lines
    assert lines[-2].startswith("finished: 100 groups, 200 rollouts")
    assert lines[-1] == "failed rollouts: 2 (2 generate)"
    assert "\x1b" not in stream.getvalue()
    assert "\r" not in stream.getvalue()


def test_the_line_tells_of_failures_pauses_and_unknown_totals() -> None:
    speed = Speed()
    now = snapshot(4, 1.0, groups_total=None, groups_failed=1, rollouts_failed=3, paused="no server")
    assert plain_line(progress_parts(now, speed, 2)) == (
        "4/? groups, 1 failed, 8 rollouts, 3 of 8 rollouts failed, 8 requests, 1 in flight, 0 tokens/s, 1s, "
        "paused: no server"
    )
    assert [duration(seconds) for seconds in (0, 59.6, 185, 3725)] == ["0s", "1m00s", "3m05s", "1h02m"]


def test_a_closed_stderr_does_not_stop_the_run() -> None:
    stream = io.StringIO()
    stream.close()
    reporter = PlainReporter("out", stream)
    reporter.started(make_plan(), 1, 0)
    reporter.event("x", "y")
    with pytest.raises(ValueError, match="closed file"):
        stream.write("the stream is closed indeed")


def test_control_characters_of_strangers_are_made_visible(capfd: pytest.CaptureFixture[str]) -> None:
    assert printable("a\x1b[31mb\x07\u202ec\n") == "a\\x1b[31mb\\x07\\u202ec\n"
    assert printable("tête 日本") == "tête 日本"
    Output().table([("a\nb", "c\x1b")])
    Output().error("bad \x1b[0m", "try \x07")
    out = capfd.readouterr()
    assert out.out == "a b  c\\x1b\n"
    assert out.err == "error: bad \\x1b[0m\nhint: try \\x07\n"


def gen(sums: str, *args: str) -> list[str]:
    return [*PROGRAM, "gen", sums, "--backend", "scripted", "--backend.replies", "4", "--group-size", "2", *args]


def test_field_case_h13_a_reader_that_leaves_early(sums: str) -> None:
    command = gen(sums, "--count", "3000", "-o", "-", "--note", "x" * 50)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read().decode()
        assert process.wait(timeout=30) == 0
    assert first.startswith(b'{"schema_version"')
    assert first.endswith(b"\n")
    assert errors.splitlines()[1:] == []
    whole = subprocess.run(gen(sums, "--count", "50", "-o", "-"), capture_output=True, text=True, check=True)
    assert len(whole.stdout.splitlines()) == 50
    assert whole.stdout.endswith("\n")


@pytest.mark.parametrize("args", [("--help",), ("reward", "list"), ("config", "show", "--json")])
def test_other_commands_are_quiet_too(args: tuple[str, ...]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run([*PROGRAM, *args], stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write_end)
    assert done.returncode == 0
    assert "Error" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("no_color", [None, "1"])
def test_field_case_h14_files_get_no_escape_codes(sums: str, no_color: str | None, tmp_path: Path) -> None:
    env = {**os.environ, **({"NO_COLOR": no_color} if no_color else {"FORCE_COLOR": "1"})}
    out, err = tmp_path / "out", tmp_path / "err"
    with out.open("w") as stdout, err.open("w") as stderr:
        subprocess.run(gen(sums, "-o", "r", "--json"), stdout=stdout, stderr=stderr, env=env, check=True)
    for text in (out.read_text(), err.read_text()):
        assert "\x1b" not in text
        assert "\r" not in text
    assert out.read_text().startswith("{")


def on_terminal(command: list[str], **env: str) -> tuple[int, str, bytes]:
    """(exit code, what the terminal saw on stderr, stdout) of a program whose stderr is a terminal."""
    master, slave = pty.openpty()
    seen: list[bytes] = []

    def read() -> None:
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:
                return
            if not data:
                return
            seen.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    variables = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", **env}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=slave, env=variables, check=False, timeout=60)
    os.close(slave)
    reader.join(timeout=10)
    os.close(master)
    return done.returncode, b"".join(seen).decode(), done.stdout


COLOR = re.compile(r"\x1b\[[0-9;]*(3|9|4|10)[0-9][0-9;]*m")


def test_a_terminal_shows_a_bar_and_no_color_is_obeyed(sums: str) -> None:
    slow = ("--backend.delay-s", "0.3", "--workers", "1", "--count", "4")
    code, screen, stdout = on_terminal(gen(sums, *slow, "-o", "r1"))
    assert code == 0
    assert stdout == b""
    assert "\x1b[J" in screen
    assert "tokens/s" in screen
    assert "finished: 4 of 4 groups" in screen
    assert COLOR.search(screen)
    _, plain, _ = on_terminal(gen(sums, *slow, "-o", "r2"), NO_COLOR="1")
    assert "tokens/s" in plain
    assert not COLOR.search(plain)
    _, dumb, _ = on_terminal(gen(sums, *slow, "-o", "r3"), TERM="dumb")
    assert "\x1b" not in dumb
    _, error, _ = on_terminal([*PROGRAM, "gne"])
    assert "\x1b[31merror:\x1b[0m" in error
    _, error, _ = on_terminal([*PROGRAM, "gne"], NO_COLOR="1")
    assert "\x1b" not in error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_with_130_and_says_how_to_go_on(sums: str, number: signal.Signals) -> None:
    command = gen(sums, "--count", "50", "--backend.delay-s", "0.05", "--workers", "1", "-o", "r")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: Path("r/groups.jsonl").exists() and Path("r/groups.jsonl").stat().st_size > 0)
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
    first, following = errors.splitlines()[-2:]
    assert re.fullmatch(r"interrupted: \d+ of 50 groups are saved", first)
    assert following.startswith(f"next: atropos gen {sums} ")
    assert following.endswith(" --workers 1 --resume --output r")


def test_ctrl_c_elsewhere_is_130_without_a_traceback(isolation: Path) -> None:
    (isolation / "slow.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(30)\n")
    with subprocess.Popen(
        [*PROGRAM, "env", "info", "./slow.py:X"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "up\n"  # what a plugin prints at import is no data
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == "interrupted\n"


def wait_for(condition: Any, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
