"""Commands that plugins bring, and plugins that are broken (field cases H01, H03, H04)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TYPER = """
import typer
app = typer.Typer()

@app.command()
def one(n: int = 1):
    "First."
    print("one", n)

@app.command()
def two():
    raise ValueError("inside")
"""


def test_a_plugins_commands_are_listed_and_run(cli: Any, install: Any) -> None:
    install(
        "more-commands",
        {
            "more_commands_x.py": TYPER,
            "more_function.py": "def hello(name: str = 'you'):\n    print('hi', name)\n    return 3\n",
        },
        {"atropos.commands": {"extra": "more_commands_x:app", "hello": "more_function:hello"}},
    )
    text = cli("--help").stdout
    assert "Commands of plugins:" in text
    assert "from more-commands" in text
    assert cli("extra", "one", "--n", "3").stdout == "one 3\n"
    hello = cli("hello", "--name", "me")
    assert (hello.code, hello.stdout) == (0, "hi me\n")  # what it returns is no exit code
    assert cli("hello", "--debug").code == 0
    assert "--install-completion" not in cli("extra", "--help").stdout
    assert cli("hell").stderr.splitlines()[1] == "hint: did you mean hello?"


def test_a_command_that_raises_is_a_defect_with_a_traceback(cli: Any, install: Any) -> None:
    install("raising-commands", {"raising_x.py": TYPER}, {"atropos.commands": {"extra": "raising_x:app"}})
    got = cli("extra", "two")
    assert got.code == 70
    assert "error: unexpected ValueError: inside" in got.stderr
    assert "Traceback" in got.stderr


@pytest.mark.parametrize(
    ("code", "target", "expected"),
    [
        ("import no_such_lib", "bad_cmd_a:app", "no_such_lib"),
        ("x = 1", "bad_cmd_b:app", "bad_cmd_b"),
        ("app = 5", "bad_cmd_c:app", "neither a typer.Typer nor a function"),
        ("def app(x: complex = 1j): ...", "bad_cmd_d:app", None),
    ],
)
def test_a_broken_command_harms_nothing_else(
    cli: Any, install: Any, code: str, target: str, expected: str | None
) -> None:
    install("bad-command", {f"{target.split(':')[0]}.py": code}, {"atropos.commands": {"bad": target}})
    assert cli("--help").code == 0
    assert cli("env", "list").code == 0
    got = cli("bad")
    if expected is None:
        return
    assert got.code == 4
    assert got.stderr.startswith("error: command 'bad' of bad-command")
    assert expected in got.stderr
    assert "Traceback" not in got.stderr
    assert "Traceback" in cli("bad", "--debug").stderr


def test_two_plugins_with_one_command_name_are_told_apart(cli: Any, install: Any) -> None:
    for dist, module in (("dist-a", "clash_a"), ("dist-b", "clash_b")):
        install(
            dist,
            {f"{module}.py": f"def run():\n    print({dist!r})\n"},
            {"atropos.commands": {"same": f"{module}:run"}},
        )
    got = cli("same")
    assert got.code == 4
    assert "dist-a/same" in got.stderr
    assert "dist-b/same" in got.stderr
    assert cli("dist-b/same").stdout == "dist-b\n"


@pytest.mark.parametrize("name", ["env", "gen", "slurm", "config"])
def test_a_command_that_a_built_in_hides_is_told_with_the_name_under_which_it_runs(
    cli: Any, install: Any, name: str
) -> None:
    module = f"taker_{name}_x"
    install(
        "taker", {f"{module}.py": "def run():\n    print('taken')\n"}, {"atropos.commands": {name: f"{module}:run"}}
    )
    assert "taken" not in cli(name, "--help").stdout
    assert cli(f"taker/{name}").stdout == "taken\n"
    told = f"{name!r} alone is the built-in command"
    assert told in " ".join(cli("--help").stdout.split())
    listed = cli("plugins", "list").stdout
    assert f"command taker/{name}  (from taker; {told})" in listed
    commands = cli("plugins", "list", "--json").json["commands"]
    assert {"name": f"taker/{name}", "dist": "taker", "module": f"{module}:run", "hidden_by": name} in commands


def test_a_plugin_adds_a_command_to_a_group_of_ours(cli: Any, install: Any) -> None:
    code = "def count(n: int = 1):\n    'Count.'\n    print('counted', n)\n"
    install("counter", {"counter_x.py": code}, {"atropos.commands": {"env.count": "counter_x:count"}})
    assert "count from counter" in " ".join(cli("env", "--help").stdout.split())
    assert cli("env", "count", "--n", "3").stdout == "counted 3\n"
    assert "Usage: atropos env count" in cli("env", "count", "--help").stdout
    assert cli("env", "cout").stderr.splitlines()[1] == "hint: did you mean count?"
    assert "count" not in cli("--help").stdout
    assert cli("env count").code == cli("count").code == 2
    assert cli("reward", "count").code == 2
    assert {"name": "env count", "dist": "counter", "module": "counter_x:count", "hidden_by": None} in cli(
        "plugins", "list", "--json"
    ).json["commands"]


def test_a_command_in_a_group_that_a_built_in_hides(cli: Any, install: Any) -> None:
    code = "def run():\n    print('taken')\n"
    for word in ("list", "check"):  # one of the core, one of a distribution of ours
        install(f"taker-{word}", {f"take_{word}.py": code}, {"atropos.commands": {f"env.{word}": f"take_{word}:run"}})
        assert "taken" not in cli("env", word, "--help").stdout
        assert cli("env", f"taker-{word}/{word}").stdout == "taken\n"
        told = f"from taker-{word}; {word!r} alone is the built-in command"
        assert told in " ".join(cli("env", "--help").stdout.split())
        listed = cli("plugins", "list", "--json").json["commands"]
        assert {
            "name": f"env taker-{word}/{word}",
            "dist": f"taker-{word}",
            "module": f"take_{word}:run",
            "hidden_by": f"env {word}",
        } in listed


def test_two_plugins_with_one_command_in_a_group(cli: Any, install: Any) -> None:
    for dist, module in (("in-a", "in_a_x"), ("in-b", "in_b_x")):
        install(
            dist,
            {f"{module}.py": f"def run():\n    print({dist!r})\n"},
            {"atropos.commands": {"env.same": f"{module}:run"}},
        )
    got = cli("env", "same")
    assert got.code == 4
    assert "env in-a/same" in got.stderr
    assert cli("env", "in-b/same").stdout == "in-b\n"


def test_a_broken_command_in_a_group_harms_nothing_else(cli: Any, install: Any) -> None:
    install("bad-sub", {"bad_sub_x.py": "import no_such_lib"}, {"atropos.commands": {"env.bad": "bad_sub_x:app"}})
    assert "bad" in cli("env", "--help").stdout
    assert cli("env", "list").code == 0
    assert cli("config", "show", "env", "tasks", "arithmetic").code == 0
    got = cli("env", "bad")
    assert got.code == 4
    assert got.stderr.startswith("error: command 'env bad' of bad-sub")


def test_a_missing_command_of_ours_in_a_group_is_named(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATROPOS_DISABLE_PLUGINS", "atropos-authoring")
    for words in (("env", "check"), ("plugins", "check"), ("new",)):
        got = cli(*words)
        assert got.code == 4
        assert got.stderr == (
            f"error: atropos {' '.join(words)} comes with atropos-authoring, which is not installed\n"
            "hint: pip install atropos-authoring\n"
        )
    assert "check" not in cli("plugins", "--help").stdout.partition("Commands:")[2].partition("Examples:")[0]
    assert "did you mean check?" in cli("env", "chekc").stderr


@pytest.fixture
def broken(install: Any) -> None:
    install("broken-dist", {"broken_manifest.py": "import no_such_lib"}, {"atropos": {"broken": "broken_manifest"}})
    install("ghost-dist", {}, {"atropos": {"ghost": "ghost_pkg.mod"}})


def test_broken_plugins_are_one_warning_each(cli: Any, broken: None) -> None:
    got = cli("env", "list")
    assert got.code == 0
    warnings = [line for line in got.stderr.splitlines() if line.startswith("warning:")]
    assert len(warnings) == 2
    assert "'broken' (broken-dist 1.0)" in warnings[0]
    assert "no_such_lib" in warnings[0]
    assert "'ghost' (ghost-dist 1.0)" in warnings[1]
    assert "pip uninstall ghost-dist" in got.stderr
    assert "Traceback" not in got.stderr
    assert cli("--help").stderr == ""


def test_debug_shows_the_traceback_of_a_broken_plugin(cli: Any, broken: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Traceback" in cli("env", "list", "--debug").stderr
    assert "Traceback" in cli("--debug", "env", "list").stderr
    monkeypatch.setenv("ATROPOS_DEBUG", "1")
    assert "Traceback" in cli("env", "list").stderr


def test_strict_plugins_make_it_an_error(cli: Any, broken: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for args in (("env", "list", "--strict-plugins"), ("--strict-plugins", "env", "list")):
        got = cli(*args)
        assert got.code == 4
        assert got.stderr.startswith("error: plugin 'broken'")
    monkeypatch.setenv("ATROPOS_STRICT_PLUGINS", "true")
    assert cli("env", "list").code == 4
    monkeypatch.setenv("ATROPOS_DISABLE_PLUGINS", "broken, ghost")
    assert cli("env", "list").code == 0


def test_listing_plugins_shows_what_is_broken(cli: Any, broken: None) -> None:
    got = cli("plugins", "list")
    assert got.code == 0
    assert "broken  (broken-dist 1.0)  broken" in got.stdout
    assert "no_such_lib" in got.stdout
    assert "warning:" not in got.stderr
    data = cli("plugins", "list", "--json").json
    states = {plugin["name"]: plugin["state"] for plugin in data["plugins"]}
    assert states["builtin"] == "ok"
    assert states["broken"] == states["ghost"] == "broken"
    assert {failure["dist"] for failure in data["failures"]} == {"broken-dist", "ghost-dist"}


def test_checking_plugins_loads_every_component(cli: Any, install: Any) -> None:
    manifest = """
