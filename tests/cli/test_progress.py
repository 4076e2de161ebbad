"""Progress that moves: on terminals of any width and in log files; -q, -v and --log-level."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from screen import Screen

from atropos_cli.cli.progress import PlainReporter, Speed, plain_line, progress_parts
from atropos_cli.console.statusline import StatusLine, fitted
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.refs import ComponentRef
from atropos_cli.rollout.report import Snapshot

PROGRAM = [sys.executable, "-c", "from atropos_cli.cli.app import main; main()"]
SLOW = ("--backend", "scripted", "--backend.replies", "4", "--backend.delay-s", "0.5", "--workers", "2")


def snapshot(**changes: Any) -> Snapshot:
    values: dict[str, Any] = {
        "groups_done": 0,
        "groups_failed": 0,
        "groups_total": 3,
        "rollouts": 0,
        "rollouts_failed": 0,
        "requests_in_flight": 7,
        "completion_tokens": 0,
        "seconds": 0.0,
        "paused": None,
    }
    return Snapshot(**{**values, **changes})


def resized(fd: int, columns: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def watched(command: list[str], widths: list[int], *, reflow: bool = True) -> tuple[Screen, list[tuple[int, str]]]:
    """The screen at the end of a program, and each (width, status line) that it drew; a width every 0.9 s."""
    master, slave = pty.openpty()
    resized(master, widths[0])
    screen, drawn = Screen(widths[0], reflow=reflow), []
    waiting, begun = list(widths[1:]), time.monotonic()
    env = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=slave, env=env) as process:
        os.close(slave)
        os.set_blocking(master, False)
        while True:
            ended = process.poll() is not None
            if waiting and time.monotonic() - begun > 0.9 * (len(widths) - len(waiting)) + 1.0:
                screen.resize(waiting[0])
                resized(master, waiting.pop(0))
            try:
                data = os.read(master, 65536).decode()
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:
                break
            else:
                screen.feed(data)
                drawn += [(screen.columns, line) for line in re.findall(r"\x1b\[\?7l([^\r\n\x1b]+)\x1b\[\?7h\r", data)]
            if ended and not waiting:
                break
        os.close(master)
        assert process.wait(60) == 0
    return screen, drawn


def gen(sums: str, *args: str) -> list[str]:
    return [*PROGRAM, "gen", sums, *SLOW, "--group-size", "2", *args]


@pytest.mark.parametrize("widths", [[20], [80, 20, 40, 20, 80]])
@pytest.mark.parametrize("reflow", [True, False])
def test_a_narrow_or_resized_terminal_keeps_no_fragments(sums: str, widths: list[int], reflow: bool) -> None:
    screen, drawn = watched(gen(sums, "--count", "9" if len(widths) > 1 else "3", "-o", "r"), widths, reflow=reflow)
    assert drawn
    # The line may have been drawn for the width before, when the change came while it was written.
    assert all(len(line) < max(width, *widths[:1]) for width, line in drawn)
    assert all(len(line) < width for width, line in drawn[-1:])
    assert all(re.match(r"(\[[# ]+\] )?\d+/\d+ groups", line) for _, line in drawn)
    lines = screen.lines()
    assert lines[0].startswith(os.fspath(Path("sums.py").resolve())[:20])
    assert [line[:6] for line in lines[1:]] == ["finish", "note: ", "reward", "next: "]
    assert lines[-1] == "next: atropos view r"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_a_real_terminal_that_is_resized_keeps_no_fragments(sums: str, tmp_path: Path) -> None:
    socket = str(tmp_path / "tmux")
    words = " ".join(f"'{word}'" for word in gen(sums, "--count", "8", "-o", "r"))

    def tmux(*args: str) -> str:
        done = subprocess.run(["tmux", "-S", socket, *args], capture_output=True, text=True, check=True)
        return done.stdout

    # The screen is full, as after a while of work. Where rows below the cursor are free, tmux moves the rows that a
    # wrapped line needs into its history, where nothing can be taken away.
    shell = f"seq 40; {words}; touch ended; sleep 30"
    tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", shell)
    try:
        for columns in (20, 60, 30, 80):
            time.sleep(0.8)
            tmux("resize-window", "-x", str(columns), "-y", "24")
        for _ in range(200):
            if Path("ended").exists():
                break
            time.sleep(0.1)
        seen = [line.rstrip() for line in tmux("capture-pane", "-p", "-J", "-S", "-90").splitlines() if line.strip()]
    finally:
        tmux("kill-server")
    assert seen[:40] == [str(number) for number in range(1, 41)]
    assert "sums.py:Sums with scripted" in seen[40]
    assert [line[:6] for line in seen[41:]] == ["finish", "note: ", "reward", "next: "]


def test_what_fits_is_whole_and_the_most_telling() -> None:
    parts = progress_parts(snapshot(rollouts_done=5, requests_done=9, reward_mean=0.5, groups_spread=1), Speed(), 4)
    for width in range(120):
        text = fitted(parts, width)
        assert len(text) <= width
        if width >= len("0/3 groups"):
            assert set(text.split(", ")) <= {part for _, part in parts}
            assert text.startswith("0/3 groups")
    assert fitted([(0, "日本 groups"), (1, "ETA 3s")], 40) == "?? groups, ETA 3s"
    assert fitted([], 10) == ""


def test_messages_of_others_stand_above_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    line, screen = StatusLine(), Screen(80, reflow=True)
    line.show([(0, "1/3 groups")], 0.3)
    print("a library", "says this", file=sys.stderr)
    line.show([(0, "2/3 groups")], 0.6)
    sys.stderr.write("a torn ")
    sys.stderr.write("message\n")
    screen.feed(stream.getvalue())
    assert screen.lines()[:2] == ["a library says this", "a torn message"]
    assert screen.lines()[2].endswith("2/3 groups")
    line.close()
    assert sys.stderr is stream
    screen = Screen(80, reflow=True)
    screen.feed(stream.getvalue())
    assert screen.lines() == ["a library says this", "a torn message"]


def test_a_log_never_stands_still_while_groups_are_open(sums: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow model: no group is done for a long time, and each line says what moved."""
    code = (
        "from atropos_cli.cli import progress; progress.PLAIN_EVERY = 0.6; progress._PLAIN_SHARE = 0;"
        "from atropos_cli.cli.app import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *gen("./walk.py:Walk", "--limit", "1", "-o", "r")[3:]],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stderr.splitlines() if "tokens/s" in line]
    assert len(lines) >= 3
    assert len(set(lines)) == len(lines)
    requests = [int(found.group(1)) for line in lines if (found := re.search(r"(\d+) requests", line))]
    assert requests == sorted(requests)
    assert requests[-1] > requests[0]
    assert any(line.startswith("0/1 groups, ") for line in lines)
    assert not any("groups/s" in line for line in lines)


WALK = """
from atropos_cli.sdk import Environment, Episode, Task, user


class Steps(Episode):
    def __init__(self, task):
        self.left = 9

    def reset(self):
        return [user("go")]

    def step(self, reply):
        self.left -= 1
        return [user("on")] if self.left else None


class Walk(Environment):
    name = "walk"

    def tasks(self, split):
        return [Task(id=str(i)) for i in range(2)]

    def episode(self, task):
        return Steps(task)
"""


@pytest.fixture(autouse=True)
def walk(isolation: Path) -> None:
    (isolation / "walk.py").write_text(WALK)


def test_a_line_tells_when_nothing_comes_back() -> None:
    speed = Speed()
    for seconds in range(0, 50, 5):
        speed.add(snapshot(seconds=float(seconds), requests_done=min(seconds, 10)))
    assert plain_line(progress_parts(snapshot(seconds=45.0, requests_done=10), speed, 4)).endswith("no answer for 35s")
    paused = plain_line(progress_parts(snapshot(seconds=45.0, paused="rate limited"), speed, 4))
    assert paused.endswith("paused: rate limited")


def test_the_time_left_is_told_before_the_first_group_is_done() -> None:
    speed = Speed()
    for seconds in (0.0, 10.0):
        speed.add(snapshot(seconds=seconds, rollouts_done=int(seconds / 5), completion_tokens=int(seconds * 300)))
    line = plain_line(progress_parts(snapshot(seconds=10.0, rollouts_done=2), speed, 4))
    assert line == "0/3 groups, 2/12 rollouts, 0 requests, 7 in flight, 300 tokens/s, 10s, ETA 50s"


def test_lines_of_a_long_run_come_less_often() -> None:
    now, stream = 0.0, io.StringIO()
    reporter = PlainReporter("out", stream, clock=lambda: now)
    plan = Plan(atropos_version="0", environment=ComponentRef(name="x"), backend=ComponentRef(name="scripted"))
    reporter.started(plan, 3, 0)
    for step in range(4 * 3600):
        now = float(step)
        reporter.progress(snapshot(seconds=now, requests_done=step))
    lines = stream.getvalue().splitlines()
    assert 200 < len(lines) < 400


# -q, -v, --log-level --------------------------------------------------------------------------------------------------

LOUD = """
import logging
from sums import Sums

log = logging.getLogger("a.library")


class Loud(Sums):
    name = "loud"

    def tasks(self, split):
        for level in ("debug", "info", "warning", "error"):
            getattr(log, level)("%s of a library \\x1b[31m", level)
        return super().tasks(split)
"""


def said(cli: Any, *args: str) -> tuple[str, str]:
    Path("loud.py").write_text("import sys\nsys.path.insert(0, '.')\n" + LOUD)
    done = cli(*args)
    assert done.code == 0, done.stderr
    return done.stdout, done.stderr


RUN = ("./loud.py:Loud", "--backend", "scripted", "--backend.replies", "4", "--group-size", "2", "--overwrite")


@pytest.mark.parametrize("place", ["before", "after"])
def test_quiet_says_what_came_out_and_no_more(cli: Any, sums: str, place: str) -> None:
    args = ("-q", "gen", *RUN, "-o", "r") if place == "before" else ("gen", *RUN, "-o", "r", "--quiet")
    stdout, stderr = said(cli, *args)
    assert stdout == ""
    kept = [line for line in stderr.splitlines() if "of a library" not in line]
    assert kept == ["reward 0.200 (std 0.422), groups with spread 0/5"]
    assert "info of a library" not in stderr
    assert "warning of a library" not in stderr
    assert cli("-q", "gen", "nothing-of-this-name").stderr.startswith("error: ")


def test_verbose_says_more(cli: Any, sums: str) -> None:
    _, plain = said(cli, "gen", *RUN, "-o", "r")
    _, stderr = said(cli, "gen", *RUN, "-o", "r", "-v")
    assert "reward exact: 0.2" in stderr
    assert "requests: 5" in stderr
    assert "reward exact" not in plain
    assert "INFO a.library: info of a library \\x1b[31m" in stderr
    assert "debug of a library" not in stderr


@pytest.mark.parametrize(
    ("args", "first"),
    [(("--log-level", "debug"), "debug"), (("--log-level=WARNING", "-v"), "warning"), (("-q",), "error")],
)
def test_the_log_level_is_that_of_libraries(cli: Any, sums: str, args: tuple[str, ...], first: str) -> None:
    _, stderr = said(cli, "gen", *RUN, "-o", "r", *args)
    levels = ["debug", "info", "warning", "error"]
    shown = [level for level in levels if f"{level.upper()} a.library: {level} of" in stderr]
    assert shown == levels[levels.index(first) :]


def test_the_log_level_is_checked_and_may_come_from_a_variable(
    cli: Any, sums: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(cli, "gen", *RUN, "-o", "r")
    done = cli("gen", *RUN, "-o", "r", "--log-level", "loud")
    assert done.code == 2
    assert "error: --log-level 'loud' is not a level\nhint: one of debug, info, warning, error, critical" in done.stderr
    monkeypatch.setenv("ATROPOS_LOG_LEVEL", "info")
    assert "INFO a.library" in said(cli, "gen", *RUN, "-o", "r")[1]
    # The run's own log has all of it, whatever was shown.
    said(cli, "gen", *RUN, "-o", "quiet", "-q")
    said(cli, "gen", *RUN, "-o", "plain")
    kept = [len(Path(run, "log.jsonl").read_text().splitlines()) for run in ("quiet", "plain")]
    assert kept[0] == kept[1] > 0


@pytest.fixture(autouse=True)
def plain_logging() -> Iterator[None]:
    import logging

    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    environ = dict(os.environ)
    yield
    root.handlers[:] = before
    root.setLevel(level)
    for name in ("TRANSFORMERS_VERBOSITY", "DATASETS_VERBOSITY", "HF_HUB_VERBOSITY", "ATROPOS_LOG_LEVEL"):
        os.environ.pop(name, None)
        if name in environ:
            os.environ[name] = environ[name]
