"""Variables for sbatch: options of the job, or named as left out; and what says how to reach the cluster."""

from __future__ import annotations

import pytest
from atropos_slurm.client import clean_environment
from atropos_slurm.site import LEFT_OUT, REACH, USED, site_options


@pytest.mark.parametrize(
    ("environ", "given", "options", "left"),
    [
        ({"SBATCH_RESERVATION": "tuesday"}, {}, {"reservation": "tuesday"}, []),
        ({"SBATCH_PARTITION": "a", "SBATCH_QOS": "high"}, {"partition": "b"}, {"qos": "high"}, ["SBATCH_PARTITION=a"]),
        ({"SBATCH_PARTITION": "a"}, {"partition": "a"}, {}, []),  # they agree: nothing to tell
        ({"SBATCH_EXCLUSIVE": ""}, {}, {"exclusive": ""}, []),
        ({"SBATCH_EXCLUSIVE": "user"}, {}, {"exclusive": "user"}, []),
        ({"SBATCH_SPREAD_JOB": "yes"}, {}, {"spread-job": ""}, []),
        ({"SBATCH_ACCOUNT": ""}, {}, {}, []),
        ({"SBATCH_GPUS": "8", "SBATCH_ARRAY_INX": "0-9"}, {}, {}, ["SBATCH_ARRAY_INX=0-9", "SBATCH_GPUS=8"]),
        ({"SBATCH_OF_THE_FUTURE": "1"}, {}, {}, ["SBATCH_OF_THE_FUTURE=1"]),
        ({"SBATCH_DEBUG": "1", "SLURM_CONF": "/x", "OTHER": "1"}, {}, {}, []),
        ({"SBATCH_TIMELIMIT": "5", "SBATCH_MEM_PER_NODE": "1G"}, {"time": "9"}, {"mem": "1G"}, ["SBATCH_TIMELIMIT=5"]),
    ],
)
def test_each_variable_is_used_or_named(
    environ: dict[str, str], given: dict[str, str], options: dict[str, str], left: list[str]
) -> None:
    found, told = site_options(environ, given)
    assert found == options
    assert [line.partition(" is not used")[0] for line in told] == left


def test_no_variable_is_both_used_and_left_out() -> None:
    assert not USED.keys() & LEFT_OUT.keys()


def test_the_cluster_stays_the_one_that_the_user_named() -> None:
    """Those that say how to reach it survive inside another job, whose own variables do not."""
    reach = dict.fromkeys(REACH, "x")
    inside = {"SLURM_JOB_ID": "5", "SLURM_CPUS_PER_TASK": "2", "SBATCH_QOS": "q", "PMI_RANK": "0", "WORLD_SIZE": "8"}
    assert clean_environment({**reach, **inside, "PATH": "/bin"}) == {**reach, "PATH": "/bin"}