from atropos_cli.plugins.hookspecs import hookimpl
from atropos_cli.plugins.spec import ComponentSpec

@hookimpl
def atropos_register_environments():
    return [ComponentSpec("environment", "lazy", "lazy_missing_module:Env", requires=("some-lib",))]
"""
    assert cli("plugins", "check").code == 0
    install("lazy-dist", {"lazy_manifest.py": manifest}, {"atropos": {"lazy": "lazy_manifest"}})
    got = cli("plugins", "check")
    assert got.code == 4
    assert "BROKEN  lazy: environment lazy" in got.stdout
    data = cli("plugins", "check", "lazy", "--json")
    assert data.code == 4
    assert [(item["kind"], item["ok"]) for item in data.json["results"]] == [(None, True), ("environment", False)]
    assert cli("plugins", "check", "builtin").code == 0
    assert cli("plugins", "check", "nobody").code == 2


def test_two_environments_of_one_name(cli: Any, install: Any) -> None:
    code = """
from atropos_cli.sdk import Environment, hookimpl

class Math(Environment):
    name = "math"
    def tasks(self, split):
        return []

@hookimpl
def atropos_register_environments():
    return [Math]
"""
    for dist in ("p1", "p2"):
        install(dist, {f"math_{dist}.py": code}, {"atropos": {dist: f"math_{dist}"}})
    got = cli("gen", "math")
    assert got.code == 4
    assert "p1/math" in got.stderr
    assert "p2/math" in got.stderr
    assert cli("gen", "p2/math", "--help").code == 0
    assert {line.split()[0] for line in cli("env", "list").stdout.splitlines()} >= {"p1/math", "p2/math"}


SIMMER = """
import typer

