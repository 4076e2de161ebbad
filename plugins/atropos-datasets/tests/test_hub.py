"""Hub data sets without a network: the library's own cache, its own errors, and what we say of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from atropos_datasets.environment import DatasetConfig, DatasetEnvironment
from atropos_datasets.hub import explain, open_hub
from atropos_datasets.ready import Gsm8k
from dataset_support import lines

from atropos_cli.sdk import DataError

CONFIG_MISSING = (
    "Config name is missing.\nPlease pick one among the available configs: ['main', 'socratic']\n"
    "Example of usage:\n\t`load_dataset('openai/gsm8k', 'main')`"
)
CONFIG_UNKNOWN = "BuilderConfig 'default' not found. Available: ['main', 'socratic']"


class DatasetNotFoundError(Exception):
    """Named like the library's error."""


@pytest.fixture(autouse=True)
def _online(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("config", "text", "what"),
    [(None, CONFIG_MISSING, "needs a config"), ("default", CONFIG_UNKNOWN, "has no such config")],
)
def test_i01_configs(config: str | None, text: str, what: str) -> None:
    error = explain(ValueError(text), "openai/gsm8k", config, "test")
    assert what in error.message
    assert "there are: main, socratic" in error.message
    assert error.hint == "--config-name main"
    assert Gsm8k.Config().model_dump()["config_name"] == "main"


@pytest.mark.parametrize(
    ("failure", "what", "hint"),
    [
        (
            DatasetNotFoundError(
                "Dataset 'a/b' is a gated dataset on the Hub. Visit the dataset page to ask for access."
            ),
            "gated or private",
            "https://huggingface.co/datasets/a/b",
        ),
        (RuntimeError("401 Client Error: Unauthorized"), "gated or private", "HF_TOKEN"),
        (
            DatasetNotFoundError("Dataset 'a/b' doesn't exist on the Hub or cannot be accessed."),
            "does not exist",
            "HF_",
        ),
        (ValueError("Unknown split \"test\". Should be one of ['train', 'dev']."), "there are: train, dev", "train"),
        (ConnectionError("no route"), "cannot be loaded: ConnectionError: no route", "--path"),
    ],
)
def test_i04_gated_missing_and_other_errors(failure: Exception, what: str, hint: str) -> None:
    error = explain(failure, "a/b", None, "test")
    assert what in error.message
    assert hint in str(error.hint)


def test_a_token_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secretsecret")
    error = explain(RuntimeError("403 for Bearer hf_secretsecret"), "a/b", None, "test")
    other = explain(RuntimeError("odd answer to Bearer hf_secretsecret"), "a/b", None, "test")
    assert "secretsecret" not in f"{error.message}{error.hint}{other.message}{other.hint}"


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match="needs the datasets library") as caught:
        DatasetEnvironment(DatasetConfig(hub="a/b")).tasks("train")
    assert "atropos-datasets[hub]" in str(caught.value.hint)


def test_a_data_set_by_the_real_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of files is a data set to the library: splits, columns and nested values are its own."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    for split in ("train", "test"):
        lines(tmp_path / "set" / f"{split}.jsonl", [{"q": f"{split} {n}", "a": {"v": [n]}} for n in range(2500)])
    environment = DatasetEnvironment(
        DatasetConfig(
            hub=str(tmp_path / "set"),
            prompt_field="q",
            answer_field="a.v",
            data_split="test[10:20]",
            few_shot=1,
            few_shot_split="train",
        )
    )
    found = environment.tasks("train")
    assert len(found) == 10
    assert [message.text for message in found[0].prompt] == ["train 0", "[0]", "test 10"]
    assert (found[9].answer, found[9].id) == ([19], "test-19")
    with pytest.raises(DataError, match=r"has no field 'question'.*its fields: a, q"):
        DatasetEnvironment(DatasetConfig(hub=str(tmp_path / "set"), prompt_field="question")).tasks("test")
    with pytest.raises(DataError, match=r"has no split 'dev'; there are: .*train"):
        open_hub(str(tmp_path / "set"), None, "dev")


PROGRAM = """
import json, sys
from atropos_datasets.hub import open_hub
from atropos_cli.sdk import DataError
name, config = sys.argv[1], sys.argv[2] or None
try:
    rows = open_hub(name, config, "test")
    print(json.dumps({"rows": len(rows), "first": rows[0]}))
except DataError as error:
    print(json.dumps({"message": error.message, "hint": error.hint}))
"""


def offline(cache: Path, name: str, config: str) -> dict[str, Any]:
    """What a compute node without network gets; in a process of its own, as the library reads its settings once."""
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, config],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(cache), "HF_DATASETS_CACHE": str(cache / "datasets")},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_i02_offline_with_a_filled_cache(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    from datasets.arrow_writer import ArrowWriter

    folder = tmp_path / "datasets" / "some___set" / "main" / "0.0.0" / "0123abcd"
    folder.mkdir(parents=True)
    features = datasets.Features({"question": datasets.Value("string")})
    with ArrowWriter(features=features, path=str(folder / "set-test.arrow")) as writer:
        writer.write({"question": "1+1?"})
        count, size = writer.finalize()
    info = datasets.DatasetInfo(features=features, builder_name="parquet", dataset_name="set", config_name="main")
    info.version = datasets.Version("0.0.0")
    info.splits = datasets.SplitDict()
    info.splits.add(datasets.SplitInfo("test", num_bytes=size, num_examples=count, dataset_name="set"))
    info.write_to_directory(str(folder))

    assert offline(tmp_path, "some/set", "main") == {"rows": 1, "first": {"question": "1+1?"}}
    wrong = offline(tmp_path, "some/set", "other")
    assert "offline mode is on" in wrong["message"]
    assert "cached configs: main" in wrong["message"]
    assert wrong["hint"] == "--config-name main"
    absent = offline(tmp_path, "no/set", "")
    assert "cached configs: none" in absent["message"]
    assert absent["hint"] == "where there is a network: atropos prefetch --dataset no/set"
