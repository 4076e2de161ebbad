"""Run as a process by test_crashes: an environment or a trainer that keeps a journal and may be killed at any moment.

python crash_roles.py environment URL JOURNAL COUNT
python crash_roles.py trainer URL JOURNAL COUNT
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SIZE = 4
LEASE = "0.5"


def ask(url: str, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> Any:
    """Ask until there is an answer: the server may be dead just now."""
    while True:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=5)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            found = json.loads(answer.read())
            if answer.status == 503:
                raise OSError("later")
            return found
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
        finally:
            connection.close()


def lines(path: Path) -> list[str]:
    """Whole lines of a journal; a torn last one counts as not written."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.truncate(path, len(whole))
    return whole.decode().splitlines()


def append(path: Path, text: str) -> None:
    with path.open("ab", buffering=0) as journal:
        journal.write(f"{text}\n".encode())


def environment(url: str, journal: Path, count: int) -> None:
    for number in range(len(lines(journal)), count):
        group = {"tokens": [[number]] * SIZE, "masks": [[number]] * SIZE, "scores": [0.0] * SIZE}
        answer = ask(url, "POST", "/scored_data", group, {"Idempotency-Key": f"group-{number}"})
        if answer.get("status") != "received":
            raise SystemExit(f"not received: {answer}")
        append(journal, str(number))
        time.sleep(0.002)


def trainer(url: str, journal: Path, count: int) -> None:
    done = {json.loads(line)["batch"]: json.loads(line)["groups"] for line in lines(journal)}
    while sum(len(groups) for groups in done.values()) < count:
        answer = ask(url, "GET", "/batch", headers={"X-Atropos-Lease": LEASE})
        if answer["batch"] is None:
            time.sleep(0.02)
            continue
        batch = answer["batch_id"]
        if batch not in done:
            done[batch] = [group["tokens"][0][0] for group in answer["batch"]]
            append(journal, json.dumps({"batch": batch, "groups": done[batch]}))
        ask(url, "POST", f"/batch/{batch}/ack")


if __name__ == "__main__":
    {"environment": environment, "trainer": trainer}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
