"""A plugin that hangs, loops, crashes or leaves something behind stops no command that does not use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from atropos_cli.errors import PluginError
from atropos_cli.plugins import manifests, trial
from atropos_cli.plugins.discovery import load_registry
from atropos_cli.plugins.entrypoints import scan

HOOK = "@hookimpl\ndef atropos_register_writers(): return "
OFFER = "\n@hookimpl\ndef atropos_register_writers(): return ComponentSpec('writer', '{name}', 'somewhere:W')\n"

# What the manifest does when it is imported, and what is said of it. None: it harms nobody, and nothing is said.
IMPORTS = {
    "sleeps": ("import time\ntime.sleep(1000)", "did not end within 3 s"),
    "loops": ("n = 0\nwhile True:\n    n += 1", "did not end within 3 s"),
    "waits-for-input": ("import sys\nsys.stdin.read()", None),
    "deaf": (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(1000)",
        "did not end within",
    ),
    "locked": ("import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()", "did not end within"),
    "exits": ("import os\nos._exit(0)", "ended the process with exit code 0"),
    "aborts": ("import os\nos.abort()", "ended the process by SIGABRT"),
    "kills": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "ended the process by SIGKILL"),
    "crashes": ("import ctypes\nctypes.string_at(0)", "ended the process by SIGSEGV"),
    "threads": ("import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()", "keeps a program"),
    "stuck-exit": ("import atexit, time\natexit.register(time.sleep, 1000)", "keeps a program"),
    "pool": ("from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor(2).submit(int)", None),
    "patches": ("import json, os, sys\njson.dumps = json.loads = os.write = None\nsys.setrecursionlimit(60)", None),
    "clears": ("import os, sys\nos.environ.clear()\nos.chdir('/')\nos.close(1)\nos.close(2)", None),
    "forks": ("import os, time\nif os.fork() == 0:\n    time.sleep(60)\n    os._exit(0)", None),
}


@pytest.fixture
def bad(site, monkeypatch):
    """All of them at once, beside a good one, read under short limits."""
    monkeypatch.setattr(manifests, "SECONDS", 3.0)
    monkeypatch.setattr(manifests, "LEAVING", 2.0)
    site.install("good")
    for name, (code, _) in IMPORTS.items():
        site.plugin(name, code + OFFER.format(name=name))
    return site


def test_what_a_plugin_does_at_import_is_told_and_stops_nobody(bad, monkeypatch):
    registry = load_registry()
    said = {failure.dist: failure for failure in registry.failures}
    for name, (_, words) in IMPORTS.items():
        if words is None:
            assert name not in said, said[name]
        else:
            assert said[name].stage == "import"
            assert words in said[name].error
            assert f"ATROPOS_DISABLE_PLUGINS={name}" in (said[name].hint or "")
    assert registry.find("environment", "letters").load().name == "letters"
    assert {"threads", "forks", "clears"} <= {item.name for item in registry.registrations("writer")}
    assert not any(name.replace("-", "_") + "_module" in sys.modules for name in IMPORTS)
    monkeypatch.setattr(manifests, "_survey", lambda entries: pytest.fail("what is known is tried again"))
    again = load_registry()
    assert [failure.error for failure in again.failures] == [failure.error for failure in registry.failures]


@pytest.mark.parametrize(
    "command", [("env", "list", "--json"), ("plugins", "list", "--json"), ("reward", "list", "--json")]
)
def test_a_plugin_that_writes_to_fd_1_does_not_break_json(site, command):
    site.plugin(
        "writes", "import os\nprint('NOISE')\nos.write(1, b'NOISE')\nos.system('echo NOISE')" + OFFER.format(name="w")
    )
    env = {**os.environ, "PYTHONPATH": str(site.folder)}
    done = subprocess.run([sys.executable, "-m", "atropos_cli", *command], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "NOISE" not in done.stdout
    json.loads(done.stdout)


def test_only_the_plugin_that_owns_the_name_is_imported(site):
    for name in ("one", "two", "three"):
        site.plugin(
            name,
            "@hookimpl\ndef atropos_register_rewards():\n"
            f"    return [ComponentSpec('reward', 'r-{name}', made)]\n@reward\ndef made(task, rollout): return 1.0\n",
        )
    registry = load_registry()
    assert registry.find("reward", "r-two").load().name == "made"
    assert [name for name in ("one", "two", "three") if f"{name}_module" in sys.modules] == ["two"]


def test_observers_of_a_plugin_that_keeps_programs_from_ending_are_not_called(bad):
    bad.plugin("lingers", IMPORTS["threads"][0] + "\n@hookimpl\ndef atropos_run_started(): raise OSError('called')")
    bad.plugin("watches", "calls = []\n@hookimpl\ndef atropos_run_started(plan): calls.append(plan)")
    assert load_registry().call_observers("atropos_run_started", plan="P", folder=None) == ()
    assert "lingers_module" not in sys.modules
    assert sys.modules["watches_module"].calls == ["P"]


def test_what_is_known_of_a_plugin_is_forgotten_when_its_files_change(site):
    module = site.plugin("moves", HOOK + "ComponentSpec('writer', 'old', 'm:W')")
    assert load_registry().find("writer", "old")
    (site.folder / f"{module}.py").write_text(
        "from atropos_cli.sdk import ComponentSpec, hookimpl\nimport moves_names\n"
        "@hookimpl\ndef atropos_register_writers(): return ComponentSpec('writer', moves_names.NAME, 'm:W')\n"
    )
    (site.folder / "moves_names.py").write_text("NAME = 'newer'\n")
    assert load_registry().find("writer", "newer")
    (site.folder / "moves_names.py").write_text("NAME = 'newest'\n")
    assert load_registry().find("writer", "newest")


def test_a_name_that_depends_on_the_surroundings_is_looked_for_again(site, monkeypatch):
    site.plugin(
        "depends",
        "import os\n@hookimpl\ndef atropos_register_writers():\n"
        "    return ComponentSpec('writer', os.environ.get('WRITER_NAME', 'plain'), 'm:W')",
    )
    assert load_registry().find("writer", "plain")
    monkeypatch.setenv("WRITER_NAME", "fancy")
    assert load_registry().find("writer", "fancy")


def test_a_damaged_cache_is_no_cache(site, isolation):
    site.install("good")
    others = {entry.name for entry in scan()[0]} - {"good"}  # not to be read each time
    file = isolation.parent / "home/.cache/atropos/plugins.json"
    load_registry(disabled=others)
    whole = json.loads(file.read_bytes())
    wrong = {**whole, "plugins": {key: {"components": 3} for key in whole["plugins"]}}
    for content in (b"", b"[]", b"\xff{", b"null", json.dumps(wrong).encode()):
        file.write_bytes(content)
        assert load_registry(disabled=others).find("environment", "letters")
    file.unlink()
    file.mkdir()
    assert load_registry(disabled=others).find("environment", "letters")


def test_a_cache_that_others_may_write_is_not_believed(site, isolation):
    site.install("good")
    file = isolation.parent / "home/.cache/atropos/plugins.json"
    load_registry()
    file.write_text(file.read_text().replace("good_plugin.letters:Letters", "evil:Letters"))
    assert load_registry().find("environment", "letters").spec.target == "evil:Letters"
    file.chmod(0o666)
    assert load_registry().find("environment", "letters").spec.target == "good_plugin.letters:Letters"


def test_a_plugin_that_fails_only_here_is_an_error_that_names_it(site):
    site.plugin(
        "fickle",
        "import os\nif os.environ.get('BREAK'): raise OSError('gone')\n"
        "@reward\ndef made(task, rollout): return 1.0\n"
        "@hookimpl\ndef atropos_register_rewards(): return made",
    )
    registry = load_registry()
    os.environ["BREAK"] = "1"
    try:
        with pytest.raises(PluginError, match=r"plugin 'fickle' \(fickle 1.0\) failed at import: OSError: gone"):
            registry.find("reward", "made").load()
    finally:
        del os.environ["BREAK"]


PRINTS = """
import os, threading, time
from atropos_cli.sdk import Environment, Task, reward, user

