"""The batch script: golden files, and the rules each line keeps to."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from atropos_slurm.config import Container, SlurmConfig
from atropos_slurm.launcher import SlurmLauncher
from atropos_slurm.script import ready, render

from atropos_cli.errors import ConfigError, UsageError
from atropos_cli.ports.launcher import JobSpec

GOLDEN = Path(__file__).parent / "scripts"
PYTHON = "/opt/venv/bin/python"
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "small": ({}, {}),
    "large": (
        {
            "resources": {"nodes": 2, "gpus_per_node": 8, "cpus_per_node": 64, "mem_mb": 0, "time_s": 90000,
                          "signal_before_s": 300, "requeue": True},
            "after": ("11", "12;big"),
            "cwd": "/home/me/my project",
            "options": {"comment": "it's free", "exclusive": ""},
        },
        {
            "partition": "gpu", "account": "proj1", "qos": "long", "constraint": "h100&nvlink",
            "setup": ("module load cuda/12.8", 'export CACHE="$SCRATCH/cache"'), "sbatch": {"comment": "overridden"},
        },
    ),
    "array": (
        {"resources": {"array": 8, "array_limit": 2, "mem_mb": 1536, "gpus_per_node": 1}},
        {"gpus_as": "gres", "gpu_type": "h100", "time": "2h", "cpus": 4},
    ),
    "command": ({"command": ("pipeline", "step", "p.toml", "two words; $HOME 'x'\n")}, {}),
}  # fmt: skip


def script(job: dict[str, Any], profile: dict[str, Any], **more: Any) -> str:
    spec = JobSpec(**{"name": "my job/1", "run": "/runs/100% odd, 'dir'", **job})
    return render(ready(spec, SlurmConfig(python=PYTHON, **profile), **more), more.get("template"))


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    """To renew a file after a change that is meant: delete it, and run the test twice."""
    text = script(*CASES[name])
    path = GOLDEN / f"{name}.sbatch"
    if not path.exists():
        path.write_text(text)
        pytest.fail(f"{path} was missing and is written now; look at it")
    assert text == path.read_text()


@pytest.mark.parametrize("name", CASES)
def test_every_script_is_one_that_sbatch_and_bash_take(name: str) -> None:
    text = script(*CASES[name])
    assert text.startswith("#!/bin/bash\n#SBATCH --")
    assert "\r" not in text
    assert not text.startswith("\ufeff")
    lines = text.splitlines()
    directives = [number for number, line in enumerate(lines) if line.startswith("#SBATCH")]
    commands = [number for number, line in enumerate(lines) if line and not line.startswith("#")]
    assert max(directives) < min(commands)  # sbatch stops reading at the first command
    assert lines[-1].startswith("exec ") or "exec " in text
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0


def test_the_last_line_is_the_supervisor_and_nothing_of_the_user() -> None:
    line = script(*CASES["large"]).splitlines()[-1]
    assert shlex.split(line) == [
        "exec", PYTHON, "-P", "-m", "atropos_cli", "run", "/runs/100% odd, 'dir'/job.json", "--on", "slurm",
    ]  # fmt: skip


def directive(text: str, key: str) -> str | None:
    found = [shlex.split(line)[1] for line in text.splitlines() if line.startswith(f"#SBATCH --{key}")]
    return found[-1].partition("=")[2] if found else None


def test_paths_and_names() -> None:
    text = script({}, {})
    assert directive(text, "output") == "/runs/100%% odd, 'dir'/slurm-%j.out"
    assert directive(text, "job-name") == "my_job_1"
    with pytest.raises(UsageError, match="backslash"):
        script({"run": "/runs/a\\b"}, {})
    with pytest.raises(UsageError, match="quotes of both kinds"):
        script({"run": "/runs/a\"b'c"}, {})
    with pytest.raises(UsageError, match="control character"):
        script({"run": "/runs/a\nb"}, {})


def test_open_mode_requeue_and_export_are_always_said() -> None:
    text = script({}, {})
    assert directive(text, "open-mode") == "append"
    assert "#SBATCH --no-requeue\n" in text
    assert directive(text, "export") == "ALL"
    assert "#SBATCH --requeue\n" in script({"resources": {"requeue": True}}, {})


def test_dependencies_are_killed_when_they_cannot_be_met() -> None:
    text = script({"after": ("5", "6;other")}, {})
    assert directive(text, "dependency") == "afterok:5:6"
    assert directive(text, "kill-on-invalid-dep") == "yes"


def test_g08_an_array_larger_than_the_cluster_allows() -> None:
    with pytest.raises(UsageError, match=r"array of 6050 tasks is too large .* MaxArraySize allows 1001"):
        script({"resources": {"array": 6050}}, {}, most_tasks=1001)
    assert directive(script({"resources": {"array": 1001}}, {}, most_tasks=1001), "array") == "0-1000"


def test_g05_values_never_stand_in_the_script() -> None:
    env = {"LAYERS": "q_proj,k_proj", "NOTE": "two words", "Q": 'it\'s "quoted" $HOME', "EMPTY": ""}
    assert script({"env": env}, {"env": env}) == script({}, {})


@pytest.mark.parametrize(
    "key", ["wrap", "output", "export", "array", "nodes", "signal", "open-mode", "time", "mem", "Wrap", "a b", ""]
)
def test_options_that_are_decided_here_cannot_be_passed_through(key: str) -> None:
    with pytest.raises(ValueError, match=r"decided by atropos|no long option"):
        SlurmConfig(sbatch={key: "1"})


def test_a_template_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.j2"
    path.write_text("#!/bin/bash\r\n# {{ name }} in {{ folder }}\r\nexec {{ command }}\r\n")
    config = SlurmConfig(python=PYTHON, template=str(path))
    text = SlurmLauncher(config).render(JobSpec(name="n", run="/r"))
    assert text == f"#!/bin/bash\n# n in /r\nexec {PYTHON} -P -m atropos_cli run /r/job.json --on slurm\n"
    for wrong, complaint in (
        ("echo {{ command }}", "does not begin with #!"),
        ("#!{{ comand }}", "comand"),
        ("#!{% if", "unexpected"),
    ):
        path.write_text(wrong)
        with pytest.raises(ConfigError, match=complaint):
            SlurmLauncher(config).render(JobSpec(name="n", run="/r"))
    path.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        SlurmLauncher(config).render(JobSpec(name="n", run="/r"))


def test_containers() -> None:
    from atropos_slurm.container import contained

    from atropos_cli.domain.job import Component

    server = Component(name="server0", role="service", argv=("vllm", "serve", "M"))
    main = Component(name="main", role="main", argv=("python", "x"))
    apptainer = Container(image="img.sif", mounts=("/data",))
    wrapped = contained(server, apptainer, Path("/run"), Path("/cwd"))
    words = "apptainer exec --nv --bind /data --bind /run --bind /cwd img.sif vllm serve M"
    assert wrapped.argv == tuple(words.split())
    assert contained(main, apptainer, Path("/run"), Path("/cwd")) == main
    pyxis = Container(runtime="pyxis", image="org/img:1", mounts=("/data:/d",), components="all")
    made = contained(main, pyxis, Path("/run"), Path("/cwd"))
    assert made.argv == main.argv
    assert made.python == "python3"
    assert made.step_options[0] == "--container-image=org/img:1"
    assert made.step_options[1].startswith("--container-mounts=/data:/d,/run:/run,/cwd:/cwd,")
