"""What a program sees and how its end is read, compared with Python itself; the doctor; the levels."""

# ruff: noqa: E501 (programs as they are)

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from atropos_code import plugin
from atropos_code.errors import SandboxError
from atropos_code.isolation import detect
from atropos_code.outcomes import Limits
from atropos_code.sandbox import Sandbox, shared_sandbox

from atropos_cli.isolation.shutin import clean_environment
from atropos_cli.sdk import AtroposError

ENDINGS = (
    "print('x')",
    "import sys; sys.exit()",
    "import sys; sys.exit(0)",
    "import sys; sys.exit(True)",
    "import sys; sys.exit(256)",
    "import sys; sys.exit(-1)",
    "import sys; sys.exit(3)",
    "import sys; print('out'); sys.exit('message')",
    "import sys; sys.exit((1, 2))",
    "raise SystemExit(2)",
    "raise ValueError('é')",
    "raise KeyboardInterrupt",
    "import os; print('lost'); os._exit(4)",
    "import os; print('kept', flush=True); os._exit(0)",
    "import atexit; atexit.register(print, 'bye'); print('hi')",
    "import atexit; atexit.register(lambda: 1 / 0); print('hi')",
    "import atexit, sys; atexit.register(lambda: sys.exit(5)); print('hi')",
    "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start(); print('first')",
    "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()\nprint('on')",
    "class A:\n    def __del__(self): print('gone')\na = A()\nprint('end')",
    "def g():\n    try:\n        yield 1\n    finally:\n        print('closed')\ni = g()\nnext(i)\nprint('end')",
    "import weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, 'finalized')\nprint('end')",
    "import asyncio\nasync def main(): print('async')\nasyncio.run(main())",
    "import sys; sys.stdout.close()",
    "import sys; sys.stdout.write('no newline')",
    "import sys; sys.stderr.close(); print('x')",
    "import sys; sys.stdout = None; print('x')",
    "print(__name__, __file__.rsplit('/')[-1])",
    "import sys; print(sys.argv[1:], sys.flags.utf8_mode, sys.flags.safe_path, sys.flags.no_user_site)",
    "print({'a', 'b', 'c', 'd'}, hash('x'))",
    "import sys; print(sys.stdout.encoding, sys.stdin.encoding, sys.getfilesystemencoding())",
    "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__name__)",
    "import inspect\ndef f(): return 1\nprint(inspect.getsource(f))",
    "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int = 1\nprint(P())",
    "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(8) as p: print(list(p.map(abs, [-1, 2])))",
    "import multiprocessing\nif __name__ == '__main__':\n    with multiprocessing.get_context('fork').Pool(2) as p: print(p.map(abs, [-1]))",
    "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'print(5)'], capture_output=True, text=True).stdout)",
    "import tempfile\nwith tempfile.NamedTemporaryFile('w+') as f:\n    f.write('x'); f.seek(0); print(f.read())",
    "print(sum(1 for line in open(__file__)))",
    "import random; random.seed(1); print(random.random())",
    "import signal, os; os.kill(os.getpid(), signal.SIGTERM)",
    "import signal, os; signal.signal(signal.SIGINT, lambda *a: print('caught')); os.kill(os.getpid(), signal.SIGINT)",
    "import warnings; warnings.warn('w'); print('x')",
    "global x\nx = 1\nprint(x)",
    "def f():\n    global y\n    y = 2\nf()\nprint(y, sorted(n for n in globals() if not n.startswith('_')))",
    "import sys; print(sorted(m for m in sys.modules if 'atropos' in m))",
    "import builtins; print(__builtins__ is builtins)",
    "from __future__ import annotations\nx: nothing = 1\nprint(x)",
)


