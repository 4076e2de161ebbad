"""The copy of a folder of code: what is in it, what is left out, and what is never lost."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from atropos_cli.errors import DataError, LaunchError
from atropos_cli.jobs.code import MANIFEST, bring, code_of, digest_at, git_code, look

MOST = 1 << 20


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "my project"
    for name, text in {
        "env.py": "one",
        "src/täsk.py": "x",
        ".gitignore": "*.log\n/data/\n",
        "a.log": "no",
        "data/big.bin": "no",
        "new\nline.txt": "odd",
        "bin/tool": "#!/bin/sh\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "bin/tool").chmod(0o755)
    (folder / "link").symlink_to("src")
    (folder / "out").symlink_to("/etc")
    return folder


WANTED = {".gitignore", "bin/tool", "env.py", "link", "new\nline.txt", "out", "src/täsk.py"}


def files(place: Path) -> set[str]:
    found = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_symlink() or path.is_file()}
    return found - {MANIFEST}


@pytest.mark.parametrize("repository", [True, False])
def test_what_git_ignores_stays_out(repository: bool, project: Path, tmp_path: Path) -> None:
    if repository:
        git(project, "init", "-q")
        git(project, "add", ".")
        (project / "gone.py").write_text("")
        git(project, "add", "gone.py")
        (project / "gone.py").unlink()
    found = look(project, most=MOST)
    assert {item.path for item in found.items} == WANTED
    assert {"a.log", "data/"} <= set(found.left_out)
    assert "out" in found.notes[0]
    bring(found, tmp_path / "copy")
    assert files(tmp_path / "copy") == WANTED
    assert (tmp_path / "copy/link").readlink() == Path("src")
    assert os.access(tmp_path / "copy/bin/tool", os.X_OK)
    assert not os.access(tmp_path / "copy/env.py", os.X_OK)
    assert digest_at(tmp_path / "copy") == found.digest == look(project, most=MOST).digest


def test_repositories_within(project: Path) -> None:
    inner = project / "third"
    inner.mkdir()
    (inner / ".gitignore").write_text("skip\n")
    (inner / "skip").write_text("")
    (inner / "kept.py").write_text("")
    git(project, "init", "-q")
    git(inner, "init", "-q")
    git(inner, "add", "kept.py")
    git(inner, "commit", "-qm", "first")
    found = look(project, most=MOST)
    assert {item.path for item in found.items} == WANTED | {"third/kept.py", "third/.gitignore"}
    assert {".git/", "third/.git/", "third/skip"} <= set(found.left_out)


def test_runs_and_copies_are_no_code(project: Path) -> None:
    """Else each copy would hold all earlier ones. A file of the user's own may have the same name."""
    for name in ("runs/a/plan.json", "runs/a/groups.jsonl", "runs/b/code/env.py", "runs/b/job.json"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text('{"atropos_version": "0"}')
    (project / "cloud").mkdir()
    (project / "cloud/plan.json").write_text('{"machines": 3}')
    (project / "cloud/job.json").write_text("not even JSON")
    found = look(project, most=MOST)
    assert {item.path for item in found.items} == WANTED | {"cloud/plan.json", "cloud/job.json"}
    assert {"runs/a/ (a run)", "runs/b/ (a run)"} <= set(found.left_out)


def test_sockets_and_pipes_are_left_out(project: Path) -> None:
    os.mkfifo(project / "pipe")
    os.mkfifo(project / "plan.json")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(project / "socket"))
    assert {item.path for item in look(project, most=MOST).items} == WANTED


def test_names_that_are_no_text(project: Path, tmp_path: Path) -> None:
    """Bytes that are not UTF-8, in a file, in one that is ignored, and in the summary of a difference."""
    odd = [os.fsdecode(name) for name in (b"b\xff.py", b"-rf", b'it\'s "so".py')]
    for name in (*odd, os.fsdecode(b"\xfe.log")):
        (project / name).write_text("one")
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    (project / odd[0]).write_text("two")
    found = look(project, most=MOST)
    assert {item.path for item in found.items} == WANTED.union(odd)
    bring(found, tmp_path / "copy")
    assert files(tmp_path / "copy") == WANTED.union(odd)
    code = code_of(tmp_path / "copy")
    assert code is not None
    assert (code.files, code.changed, "\ufffd.log" in code.left_out) == (len(found.items), True, True)
    assert "b\ufffd.py" in code.diff


