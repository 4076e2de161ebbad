"""Rows in shards by real processes: killed at any moment they lose and double nothing; and as an array of SLURM."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from row_files import make_groups

from .slurm_cluster import Cluster
from .slurm_support import cluster_fixture, place_fixture, slurm  # noqa: F401

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "atropos_cli"]


def shards_of(work: Path) -> list[int]:
    """The living processes that make shards of a folder."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                words = (path / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"atropos_cli" in words and any(str(work / "shards").encode() in word for word in words):
                found.append(int(path.name))
    return found


@pytest.mark.slow
def test_kills_at_any_moment(isolation: Path, cli: Any) -> None:
    """kill -9 of the command and of shards, in turn, ever later; the end is what one process makes."""
    file = make_groups(isolation / "a.jsonl", 6000)
    launcher = f"{ROOT / 'templates/launcher/src/atropos_template/launcher.py'}:TemplateName"
    words = ("sft-gen", str(file), "--select", "all", "--validation", "0.2")
    assert cli(*words, "-o", "one.jsonl").code == 0
    command = [*PROGRAM, *words, "-o", "two.jsonl", "--on", launcher, "--shards", "3"]
    work, draw = isolation / "two.jsonl.shards", random.Random(1)
    code = -9
    for round_ in range(8):
        child = subprocess.Popen([*command, "--resume"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(draw.random() * 1.5 + round_ * 0.4)
        victims = [child.pid] if round_ % 2 else shards_of(work)[:1]
        for pid in victims if round_ < 6 else []:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        _, err = child.communicate(timeout=240)
        code = child.returncode
        if code == 0:
            break
        assert not list(isolation.glob("two-*.jsonl")), "an output that is not whole"
        deadline = time.monotonic() + 60
        while shards_of(work) and time.monotonic() < deadline:  # those of a killed command go on
            time.sleep(0.2)
    assert code == 0, err
    for split in ("train", "validation"):
        assert Path(f"two-{split}.jsonl").read_bytes() == Path(f"one-{split}.jsonl").read_bytes()
    assert not work.exists()


@slurm[0]
@slurm[1]
def test_an_array_of_slurm(place: Path, cluster: Cluster, cli: Any) -> None:
    file = make_groups(place / "a.jsonl", 300)
    words = ("filter", str(file), "--min-score", "0.5", "--json")
    whole = cli(*words, "-o", "one.jsonl")
    parts = cli(*words, "-o", "two.jsonl", "--on", "slurm", "--on-option", "time=10m", "--shards", "3")
    assert parts.code == 0, parts.stderr
    assert Path("two.jsonl").read_bytes() == Path("one.jsonl").read_bytes()
    assert parts.json["dropped"] == whole.json["dropped"]
    refused = cli("filter", str(file), "--dedup", "exact", "-o", "x.jsonl", "--on", "slurm", "--shards", "2")
    assert (refused.code, "--on ray" in refused.stderr) == (2, True)
