"""A reward model: pairs are put in order, and the reward `reward-model` gives what was trained."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from trl_support import make_plan, metrics, run

from atropos_cli.sdk import ConfigError, Rollout, Task, assistant, user

pytest.importorskip("torch")
pytest.importorskip("trl")


def pairs(path: Path) -> tuple[str]:
    rows = [
        {
            "prompt": [{"role": "user", "content": "abcdefgh"[number % 8]}],
            "chosen": [{"role": "assistant", "content": "2468"[number % 4 :] + "2468"[: number % 4]}],
            "rejected": [{"role": "assistant", "content": "1357"[number % 4 :] + "1357"[: number % 4]}],
        }
        for number in range(32)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return (str(path),)


def rewards(model: Path, texts: list[str]) -> list[float]:
    """What `reward-model` says of replies to "a", asked for at once."""
    from atropos_trl.reward_model import RewardModelConfig, reward_model

    made = reward_model.configured(RewardModelConfig(model=str(model)))
    task = Task(id="t", prompt=(user("a"),))
    rollouts = [
        Rollout(id=str(number), task_id="t", messages=(user("a"), assistant(text))) for number, text in enumerate(texts)
    ]

    async def ask() -> list[float]:
        await made.open()
        return list(await asyncio.gather(*(made.fn(task, rollout) for rollout in rollouts)))

    return asyncio.run(ask())


@pytest.mark.parametrize("lora", [False, True])
def test_pairs_are_put_in_order_and_rollouts_scored(small: Path, tmp_path: Path, lora: bool) -> None:
    config: dict[str, Any] = {"learning_rate": 1e-2 if lora else 3e-3, **({"lora_r": 4} if lora else {})}
    options: dict[str, Any] = {"prompts_per_step": 8, "save_every": 4, "config": config}
    data = pairs(tmp_path / "pairs.jsonl")
    run(make_plan(small, method="reward", data=data, steps=8, **options), tmp_path / "run")
    run(make_plan(small, method="reward", data=data, steps=12, **options), tmp_path / "run", resume=True)
    found = metrics(tmp_path / "run")
    assert [row["step"] for row in found] == list(range(1, 13))
    assert found[-1]["loss"] < 0.8 * found[0]["loss"]
    assert found[-1]["accuracy"] == 1.0

    model = tmp_path / "run" / "model"
    good, bad, single = rewards(model, ["2468", "1357", "4"])
    assert good > bad
    assert rewards(model, ["4"])[0] == pytest.approx(single, abs=1e-4)  # the same in any company
    run(make_plan(model, method="reward", data=data, steps=1, **options), tmp_path / "more")
    assert metrics(tmp_path / "more")[0]["accuracy"] == 1.0  # its head is kept


def classifier(small: Path, folder: Path, *, labels: int = 1) -> Path:
    """A classifier that somebody else made: it names no token for padding."""
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    config = AutoConfig.from_pretrained(small)
    config.num_labels, config.pad_token_id = labels, None
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(small).save_pretrained(folder)
    return folder


def test_texts_of_different_lengths_without_a_token_for_padding(small: Path, tmp_path: Path) -> None:
    model, texts = classifier(small, tmp_path / "model"), ["4", "2468", "13572468"]
    alone = [rewards(model, [text])[0] for text in texts]
    assert rewards(model, texts) == pytest.approx(alone, abs=1e-5)


def test_a_text_that_fails_takes_no_other_with_it(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from atropos_trl.reward_model import RewardModel, RewardModelConfig, reward_model

    score = RewardModel._score

    def failing(self: Any, batch: Any) -> None:
        if any(row.messages[-1]["content"] == "1357" for row in batch):
            raise RuntimeError("an index is out of range")
        score(self, batch)

    monkeypatch.setattr(RewardModel, "_score", failing)
    made = reward_model.configured(RewardModelConfig(model=str(classifier(small, tmp_path / "model"))))
    task = Task(id="t", prompt=(user("a"),))
    rollouts = [Rollout(id=text, task_id="t", messages=(user("a"), assistant(text))) for text in ("4", "1357", "24")]

    async def ask() -> list[Any]:
        return list(await asyncio.gather(*(made.fn(task, one) for one in rollouts), return_exceptions=True))

    first, second, third = asyncio.run(ask())
    assert isinstance(first, float)
    assert isinstance(second, RuntimeError)
    assert isinstance(third, float)


def test_a_classifier_that_gives_no_number_of_the_last_token(small: Path, tmp_path: Path) -> None:
    """Said when it is loaded: the first of several classes is no reward."""
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    with pytest.raises(ConfigError, match="separates 2 classes"):
        rewards(classifier(small, tmp_path / "two", labels=2), ["4"])
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertForSequenceClassification(BertConfig(num_labels=1, **sizes)).save_pretrained(tmp_path / "bert")
    AutoTokenizer.from_pretrained(small).save_pretrained(tmp_path / "bert")
    with pytest.raises(ConfigError, match="is a BertForSequenceClassification"):
        rewards(tmp_path / "bert", ["4"])


def test_what_is_refused(small: Path, tmp_path: Path) -> None:
    from atropos_trl.reward_model import RewardModelConfig, reward_model

    with pytest.raises(ConfigError, match="is not a reward model"):
        reward_model.configured(RewardModelConfig(model=str(small)))
    with pytest.raises(ConfigError, match="needs a model"):
        reward_model.configured(RewardModelConfig())