def test_links_in_circles(project: Path, tmp_path: Path) -> None:
    for name, target in (("circle", "circle"), ("self", "."), ("up", "..")):
        (project / name).symlink_to(target)
    found = look(project, most=MOST)
    assert {item.path for item in found.items} == WANTED | {"circle", "self", "up"}
    bring(found, tmp_path / "copy")
    assert (tmp_path / "copy/circle").readlink() == Path("circle")
    with pytest.raises(DataError, match="circle"):
        look(project / "circle", most=MOST)


def test_nothing_is_written_through_a_link(project: Path, tmp_path: Path) -> None:
    """Neither through one that took the place of a folder here, nor through one that somebody made in the copy."""
    outside, place = tmp_path / "outside", tmp_path / "copy"
    outside.mkdir()
    (outside / "täsk.py").write_text("precious")
    bring(look(project, most=MOST), place)
    (place / "src").rename(tmp_path / "moved")
    (place / "src").symlink_to(outside)
    notes = bring(look(project, most=MOST), place)
    assert notes == [f"{place / 'src'} was changed there: kept as src.kept-1"]
    assert (place / "src/täsk.py").read_text() == "x"
    git(project, "init", "-q")
    git(project, "add", ".")
    (project / "src/täsk.py").unlink()
    (project / "src").rmdir()
    (project / "src").symlink_to(outside)  # git still knows src/täsk.py
    found = look(project, most=MOST)
    assert {"src"} == {item.path for item in found.items if item.path.startswith("src")}
    bring(found, place)
    assert (place / "src").readlink() == outside
    assert (outside / "täsk.py").read_text() == "precious"


def test_a_submodule_that_is_not_checked_out(project: Path) -> None:
    inner = project / "third"
    inner.mkdir()
    for folder in (inner, project):
        git(folder, "init", "-q")
        (folder / "kept.py").write_text("")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "first")
    shutil.rmtree(inner)
    inner.mkdir()
    found = look(project, most=MOST)
    assert "third/ (a submodule that is not checked out)" in found.left_out
    assert {item.path for item in found.items} == WANTED | {"kept.py"}
    (inner / "new.py").write_text("")  # a folder like any other
    assert "third/new.py" in {item.path for item in look(project, most=MOST).items}


@pytest.mark.parametrize("change", ["gone", "folder", "pipe", "other"])
def test_a_file_that_changes_while_it_is_copied(change: str, project: Path, tmp_path: Path) -> None:
    found, path, place = look(project, most=MOST), project / "env.py", tmp_path / "copy"
    path.unlink()
    {
        "gone": lambda: None,
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "other": lambda: path.write_text("two"),
    }[change]()
    with pytest.raises(DataError, match=r"env\.py changed while it was copied"):
        bring(found, place)
    assert digest_at(place) is None
    assert not [path for path in place.rglob(".atropos-*") if path.name != MANIFEST]
    path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
    bring(look(project, most=MOST), place)
    assert files(place) == WANTED - {"env.py"}


def test_a_home_is_not_code(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project))
    for folder in (project, project.parent, Path("/")):
        with pytest.raises(DataError, match="your home is in it"):
            look(folder, most=MOST)
    assert look(project / "src", most=MOST).items