from atropos_cli.sdk import hookimpl
from atropos_cli.sdk.commands import session_of
from atropos_cli.sdk.planning import PlannedRun, PlanRunner, RunPlan, makes_plan
from atropos_cli.sdk.runs import read_stored


class SimmerPlan(RunPlan):
    command: str = "simmer"
    hours: int = 1


class Runner(PlanRunner):
    def run(self, stored, session):
        plan = read_stored(stored.path, SimmerPlan, what="a plan of simmer", hint="atropos simmer makes one")
        session.out.json({"hours": plan.hours, "where": stored.folder.name, "processes": stored.processes})
        return 0


@makes_plan
def simmer(ctx: typer.Context, hours: int = 1):
    session, plan = session_of(ctx), SimmerPlan(hours=hours)
    if session.take is not None:
        session.take(PlannedRun(plan))
        return
    print(f"simmers {plan.hours} hours here")


@hookimpl
def atropos_open_plan(command):
    return Runner() if command == "simmer" else None
"""


def test_a_plugins_command_is_resolved_for_a_job_and_executed_as_it_was_stored(cli: Any, install: Any) -> None:
    points = {"atropos": {"simmer": "simmer_x"}, "atropos.commands": {"simmer": "simmer_x:simmer"}}
    install("atropos-simmer", {"simmer_x.py": SIMMER}, points)
    assert cli("simmer", "--hours", "2").stdout == "simmers 2 hours here\n"
    submit = ("job", "submit", "--on", "slurm", "--dry-run", "--json", "--folder", "runs/soup")
    found = cli(*submit, "--", "simmer", "--hours", "3").json
    assert {key: found["run"][key] for key in ("command", "hours")} == {"command": "simmer", "hours": 3}
    main = found["plan"]["components"][0]["argv"]
    assert main[main.index("run") :] == ["run", "{run}"]
    folder = Path("runs/soup")
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(found["run"]))
    done = cli("run", "runs/soup", "--processes", "2")
    assert done.json == {"hours": 3, "where": "soup", "processes": 2}


def test_a_stored_plan_of_a_plugin_that_is_not_there(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("plan.json").write_text(json.dumps({"command": "simmer", "hours": 3}))
    got = cli("run", "plan.json")
    assert got.code == 4
    assert "error: no installed plugin executes plans of 'simmer'" in got.stderr.splitlines()
    monkeypatch.setenv("ATROPOS_DISABLE_PLUGINS", "atropos-training")
    Path("plan.json").write_text(json.dumps({"command": "train"}))
    got = cli("run", "plan.json")
    assert got.code == 4
    assert got.stderr.splitlines()[-1] == "hint: pip install 'atropos-trl[train]'"


@pytest.mark.parametrize(
    ("dist", "args"),
    [
        ("atropos-hub", ("push", "rows.jsonl", "me/rows")),
        ("atropos-hub", ("sft-gen", "rows.jsonl", "-o", "sft.jsonl", "--push-to-hub", "me/rows")),
        ("atropos-hub", ("prompt-gen", "rows.jsonl", "-o", "sft.jsonl", "--push-to-hub", "me/rows")),
        ("atropos-pipeline", ("pipeline", "run", "flow.toml")),
        ("atropos-pipeline", ("job", "submit", "--on", "tmux", "flow.toml")),
        ("atropos-tracking", ("journal",)),
        ("atropos-tracking", ("reevaluate", "runs/a")),
    ],
)
def test_a_missing_plugin_of_ours_is_named_before_any_work(
    cli: Any, monkeypatch: pytest.MonkeyPatch, dist: str, args: tuple[str, ...]
) -> None:
    monkeypatch.setenv("ATROPOS_DISABLE_PLUGINS", dist)
    Path("rows.jsonl").write_text('{"prompt": "1+1?", "completion": "2", "reward": 1.0}\n')
    Path("flow.toml").write_text('[steps.a]\ncommand = ["runs"]\n')
    done = cli(*args)
    assert (done.code, f"pip install {dist}" in done.stderr) == (4, True), done.stderr
    assert {path.name for path in Path().iterdir()} == {"rows.jsonl", "flow.toml"}
    assert args[0] in ("sft-gen", "prompt-gen", "job") or f"  {args[0]} " not in cli("--help").stdout


BOX = """
import json
from pathlib import Path

