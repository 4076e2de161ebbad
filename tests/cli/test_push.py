"""Rows on their way to the hub: the real client, a hub on this machine, `datasets` reading what was committed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

hub = pytest.importorskip("huggingface_hub")
datasets = pytest.importorskip("datasets")
pytest.importorskip("aiohttp")

CLI = Callable[..., Any]
FAKE_HUB = Path(__file__).resolve().parents[1] / "fixtures" / "fake_hub.py"
WRITE = "write-0123456789"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    root = tmp_path_factory.mktemp("hub")
    process = subprocess.Popen([sys.executable, str(FAKE_HUB), str(root)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield root, f"http://127.0.0.1:{process.stdout.readline().strip()}"
    process.terminate()
    process.wait(10)


@pytest.fixture
def root(server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The hub's folder; the client is told its address as HF_ENDPOINT would, which is read at import."""
    monkeypatch.setattr(hub.constants, "ENDPOINT", server[1])
    template = server[1] + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub.constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.setenv("HF_TOKEN", WRITE)
    return server[0]


@pytest.fixture
def rows() -> str:
    """Pairs of rollouts at three sums."""
    lines = [
        {
            "prompt": [{"role": "user", "content": f"{n}+1?"}],
            "completion": [{"role": "assistant", "content": str(n + right)}],
            "task_id": f"t{n}",
            "reward": float(right),
        }
        for n in range(3)
        for right in (0, 1)
    ]
    Path("rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return "rows.jsonl"


def header(folder: Path) -> dict[str, Any]:
    text = (folder / "README.md").read_text()
    assert text.startswith("---\n")
    found: dict[str, Any] = yaml.safe_load(text.split("---\n")[1])
    return found


def loaded(folder: Path, name: str, tmp_path: Path) -> Any:
    return datasets.load_dataset(str(folder), name, cache_dir=str(tmp_path / "loaded"))


def test_rows_are_pushed_with_a_card_and_loaded(cli: CLI, root: Path, rows: str, tmp_path: Path) -> None:
    words = ("sft-gen", rows, "--group", "-o", "sft.jsonl", "--push-to-hub", "me/sums", "--private", "--license", "mit")
    done = cli(*words, "--json")
    assert done.code == 0, done.stderr
    assert done.json["hub"].endswith("/datasets/me/sums")
    folder = root / "datasets/me/sums"
    assert (folder / ".private").exists()
    assert (folder / "data/sft/sft.jsonl").read_bytes() == Path("sft.jsonl").read_bytes()
    found = header(folder)
    assert found["license"] == "mit"
    assert found["size_categories"] == ["n<1K"]
    assert found["task_categories"] == ["text-generation"]
    assert {"sft", "atropos-cli"} <= set(found["tags"])
    text = (folder / "README.md").read_text()
    assert "rows.jsonl, sha256" in text
    assert 'load_dataset("me/sums", "sft")' in text
    assert '"mean": 1.0' in text
    assert loaded(folder, "sft", tmp_path)["train"].num_rows == 3

    # A second data set in the same repository, with splits; words of people, and the first one, stay.
    (folder / "README.md").write_text(text.replace("license: mit", "license: mit\npretty_name: Sums") + "\nBy hand.\n")
    done = cli("dpo-gen", rows, "--group", "-o", "dpo.jsonl", "--validation", "0.4", "--push-to-hub", "me/sums")
    assert done.code == 0, done.stderr
    found = header(folder)
    assert [config["config_name"] for config in found["configs"]] == ["sft", "dpo"]
    assert (found["license"], found["pretty_name"]) == ("mit", "Sums")
    text = (folder / "README.md").read_text()
    assert "By hand." in text
    assert text.count("<!-- atropos: ") == 2
    splits = loaded(folder, "dpo", tmp_path)
    assert set(splits) == {"train", "validation"}
    assert splits["train"].num_rows + splits["validation"].num_rows == 3
    assert loaded(folder, "sft", tmp_path)["train"].num_rows == 3

    # Again, as shards this time: one section each, and the file that is no longer named is gone.
    done = cli("sft-gen", rows, "--group", "-o", "sft.jsonl", "--overwrite", "--shard-size", "2")
    assert done.code == 0, done.stderr
    done = cli("push", "sft.jsonl", "me/sums")
    assert done.code == 0, done.stderr
    assert sorted(path.name for path in (folder / "data/sft").iterdir()) == [
        "sft-00000-of-00002.jsonl",
        "sft-00001-of-00002.jsonl",
    ]
    assert (folder / "README.md").read_text().count("<!-- atropos: sft -->") == 1
    assert loaded(folder, "sft", tmp_path)["train"].num_rows == 3


def test_a_run_is_pushed_to_a_branch_and_read_again(cli: CLI, root: Path, tmp_path: Path) -> None:
    words = ("--backend", "scripted", "--backend.replies", "Answer: 7", "--limit", "2", "--group-size", "2")
    assert cli("gen", "arithmetic", *words, "-o", "runs/mine").code == 0
    done = cli("push", "runs/mine", "me/runs", "--revision", "v2", "--json")
    assert done.code == 0, done.stderr
    folder = root / "branches/v2/me/runs"
    assert header(folder)["task_categories"] == ["reinforcement-learning"]
    text = (folder / "README.md").read_text()
    assert "a run of arithmetic with scripted" in text
    assert "revision='v2'" in text
    assert "arithmetic_exact=1.0" in text
    assert loaded(folder, "mine", tmp_path)["train"].num_rows == 2
    assert not (root / "datasets/me/runs/README.md").exists()
    again = cli("analyze", str(folder / "data/mine/groups.jsonl"), "--json")
    assert again.json["read"]["rollouts"] == 4


def test_a_push_that_fails_keeps_the_rows_and_says_how_to_go_on(cli: CLI, root: Path, rows: str) -> None:
    (root / "broken").touch()
    try:
        done = cli("sft-gen", rows, "--group", "--push-to-hub", "me/later", "--license", "mit", "--json")
    finally:
        (root / "broken").unlink()
    assert done.code == 1
    assert done.json["rows"] == 3
    assert done.json["hub"] is None
    assert "next: atropos push later.jsonl me/later --license mit" in done.stderr
    assert len(Path("later.jsonl").read_text().splitlines()) == 3
    assert not (root / "datasets/me/later/README.md").exists()
    assert cli("push", "later.jsonl", "me/later", "--license", "mit").code == 0
    assert header(root / "datasets/me/later")["license"] == "mit"


def test_what_cannot_be_pushed_is_said_before_the_work(
    cli: CLI, root: Path, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(code: int, words: str, *args: str) -> None:
        done = cli("sft-gen", rows, "--group", *args)
        assert (done.code, words in done.stderr) == (code, True), done.stderr
        assert "hint:" in done.stderr
        assert sorted(path.name for path in Path().iterdir()) == ["rows.jsonl"]

    refused(2, "is not a repository", "--push-to-hub", "sums")
    refused(2, "is not a repository", "--push-to-hub", "../../etc/x")
    refused(2, "is not an identifier", "--push-to-hub", "me/x", "--license", "My Own\nlicense: mit")
    refused(2, "is not a branch", "--push-to-hub", "me/x", "--revision", "a b")
    refused(2, "need --push-to-hub", "--private", "-o", "x.jsonl")
    refused(2, "need a file", "--push-to-hub", "me/x", "-o", "-")
    refused(2, "`datasets`", "--push-to-hub", "me/x", "-o", "x", "--write", "datasets")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    refused(3, "HF_HUB_OFFLINE", "--push-to-hub", "me/x")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_TOKEN")
    refused(3, "no token", "--push-to-hub", "me/x")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    refused(6, "needs huggingface_hub", "--push-to-hub", "me/x")


@pytest.mark.parametrize(
    ("repo", "token", "hint"),
    [("gated/x", WRITE, "may write"), ("me/x", "read-9876543210", "may write")],
)
def test_refusals_of_the_hub(
    cli: CLI, root: Path, rows: str, repo: str, token: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    done = cli("push", rows, repo)
    assert done.code == 1
    assert hint in done.stderr
    assert f"next: atropos push rows.jsonl {repo}" in done.stderr
    assert token not in done.stderr


def test_a_private_push_never_lands_in_a_public_repository(cli: CLI, root: Path, rows: str) -> None:
    assert cli("push", rows, "me/open").code == 0
    before = (root / "datasets/me/open/README.md").read_text()
    done = cli("push", rows, "me/open", "--private", "--name", "more")
    assert done.code == 6
    assert "is public" in done.stderr
    assert (root / "datasets/me/open/README.md").read_text() == before


def test_a_header_that_is_no_yaml_is_left_alone(cli: CLI, root: Path, rows: str) -> None:
    folder = root / "datasets/me/hand"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("---\nlicense: [mit\n---\nBy hand.\n")
    done = cli("push", rows, "me/hand")
    assert (done.code, "not YAML" in done.stderr) == (6, True)
    assert [path.name for path in folder.rglob("*")] == ["README.md"]


def test_nothing_secret_and_no_folder_of_this_machine_is_in_the_card(
    cli: CLI, root: Path, rows: str, tmp_path: Path
) -> None:
    place = tmp_path / "home-of-somebody" / f"{WRITE}.jsonl"
    place.parent.mkdir()
    place.write_bytes(Path(rows).read_bytes())
    done = cli("sft-gen", place, "--group", "-o", str(tmp_path / "out.jsonl"), "--push-to-hub", "me/card")
    assert done.code == 0, done.stderr
    text = (root / "datasets/me/card/README.md").read_text()
    assert WRITE not in text
    assert str(tmp_path) not in text
    shown = cli("push", str(tmp_path / "out.jsonl"), "me/card", "--dry-run")
    assert WRITE not in shown.stdout


def test_files_that_are_no_data_set(cli: CLI, root: Path, rows: str) -> None:
    Path("x.txt").write_text("words")
    done = cli("push", "x.txt", "me/x")
    assert done.code == 6, done.stderr
    done = cli("push", "none.jsonl", "me/x")
    assert done.code != 0
    Path("rows.jsonl.card.json").write_text('{"outputs": [{"name": "../../etc/passwd"}], "rows": {}}')
    done = cli("push", rows, "me/x")
    assert (done.code, "is missing" in done.stderr) == (6, True)
    Path("rows.jsonl.card.json").write_text('{"outputs": 3}')
    done = cli("push", rows, "me/x")
    assert (done.code, "is not a card" in done.stderr) == (6, True)
