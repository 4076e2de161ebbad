"""Times, memory, names, job ids, states and reasons."""

from __future__ import annotations

import pytest
from atropos_slurm import reasons
from atropos_slurm.client import _from_sacct, _from_scontrol, clean_environment, job_id_of, state_of
from atropos_slurm.values import time_text

from atropos_cli.config.sizes import job_name, parse_memory, parse_time
from atropos_cli.errors import LaunchError, UsageError


@pytest.mark.parametrize(
    ("text", "slurm"),
    [
        ("2h", "0-02:00:00"),
        ("90m", "0-01:30:00"),
        ("1.5h", "0-01:30:00"),
        ("1d12h", "1-12:00:00"),
        ("1 d 30 m", "1-00:30:00"),
        ("3600s", "0-01:00:00"),
        ("90", "0-01:30:00"),
        ("1:30:00", "0-01:30:00"),
        ("2-0", "2-00:00:00"),
        ("2-12:30", "2-12:30:00"),
        ("1-02:03:04", "1-02:03:04"),
    ],
)
def test_times(text: str, slurm: str) -> None:
    assert time_text(parse_time(text)) == slurm


@pytest.mark.parametrize("text", ["", "h", "1w", "-1h", "0", "10s", "1:30", "1:2:3:4", "2h30", "soon"])
def test_times_that_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [("64G", 65536), ("1.5G", 1536), ("1.5GiB", 1536), ("512M", 512), ("512", 512), ("1T", 1 << 20), ("0", 0),
     ("all", 0), ("2048K", 2), ("1gb", 1024)],
)  # fmt: skip
def test_memory(text: str, mebibytes: int) -> None:
    assert parse_memory(text) == mebibytes


@pytest.mark.parametrize("text", ["", "G", "-1G", "1P", "10K", "1 apple"])
def test_memory_that_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_memory(text)


def test_names_are_safe_in_paths_and_lists() -> None:
    assert job_name("a/b c:%j\n") == "a_b_c_j"
    assert job_name("///") == "atropos"
    assert len(job_name("x" * 500)) == 60


@pytest.mark.parametrize("output", ["12\n", "Welcome!\n12\n", "12\nnews: 5 nodes\n"])
def test_a_job_id_among_the_lines_of_a_site(output: str) -> None:
    assert job_id_of(output) == "12"


def test_job_ids_with_a_cluster_and_without_any() -> None:
    assert job_id_of("12;big\n") == "12;big"
    with pytest.raises(LaunchError, match="no job id: 'Submitted'"):
        job_id_of("Submitted")


def test_nothing_of_an_outer_job_reaches_sbatch() -> None:
    outer = {
        "PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf", "SLURM_JOB_ID": "1", "SLURM_CPUS_PER_TASK": "1",
        "SBATCH_TIMELIMIT": "5", "SRUN_CPUS_PER_TASK": "1", "PMI_RANK": "0", "PMIX_ID": "1", "RANK": "0",
        "WORLD_SIZE": "8", "LOCAL_RANK": "0", "MASTER_ADDR": "x", "MASTER_PORT": "1", "OMPI_COMM_WORLD_RANK": "0",
        "HF_TOKEN": "t", "RANKING": "1", "SLURMISH": "1", "CUDA_VISIBLE_DEVICES": "0",
    }  # fmt: skip
    assert sorted(clean_environment(outer)) == [
        "CUDA_VISIBLE_DEVICES", "HF_TOKEN", "PATH", "RANKING", "SLURM_CONF",
    ]  # fmt: skip


def test_states() -> None:
    found = {"PENDING": "pending", "COMPLETING": "running", "COMPLETED": "finished", "TIMEOUT": "failed"}
    found |= {"NODE_FAIL": "failed", "CANCELLED+": "cancelled", "": "unknown"}
    assert {text: state_of(text) for text in found} == found


def test_records() -> None:
    line = (
        "JobId=7 ArrayJobId=5 ArrayTaskId=2-3%2 JobName=a b UserId=me(1) JobState=FAILED Reason=NonZeroExitCode "
        "Dependency=(null) Restarts=1 ExitCode=70:0 RunTime=00:00:05 NodeList=n[1-2] StdOut=/r/a b/slurm-7.out Power="
    )
    found = _from_scontrol(line)
    assert found is not None
    assert (found.id, found.state, found.code, found.task, found.nodes) == ("7", "failed", 70, "2-3%2", "n[1-2]")
    assert found.output == "/r/a b/slurm-7.out"
    assert found.restarts == 1
    accounted = _from_sacct("5_2|CANCELLED by 1000|0:15|name|n1")
    assert accounted is not None
    assert (accounted.id, accounted.task, accounted.state, accounted.signal) == ("5", "2", "cancelled", 15)
    assert _from_sacct("5.batch|COMPLETED|0:0|batch|n1") is None


def test_reasons_in_words() -> None:
    assert "script never ran" in (reasons.explain_end("JobLaunchFailure", 0, 53) or "")
    assert "script never ran" in (reasons.explain_end("", 0, 53) or "")
    assert "a server ended" in (reasons.explain_end("NonZeroExitCode", 70, 0) or "")
    assert reasons.explain_end("NonZeroExitCode", 3, 0) is None
    assert "never start" in reasons.explain_pending("PartitionConfig")
    assert "account or QOS" in reasons.explain_pending("QOSMaxGRESPerUser")
    assert "reserved" in reasons.explain_pending("ReqNodeNotAvail, UnavailableNodes:n1")
    assert reasons.explain_pending("SomethingNew") == "SomethingNew"
    assert reasons.never("DependencyNeverSatisfied")
    assert not reasons.never("Resources")
    assert not reasons.never("PartitionDown")
