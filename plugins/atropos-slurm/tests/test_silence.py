"""A controller that does not answer is asked once for many jobs, and again a little later."""

from __future__ import annotations

from pathlib import Path

import pytest
from atropos_slurm import launcher as module
from atropos_slurm.launcher import SlurmLauncher

from atropos_cli.sdk.launchers import LauncherSilent

SCONTROL = """#!/bin/sh
echo asked >> {folder}/asked
echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2
exit 1
"""


def test_many_jobs_and_one_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scontrol").write_text(SCONTROL.format(folder=tmp_path))
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    launcher = SlurmLauncher(SlurmLauncher.Config())

    def asked() -> int:
        for number in range(5):
            with pytest.raises(LauncherSilent, match="Unable to contact"):
                launcher.status(str(number))
        return (tmp_path / "asked").read_text().count("asked")

    monkeypatch.setattr(module, "_SILENT_FOR", 60.0)
    assert asked() == 1
    monkeypatch.setattr(module, "_SILENT_FOR", 0.0)
    assert asked() == 6
