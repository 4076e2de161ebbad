"""Paths: `~` wherever a path is given, links that stay links, disks that only this machine has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from atropos_slurm.config import SlurmConfig
from atropos_slurm.launcher import SlurmLauncher

from atropos_cli import paths
from atropos_cli.ports.launcher import JobSpec

GEN = ("gen", "arithmetic", "--backend", "scripted", "--backend.replies", "2", "--limit", "1", "--group-size", "1")


@pytest.fixture
def home(isolation: Path) -> Path:
    return isolation.parent / "home"


def no_tilde(folder: Path) -> bool:
    return not any("~" in path.name for path in folder.rglob("*"))


def test_tilde_is_expanded_in_flags_and_arguments(cli: Any, home: Path, isolation: Path) -> None:
    assert cli(*GEN, "--output=~/runs/a").code == 0
    assert (home / "runs/a/groups.jsonl").exists()
    assert cli("filter", "~/runs/a", "-o", "~/kept.jsonl", "--rejects=~/rejected.jsonl").code == 0
    assert cli("sft-gen", "~/runs/a", "--format", "messages", "--output=~/rows.jsonl").code == 0
    assert cli("analyze", "~/runs/*", "--html=~/a.html").code == 0
    assert cli("merge", "~/kept.jsonl", "-o", "~/merged.jsonl").code == 0
    assert cli("run", "~/runs/a", "--dry-run").code == 0
    assert cli("journal", "~/runs", "--output=~/journal.md").code == 0
    assert cli("view", "~/runs/a", "--export=~/page.html").code == 0
    assert cli("new", "environment", "maze", "--into=~/projects").code == 0
    wanted = {"kept.jsonl", "rows.jsonl", "a.html", "merged.jsonl", "journal.md", "page.html", "projects"}
    assert wanted <= {path.name for path in home.iterdir()}
    assert list(isolation.iterdir()) == []
    assert no_tilde(home)


ENVIRONMENT = """
from pathlib import Path
from atropos_cli.sdk import Config, Environment, Field, Task, reward, user

class PlacesConfig(Config):
    where: Path = Field(default=Path("~/default"), description="A folder.")
    more: tuple[Path, ...] = ()
    plain: str = ""

@reward
def one(task, rollout):
    return 1.0

class Places(Environment):
    "Tells its paths."
    name = "places"
    Config = PlacesConfig
    rewards = (one,)

    def tasks(self, split):
        yield Task(id="a", prompt=(user("?"),), answer="2", info={"where": str(self.config.where),
                   "more": [str(path) for path in self.config.more], "plain": self.config.plain})
