"""Programs that try to harm the machine, to outlive their run, to break out, or to be taken for what they are not.

Each has a name, a program, and the outcomes that are right for it. "{marker}" is a word of the test's
own, for processes and files that would be found later.
"""

# ruff: noqa: E501, ISC004 (programs as they are)

from __future__ import annotations

RAN = "ran_with_output"
QUIET = "ran_without_output"
ERROR = "runtime_error"
LATE = "timeout"
SYNTAX = "syntax_error"

BAD = (ERROR, LATE)
ANY_ENDING = (RAN, QUIET, ERROR, LATE)

PROGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    # Processes
    "fork-bomb": ("import os\nwhile True:\n    os.fork()", BAD),
    "fork-bomb-that-ignores-errors": (
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        BAD,
    ),
    "shell-fork-bomb": ("import os; os.system('b() { b | b & }; b; sleep 60'); print('x')", ANY_ENDING),
    "thread-bomb": (
        "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(60,)).start()",
        BAD,
    ),
    "daemon-by-double-fork": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        open('{marker}', 'w').write('x')\n        time.sleep(60)\n    os._exit(0)\nprint('parent done')",
        (RAN, ERROR),
    ),
    "child-that-holds-stdout": (
        "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60) # {marker}'])\n"
        "print('done')",
        (RAN, ERROR),
    ),
    "new-session-child": (
        "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60) # {marker}'],\n"
        "    start_new_session=True)\nprint('done')",
        (RAN, ERROR),
    ),
    "children-that-ignore-signals": (
        "import os, signal, time\nfor n in range(5):\n    if os.fork() == 0:\n"
        "        for s in range(1, 32):\n            try:\n                signal.signal(s, signal.SIG_IGN)\n"
        "            except OSError:\n                pass\n        while True:\n            time.sleep(1)\nprint('done')",
        (RAN, ERROR),
    ),
    "zombies": (
        "import os\nfor n in range(20):\n    if os.fork() == 0:\n        os._exit(0)\nprint('done')",
        (RAN, ERROR),
    ),
    "stopped-child": (
        "import os, signal, time\npid = os.fork()\nif pid == 0:\n    os.kill(os.getpid(), signal.SIGSTOP)\nprint('done')",
        (RAN, ERROR),
    ),
    "stops-itself": ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", (LATE,)),
    # Signals to others
    "kills-its-parent": ("import os, signal; os.kill(os.getppid(), signal.SIGKILL); print('sent')", (RAN, ERROR)),
    "interrupts-its-parent": ("import os, signal; os.kill(os.getppid(), signal.SIGINT); print('sent')", (RAN, ERROR)),
    "kills-everybody": ("import os, signal; os.kill(-1, signal.SIGKILL); print('sent')", (RAN, ERROR)),
    "kills-its-group": ("import os, signal; os.killpg(0, signal.SIGKILL)", (ERROR,)),
    "kills-all-numbers": (
        "import os, signal\nfor pid in range(1, 70000):\n    if pid != os.getpid():\n        try:\n"
        "            os.kill(pid, signal.SIGKILL)\n        except OSError:\n            pass\nprint('tried')",
        (RAN, LATE),
    ),
    "ignores-all-signals": (
        "import signal\nfor s in range(1, 32):\n    try:\n        signal.signal(s, signal.SIG_IGN)\n"
        "    except OSError:\n        pass\nwhile True:\n    pass",
        (LATE,),
    ),
    # Memory, disk, output, descriptors
    "memory-at-once": ("b = bytearray(20 * 1024 ** 3); print(len(b))", (ERROR,)),
    "memory-bit-by-bit": ("x = []\nwhile True:\n    x.append(bytearray(10 ** 7))", BAD),
    "memory-in-children": (
        "import os, time\nfor n in range(8):\n    if os.fork() == 0:\n        b = bytearray(400 * 1024 ** 2)\n"
        "        time.sleep(60)\ntime.sleep(60)",
        BAD,
    ),
    "memory-in-files": (
        "n = 0\nwhile True:\n    n += 1\n    with open(str(n), 'wb') as f:\n        f.write(bytes(8 * 1024 ** 2))",
        BAD,
    ),
    "shared-memory": (
        "from multiprocessing import shared_memory\nx = []\nwhile True:\n"
        "    x.append(shared_memory.SharedMemory(create=True, size=10 ** 8))\n    x[-1].buf[:] = bytes(10 ** 8)",
        BAD,
    ),
    "memory-files": (
        "import os\nx = []\nwhile True:\n    x.append(os.memfd_create('x'))\n    os.write(x[-1], bytes(10 ** 7))",
        (ERROR,),
    ),
    "one-large-file": (
        "with open('big', 'wb') as f:\n    while True:\n        f.write(bytes(10 ** 6))",
        (ERROR,),
    ),
    "sparse-file": ("import os\nf = open('big', 'wb')\nos.truncate('big', 10 ** 12)\nprint('made')", (ERROR,)),
    "many-small-files": (
        "n = 0\nwhile True:\n    n += 1\n    open(f'f{n}', 'w').close()",
        BAD,
    ),
    "deep-folders": (
        "import os\nfor n in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nprint('deep')",
        (RAN, *BAD),
    ),
    "unreadable-folder": (
        "import os\nos.makedirs('a/b')\nopen('a/b/c', 'w').close()\nos.chmod('a/b', 0)\nos.chmod('a', 0)\nprint('made')",
        (RAN,),
    ),
    "output-flood": ("while True:\n    print('x' * 1000)", BAD),
    "output-flood-that-ignores-errors": (
        "import os\nwhile True:\n    try:\n        os.write(1, b'x' * 65536)\n    except OSError:\n        pass",
        (LATE,),
    ),
    "stderr-flood": ("import sys\nwhile True:\n    sys.stderr.write('x' * 1000)", BAD),
    "descriptors": ("x = []\nwhile True:\n    x.append(open('/dev/null'))", (ERROR,)),
    # The network
    "internet-socket": (
        "import socket\ns = socket.create_connection(('1.1.1.1', 80), 1)\nprint('connected')",
        (ERROR,),
    ),
    "local-server": (
        "import socket\ns = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.listen()\nprint('listening')",
        (ERROR,),
    ),
    "udp": ("import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))", (ERROR,)),
    "raw-socket": ("import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)", (ERROR,)),
    "docker-socket": (
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('/var/run/docker.sock')\nprint('in')",
        (ERROR,),
    ),
    "download": (
        "import urllib.request; print(urllib.request.urlopen('http://example.com', timeout=1).read(5))",
        (ERROR,),
    ),
    # Files and secrets
    "writes-to-the-system": ("open('/usr/lib/{marker}', 'w').write('x'); print('written')", (ERROR,)),
    "writes-to-tmp": ("open('/tmp/{marker}', 'w').write('x'); print('written')", (RAN, ERROR)),
    "writes-to-home": ("import os; os.system('touch $HOME/{marker}'); print('done')", (RAN, ERROR)),
    "writes-to-the-package": (
        "import os, sys\nfor folder in sys.path:\n    try:\n        open(folder + '/{marker}.pth', 'w').write('x')\n"
        "    except OSError:\n        continue\n    print('written')",
        (QUIET,),
    ),
    "writes-to-dev-shm": ("open('/dev/shm/{marker}', 'w').write('x'); print('written')", (RAN, ERROR)),
    "symlink-out": (
        "import os\nos.symlink('/etc', 'link')\nopen('link/{marker}', 'w').write('x')\nprint('written')",
        (ERROR,),
    ),
    "reads-passwords": ("print(open('/etc/shadow').read())", (ERROR,)),
    "reads-the-environment-of-others": (
        "import glob\nfor path in glob.glob('/proc/[0-9]*/environ'):\n    try:\n        text = open(path).read()\n"
        "    except OSError:\n        continue\n    if '{marker}' in text:\n        print(text)",
        (QUIET,),
    ),
    "reads-the-secret-variable": ("import os; print(os.environ.get('ATROPOS_TEST_SECRET', ''))", (QUIET,)),
    "writes-the-reward": (
        "import glob\nfor name in ('reward.txt', 'result.json', '../result.json', '/box/../result.json'):\n    try:\n"
        "        open(name, 'w').write('1.0')\n    except OSError:\n        pass\nraise SystemExit(1)",
        (ERROR,),
    ),
    "mounts": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nprint('x' if libc.mount(b'none', b'/box', b'tmpfs', 0, None) == 0 else '')",
        (QUIET,),
    ),
    "new-namespaces": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nprint('x' if libc.unshare(0x10020000) == 0 else '')",
        (QUIET,),
    ),
    # Debugging and /proc
    "ptrace-the-parent": (
        "import ctypes, os\nlibc = ctypes.CDLL(None)\nprint('x' if libc.ptrace(16, os.getppid(), 0, 0) == 0 else '')",
        (QUIET,),
    ),
    "memory-of-the-parent": (
        "import os\ntry:\n    open(f'/proc/{os.getppid()}/mem', 'r+b')\nexcept OSError:\n    pass\nelse:\n    print('in')",
        (QUIET,),
    ),
    "descriptors-of-the-parent": (
        "import os\nfor fd in range(64):\n    try:\n        print(os.readlink(f'/proc/{os.getppid()}/fd/{fd}'))\n"
        "    except OSError:\n        pass",
        (QUIET,),
    ),
    "own-descriptors": (
        "import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, b'{{\"status\": 0, \"phase\": \"ok\"}}')\n"
        "    except OSError:\n        continue\n    print('wrote to', fd)\nraise SystemExit(1)",
        (ERROR,),
    ),
    "sysrq": ("with open('/proc/sysrq-trigger', 'w') as f:\n    f.write('b')\nprint('x')", (ERROR,)),
    "out-of-memory-score": (
        "with open('/proc/self/oom_score_adj', 'w') as f:\n    f.write('-1000')\nprint('x')",
        (ERROR,),
    ),
    # The interpreter
    "deep-recursion": ("def f(n):\n    return f(n + 1)\nf(0)", (ERROR,)),
    "deep-recursion-without-a-limit": (
        "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(n):\n    return f(n + 1) + 1\nf(0)",
        BAD,
    ),
    "segmentation-fault": ("import ctypes; ctypes.string_at(0)", (ERROR,)),
    "abort": ("import os; print('x'); os.abort()", (ERROR,)),
    "huge-integer": ("print(len(str(9 ** 9 ** 9)))", BAD),
    "huge-exponent": ("x = 10 ** 10 ** 10", BAD),
    "regular-expression": ("import re; re.match(r'(a+)+$', 'a' * 40 + 'b')", (LATE,)),
    "closes-stdout": ("import sys; print('x'); sys.stdout.close()", (RAN,)),
    "closes-descriptor-1": ("import os; os.close(1); print('x')", (ERROR,)),
    "exits-at-once": ("import os; print('lost in the buffer'); os._exit(0)", (QUIET,)),
    "hangs-in-atexit": ("import atexit, time; atexit.register(time.sleep, 60); print('x')", (LATE,)),
    "hangs-in-a-thread": (
        "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); print('x')",
        (LATE,),
    ),
    "replaces-itself": ("import os; os.execv('/bin/echo', ['echo', 'from echo'])", (RAN, ERROR)),
    "waits-for-input": ("print(input())", (ERROR,)),
    "nul-byte": ("x = 1\x00", (SYNTAX,)),
    "byte-order-mark": ("\ufeffprint('x')", (RAN,)),
    "half-a-surrogate-pair": ("print('\ud800')", (SYNTAX,)),
    "too-deep-to-compile": ("x = " + "-" * 200_000 + "1", (SYNTAX,)),
    "too-many-blocks": ("\n".join("    " * n + "if 1:" for n in range(150)), (SYNTAX,)),
    "huge-program": ("x = [\n" + "1,\n" * 30_000 + "]\nprint(len(x))", (RAN,)),
    "unknown-encoding": ("# -*- coding: no-such -*-\nprint('x')", (SYNTAX,)),
    "bad-bytes-in-output": ("import sys; sys.stdout.buffer.write(bytes(range(256)))", (RAN,)),
}  # fmt: skip
