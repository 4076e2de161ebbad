"""Where a run ends: asked to stop around evaluations, killed before its model is written, ended by a rule."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trl_losses import Given
from trl_support import make_plan, make_tiny, make_trainer, metrics, run

from atropos_cli.sdk import ConfigError, DataError
from atropos_cli.sdk.runs import RewardRef
from atropos_cli.sdk.training import TrainerError, TrainPlan

pytest.importorskip("torch")
pytest.importorskip("trl")

REWARDS = [[0.0, 1.0, 0.0, 1.0]]


class Story(Given):
    """What happens, in order; `on` is told of each event and may ask to stop. breaks: evaluations break off then."""

    stopping = breaks = False

    def __init__(self, folder: Path, *, every: int | None = None, resume: bool = False) -> None:
        super().__init__(folder, REWARDS * 100)
        self.every, self.resume = every, resume
        self.told: list[str] = []
        self.warnings: list[str] = []
        self.on: Callable[[str], None] = lambda event: None

    def _tell(self, event: str) -> None:
        self.told.append(event)
        self.on(event)

    def report(self, step: int, metrics: Any) -> None:
        self._tell(f"step {step}")

    def evaluate(self, step: int, *, final: bool = False) -> dict[str, float]:
        saved = sorted(int(path.name[5:]) for path in self.folder.glob("checkpoints/step-*"))
        self._tell(f"{'final ' if final else ''}evaluation {step}, saved {saved[-1] if saved else '-'}")
        return {} if self.stopping and self.breaks else {"eval/small/accuracy": 1.0}

    def should_evaluate(self, step: int) -> bool:
        return self.every is not None and step > 0 and step % self.every == 0

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def plan_of(small: Path, **fields: Any) -> TrainPlan:
    values = {"prompts_per_step": 1, "steps": 3, "save_every": 100, **fields}
    return make_plan(small, environment="arithmetic", **values)


def train(plan: TrainPlan, story: Story) -> Any:
    return make_trainer(plan).train(plan, story)


def stop_at(story: Story, event: str) -> None:
    def on(told: str) -> None:
        story.stopping = story.stopping or told == event

    story.on = on


def test_asked_to_stop_during_the_first_evaluation(small: Path, tmp_path: Path) -> None:
    """No step is made; the run goes on from its beginning, and looks at its first batch then."""
    plan, first = plan_of(small, steps=1), Story(tmp_path)
    stop_at(first, "evaluation 0, saved -")
    result = train(plan, first)
    assert (result.stopped, result.steps, first.told) == ("interrupted", 0, ["evaluation 0, saved -"])
    again = Story(tmp_path, resume=True)
    assert train(plan, again).stopped is None
    assert again.told == ["step 1", "final evaluation 1, saved 1"]


def test_an_evaluation_that_is_broken_off_is_made_again(small: Path, tmp_path: Path) -> None:
    """The first one, one on the way, and the last: each time the run goes on with it."""
    plan, told = plan_of(small, steps=2, save_every=1), []
    for event in ("evaluation 0, saved -", "evaluation 1, saved 1", "final evaluation 2, saved 2"):
        story = Story(tmp_path, every=1, resume=bool(told))
        story.breaks = True
        stop_at(story, event)
        assert train(plan, story).stopped == "interrupted"
        assert story.told[-1] == event
        told += story.told
    assert not (tmp_path / "model").exists()
    story = Story(tmp_path, every=1, resume=True)
    assert train(plan, story).stopped is None
    assert story.told == ["final evaluation 2, saved 2"]
    assert told == [
        *("evaluation 0, saved -", "evaluation 0, saved 0", "step 1", "evaluation 1, saved 1"),
        *("evaluation 1, saved 1", "step 2", "final evaluation 2, saved 2"),
    ]


def test_asked_to_stop_at_a_step_whose_evaluation_is_due(small: Path, tmp_path: Path) -> None:
    """The step is saved, the evaluation made by the run that goes on; a step is saved before its evaluation."""
    plan, first = plan_of(small), Story(tmp_path, every=1)
    stop_at(first, "step 2")
    result = train(plan, first)
    assert (result.stopped, Path(result.output).name) == ("interrupted", "step-2")
    assert first.told == ["evaluation 0, saved -", "step 1", "evaluation 1, saved 1", "step 2"]
    again = Story(tmp_path, every=1, resume=True)
    assert train(plan, again).stopped is None
    assert again.told == ["evaluation 2, saved 2", "step 3", "final evaluation 3, saved 3"]


def test_asked_to_stop_during_an_evaluation(small: Path, tmp_path: Path) -> None:
    plan, first = plan_of(small), Story(tmp_path, every=2)
    stop_at(first, "evaluation 2, saved 2")
    assert train(plan, first).stopped == "interrupted"
    assert first.told[-2:] == ["step 2", "evaluation 2, saved 2"]
    again = Story(tmp_path, every=2, resume=True)
    train(plan, again)
    assert again.told == ["step 3", "final evaluation 3, saved 3"]


@pytest.mark.parametrize("config", [{}, {"lora_r": 2}])
def test_what_was_killed_before_its_model_is_finished(small: Path, tmp_path: Path, config: dict[str, Any]) -> None:
    from safetensors.torch import load_file

    plan = plan_of(small, steps=2, config={"learning_rate": 1e-2, **config})
    train(plan, Story(tmp_path))
    model = tmp_path / "model"
    wanted = load_file(model / "model.safetensors")
    with pytest.raises(TrainerError, match="has all its 2 steps already"):
        train(plan, Story(tmp_path, resume=True))
    shutil.rmtree(model)
    again = Story(tmp_path, resume=True)
    result = train(plan, again)
    assert (result.steps, result.stopped, Path(result.output)) == (2, None, model)
    assert again.told == ["final evaluation 2, saved 2"]
    found = load_file(model / "model.safetensors")
    assert all(found[name].equal(wanted[name]) for name in wanted)


def test_a_model_of_an_earlier_end_is_not_the_model(small: Path, tmp_path: Path) -> None:
    """Two steps, then a third by --steps 3, killed before its model was written."""
    train(plan_of(small, steps=2), Story(tmp_path))
    story = Story(tmp_path, resume=True)

    def killed(told: str) -> None:
        if told.startswith("final"):
            raise KeyboardInterrupt

    story.on = killed
    with pytest.raises(KeyboardInterrupt):
        train(plan_of(small), story)
    again = Story(tmp_path, resume=True)
    assert train(plan_of(small), again).steps == 3
    assert again.told == ["final evaluation 3, saved 3"]


def test_asked_to_stop_at_the_last_step(small: Path, tmp_path: Path) -> None:
    first = Story(tmp_path)
    stop_at(first, "step 1")
    assert train(plan_of(small, steps=1), first).stopped == "interrupted"
    assert "final evaluation 1, saved 1" not in first.told
    again = Story(tmp_path, resume=True)
    assert train(plan_of(small, steps=1), again).stopped is None
    assert again.told == ["final evaluation 1, saved 1"]


def test_a_rule_that_ends_the_run_leaves_an_evaluation(small: Path, tmp_path: Path) -> None:
    story = Story(tmp_path)

    def rule(told: str) -> None:
        if told == "step 1":
            raise TrainerError("ended by a rule")

    story.on = rule
    with pytest.raises(TrainerError, match="ended by a rule"):
        train(plan_of(small), story)
    assert story.told == ["evaluation 0, saved -", "step 1", "final evaluation 1, saved 1"]


def test_damaged_checkpoints_are_named(small: Path, tmp_path: Path) -> None:
    plan = plan_of(small, save_every=1, steps=2)
    train(plan, Story(tmp_path))
    shutil.rmtree(tmp_path / "model")
    newest = tmp_path / "checkpoints" / "step-2"
    weights = newest / "model.safetensors"
    whole = weights.read_bytes()

    def refused(words: str) -> None:
        with pytest.raises(DataError, match=words) as caught:
            train(plan, Story(tmp_path, resume=True))
        assert str(newest) in caught.value.message
        assert caught.value.hint == f"remove {newest}; then --resume goes on from step-1"

    weights.write_bytes(whole[:-10])
    refused("model.safetensors is cut off")
    weights.write_bytes(whole)
    optimizer = (newest / "optimizer.pt").read_bytes()
    (newest / "optimizer.pt").write_bytes(optimizer[:-10])
    refused("optimizer.pt is cut off")
    (newest / "optimizer.pt").unlink()
    refused("optimizer.pt is missing")
    shutil.rmtree(newest)
    assert train(plan, Story(tmp_path, resume=True)).steps == 2


def test_prompts_that_are_all_too_long(small: Path, tmp_path: Path) -> None:
    plan = plan_of(small, config={"max_prompt_tokens": 1})
    story = Story(tmp_path)
    ids = (12, 13, 14)

    def longer(place: int, rewards: Any) -> Any:
        group = Given._group(story, place, rewards)
        first = group.rollouts[0].messages[0]
        messages = (first.model_copy(update={"tokens": first.tokens.model_copy(update={"ids": ids})}),)
        members = tuple(r.replace(messages=messages + r.messages[1:]) for r in group.rollouts)
        return group.replace(rollouts=members)

    story._group = longer  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="4 have prompts of more than 1 tokens") as caught:
        train(plan, story)
    assert caught.value.hint == "raise --max-prompt-tokens; the shortest prompt here has 3 tokens"


def test_a_tokenizer_that_is_too_large(small: Path, tmp_path: Path) -> None:
    other = make_tiny(tmp_path / "small", vocab_size=15)
    with pytest.raises(ConfigError, match="the tokenizer has 20 tokens, the embedding only 15 rows"):
        train(plan_of(other), Story(tmp_path / "run"))


def test_a_model_without_headers_is_checked_once_it_is_loaded(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one from the hub: context, memory and disk."""
    from atropos_trl import checks
    from atropos_trl.common import models

    for module in (checks, models):
        monkeypatch.setattr(module, "facts", lambda name: models.Facts())
    with pytest.raises(ConfigError, match="do not fit the model's context of 64"):
        train(plan_of(small, max_tokens=64), Story(tmp_path))
    monkeypatch.setattr(checks, "free_disk", lambda folder: 1000)
    with pytest.raises(ConfigError, match="0 MiB are free; up to"):
        train(plan_of(small), Story(tmp_path))
    monkeypatch.undo()
    for module in (checks, models):
        monkeypatch.setattr(module, "facts", lambda name: models.Facts())
    monkeypatch.setattr(checks, "check_batch_memory", lambda rows, completion: None)
    monkeypatch.setattr(checks, "free_memory", lambda device=None: 1000)
    with pytest.raises(ConfigError, match="weights, gradients and optimiser"):
        train(plan_of(small), Story(tmp_path))