from atropos_cli.sdk import UsageError, hookimpl
from atropos_cli.sdk.sharing import Share


class Box(Share):
    def __init__(self, repository):
        self.folder = Path(repository.name.removeprefix("box:"))

    def check(self):
        if self.folder.exists():
            raise UsageError(f"{self.folder} is there already")

    def push(self, given, files, card):
        self.folder.mkdir()
        for paths in files.values():
            for path in paths:
                (self.folder / path.name).write_bytes(path.read_bytes())
        (self.folder / "card.json").write_text(json.dumps(card["rows"]))
        return f"box at {self.folder}"


@hookimpl
def atropos_share(repository):
    return Box(repository) if repository.name.startswith("box:") else None


@hookimpl
def atropos_submit_file(path, launcher, dry_run, session):
    if path.suffix != ".yml":
        return None
    session.out.data(f"{path.name} for {launcher.name}, dry: {dry_run}")
    return 0
"""


def test_plugins_share_rows_and_submit_files_of_their_own(
    cli: Any, install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("box", {"box_plugin_x.py": BOX}, {"atropos": {"box": "box_plugin_x"}})
    Path("rows.jsonl").write_text('{"prompt": "1+1?", "completion": "2", "reward": 1.0}\n')
    done = cli("sft-gen", "rows.jsonl", "-o", "sft.jsonl", "--push-to-hub", "box:kept")
    assert (done.code, "pushed: box at kept" in done.stderr) == (0, True), done.stderr
    assert Path("kept/sft.jsonl").read_bytes() == Path("sft.jsonl").read_bytes()
    assert Path("kept/card.json").read_text() == '{"train": 1}'
    again = cli("sft-gen", "rows.jsonl", "-o", "more.jsonl", "--push-to-hub", "box:kept")
    assert (again.code, "is there already" in again.stderr, Path("more.jsonl").exists()) == (2, True, False)
    other = cli("sft-gen", "rows.jsonl", "-o", "more.jsonl", "--push-to-hub", "nowhere:x")
    assert (other.code, "no installed plugin pushes rows to 'nowhere:x'" in other.stderr) == (4, True)
    monkeypatch.setenv("ATROPOS_DISABLE_PLUGINS", "atropos-pipeline")
    Path("jobs.yml").write_text("a: 1\n")
    done = cli("job", "submit", "--on", "tmux", "--dry-run", "jobs.yml")
    assert (done.code, done.stdout) == (0, "jobs.yml for tmux, dry: True\n"), done.stderr


def test_a_plugins_group_names_what_it_offers(cli: Any, install: Any) -> None:
    install("grouped", {"grouped_x.py": TYPER}, {"atropos.commands": {"extra": "grouped_x:app"}})
    wrong = cli("extra", "on")
    assert wrong.code == 2
    assert wrong.stderr.splitlines() == ["error: atropos extra has no command 'on'", "hint: did you mean one?"]
    alone = cli("extra")
    assert (alone.code, "one" in alone.stderr, "two" in alone.stderr) == (2, True, True)
