"""What a training does on a kind of GPU, by what nvidia-smi prints and by what PyTorch says of the same GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from atropos_cli.serving.platforms import detect
from atropos_cli.serving.trainprofiles import TrainingProfile, cpu_profile, gpu_profile, training_profile

from .machines import NO_DRIVER, REAL, fake_smi, gpu_lines

UUID = "MIG-11111111-2222-3333-4444-555555555555"
LISTED = (
    "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-7c8fb1e2-0000-0000-0000-000000000000)\n"
    f"  MIG 1g.10gb     Device  0: (UUID: {UUID})\n"
    "  MIG 3g.40gb     Device  1: (UUID: MIG-99999999-2222-3333-4444-555555555555)\n"
    "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-7c8fb1e2-0000-0000-0000-000000000001)\n"
)


@pytest.fixture(autouse=True)
def _everything_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def facts(found: TrainingProfile) -> tuple[str, int, int, bool]:
    return found.precision, found.rows, found.tokens, found.checkpointing


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("v100", ("fp32", 4, 2048, True)),
        ("a100", ("bf16", 16, 8192, False)),
        ("h100", ("bf16", 16, 8192, False)),
        ("h200", ("bf16", 32, 16384, False)),
        ("b200", ("bf16", 32, 16384, False)),
        ("gpu", ("bf16", 4, 2048, True)),  # a consumer card of 24 GiB
    ],
)
def test_each_kind(
    kind: str, wanted: tuple[str, int, int, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_smi(tmp_path / "bin", monkeypatch, gpu_lines(kind, 2))
    found = training_profile(detect())
    assert facts(found) == wanted
    assert found.name.startswith(kind)
    assert found.reason in found.describe()


@pytest.mark.parametrize(
    ("name", "mib", "capability", "wanted"),
    [
        ("Tesla V100-SXM2-16GB", 16160, (7, 0), ("fp32", 1, 512, True)),
        ("Tesla V100-SXM3-32GB", 32494, (7, 0), ("fp32", 4, 2048, True)),
        ("Tesla T4", 14930, (7, 5), ("fp32", 1, 512, True)),
        ("NVIDIA A100-SXM4-40GB", 40338, (8, 0), ("bf16", 8, 4096, False)),
        ("NVIDIA A100 80GB PCIe", 81051, (8, 0), ("bf16", 16, 8192, False)),
        ("NVIDIA GeForce RTX 3060", 12036, (8, 6), ("bf16", 2, 1024, True)),
        ("NVIDIA GeForce RTX 2080 Ti", 11004, (7, 5), ("fp32", 1, 512, True)),
        ("NVIDIA GeForce RTX 5090", 32109, (12, 0), ("bf16", 8, 4096, False)),
        ("NVIDIA L40S", 45589, (8, 9), ("bf16", 8, 4096, False)),
        ("NVIDIA H100 80GB HBM3", 81079, (9, 0), ("bf16", 16, 8192, False)),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9728, (9, 0), ("bf16", 2, 1024, True)),
        ("NVIDIA H100 80GB HBM3 MIG 2g.20gb", 19968, (9, 0), ("bf16", 4, 2048, True)),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864, (8, 0), ("bf16", 1, 512, True)),
        ("NVIDIA GH200 480GB", 97284, (9, 0), ("bf16", 16, 8192, False)),
        ("NVIDIA B200", 182632, (10, 0), ("bf16", 32, 16384, False)),
        ("a card of tomorrow", 0, None, ("auto", 1, 512, True)),
    ],
)
def test_as_pytorch_names_them(
    name: str, mib: int, capability: tuple[int, int] | None, wanted: tuple[str, int, int, bool]
) -> None:
    found = gpu_profile(name, mib << 20, capability)
    assert facts(found) == wanted
    assert ("MIG instance" in found.name) == (" MIG" in name)


@pytest.mark.parametrize(
    ("variable", "name", "rows"),
    [
        (None, "h100 (MIG instance, 10 GiB)", 2),  # the smallest of all
        ("1", "h100 (80 GiB)", 16),
        ("GPU-7c8fb1e2-0000-0000-0000-000000000001", "h100 (80 GiB)", 16),
        ("GPU-7c8fb1e2-0000-0000-0000-000000000000", "h100 (MIG instance, 10 GiB)", 2),  # divided: CUDA takes a part
        (UUID, "h100 (MIG instance, 10 GiB)", 2),
        ("MIG-99999999", "h100 (MIG instance, 38 GiB)", 8),
        ("MIG-GPU-7c8fb1e2-0000-0000-0000-000000000000/3/0", "cpu", 32),  # an older driver's name, not listed here
        ("", "cpu", 32),
        ("7", "cpu", 32),
    ],
)
def test_masks_and_instances(
    variable: str | None, name: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = gpu_lines("h100", 2).splitlines()
    lines[0] = lines[0].replace("Disabled", "Enabled")
    fake_smi(tmp_path / "bin", monkeypatch, "\n".join(lines) + "\n", listed=LISTED)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    found = training_profile(detect())
    assert (found.name, found.rows) == (name, rows)


def test_an_instance_that_a_container_does_not_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = gpu_lines("h100", 1).replace("Disabled", "Enabled")
    fake_smi(tmp_path / "bin", monkeypatch, line, listed=LISTED.splitlines()[0] + "\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-GPU-7c8fb1e2-0000-0000-0000-000000000000/3/0")
    found = training_profile(detect())
    assert (found.name, found.precision, found.rows) == ("h100 (MIG instance, memory not known)", "bf16", 1)


def test_the_smallest_of_mixed_gpus_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi(tmp_path / "bin", monkeypatch, gpu_lines("a100", 1) + REAL["v100"].format(1, 1) + "\n")
    found = training_profile(detect())
    assert facts(found) == ("fp32", 4, 2048, False)
    assert found.name == "gpu (32 GiB)"


@pytest.mark.parametrize(("output", "code"), [(NO_DRIVER, 9), ("0, only, three\n", 0)])
def test_a_nvidia_smi_that_fails_is_a_cpu(
    output: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_smi(tmp_path / "bin", monkeypatch, output, code=code)
    assert training_profile(detect()) == cpu_profile()


def test_an_old_driver_leaves_the_precision_to_the_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi(tmp_path / "bin", monkeypatch, gpu_lines("gpu", 1), without="compute_cap")
    assert training_profile(detect()).precision == "auto"


def test_rocm(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "kfd").touch()
    found = training_profile(detect({"PATH": str(tmp_path)}, root=tmp_path))
    assert (found.name, found.precision, found.rows) == ("rocm", "auto", 32)
