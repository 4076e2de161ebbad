"""The journal reads run folders as they are, whole or damaged, and lets no text out of its cell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from atropos_tracking.journal import journal
from atropos_tracking.journalpage import MARK, is_journal, markdown
from atropos_tracking.reevaluations import keep_values
from hypothesis import given, settings
from hypothesis import strategies as st

from atropos_cli.sdk import DataError

CURVE = {"first": 0.25, "first_step": 0, "last": 0.8, "last_step": 60, "best": 0.85, "best_step": 50}


def training(folder: Path, started: str, **changes: object) -> None:
    folder.mkdir(parents=True)
    state = {
        "state": "finished",
        "method": "grpo",
        "trainer": "native",
        "model": "smollm2",
        "steps": 60,
        "plan_digest": "d" * 64,
        "git_commit": "c" * 40 + "+",
        "trackers": {"wandb": {"id": "abc12345"}},
        "curves": {"eval/sums/accuracy": CURVE, "eval/sums/errors": CURVE},
        **changes,
    }
    (folder / "train.json").write_text(json.dumps(state))
    (folder / "plan.json").write_text(json.dumps({"rollouts": {"environment": {"name": "arithmetic"}}}))
    (folder / "log.jsonl").write_text(json.dumps({"time": started, "event": "started"}) + "\n")


def evaluation(folder: Path, started: str) -> None:
    folder.mkdir(parents=True)
    found = {
        "environment": "gsm8k",
        "environment_config": {},
        "split": "test",
        "model": "m",
        "plan_digest": "e" * 64,
        "atropos_version": "0",
        "sampling": {},
        "seed": 0,
        "samples": 4,
        "success_rule": "reward >= 1",
        "errors_count_as": "wrong",
        "tasks": 10,
        "rollouts": 40,
        "scored": 40,
        "errors": 0,
        "accuracy": {"value": 0.5, "low": 0.4, "high": 0.6, "tasks": 10},
        "reward": None,
        "pass_at": {"4": {"value": 0.7, "tasks": 10}},
        "per_task": [],
    }
    (folder / "eval.json").write_text(json.dumps(found))
    (folder / "plan.json").write_text("{}")
    (folder / "log.jsonl").write_text(json.dumps({"time": started, "event": "started"}) + "\n{torn")


def test_runs_are_listed_by_their_start(tmp_path: Path) -> None:
    training(tmp_path / "b", "2026-01-02T10:00:00+00:00")
    training(tmp_path / "b" / "checkpoints" / "inner", "2026-01-01T00:00:00+00:00")  # belongs to b
    evaluation(tmp_path / "deep" / "er" / "a", "2026-01-03T10:00:00+00:00")
    training(tmp_path / "c", "2026-01-01T10:00:00+00:00", state="stopped", error="loss|not <finite>", curves={})
    keep_values(tmp_path / "b", "step-50", {"eval/sums/accuracy": 0.85})
    (tmp_path / "other").mkdir()
    entries, problems = journal(tmp_path)
    assert problems == []
    assert [entry.run for entry in entries] == ["c", "b", "deep/er/a"]
    _, b, a = entries
    assert (b.kind, b.what, b.steps, b.wandb) == ("train", "grpo (native) on arithmetic", 60, "abc12345")
    assert b.results == {"sums/accuracy": "0.250 -> 0.800 (best 0.850 at 50)"}
    assert b.reevaluated == {"step-50": {"eval/sums/accuracy": 0.85}}
    assert (a.kind, a.what) == ("eval", "gsm8k (test, 10 tasks x 4)")
    assert a.results == {"accuracy": "0.500 [0.400, 0.600]", "pass@4": "0.700"}

    text = markdown(entries, "Runs")
    assert text.startswith(MARK)
    assert "| 2026-01-02 10:00 | b | train grpo (native) on arithmetic | smollm2 | finished | 60 |" in text
    assert "cccccccccc+" in text
    assert "loss\\|not &lt;finite&gt;" in text
    assert "| step-50 | sums/accuracy 0.850 |" in text


def test_damaged_runs_are_named_and_left_out(tmp_path: Path) -> None:
    training(tmp_path / "good", "2026-01-02T10:00:00+00:00")
    for name, text in (("torn", '{"state": "run'), ("list", "[]"), ("odd", '{"curves": {"reward": 3}}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.json").write_text(text)
    entries, problems = journal(tmp_path)
    assert [entry.run for entry in entries] == ["good"]
    assert [Path(problem.partition(":")[0]).name for problem in problems] == ["list", "odd", "torn"]


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is no folder"):
        journal(tmp_path / "runs")


def page(folder: Path, old: str = "") -> str:
    return markdown(journal(folder)[0], "Runs in runs", old)


def after(text: str, line: str, added: str) -> str:
    """The page after somebody wrote below its first line that begins so."""
    lines = text.split("\n")
    number = next(number for number, one in enumerate(lines) if one.startswith(line))
    return "\n".join([*lines[: number + 1], added, *lines[number + 1 :]])


def test_what_a_person_wrote_survives(tmp_path: Path) -> None:
    training(tmp_path / "a", "2026-01-01T10:00:00+00:00", plan_digest="a" * 64)
    training(tmp_path / "c", "2026-01-03T10:00:00+00:00", plan_digest="c" * 64)
    text = page(tmp_path)
    assert page(tmp_path, text) == text
    text = after(text, "## a", "inside: <lr> was too high")  # in a generated part
    text = after(text, "<!-- written", "above all")
    text = text.replace("\n## c", "\n## c (the good one)")  # a generated line, changed
    text = text.replace(
        "<!-- journal ends -->\n\n<!-- journal cccc", "<!-- journal ends -->\n\nbetween\n\nmore\n\n<!-- journal cccc"
    )
    text = f"{text.rstrip()}\n\n- [ ] try lr 1e-5\n".replace("\n", "\r\n")
    text = page(tmp_path, "\ufeff" + text)
    assert page(tmp_path, text) == text
    assert text.count("\r\n") == text.count("\n")  # the lines end as their writer's editor ends them
    text = text.replace("\r\n", "\n")
    assert page(tmp_path, text) == text
    keep_values(tmp_path / "a", "step-50", {"eval/sums/accuracy": 0.85})
    (tmp_path / "c").rename(tmp_path / "moved")
    training(tmp_path / "b", "2026-01-02T10:00:00+00:00", plan_digest="b" * 64)
    text = page(tmp_path, text)
    order = [
        "above all",
        "# Runs",
        "| b |",
        "## a",
        "| step-50 | sums/accuracy 0.850 |",
        "inside: <lr>",
        "between\n\nmore",
    ]
    order += ["## b", "## moved", "## c (the good one)", "- [ ] try lr 1e-5"]
    places = [text.index(word) for word in order]
    assert places == sorted(places)
    assert text.count("## ") == 4
    # A run that is gone stays while there is a note on it.
    for name in ("b", "moved"):
        for path in sorted((tmp_path / name).rglob("*"), reverse=True):
            path.unlink()
        (tmp_path / name).rmdir()
    text = page(tmp_path, text)
    assert "## b" not in text
    assert text.index("## moved") < text.index("## c (the good one)") < text.index("- [ ] try")
    assert page(tmp_path, text) == text


def test_a_journal_without_marks_keeps_what_was_not_generated(tmp_path: Path) -> None:
    training(tmp_path / "a", "2026-01-01T10:00:00+00:00")
    table = "# Runs in runs\n\n1 runs.\n\n| started |\n|---|\n| x |"
    old = f"{MARK}\n{table}\n\n## a: checkpoints evaluated again\n\nmy note\n"
    text = page(tmp_path, old)
    assert is_journal(old)
    assert (text.count("# Runs in"), text.count("my note"), "| x |" in text) == (1, 1, False)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.text(max_size=20)), max_size=6))
def test_no_line_is_lost_and_the_second_time_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, added: list[tuple[int, str]]
) -> None:
    folder = tmp_path_factory.mktemp("runs", numbered=True)
    for name, day in (("a", 1), ("b", 2)):
        training(folder / name, f"2026-01-0{day}T10:00:00+00:00", plan_digest=name * 64)
    lines = page(folder).split("\n")
    for place, text in added:
        lines.insert(min(place, len(lines)), text)
    text = page(folder, "\n".join(lines))
    assert page(folder, text) == text
    kept = text.split("\n")
    for _, written in added:
        for line in written.split("\n"):
            assert line.rstrip("\r").removeprefix("\ufeff") in kept or not line.strip()