class Loud(Environment):
    "Prints wherever it can."
    name = "loud"

    def tasks(self, split):
        print("NOISE"); os.write(1, b"NOISE"); os.system("echo NOISE")
        yield Task(id="a", prompt=(user("1+1"),), answer="2")

@reward
def noisy(task, rollout):
    print("NOISE"); os.write(1, b"NOISE")
    return 1.0

Loud.rewards = (noisy,)
"""


@pytest.mark.parametrize("output", [("--json", "-o", "run"), ("-o", "-"), ("--dry-run", "--json")])
def test_what_a_plugin_prints_while_it_works_is_no_data(isolation, output):
    (isolation / "loud.py").write_text(PRINTS)
    command = [sys.executable, "-m", "atropos_cli", "gen", "./loud.py:Loud", "--backend", "scripted"]
    command += ["--backend.replies", "2", "--limit", "1", "--group-size", "1", *output]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "NOISE" not in done.stdout
    assert isinstance(json.loads(done.stdout), dict)


def test_a_thread_that_a_used_plugin_leaves_does_not_keep_the_program(isolation):
    (isolation / "loud.py").write_text(
        PRINTS + "threading.Thread(target=time.sleep, args=(1000,), name='mine').start()"
    )
    code = "from atropos_cli.cli import app, leaving; leaving.LINGER = 0.5; app.main()"
    arguments = ["gen", "./loud.py:Loud", "--backend", "scripted", "--backend.replies", "2", "--limit", "1", "-o", "r"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "threads that are left running (mine) kept the program from ending" in done.stderr


QUITS = """
import sys
from atropos_cli.sdk import Environment, SingleTurn, Task, reward, user

