"""The tasks of an array, as SLURM lists those that wait, and what it is asked with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from atropos_slurm.launcher import SlurmLauncher

SCONTROL = """#!/bin/sh
echo "SLURM_BITSTR_LEN=$SLURM_BITSTR_LEN TZ=$TZ" >> {folder}/asked
echo "JobId=7 ArrayJobId=7 ArrayTaskId={text} JobName=a JobState=PENDING Reason=Priority Restarts=0 ExitCode=0:0"
"""


@pytest.mark.parametrize(
    ("text", "waiting"),
    [
        ("0-5", [0, 1, 2, 3, 4, 5]),
        ("0-5%2", [0, 1, 2, 3, 4, 5]),
        ("1,3,5%1", [1, 3, 5]),
        ("0-1,4", [0, 1, 4]),
        ("0-5:2", [0, 2, 4]),
        ("0-5:2%4", [0, 2, 4]),
        ("3", [3]),
        ("2-90", [2, 3, 4, 5]),
        ("N/A", []),
        ("1,...", [1]),
        ("", []),
    ],
)
def test_lists_of_tasks(text: str, waiting: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scontrol").write_text(SCONTROL.format(folder=tmp_path, text=text))
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin:/bin")
    monkeypatch.setenv("SLURM_BITSTR_LEN", "10")  # of the shell: tasks would be cut off, and taken for lost
    found = SlurmLauncher(SlurmLauncher.Config()).tasks("7", 6)
    assert sorted(found) == waiting
    assert {status.state for status in found.values()} <= {"pending"}
    assert (tmp_path / "asked").read_text() == "SLURM_BITSTR_LEN=0 TZ=UTC\n"
