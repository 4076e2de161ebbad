"""The log's own thread: what was written is synced, and closing never waits for it in vain."""

from __future__ import annotations

import threading
from pathlib import Path

from atropos_cli.io.append import AppendLog


class _Late(threading.Event):
    """Closed at the worst moment: when the syncing thread has just stopped waiting for it."""

    def __init__(self, log: AppendLog) -> None:
        super().__init__()
        self._log = log

    def wait(self, timeout: float | None = None) -> bool:
        timed_out = super().wait(timeout)
        self.set()
        self._log._dirty.set()
        return timed_out


def test_closing_while_the_thread_turns_round(tmp_path: Path) -> None:
    log = AppendLog(tmp_path / "log", interval=0.01)
    log._closed = _Late(log)
    log.write(b"one\n")
    thread = log._syncer
    assert thread is not None
    thread.join(5)
    assert not thread.is_alive(), "it waits for a close that has been"


def test_closing_at_any_moment(tmp_path: Path) -> None:
    for number in range(300):
        log = AppendLog(tmp_path / "log", interval=0.001)
        log.write(b"x" * number + b"\n")
        closing = threading.Thread(target=log.close, daemon=True)
        closing.start()
        closing.join(5)
        assert not closing.is_alive()
