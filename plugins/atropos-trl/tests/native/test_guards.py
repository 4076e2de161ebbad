"""What is looked at before the first step, and where a run ends: as with the trainer `trl`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from native_support import Folder, arithmetic, make_groups, make_plan, train

from atropos_cli.sdk import ConfigError, DataError
from atropos_cli.sdk.training import TrainerError

CONFIG = {"learning_rate": 0.003, "old_policy": "current"}


class Story(Folder):
    """A Folder that keeps the order of things, and may be asked to stop by one of them.

    breaks: an evaluation breaks off then.
    """

    breaks = False

    def begin(self, stop: str | None = None) -> Story:
        self.told: list[str] = []
        self.stop, self.asked = stop, False
        return self

    def _tell(self, event: str) -> None:
        self.told.append(event)
        self.asked = self.asked or event == self.stop

    @property
    def stopping(self) -> bool:
        return self.asked

    def report(self, step: int, metrics: Any) -> None:
        self._tell(f"step {step}")
        super().report(step, metrics)

    def evaluate(self, step: int, *, final: bool = False) -> dict[str, float]:
        saved = sorted(int(path.name[5:]) for path in self.folder.glob("checkpoints/step-*"))
        self._tell(f"{'final ' if final else ''}evaluation {step}, saved {saved[-1] if saved else '-'}")
        super().evaluate(step, final=final)
        return {} if self.asked and self.breaks else {"eval/small/accuracy": 1.0}


def told(tiny: Path, folder: Path, *, stop: str | None = None, resume: bool = False, **fields: Any) -> list[str]:
    story = Story(folder, make_groups(5), resume=resume, eval_every=fields.pop("every", None)).begin(stop)
    story.breaks = fields.pop("breaks", False)
    plan = make_plan(tiny, config=CONFIG, **{"prompts_per_step": 3, "steps": 3, "save_every": 100, **fields})
    result = train(plan, story)
    assert result.stopped == ("interrupted" if stop else None)
    return story.told


def test_asked_to_stop_around_evaluations(tiny: Path, tmp_path: Path) -> None:
    """A step is saved before its evaluation; one that was left out is made by the run that goes on."""
    first = "evaluation 0, saved -"
    assert told(tiny, tmp_path, stop=first, every=2) == [first]
    assert told(tiny, tmp_path, stop="step 2", resume=True, every=2) == ["step 1", "step 2"]
    during = "evaluation 2, saved 2"
    assert told(tiny, tmp_path, stop=during, resume=True, every=2) == [during]
    assert told(tiny, tmp_path, stop="step 3", resume=True, every=2) == ["step 3"]
    assert told(tiny, tmp_path, resume=True, every=2) == ["final evaluation 3, saved 3"]


def test_an_evaluation_that_is_broken_off_is_made_again(tiny: Path, tmp_path: Path) -> None:
    first, during, last = "evaluation 0, saved -", "evaluation 2, saved 2", "final evaluation 3, saved 3"
    assert told(tiny, tmp_path, stop=first, every=2, breaks=True) == [first]
    again = ["evaluation 0, saved 0", "step 1", "step 2", during]
    assert told(tiny, tmp_path, stop=during, resume=True, every=2, breaks=True) == again
    assert told(tiny, tmp_path, stop=last, resume=True, every=2, breaks=True) == [during, "step 3", last]
    assert not (tmp_path / "model").exists()
    assert told(tiny, tmp_path, resume=True, every=2) == [last]


@pytest.mark.parametrize("steps", [2, None])
def test_what_was_killed_before_its_model_is_finished(tiny: Path, tmp_path: Path, steps: int | None) -> None:
    told(tiny, tmp_path, steps=steps)
    shutil.rmtree(tmp_path / "model")
    assert told(tiny, tmp_path, steps=steps, resume=True) == ["final evaluation 2, saved 2"]
    assert (tmp_path / "model" / "model.safetensors").is_file()


def test_a_rule_that_ends_the_run_leaves_an_evaluation(tiny: Path, tmp_path: Path) -> None:
    context = Folder(tmp_path, make_groups(5))

    def rule(step: int) -> None:
        raise TrainerError("ended by a rule")

    context.on_report = rule
    with pytest.raises(TrainerError, match="ended by a rule"):
        train(make_plan(tiny, config=CONFIG, prompts_per_step=3), context)
    assert context.evaluated == [(0, False), (1, True)]


def test_damaged_checkpoints_are_named(tiny: Path, tmp_path: Path) -> None:
    told(tiny, tmp_path, steps=2, save_every=1)
    newest = tmp_path / "checkpoints" / "step-2"
    (newest / "native.pt").unlink()
    with pytest.raises(DataError, match=r"native\.pt is missing") as caught:
        told(tiny, tmp_path, resume=True)
    assert caught.value.hint == f"remove {newest}; then --resume goes on from step-1"


def test_a_constant_reward_is_an_error_before_the_first_step(tiny: Path, tmp_path: Path) -> None:
    groups = [g.replace(rollouts=tuple(r.replace(reward=1.0) for r in g.rollouts)) for g in make_groups(2)]
    plan = make_plan(tiny, config=CONFIG, prompts_per_step=2)
    with pytest.raises(ConfigError, match="all 8 completions of the first batch have reward 1") as caught:
        train(plan, Folder(tmp_path, groups))
    assert "--allow-constant-reward" in str(caught.value.hint)
    assert not (tmp_path / "checkpoints").exists()
    config = {**CONFIG, "allow_constant_reward": True}
    assert train(make_plan(tiny, config=config, prompts_per_step=2), Folder(tmp_path, groups)).steps == 1


def test_sizes_are_checked(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from atropos_trl import checks

    rollouts = arithmetic(tiny, 640)
    with pytest.raises(ConfigError, match=r"completions of up to 640 tokens .* context of 64") as caught:
        train(make_plan(tiny, rollouts=rollouts, data=()), Folder(tmp_path, []))
    assert caught.value.hint == "--max-tokens 63"
    monkeypatch.setattr(checks, "free_disk", lambda folder: 1000)
    with pytest.raises(ConfigError, match="0 MiB are free; up to 1 checkpoints"):
        train(make_plan(tiny, config=CONFIG), Folder(tmp_path, make_groups(2)))
    monkeypatch.setattr(checks, "_GPU", tmp_path / "none")
    monkeypatch.setattr(checks, "free_memory", lambda device=None: 1000)
    with pytest.raises(ConfigError, match="weights, gradients and optimiser"):
        train(make_plan(tiny, config=CONFIG), Folder(tmp_path, make_groups(2)))


def test_tokens_of_another_model(tiny: Path, tmp_path: Path) -> None:
    groups = make_groups(2)
    broken = groups[0].rollouts[0]
    tokens = broken.messages[1].tokens
    assert tokens is not None
    odd = tokens.model_copy(update={"ids": (999, *tokens.ids[1:])})
    messages = (broken.messages[0], broken.messages[1].model_copy(update={"tokens": odd}), *broken.messages[2:])
    groups[0] = groups[0].replace(rollouts=(broken.replace(messages=messages), *groups[0].rollouts[1:]))
    with pytest.raises(DataError, match="has token 999, the model's are 0 to 20"):
        train(make_plan(tiny, config=CONFIG, prompts_per_step=2), Folder(tmp_path, groups))
