"""Tasks by index, scores of the package, and answers that try to run code."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring import make_rollout
from atropos_reasoning_gym import scoring, worker
from atropos_reasoning_gym.environment import ReasoningGymEnvironment
from atropos_reasoning_gym.families import EXECUTING, GOLD_ELSEWHERE
from atropos_reasoning_gym.sieve import why_refused

from atropos_cli.sdk import ConfigError, Task, assistant
from atropos_cli.sdk.isolation import WorkerError, WorkerTimeout

pytestmark = pytest.mark.filterwarnings("ignore")


def environment(**options: Any) -> ReasoningGymEnvironment:
    return ReasoningGymEnvironment(ReasoningGymEnvironment.Config(**options))


def first(count: int = 1, split: str = "train", **options: Any) -> list[Task]:
    return list(itertools.islice(environment(**options).tasks(split), count))


def judge(task: Task, answer: str) -> scoring.Verdict:
    return asyncio.run(scoring.judge(task, f"<answer>{answer}</answer>"))


def test_one_task_of_each_family_has_a_gold_answer_of_full_marks() -> None:
    tasks = first(105)
    families = [str(task.info["family"]) for task in tasks]
    assert sorted(set(families)) == families

    async def prove() -> dict[str, Any]:
        env = environment()
        return {str(task.info["family"]): await env.validate(task) for task in tasks}

    verdicts = asyncio.run(prove())
    assert {name for name, verdict in verdicts.items() if verdict is None} == {"boxnet", "graph_color", "rush_hour"}
    assert {name for name, verdict in verdicts.items() if verdict is False} == set()
    assert all(verdicts[name] for name in GOLD_ELSEWHERE)


def test_the_families_that_execute_answers_are_those_of_the_source() -> None:
    """A new version of the package with one more eval must not go unnoticed."""
    import inspect
    import re

    import reasoning_gym  # noqa: F401
    from reasoning_gym.factory import DATASETS

    found = set()
    for name, (cls, _) in DATASETS.items():
        source = inspect.getsource(cls.score_answer)
        if re.search(r"\b(?:eval|exec|compile|parse_expr|sympify|parse_latex)\(", source):
            found.add(name)
    # One has a parser of its own by that name, the other evaluates the gold answer only.
    assert found - {"propositional_logic", "number_sorting"} == set(EXECUTING)


@pytest.mark.parametrize("family", ["isomorphic_strings", "ransom_note", "chain_sum"])
def test_tasks_are_the_packages_own_and_do_not_depend_on_the_hash_seed(family: str) -> None:
    import reasoning_gym

    task = first(4, families=(family,), data_seed=11)[3]
    code = (
        "import itertools; from atropos_reasoning_gym.environment import ReasoningGymEnvironment as R\n"
        f"e = R(R.Config(families=({family!r},), data_seed=11))\n"
        "print(next(itertools.islice(e.tasks('train'), 3, None)).model_dump_json())"
    )
    for seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        out = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
        assert Task.model_validate_json(out.stdout) == task
    if family == "chain_sum":
        own = reasoning_gym.create_dataset(family, seed=11)[3]
        assert (task.prompt[-1].text, task.answer) == (own["question"], own["answer"])


def test_an_entry_does_not_depend_on_those_before_it_and_there_is_no_end() -> None:
    stream = environment(families=("list_functions", "gsm_symbolic", "word_ladder")).tasks("train")
    far = stream[3 * 700 + 2]
    assert far.info["index"] == 700
    assert far == environment(families=("list_functions", "gsm_symbolic", "word_ladder")).tasks("train")[3 * 700 + 2]


def test_splits_and_seeds_have_different_tasks() -> None:
    one = {task.prompt[-1].text for task in first(30, families=("chain_sum",))}
    test = {task.prompt[-1].text for task in first(30, "test", families=("chain_sum",))}
    assert not one & test


def test_weights_levels_and_options() -> None:
    tasks = first(200, families=("chain_sum=9", "leg_counting=1"))
    share = sum(task.info["family"] == "chain_sum" for task in tasks) / len(tasks)
    assert 0.8 < share < 0.98
    levels = [task.info["level"] for task in first(12, families=("chain_sum",), level=0, level_every=5, max_level=1)]
    assert levels == [0] * 5 + [1] * 7
    drawn = {task.info["level"] for task in first(40, families=("chain_sum",), level=1, max_level=3)}
    assert drawn == {1, 2, 3}
    (hard,) = first(1, families=("chain_sum",), options={"chain_sum": {"min_terms": 9, "max_terms": 9}})
    assert hard.prompt[-1].text.count("+") + hard.prompt[-1].text.count("-") >= 8
    (odd,) = first(1, families=("knight_swap",), level=0)
    assert odd.info["level"] is None, "the package's level 0 is refused by the package"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"families": ("countdwon",)}, "no family 'countdwon'"),
        ({"families": ("chain_sum",), "exclude": ("chain_sum",)}, "no family is left"),
        ({"families": ("chain_sum",), "options": {"chain_sum": {"min_terms": -1}}}, "cannot be set up"),
        ({"families": ("chain_sum",), "options": {"chain_sum": {"nonsense": 1}}}, "nonsense"),
    ],
)
def test_wrong_options_are_found_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        environment(**options).tasks("train")


def test_a_weight_is_a_number_above_zero() -> None:
    for text in ("chain_sum=0", "chain_sum=x", "=1", "chain_sum=-1"):
        with pytest.raises(ValueError, match="WEIGHT"):
            ReasoningGymEnvironment.Config(families=(text,))


ATTACKS = (
    "__import__('os').system('touch /tmp/owned')",
    "exec('x=1')",
    "().__class__.__base__.__subclasses__()",
    "[c for c in 'abc']",
    "open('/etc/passwd').read()",
    "oracle_answer",
    "entry['answer']",
    "valid_solutions[0]",
    "(lambda: 24)()",
    "eval(input())",
    "sin.__globals__",
    "symbols('x')",
    "x.diff(x)",
    "preview(x)",
    "f'{1}'",
    "globals()",
    "24 if 1 else exit()",
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_sieve_lets_no_code_through(attack: str) -> None:
    for kind in ("literal", "formula"):
        if why_refused(kind, attack) is None:
            # Then it is no Python at all.
            with pytest.raises(SyntaxError):
                compile(attack, "answer", "eval")


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("literal", "[[0, 1], [1, -2]]"),
        ("literal", "['A', 'B']"),
        ("literal", "1 2 3\n4 5 6"),
        ("formula", "(3 + 5) * 7 - 10/2"),
        ("arithmetic", "(3 + 5) * 7 - 10/2"),
        ("arithmetic", "-(8/(3-8/3)) + 100*2**3"),
        ("formula", "-6*x**2/5 + 3.5*exp(2*x)*sin(x) + C"),
        ("formula", "x1**10 - 2*y*z"),
        ("formula", "sqrt(2)*log(x) + asin(x/2)"),
    ],
)
def test_the_sieve_lets_answers_through(kind: str, answer: str) -> None:
    assert why_refused(kind, answer) is None


CODE = "__import__('os').getpid()"
BREAKERS = {
    "signs": "-" * 2850 + CODE,
    "signs and blanks": "- + " * 1200 + CODE,
    "round brackets": "(" * 2400 + CODE + ")" * 2400,
    "square brackets": "[" * 2400 + CODE + "]" * 2400,
    "brackets of both kinds": "([" * 90 + CODE + "])" * 90,
    "negations": "not " * 1200 + CODE,
    "powers": "2**" * 1500 + CODE,
    "a chain of calls": "f" + "(1)" * 1500 + f"({CODE})",
    "conditions": "1 if 0 else " * 380 + CODE,
    "lambdas": "lambda: " * 600 + CODE,
    "starred": "[*" * 1500 + CODE + "]" * 1500,
    "tuples in calls": "max(1, " * 600 + CODE + ")" * 600,
    "too long": "1 + " * 2000 + CODE,
    "a null byte": f"\0{CODE}",
    "a line that goes on": f"1 + \\\n{CODE}",
    "letters that are the same to Python": "ｅval('1')",
    "a mark of byte order": f"\ufeff{CODE}",
    "a form feed": f"\x0c{CODE}",
    "a comment before": f"1 #\n + {CODE}",
    "text in brackets": f"['a', {CODE}]",
    "a function of mathematics": f"sin({CODE})",
    "a rational with text": f"Rational('{CODE[:9]}')",
}


@pytest.mark.parametrize("name", BREAKERS)
def test_a_reply_that_breaks_the_parser_or_hides_from_it_is_refused(name: str) -> None:
    """Nothing is guessed about what could not be read, whatever is nested how deep, and it takes no time."""
    began = time.process_time()
    for kind in ("literal", "formula"):
        assert why_refused(kind, BREAKERS[name]), kind
    assert time.process_time() - began < 1


def test_refused_replies_earn_nothing_and_say_why() -> None:
    async def play() -> None:
        for task in first(2, families=("binary_matrix", "countdown")):
            for text in BREAKERS.values():
                verdict = await scoring.judge(task, f"<answer>{text}</answer>")
                assert (verdict.score, bool(verdict.refused)) == (0.0, True)
            episode = environment().episode(task)
            await episode.step(assistant(f"<answer>{CODE}</answer>"))
            result = episode.result()
            assert "cannot be read" in str(result["refused"]) or "where" in str(result["refused"])
            assert episode.metrics()["refused"] == 1.0

    asyncio.run(play())


@pytest.mark.parametrize("depth", [1, 10, 39])
def test_what_is_nested_within_reason_is_read(depth: int) -> None:
    for kind, opened, closed in (("literal", "[", "]"), ("formula", "(", ")"), ("formula", "-", "")):
        assert why_refused(kind, opened * depth + "1" + closed * depth) is None


NUMBERS_FROM_NOWHERE = (
    "0e0*({all})+{target}e0",
    "({all})*(pi-pi)+{target}.",
    "({all})*0.+x1",
    "({all})*floor(E)**0",
    "({all})*x7",
)


@pytest.mark.parametrize("form", NUMBERS_FROM_NOWHERE)
def test_a_result_is_made_of_the_given_numbers_only(form: str) -> None:
    """The package finds which numbers were used by their digits, so what hides digits or has none is refused."""

    async def play() -> None:
        for task in first(3, families=("countdown",)):
            made = task.info["entry"]["metadata"]
            answer = form.format(all="*".join(map(str, made["numbers"])), target=made["target"])
            verdict = await scoring.judge_answer(task, answer)
            assert (verdict.score, bool(verdict.refused)) == (0.0, True)
            assert (await scoring.judge_answer(task, task.answer)).score == 1.0

    asyncio.run(play())


def test_a_scorer_that_evaluates_without_our_knowledge_runs_nothing() -> None:
    """As with a new version of the package: an answer reaches eval() unread, and its verdict is none of its own."""
    (task,) = first(1, families=("spiral_matrix",))
    write = """import os\\nfor i in range(3, 64):\\n  try: os.write(i, b'{"value": 1.0}')\\n  except OSError: pass"""
    forge = f'exec("""{write}""")'
    request = {"do": "score", "family": "spiral_matrix", "seed": 0, "config": task.info["config"], "answer": forge}
    refused: list[str] = []
    score = scoring.started().ask_now({**request, "entry": task.info["entry"]}, seconds=10, refused=refused)
    assert score == 0.0
    assert "exec" in refused[0]


def test_no_answer_writes_its_own_score() -> None:
    tasks = {str(task.info["family"]): task for task in first(len(EXECUTING), families=tuple(EXECUTING))}
    for family, task in tasks.items():
        for attack in ATTACKS:
            assert judge(task, attack).score <= 0.05, (family, attack)
    assert judge(tasks["string_insertion"], str(tasks["string_insertion"].answer)).score == 1.0
    as_list = json.dumps(
        [[int(cell) for cell in row.split()] for row in str(tasks["binary_matrix"].answer).split("\n")]
    )
    assert judge(tasks["binary_matrix"], as_list).score == 0.1, "the package's own value for the form of a list"


def test_a_scorer_that_hangs_is_ended_and_says_so() -> None:
    (task,) = first(1, families=("puzzle24",), scorer_timeout_s=1.0)
    began = time.monotonic()
    with pytest.raises(WorkerTimeout, match="1 s"):
        judge(task, "9**9**9**9")
    assert time.monotonic() - began < 8
    assert judge(task, str(task.answer)).score == 1.0


def test_a_scorer_that_raises_fails_its_rollout_with_the_text() -> None:
    entry: dict[str, Any] = {"question": "", "answer": None, "metadata": {}}
    task = Task(id="t", info={"family": "tower_of_hanoi", "entry": entry, "config": {}})
    with pytest.raises(WorkerError, match="KeyError"):
        asyncio.run(scoring.judge(task, "<answer>{}</answer>"))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>4</answer>", "4"),
        ("<answer>3</answer> no: <answer>\n4\n</answer>", "4"),
        ("<think><answer>3</answer></think><answer>4</answer>", "4"),
        ("<think><answer>3</answer>", None),
        ("the answer is 4", None),
        ("<answer>4", None),
    ],
)
def test_extraction(text: str, answer: str | None) -> None:
    assert scoring.extract(text) == answer
    assert scoring.reasoning_gym.extract is not None
    assert scoring.reasoning_gym.extract(Task(id="t"), make_rollout(text)) == answer


def test_stored_tasks_are_scored_elsewhere() -> None:
    (task,) = first(1, families=("countdown",))
    again = Task.model_validate_json(task.model_dump_json())
    rollout = make_rollout(f"<answer>{task.info['entry']['metadata']['expression']}</answer>", task=again)  # type: ignore[index,call-overload]
    assert asyncio.run(scoring.reasoning_gym(again, rollout)) == 1.0


def test_values_survive_packing() -> None:
    from fractions import Fraction

    value = {1: (2, [3, {"a": (None,)}]), "b": Fraction(1, 3), "(": {"/": 1}}
    assert worker.unpack(json.loads(json.dumps(worker.pack(value)))) == value


def test_a_task_that_takes_too_long_fails_alone() -> None:
    env = environment(families=("futoshiki",), make_timeout_s=30)
    env.tasks("train")
    env.config = env.config.model_copy(update={"make_timeout_s": 0.0005})
    slow = env.tasks("train")[0]
    assert "error" in slow.info
    with pytest.raises(Exception, match="did not make this task"):
        env.episode(slow).reset()


def test_the_worker_file_imports_nothing_of_atropos() -> None:
    assert "atropos_" not in Path(worker.__file__).read_text()
