"""What is found of GPUs, CPUs and SLURM, by a nvidia-smi that prints what real ones print."""

from __future__ import annotations

from pathlib import Path

import pytest

from atropos_cli.serving.defaults import defaults_for
from atropos_cli.serving.platforms import detect

from .machines import NO_DEVICES, NO_DRIVER, REAL, fake_smi, gpu_lines

FACTS = {
    "v100": (32768, (7, 0), False),
    "a100": (81920, (8, 0), True),
    "h100": (81559, (9, 0), True),
    "h200": (143771, (9, 0), True),
    "b200": (183359, (10, 0), True),
    "gpu": (24564, (8, 9), True),
}


@pytest.fixture(autouse=True)
def _no_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "SLURM_GPUS_ON_NODE", "SLURM_NNODES"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("kind", sorted(REAL))
def test_each_profile(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi(tmp_path / "bin", monkeypatch, gpu_lines(kind, 4))
    found = detect()
    memory, capability, bf16 = FACTS[kind]
    assert (found.profile, len(found.gpus), found.gpu_memory_mib, found.bf16) == (kind, 4, memory, bf16)
    assert found.gpus[3].capability == capability
    assert found.tokens == ("0", "1", "2", "3")
    assert found.problem is None


@pytest.mark.parametrize(("kind", "capability"), [("v100", (7, 0)), ("a100", (8, 0)), ("gpu", None)])
def test_an_old_driver_does_not_tell_the_compute_capability(
    kind: str, capability: tuple[int, int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_smi(tmp_path / "bin", monkeypatch, gpu_lines(kind, 1), without="compute_cap")
    found = detect()
    assert found.gpus[0].capability == capability
    assert defaults_for(found, "vllm").dtype == {"v100": "float16", "a100": "bfloat16", "gpu": "auto"}[kind]


@pytest.mark.parametrize(("output", "code"), [(NO_DRIVER, 9), (NO_DEVICES, 6), ("0, only, three\n", 0)])
def test_a_nvidia_smi_that_fails_is_a_problem_not_a_crash(
    output: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_smi(tmp_path / "bin", monkeypatch, output, code=code)
    found = detect()
    assert (found.profile, found.gpus) == ("cpu", ())
    assert found.problem is not None
    assert "nvidia-smi" in found.problem


@pytest.mark.parametrize(
    ("variable", "tokens", "named"),
    [
        ("4,5,6,7", ("4", "5", "6", "7"), None),
        ("7, 2", ("7", "2"), None),
        ("GPU-7c8fb1e2-0000-0000-0000-000000000003", ("GPU-7c8fb1e2-0000-0000-0000-000000000003",), None),
        ("", (), None),
        ("-1", (), None),
        ("1,9,2", ("1",), "'9'"),  # CUDA itself ignores all from the first one that is wrong
    ],
)
def test_cuda_visible_devices_narrows(
    variable: str, tokens: tuple[str, ...], named: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_smi(tmp_path / "bin", monkeypatch, gpu_lines("h100", 8))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    found = detect()
    assert found.tokens == tokens
    assert found.all_gpus == 8
    if named is None:
        assert found.problem is None
    else:
        assert named in str(found.problem)


def test_mixed_gpus_have_no_profile_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi(tmp_path / "bin", monkeypatch, gpu_lines("a100", 1) + REAL["v100"].format(1, 1) + "\n")
    found = detect()
    assert (found.profile, found.gpu_memory_mib, found.bf16) == ("gpu", 32768, False)


def test_rocm_is_said_to_be_unknown(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "kfd").touch()
    found = detect({"PATH": str(tmp_path)}, root=tmp_path)
    assert found.profile == "rocm"
    assert found.problem is not None
    assert defaults_for(found, "vllm").dtype == "auto"


def test_slurm_hints(tmp_path: Path) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\n")
    sbatch.chmod(0o755)
    found = detect({"PATH": str(tmp_path), "SLURM_JOB_ID": "17", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "8"})
    assert (found.slurm.sbatch, found.slurm.job, found.slurm.nodes, found.slurm.gpus) == (str(sbatch), "17", 2, 8)


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_control_groups(version: int, tmp_path: Path) -> None:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    write("proc/meminfo", "MemTotal:       65536000 kB\n")
    if version == 2:
        write("proc/self/cgroup", "0::/job/step\n")
        write("sys/fs/cgroup/job/cpu.max", "50000 100000\n")
        write("sys/fs/cgroup/job/step/cpu.max", "max 100000\n")
        write("sys/fs/cgroup/job/memory.max", "8589934592\n")
        write("sys/fs/cgroup/job/step/memory.max", "max\n")
    else:
        write("proc/self/cgroup", "4:cpu,cpuacct:/job\n3:memory:/job\n")
        write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "50000\n")
        write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n")
        write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "8589934592\n")
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    found = detect({"PATH": ""}, root=tmp_path)
    assert (found.cpus, found.memory) == (0.5, 8 << 30)


def test_defaults_follow_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi(tmp_path / "bin", monkeypatch, gpu_lines("v100", 2))
    old = detect()
    assert defaults_for(old, "vllm").attention_backend == "TRITON_ATTN"
    assert defaults_for(old, "sglang").attention_backend == "triton"
    assert "use vLLM" in defaults_for(old, "sglang").note
    fake_smi(tmp_path / "bin", monkeypatch, gpu_lines("h100", 2))
    new = detect()
    assert (defaults_for(new, "vllm").dtype, defaults_for(new, "vllm").attention_backend) == ("bfloat16", None)
    assert defaults_for(new, "sglang").memory_fraction is None  # SGLang works it out from the GPU


LISTED = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-7c8fb1e2-0000-0000-0000-000000000000)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-7c8fb1e2-0000-0000-0000-000000000001)
  MIG 3g.40gb     Device  0: (UUID: MIG-11111111-aaaa-0000-0000-000000000000)
  MIG 1g.10gb     Device  1: (UUID: MIG-22222222-aaaa-0000-0000-000000000000)
  MIG 1c.2g.20gb+me Device  2: (UUID: MIG-GPU-7c8fb1e2-0000-0000-0000-000000000001/5/0)
"""
BIG, SMALL = "MIG-11111111-aaaa-0000-0000-000000000000", "MIG-22222222-aaaa-0000-0000-000000000000"
OLD_NAME = "MIG-GPU-7c8fb1e2-0000-0000-0000-000000000001/5/0"


def divided(folder: Path, monkeypatch: pytest.MonkeyPatch, listed: str = LISTED) -> None:
    """Two H100, the second one divided."""
    lines = gpu_lines("h100", 2).splitlines()
    lines[1] = lines[1].replace("Disabled", "Enabled")
    fake_smi(folder, monkeypatch, "\n".join(lines) + "\n", listed=listed)


@pytest.mark.parametrize(
    ("variable", "tokens", "memory"),
    [
        (BIG, (BIG,), 38912),
        (SMALL, (SMALL,), 9728),
        ("MIG-2222", ("MIG-2222",), 9728),
        (OLD_NAME, (OLD_NAME,), 19456),
        ("1", ("1",), 38912),  # CUDA takes the first part of a divided GPU
        ("GPU-7c8fb1e2-0000-0000-0000-000000000001", ("GPU-7c8fb1e2-0000-0000-0000-000000000001",), 38912),
        ("0", ("0",), 81559),
        (f"{SMALL},{BIG}", (SMALL, BIG), 9728),
        (None, ("0", BIG, SMALL, OLD_NAME), 9728),
    ],
)
def test_instances_of_a_divided_gpu(
    variable: str | None, tokens: tuple[str, ...], memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    divided(tmp_path / "bin", monkeypatch)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    found = detect()
    assert (found.tokens, found.gpu_memory_mib, found.profile, found.problem) == (tokens, memory, "h100", None)
    assert found.bf16 is True


@pytest.mark.parametrize("variable", ["MIG-3333", "MIG-", "MIG-11111111-aaaa-0000-0000-000000000001"])
def test_an_instance_that_is_not_there(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    divided(tmp_path / "bin", monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    found = detect()
    assert found.gpus == ()
    assert variable in str(found.problem)


def test_an_instance_of_which_nothing_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that sees no more: one GPU of that kind, and no guess at its size."""
    divided(tmp_path / "bin", monkeypatch, listed="")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", BIG)
    found = detect()
    assert (found.tokens, found.profile, found.gpu_memory_mib, found.problem) == ((BIG,), "h100", 0, None)