"""


@pytest.mark.parametrize("source", ["flag", "variable", "file", "user file", "named file", "default"])
def test_tilde_is_expanded_in_options_of_plugins_wherever_they_come_from(
    cli: Any, home: Path, isolation: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    (home / "places.py").write_text(ENVIRONMENT)
    text = '[env]\nwhere = "~/given"\nmore = ["~/one", "~", "/two"]\nplain = "~/stays"\n'
    words: tuple[str, ...] = ()
    if source == "flag":
        words = ("--where=~/given", "--more=~/one", "--more=~", "--more=/two", "--plain=~/stays")
    elif source == "variable":
        monkeypatch.setenv("ATROPOS_ENV__WHERE", "~/given")
        monkeypatch.setenv("ATROPOS_ENV__MORE", "~/one,~,/two")
        monkeypatch.setenv("ATROPOS_ENV__PLAIN", "~/stays")
    elif source == "file":
        (isolation / "atropos.toml").write_text(text)
    elif source == "user file":
        monkeypatch.setenv("XDG_CONFIG_HOME", "~/settings")
        (home / "settings/atropos").mkdir(parents=True)
        (home / "settings/atropos/config.toml").write_text(text)
    elif source == "named file":
        monkeypatch.setenv("ATROPOS_CONFIG", "~/mine.toml")
        (home / "mine.toml").write_text(text)
    name = "~/places.py:Places"
    got = cli("gen", name, *GEN[2:], *words, "-o", "run")
    assert got.code == 0, got.stderr
    info = json.loads((isolation / "run/groups.jsonl").read_text())["task"]["info"]
    if source == "default":
        assert info["where"] == str(home / "default")
    else:
        more = [str(home / "one"), str(home), "/two"]
        assert info == {"where": str(home / "given"), "more": more, "plain": "~/stays"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("~/a b", "HOME/a b"),
        ("~", "HOME"),
        ("a~b", "a~b"),
        ("x/~/y", "x/~/y"),
        ("s3://~/x", "s3://~/x"),
        ("~no-such-user/x", "~no-such-user/x"),
        ("./~", "./~"),
    ],
)
def test_what_a_tilde_stands_for(home: Path, given: str, expected: str) -> None:
    assert paths.home(given) == expected.replace("HOME", str(home))


@pytest.mark.parametrize("dangling", [False, True])
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz", "rows.parquet", "data"])
def test_a_linked_output_keeps_its_link(cli: Any, isolation: Path, name: str, dangling: bool) -> None:
    if name in ("rows.parquet", "data"):
        pytest.importorskip("pyarrow" if name != "data" else "datasets")
    cli(*GEN, "-o", "run")
    (isolation / "disk").mkdir()
    (isolation / name).symlink_to(f"disk/{name}")
    words = ("sft-gen", "run", "--format", "messages", "-o", name, *(("--write", "datasets") if name == "data" else ()))
    if not dangling:
        assert cli(*words).code == 0
        assert cli(*words).code == 6
        words = (*words, "--overwrite")
    got = cli(*words)
    assert got.code == 0, got.stderr
    assert (isolation / name).is_symlink()
    assert (isolation / "disk" / name).exists()
    assert not (isolation / "disk" / name).is_symlink()


def test_a_linked_run_folder_keeps_its_link(cli: Any, isolation: Path) -> None:
    (isolation / "disk").mkdir()
    (isolation / "run").symlink_to("disk/real")
    assert cli(*GEN, "-o", "run").code == 0
    before = (isolation / "disk/real/groups.jsonl").stat().st_ino
    got = cli(*GEN, "--seed", "5", "-o", "run", "--overwrite")
    assert got.code == 0, got.stderr
    assert (isolation / "run").is_symlink()
    assert (isolation / "disk/real/groups.jsonl").stat().st_ino != before
    assert [path.name for path in (isolation / "disk").iterdir()] == ["real"]
    (isolation / "page.html").symlink_to("disk/page.html")
    assert cli("analyze", "run", "--html", "page.html").code == 0
    assert (isolation / "page.html").is_symlink()


def test_a_link_to_another_disk_keeps_its_link(cli: Any, isolation: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == isolation.stat().st_dev:
        pytest.skip("there is one disk only")
    cli(*GEN, "-o", "run")
    target = other / f"atropos-{isolation.parent.name}.jsonl"
    (isolation / "rows.jsonl").symlink_to(target)
    try:
        assert cli("sft-gen", "run", "--format", "messages", "-o", "rows.jsonl").code == 0
        assert (isolation / "rows.jsonl").is_symlink()
        assert len(target.read_text().splitlines()) == 1
        assert cli("filter", "run", "-o", "rows.jsonl", "--overwrite").code == 0
        assert "group_id" in target.read_text()
        assert not [path for path in isolation.iterdir() if path.name.endswith(".tmp")]
    finally:
        target.unlink(missing_ok=True)


MOUNTS = """\
22 1 0:20 / / rw - overlay overlay rw
23 22 0:21 / /tmp rw - tmpfs tmpfs rw
24 22 0:22 / /home rw,relatime shared:1 - nfs4 server:/home rw
25 24 0:23 / /home/me/ssd rw - ext4 /dev/sda1 rw
26 22 0:24 / /lustre/my\\040work rw - lustre mgs:/w rw
27 22 0:25 / /mnt/bucket rw - fuse.juicefs jfs rw
28 22 0:26 / /scratch rw - xfs /dev/sdb1 rw
29 22 0:27 / /odd rw - someday-fs x rw
"""


@pytest.mark.parametrize(
    ("place", "disk"),
    [
        ("/tmp/job", "tmpfs at /tmp"),
        ("/srv/job", "overlay at /"),
        ("/home/me/ssd/job", "ext4 at /home/me/ssd"),
        ("/odd/x", "someday-fs at /odd"),
        ("/scratch/job", "xfs at /scratch"),
        ("/home/me/job", None),
        ("/home/me/ssd2", None),
        ("/lustre/my work/job", None),
        ("/mnt/bucket/a", None),
        ("/scratch/shared/job", None),
    ],
)
def test_a_disk_that_only_this_machine_has_is_recognised(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, disk: str | None
) -> None:
    (tmp_path / "exports").write_text("# served\n/scratch/shared  *(rw)\n")
    read = Path.read_text
    monkeypatch.setattr(paths, "_EXPORTS", (str(tmp_path / "exports"),))
    monkeypatch.setattr(
        Path, "read_text", lambda self, *a, **k: MOUNTS if str(self) == "/proc/self/mountinfo" else read(self, *a, **k)
    )
    assert paths.only_here(Path(place)) == disk


@pytest.mark.parametrize("places", [("a", "a"), ("a", "b"), ("b", "a")])
def test_a_job_on_such_a_disk_is_told_before_it_is_submitted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, places: tuple[str, str]
) -> None:
    monkeypatch.setattr("atropos_slurm.launcher.only_here", lambda path: "tmpfs at /" if path.name == "a" else None)
    for name in "ab":
        (tmp_path / name).mkdir()
    job = JobSpec(name="j", run=str(tmp_path / places[0]), cwd=str(tmp_path / places[1]), command=("gen",))
    launcher = SlurmLauncher(SlurmConfig())
    launcher.write(job)
    launcher.write(job)
    (record,) = caplog.records  # once
    assert ("the job's folder" if places[0] == "a" else "the working directory") in record.getMessage()
    assert f"{tmp_path}/a: on a disk of this machine (tmpfs at /)" in record.getMessage()


def test_a_dry_run_tells_of_the_disk_too(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atropos_slurm.launcher.only_here", lambda path: "tmpfs at /somewhere")
    got = cli("slurm", "submit", "--dry-run", "--no-check", "--folder=~/job", "--", *GEN)
    assert ": on a disk of this machine (tmpfs at /somewhere)" in got.stderr
    assert str(Path("~/job").expanduser()) in got.stderr