@reward
def one(task, rollout):
    return 1.0

class Quits(Environment):
    name = "quits"
    rewards = (one,)

    def tasks(self, split):
        return [Task(id="a", prompt=(user("go"),))]

class InTasks(Quits):
    def tasks(self, split):
        sys.exit(0)

class InOpen(Quits):
    async def open(self, *, workers=1, seed=0):
        sys.exit(5)

class InInit(Quits):
    def __init__(self, config):
        sys.exit("enough")
"""


@pytest.mark.parametrize(("which", "line"), [("InTasks", 18), ("InOpen", 22), ("InInit", 26)])
@pytest.mark.parametrize("command", [("gen", "-o", "r"), ("eval", "-o", "r"), ("env", "check")])
def test_an_environment_that_quits_ends_no_program_in_silence(isolation, which, line, command):
    """Exit code 0 would say that the run is done, and 5 that the model is to blame."""
    (isolation / "quits.py").write_text(QUITS)
    name, *more = command
    words = ["env", "check", f"./quits.py:{which}"] if name == "env" else [name, f"./quits.py:{which}", *more]
    words += [] if name == "env" else ["--backend", "scripted", "--backend.replies", "2"]
    done = subprocess.run([sys.executable, "-m", "atropos_cli", *words], capture_output=True, text=True, timeout=60)
    if name == "env" and which == "InTasks":
        assert (done.returncode, "tasks() failed: SystemExit: 0" in done.stdout) == (1, True), done.stdout
    else:
        assert (done.returncode, f"quits.py:{line} called sys.exit(" in done.stderr) == (4, True), done.stderr


ENDS = """
import asyncio
from atropos_cli.sdk import Environment, Game, GameEnvironment, SingleTurn, Task, reward, user

class Panic(BaseException):
    "As compiled code raises it."

async def cancelled():
    waited = asyncio.ensure_future(asyncio.sleep(60))
    waited.cancel()
    await waited  # of a client whose connection is gone

@reward
def one(task, rollout):
    return 1.0

class Fine(Environment):
    name = "fine"
    rewards = (one,)

    def tasks(self, split):
        return [Task(id=str(i), prompt=(user("go"),)) for i in range(3)]

    def episode(self, task):
        return self.Ends(task)

class InStep(Fine):
    class Ends(SingleTurn):
        async def step(self, reply):
            await cancelled()

class InReset(Fine):
    class Ends(SingleTurn):
        async def reset(self):
            await cancelled()

class PanicStep(Fine):
    class Ends(SingleTurn):
        async def step(self, reply):
            raise Panic("at the disco")

class PlainPanic(Fine):
    class Ends(SingleTurn):
        def step(self, reply):
            raise Panic("at the disco")

class InGroup(Fine):
    async def roll_group(self, task, context):
        await cancelled()
        yield

class InTasks(Fine):
    def tasks(self, split):
        raise Panic("at the disco")
        yield

class InGame(GameEnvironment):
    name = "game"
    rewards = (one,)

    def tasks(self, split):
        return [Task(id=str(i)) for i in range(3)]

    def game(self, task):
        return Played()

class Played(Game):
    players = ("a", "b")

    def reset(self):
        return {"a": [user("go")], "b": [user("go")]}

    def turn(self):
        return "a"

    async def step(self, player, reply):
        await cancelled()

class InClose(Fine):
    class Ends(SingleTurn):
        async def close(self):
            await cancelled()