@pytest.mark.parametrize("code", ENDINGS)
def test_programs_end_as_under_python_itself(sandbox: Sandbox, tmp_path: object, code: str) -> None:
    path = os.path.join(str(tmp_path), "program.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(code)
    environment = {**clean_environment(0), "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    real = subprocess.run(
        [sys.executable, "-P", "-s", "-X", "utf8", path], env=environment, capture_output=True, stdin=subprocess.DEVNULL
    )
    result = sandbox.run(code)
    assert (result.status, result.stdout) == (real.returncode, real.stdout.decode()), result.stderr
    last = real.stderr.decode().strip().rpartition("\n")[2]
    assert result.stderr.strip().rpartition("\n")[2] == last


def test_standard_input(sandbox: Sandbox) -> None:
    assert sandbox.run("print(input()[::-1])", stdin="aé\n").stdout == "éa\n"
    assert sandbox.run("import sys; print(repr(sys.stdin.read()))").stdout == "''\n"


def test_the_hash_seed_is_fixed_and_can_be_another(sandbox: Sandbox) -> None:
    code = "print({str(n) for n in range(50)})"
    outputs = {seed: sandbox.run(code, hash_seed=seed).stdout for seed in (0, 1)}
    assert outputs[0] == sandbox.run(code).stdout
    assert outputs[0] != outputs[1]


def test_random_numbers_differ_between_runs(sandbox: Sandbox) -> None:
    code = "import random, uuid, os, secrets; print(random.random(), uuid.uuid4(), secrets.token_hex())"
    first, second = (sandbox.run(code).stdout.split() for _ in range(2))
    assert all(a != b for a, b in zip(first, second, strict=True))


def test_the_environment_is_clean(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    names = set(sandbox.run("import os; print(*os.environ)").stdout.split())
    assert names <= {*clean_environment(0), "HOME", "TMPDIR", "LC_CTYPE"}


def test_runs_do_not_see_each_other(sandbox: Sandbox) -> None:
    sandbox.run("import builtins, os; builtins.left = 1; os.makedirs('d'); open('d/f', 'w').close()")
    result = sandbox.run("import builtins, os; print(hasattr(builtins, 'left'), os.listdir('.'))")
    assert result.stdout == "False ['program.py']\n"


def test_output_beyond_the_limit_is_an_error(sandbox: Sandbox) -> None:
    limits = Limits(output_kb=1)
    assert sandbox.run("print('x' * 1000)", limits=limits).ran
    result = sandbox.run("print('x' * 2000)", limits=limits)
    assert (result.outcome, result.limit, len(result.stdout)) == ("runtime_error", "output", 1024)


def test_many_threads_share_one_sandbox() -> None:
    with Sandbox(workers=3) as box, ThreadPoolExecutor(12) as pool:
        results = list(pool.map(lambda n: box.run(f"print({n})").stdout, range(60)))
        assert results == [f"{n}\n" for n in range(60)]
        assert sum(len(idle) for idle in box._pool._idle.values()) <= 3


async def test_async_runs_leave_the_loop_free() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    ticking = asyncio.create_task(tick())
    with Sandbox(workers=2) as box:
        results = await asyncio.gather(*(box.run_async("import time; time.sleep(0.2); print(1)") for _ in range(4)))
    ticking.cancel()
    assert [result.stdout for result in results] == ["1\n"] * 4
    assert ticks > 10


def test_a_sandbox_survives_the_death_of_its_boxes() -> None:
    with Sandbox(workers=1) as box:
        assert box.run("print(1)").ran
        for idle in box._pool._idle.values():
            for one in idle:
                os.kill(one.pid, 9)
        assert box.run("print(2)").stdout == "2\n"


def test_a_box_that_dies_during_a_run_is_replaced() -> None:
    with Sandbox(workers=1) as box:
        box.run("pass")
        pid = next(iter(box._pool._idle.values()))[0].pid
        threading.Timer(0.3, os.kill, (pid, 9)).start()
        assert box.run("import time; time.sleep(0.6); print(3)").stdout == "3\n"


def test_a_closed_sandbox_runs_nothing() -> None:
    box = Sandbox()
    box.run("pass")
    box.close()
    box.close()
    with pytest.raises(SandboxError, match="closed"):
        box.run("pass")


def test_programs_end_with_the_process_that_started_them() -> None:
    """Killed hard, it leaves nothing running."""
    mark = f"marker_{os.getpid()}"
    script = (
        "from atropos_code.sandbox import Sandbox, Limits\n"
        f'Sandbox().run(\'import os; os.execvp("sleep", ["sleep", "64.{os.getpid()}"])\', limits=Limits(timeout_s=60))'
    )
    child = subprocess.Popen([sys.executable, "-c", script, mark])
    try:
        assert _wait(lambda: _sleeping(f"64.{os.getpid()}"))
    finally:
        child.kill()
        child.wait()
    assert _wait(lambda: not _sleeping(f"64.{os.getpid()}"))


def _sleeping(argument: str) -> bool:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            if words[:1] == [b"sleep"] and argument.encode() in words:
                return True
    return False


def _wait(condition: object) -> bool:
    deadline = time.monotonic() + 15.0
    while time.monotonic() < deadline:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.05)
    return False


def test_the_level_is_what_was_asked_for_or_an_error(usable: Callable[[str], str]) -> None:
    assert detect(usable("process")).level == "process"
    with pytest.raises(AtroposError, match="unknown isolation 'vm'"):
        detect("vm")


def test_no_level_at_all_is_an_error_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError) as caught:
        detect("bubblewrap")
    assert "bwrap is not installed" in str(caught.value)
    assert "bubblewrap" in str(caught.value.hint)


def test_the_doctor_tells_the_level() -> None:
    name, status, detail = next(iter(plugin.atropos_doctor()))
    assert name == "code sandbox"
    isolation = detect()
    assert status == ("ok" if isolation.strong else "warn")
    assert detail.startswith(f"{isolation.level}: ")


def test_the_shared_sandbox_is_one() -> None:
    assert shared_sandbox() is shared_sandbox()