# --data -----------------------------------------------------------------------------------------------------------


def stored(small: Path, folder: Path, body: str, **fields: Any) -> TrainPlan:
    file, data = folder / "rewards.py", folder / "prompts.jsonl"
    file.write_text(f"from atropos_cli.sdk import reward\n\n\n@reward\ndef given(task, rollout):\n    {body}\n")
    data.write_text("".join(json.dumps({"prompt": a + b, "answer": "0"}) + "\n" for a in "abcd" for b in "abcdefgh"))
    config = {"num_generations": 2, "max_completion_length": 4, "learning_rate": 1e-2, **fields.pop("config", {})}
    values = {"prompts_per_step": 2, "steps": 3, "save_every": 100, **fields}
    return make_plan(small, data=(str(data),), rewards=(RewardRef(name=f"{file}:given"),), config=config, **values)


def samples(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]


def test_samples_stand_at_the_step_that_learns_from_them(small: Path, tmp_path: Path) -> None:
    plan = stored(small, tmp_path, "return len(set(rollout.text)) + len(rollout.text)", config={"preset": "overfit"})
    run(plan, tmp_path / "run")
    rows = samples(tmp_path / "run")
    assert {row["step"] for row in rows} == {1, 2, 3} == {row["step"] for row in metrics(tmp_path / "run")}
    prompts = {step: {row["prompt"] for row in rows if row["step"] == step} for step in (1, 2, 3)}
    assert prompts[1] == prompts[2] == prompts[3], "--preset overfit: one batch again and again"


def test_a_reward_that_raises(small: Path, tmp_path: Path) -> None:
    plan = stored(small, tmp_path, "raise ValueError('no such column')")
    with pytest.raises(ConfigError, match="none of the 4 completions of the first batch could be scored") as caught:
        run(plan, tmp_path / "run")
    assert "samples.jsonl" in str(caught.value.hint)
    assert samples(tmp_path / "run")[0]["reward"] is None