"""


@pytest.mark.parametrize("which", ["InStep", "InReset", "PanicStep", "PlainPanic", "InGroup", "InTasks", "InGame"])
def test_an_end_that_a_plugin_raises_is_a_failure_and_no_group_is_lost_in_silence(isolation, which):
    (isolation / "ends.py").write_text(ENDS)
    words = ["gen", f"./ends.py:{which}", "--backend", "scripted", "--backend.replies", "2", "--group-size", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "atropos_cli", *words, "-o", "r"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    said = "Panic: at the disco" if which in ("PanicStep", "PlainPanic", "InTasks") else "it was cancelled"
    assert f"RuntimeError: {said}" in done.stderr
    failures = [json.loads(line) for line in (isolation / "r" / "failures.jsonl").read_text().splitlines()]
    assert len({failure["group_id"] for failure in failures}) == (1 if which == "InTasks" else 3)


def test_a_close_that_is_cancelled_takes_no_rollout_away(isolation):
    (isolation / "ends.py").write_text(ENDS)
    words = ["gen", "./ends.py:InClose", "--backend", "scripted", "--backend.replies", "2", "--group-size", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "atropos_cli", *words, "-o", "r"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert len((isolation / "r" / "groups.jsonl").read_text().splitlines()) == 3


LEFT = """
import atexit, time
from atropos_cli.sdk import Task, reward, user
from atropos_cli.sdk.tools import ToolEnvironment

kept = open("kept.txt", "w")
atexit.register(lambda: (time.sleep(0.3), kept.write("at exit")))

def forever():
    "Within compiled code when its time is over, and when the program ends."
    while True:
        yield 1

@reward
def one(task, rollout):
    return 1.0

class Left(ToolEnvironment):
    name = "left"
    tools = (forever,)
    rewards = (one,)

    def tasks(self, split):
        yield Task(id="a", prompt=(user("go"),))
"""


def test_a_tool_that_never_returns_does_not_abort_a_run_that_is_finished(isolation):
    (isolation / "left.py").write_text(LEFT)
    call = '<tool_call>{"name": "forever", "arguments": {}}</tool_call>'
    command = [sys.executable, "-m", "atropos_cli", "gen", "./left.py:Left", "--backend", "scripted"]
    command += ["--backend.replies", call, "--max-turns", "2", "--tool-timeout", "0.5", "--group-size", "1", "-o", "r"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "FATAL" not in done.stderr
    assert json.loads((isolation / "r" / "summary.json").read_text())["metrics"]["tool_timeout"] == 1
    assert (isolation / "kept.txt").read_text() == "at exit"


# A component's module, and what `plugins check` says of it.
COMPONENTS = {
    "waits": ("import time\ntime.sleep(1000)", "did not end within 3 s"),
    "leaves": ("import os\nos._exit(0)", "ended the process with exit code 0"),
    "falls": ("import os\nos.abort()", "ended the process by SIGABRT"),
    "sweeps": ("import os, signal\nos.killpg(0, signal.SIGKILL)", "ended the process by SIGKILL"),
    "quits": ("import sys\nsys.exit('enough')", "SystemExit: enough"),
    "interrupts": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "shouts": ("import os\nos.write(1, b'NOISE' * 99999)\nraise ValueError('x' * 10**6)", "(1000000 characters)"),
    "mute": ("class Odd(Exception):\n    def __str__(self): raise self\nraise Odd", "Odd"),
    "good": ("from atropos_cli.sdk import reward\n@reward\ndef R(task, rollout): return 1.0", None),
}


def test_a_component_that_hangs_or_crashes_is_told_and_the_others_are_still_tried(site, monkeypatch, capfd):
    monkeypatch.setattr(trial, "SECONDS", 3.0)
    specs = ", ".join(f"ComponentSpec('reward', 'r-{name}', 'comp_{name}:R')" for name in COMPONENTS)
    site.plugin("many", f"@hookimpl\ndef atropos_register_rewards(): return [{specs}]")
    for name, (code, _) in COMPONENTS.items():
        (site.folder / f"comp_{name}.py").write_text(code + "\n")
    items = [load_registry().find("reward", f"r-{name}") for name in COMPONENTS]
    said = dict(zip(COMPONENTS, trial.try_components(items), strict=True))
    for name, (_, words) in COMPONENTS.items():
        if words is None:
            assert said[name].error is None, said[name]
        else:
            assert words in (said[name].error or ""), (name, said[name])
            assert len(said[name].error or "") < 2000
    assert not any(f"comp_{name}" in sys.modules for name in COMPONENTS)
    assert "NOISE" not in "".join(capfd.readouterr())
