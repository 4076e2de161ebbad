"""Which bootcamps are found, their tasks by index, and the reward of replies good, bad and hostile."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring import make_rollout
from atropos_intern_bootcamp import scoring
from atropos_intern_bootcamp.environment import BootcampEnvironment

from atropos_cli.sdk import ConfigError, DataError, Task, assistant
from atropos_cli.sdk.isolation import WorkerError, WorkerTimeout

GOOD = ("Sumsbootcamp", "Wordsbootcamp")
THOUGHT = "<think>" + "Let me add them one by one. " * 3 + "</think>\n"


def environment(camps: str, **options: Any) -> BootcampEnvironment:
    config = {"package": "sample_bootcamps", "package_path": camps, "tasks": GOOD, **options}
    return BootcampEnvironment(BootcampEnvironment.Config(**config))


def first(camps: str, count: int = 1, split: str = "train", **options: Any) -> list[Task]:
    return list(itertools.islice(environment(camps, **options).tasks(split), count))


def reward(task: Task, text: str) -> float:
    value: float = asyncio.run(scoring.intern_bootcamp(task, make_rollout(text, task=task)))
    return value


def test_random_task_is_all_bootcamps_with_their_names_in_every_record(camps: str) -> None:
    tasks = first(camps, 12, tasks=("RandomTask",))
    drawn = [(redrawn(task) or [task.info["bootcamp"]])[0] for task in tasks]
    assert sorted(set(drawn)) == [
        "Brokenbootcamp", "Evalbootcamp", "Hangingbootcamp", "Sumsbootcamp", "Unstorablebootcamp", "Wordsbootcamp",
    ]  # fmt: skip
    assert [task.info["bootcamp"] for task in tasks] == [task.info["task_name"] for task in tasks]
    assert sorted(drawn[:6]) == sorted(drawn[6:]), "each comes up once a round"
    assert all(str(task.info["bootcamp"]) in task.id for task in tasks)
    episode = environment(camps).episode(first(camps, tasks=("Sums",))[0])
    assert episode.result() == {"bootcamp": "Sumsbootcamp"}
    assert episode.metrics() == {}


def redrawn(task: Task) -> list[str]:
    """The bootcamps that failed before this task came out."""
    return [entry["bootcamp"] for entry in task.info.get("redrawn", [])]  # type: ignore[union-attr,index,call-overload]


FAILING = {
    "NoFile": "open('no/such/file.json')",
    "NoPackage": "import no_such_package",
    "Exits": "raise SystemExit(0)",
    "Aborts": "__import__('os').abort()",
    "Leaves": "__import__('os')._exit(0)",
    "Hangs": "__import__('time').sleep(60)",
    "Loops": "exec('while True: pass')",
    "Recurses": "self.case_generator()",
    "Grows": "x = bytearray(1 << 40)",
    "Interrupts": "raise KeyboardInterrupt",
    "Infinite": "return {'n': float('inf')}",
    "Asserts": "assert False, 'né d’une erreur: 失败'",
}


def test_random_task_draws_another_bootcamp_when_one_fails(tmp_path: Path) -> None:
    lines = ["class Finebootcamp:", "    def case_generator(self): return {'n': 1}"]
    rest = ["    def prompt_func(self, identity): return 'say 1'", "    def verify_score(output, identity): return 1.0"]
    lines += rest
    for name, body in FAILING.items():
        lines += [f"class {name}bootcamp:", f"    def case_generator(self): {body}", *rest]
    (tmp_path / "many_camps.py").write_text("\n".join(lines))
    tmp_path.chmod(0o755)  # started by root, the worker is another user
    options: dict[str, Any] = {"package": "many_camps", "package_path": str(tmp_path), "timeout_s": 0.5}
    env = environment("", **options, tasks=("RandomTask",))
    tasks = list(itertools.islice(env.tasks("train"), len(FAILING) + 1))
    assert {(redrawn(task) or ["Finebootcamp"])[0] for task in tasks} == {
        f"{name}bootcamp" for name in [*FAILING, "Fine"]
    }
    came = [task for task in tasks if "error" not in task.info]
    assert {task.info["bootcamp"] for task in came} == {"Finebootcamp"}
    assert any(redrawn(task) for task in came)
    for task in tasks:
        assert len(redrawn(task)) == len(set(redrawn(task))) <= 10, "each is tried once"
        if task in came:
            assert env.episode(task).metrics() == {"redrawn": float(len(redrawn(task)))}
        else:
            with pytest.raises(DataError, match=r"did not make this task \(nor did 9 others\)"):
                env.episode(task).reset()
    by_name = environment("", **options, tasks=("Exits", "Fine"))
    named = list(itertools.islice(by_name.tasks("train"), 2))
    assert sorted("error" in task.info for task in named) == [False, True], "what was asked for by name is not replaced"


def test_tasks_are_decided_by_seed_split_and_index(camps: str) -> None:
    tasks = first(camps, 8)
    assert tasks == first(camps, 8)
    assert environment(camps).tasks("train")[5] == tasks[5]
    prompts = {task.prompt[-1].text for task in first(camps, 8, tasks=("Sums",))}
    assert len(prompts) == 8
    assert not prompts & {task.prompt[-1].text for task in first(camps, 8, "test", tasks=("Sums",))}
    assert not prompts & {task.prompt[-1].text for task in first(camps, 8, tasks=("Sums",), data_seed=1)}
    large = first(camps, tasks=("Sums",), params={"sums": {"largest": 10**9}})[0]
    assert max(large.info["identity"]["numbers"]) > 20  # type: ignore[index,call-overload]


async def test_gold_answers_earn_full_marks(camps: str) -> None:
    for options in ({}, {"require_thinking": True}):
        env = environment(camps, **options)
        assert [await env.validate(task) for task in itertools.islice(env.tasks("train"), 6)] == [True] * 6


def test_the_reward_of_replies(camps: str) -> None:
    (task,) = first(camps, tasks=("Sums",))
    total = sum(task.info["identity"]["numbers"])  # type: ignore[index,call-overload]
    assert reward(task, f"[answer]{total}[/answer]") == 1.0, "short, without thinking: right all the same"
    assert reward(task, f"{THOUGHT}[answer]{total}[/answer]") == 1.0
    assert reward(task, f"[answer]{total + 1}[/answer]") == pytest.approx(-0.3)
    assert reward(task, f"It is {total}.") == -0.5
    assert reward(task, "") == -0.5
    assert reward(task, f"<think>[answer]{total}[/answer]") == -0.5
    assert reward(task, f"<think>[answer]{total}[/answer]</think> done") == -0.5


def test_required_thinking(camps: str) -> None:
    (task,) = first(camps, tasks=("Sums",), require_thinking=True)
    total = sum(task.info["identity"]["numbers"])  # type: ignore[index,call-overload]
    assert reward(task, f"{THOUGHT}[answer]{total}[/answer]") == 1.0
    assert reward(task, f"<think>easy</think>[answer]{total}[/answer]") == pytest.approx(-0.3)
    assert reward(task, f"[answer]{total}[/answer]") == pytest.approx(-0.3)


def test_own_reward_levels(camps: str) -> None:
    (task,) = first(camps, tasks=("Sums",), correct_reward=2.0, incorrect_reward=0.0, format_bonus=0.1)
    assert reward(task, "[answer]-1[/answer]") == pytest.approx(0.1)
    assert reward(task, "no") == 0.0


def test_a_bootcamp_that_hangs_or_raises_fails_the_rollout(camps: str) -> None:
    (hanging,) = first(camps, tasks=("Hanging",), timeout_s=0.7)
    began = time.monotonic()
    with pytest.raises(WorkerTimeout):
        reward(hanging, "[answer]1[/answer]")
    assert time.monotonic() - began < 6
    (task,) = first(camps, tasks=("Sums",))
    with pytest.raises(WorkerError, match="ValueError"):
        reward(task, "[answer]many[/answer]")


def test_what_a_bootcamp_evaluates_stays_inside(camps: str, tmp_path: Path) -> None:
    (task,) = first(camps, tasks=("Eval",))
    target = tmp_path / "owned"
    for attack in (
        f"open({str(target)!r}, 'w')",
        f"__import__('os').system('touch {target}')",
        "__import__('socket').create_connection(('127.0.0.1', 9))",
        "__import__('os').fork()",
    ):
        try:
            value = reward(task, f"[answer]{attack}[/answer]")
        except WorkerError:
            value = 0.0
        assert value <= 0
    if scoring.worker_for("sample_bootcamps", camps, "auto").level == "bubblewrap":
        assert not target.exists()


@pytest.mark.parametrize(
    "text",
    [
        "type('A', (int,), {'__eq__': lambda s, o: True})()",
        "sum(identity['numbers'])",
        "identity['numbers'][0] + identity['numbers'][1] + identity['numbers'][2]",
        "exec('import os\\nfor n in range(3, 64):\\n  os.write(n, b\"{}\")')",
        "__import__('os')._exit(0)",
        "[x for x in identity['numbers']]",
        "(lambda: 1)()",
        "cls.correct",
        "extracted",
        "print(1)",
        "().__class__",
        "globals()",
    ],
)
def test_a_reply_does_not_call_itself_right(camps: str, text: str) -> None:
    """A verifier that evaluates the reply gets no verdict out of it, and the reason is told."""
    (task,) = first(camps, tasks=("Eval",))

    async def play() -> None:
        episode = environment(camps).episode(task)
        await episode.step(assistant(f"[answer]{text}[/answer]"))
        assert episode.result()["success"] is False
        assert episode.result()["refused"]
        assert episode.metrics()["refused"] == 1.0

    asyncio.run(play())
    assert reward(task, f"[answer]{text}[/answer]") < 0


def test_a_verifier_still_computes(camps: str) -> None:
    (task,) = first(camps, tasks=("Eval",))
    numbers = task.info["identity"]["numbers"]  # type: ignore[index,call-overload]
    for text in (" + ".join(map(str, numbers)), f"{sum(numbers) * 2} // 2", f"max({sum(numbers)}, 0)"):
        assert reward(task, f"[answer]{text}[/answer]") == 1.0
    assert reward(task, f"[answer]{sum(numbers)} + 1[/answer]") == pytest.approx(-0.3)


def test_a_task_that_cannot_be_made_fails_alone(camps: str) -> None:
    env = environment(camps, tasks=("Broken", "Unstorable"))
    tasks = list(itertools.islice(env.tasks("train"), 2))
    reasons = {str(task.info["bootcamp"]): str(task.info["error"]) for task in tasks}
    assert "ago.json" in reasons["Brokenbootcamp"]
    assert "JSON" in reasons["Unstorablebootcamp"]
    for task in tasks:
        with pytest.raises(DataError, match="did not make"):
            env.episode(task).reset()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tasks": ("Summs",)}, "no bootcamp 'Summs'"),
        ({"tasks": ("Sums",), "exclude": ("Sums",)}, "no bootcamp is left"),
        ({"exclude": ("Wrods",)}, "no bootcamp 'Wrods'"),
        ({"params": {"Summs": {"largest": 5}}}, "no bootcamp 'Summs'"),
        ({"params": {"Sums": {"largest": 5}, "sumsbootcamp": {"largest": 6}}}, "two entries for Sumsbootcamp"),
        ({"package": "no_such_package"}, "holds no package"),
        ({"package": "no_such_package", "package_path": None}, "not installed"),
        ({"package": "internbootcamp", "package_path": None}, "not installed"),
    ],
)
def test_wrong_options(camps: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        environment(camps, **options).tasks("train")
    if options.get("package") == "internbootcamp":
        assert "git clone" in str(caught.value.hint)


def test_a_package_that_does_not_load_or_has_none(tmp_path: Path) -> None:
    # Nobody inside is root, so others must be able to read the folder.
    tmp_path.chmod(0o755)
    (tmp_path / "empty_camps.py").write_text("")
    (tmp_path / "needy_camps.py").write_text("import no_such_package_at_all")
    with pytest.raises(ConfigError, match="exports no bootcamps"):
        environment(str(tmp_path), package="empty_camps").tasks("train")
    with pytest.raises(ConfigError, match="no_such_package_at_all"):
        environment(str(tmp_path), package="needy_camps").tasks("train")


@pytest.mark.skipif(os.getuid() != 0, reason="whoever owns the folder may read it")
def test_a_package_that_only_root_may_read_is_told_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "empty_camps.py").write_text("")
    tmp_path.chmod(0o700)
    with pytest.raises(ConfigError, match="Permission denied") as caught:
        environment(str(tmp_path), package="empty_camps", isolation="bubblewrap").tasks("train")
    assert f"chmod -R o+rX {tmp_path}" in str(caught.value.hint)


def test_stored_tasks_are_scored_elsewhere(camps: str) -> None:
    (task,) = first(camps, tasks=("Words",))
    again = Task.model_validate_json(task.model_dump_json())
    assert reward(again, str(again.answer)) == 1.0