def test_a_folder_that_cannot_be_read_is_named() -> None:
    """git only warns of it. Looked at as another user, since root may read everything."""
    lines = (
        "import os, sys, pathlib; from atropos_cli.jobs.code import look; from atropos_cli.errors import DataError\n"
        "os.geteuid() or os.setuid(65534)\n"
        "try: look(pathlib.Path(sys.argv[1]), most=1 << 20)\n"
        "except DataError as error: print(error.message)"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "code"
        (folder / "closed").mkdir(parents=True)
        (folder / "env.py").write_text("")
        Path(name).chmod(0o755)
        (folder / "closed").chmod(0)
        command = [sys.executable, "-c", lines, str(folder)]
        done = subprocess.run(command, env={**os.environ, "HOME": name}, capture_output=True, text=True)
        (folder / "closed").chmod(0o755)
    assert "the folder 'closed" in done.stdout, done.stderr


def test_a_limit_names_the_largest(project: Path) -> None:
    (project / "weights.bin").write_bytes(b"x" * 3000)
    with pytest.raises(LaunchError, match=r"limit of 2.0 kB; the largest: weights.bin \(3.0 kB\)"):
        look(project, most=2000)


def test_a_folder_that_is_not_there_or_empty(project: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        look(tmp_path / "nothing", most=MOST)
    git(project, "init", "-q")
    with pytest.raises(DataError, match="nothing to copy"):
        look(project / "data", most=MOST)


def test_again_only_what_differs_is_written(project: Path, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    bring(look(project, most=MOST), place)
    before = (place / "src/täsk.py").stat().st_ino
    (project / "env.py").write_text("two")
    (project / "bin/tool").chmod(0o644)
    (project / "new\nline.txt").unlink()
    (project / "link").unlink()
    (project / "link").mkdir()
    (project / "link/now a folder.py").write_text("")
    assert bring(look(project, most=MOST), place) == []
    assert (place / "env.py").read_text() == "two"
    assert not os.access(place / "bin/tool", os.X_OK)
    assert not (place / "new\nline.txt").exists()
    assert (place / "link/now a folder.py").is_file()
    assert (place / "src/täsk.py").stat().st_ino == before


def test_what_programs_left_in_the_copy_stays(project: Path, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    bring(look(project, most=MOST), place)
    (place / "results.csv").write_text("mine")
    (place / "env.py").write_text("edited there")
    (place / "src/täsk.py").write_text("edited there, and removed here")
    (project / "env.py").write_text("two")
    (project / "src/täsk.py").unlink()
    (project / "results.csv").write_text("theirs")
    notes = bring(look(project, most=MOST), place)
    assert (place / "env.py").read_text() == "two"
    assert (place / "env.py.kept-1").read_text() == "edited there"
    assert (place / "results.csv.kept-1").read_text() == "mine"
    assert (place / "src/täsk.py").read_text() == "edited there, and removed here"
    assert len(notes) == 2


def test_a_folder_with_other_things_is_not_taken(project: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.tex").write_text("")
    with pytest.raises(LaunchError, match="not brought there"):
        bring(look(project, most=MOST), tmp_path / "full")
    assert files(tmp_path / "full") == {"thesis.tex"}


def test_a_copy_that_was_broken_off_is_finished(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from atropos_cli.jobs import code

    place, put = tmp_path / "copy", code.put

    def broken(where: Path, item: code.Item, source: object) -> list[str]:
        if item.path == "env.py":
            raise KeyboardInterrupt
        return put(where, item, source)  # type: ignore[arg-type]

    monkeypatch.setattr(code, "put", broken)
    with pytest.raises(KeyboardInterrupt):
        bring(look(project, most=MOST), place)
    assert digest_at(place) is None
    monkeypatch.setattr(code, "put", put)
    bring(look(project, most=MOST), place)
    assert files(place) == WANTED


def test_a_name_that_leads_out_is_refused(project: Path, tmp_path: Path) -> None:
    from atropos_cli.jobs.code import Item, missing

    for name in ("../up", "/etc/x", "a/../../b", ""):
        with pytest.raises(LaunchError):
            missing(tmp_path / "copy", [Item(name, 0, 0o644, "x")])


def test_the_record_of_git(project: Path) -> None:
    assert git_code(project).commit is None
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    clean = git_code(project)
    assert (len(clean.commit or ""), clean.changed, clean.diff) == (40, False, "")
    (project / "env.py").write_text("two\nlines\n")
    (project / "new.py").write_text("")
    changed = git_code(project)
    assert (changed.commit, changed.changed) == (clean.commit, True)
    assert "env.py" in changed.diff
    assert "1 new, not in git" in changed.diff
    assert json.loads(changed.model_dump_json())["copy_at"] is None


def test_nothing_of_a_repository_is_executed(project: Path, tmp_path: Path) -> None:
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    mark = tmp_path / "ran"
    script = tmp_path / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch '{mark}'\ncat\n")
    script.chmod(0o755)
    git(project, "config", "core.fsmonitor", str(script))
    git(project, "config", "diff.external", str(script))
    git(project, "config", "diff.x.textconv", str(script))
    for key in ("clean", "smudge", "process"):
        git(project, "config", f"filter.a.b.{key}", str(script))
    git(project, "config", "filter.a.b.required", "true")
    (project / ".gitattributes").write_text("*.py diff=x filter=a.b\n")
    (project / "env.py").write_text("two")
    look(project, most=MOST)
    assert git_code(project).changed
    assert not mark.exists()
