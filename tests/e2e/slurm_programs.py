"""Programs of the SLURM tests, run in jobs:  python slurm_programs.py server PORT WARM DIE CODE [DEAD] | client URL...

server: 503 on /health for WARM seconds, then 200, and 503 again from DEAD seconds on (0: never); ends by itself DIE
seconds later with CODE (0: never). It has a child in a session of its own, as engines have. On SIGTERM it says so and
ends with 0.
client: asks each URL once a second, for ever.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request


def server(port: int, warm: float, die: float, code: int, dead: float = 0) -> None:
    began = time.monotonic()
    subprocess.Popen(["sleep", "600"], start_new_session=True)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            passed = time.monotonic() - began
            self.answer(200 if passed > warm and not 0 < dead < passed else 503)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            print("asked", self.path, flush=True)
            self.answer(200)

        def answer(self, status: int) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    def stop(*_: object) -> None:
        print("stopped politely", flush=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    if die:
        threading.Timer(die, lambda: (print("engine died", flush=True), os._exit(code))).start()
    http.server.ThreadingHTTPServer(("", port), Handler).serve_forever()


def client(*urls: str) -> None:
    print(json.dumps({"node": os.environ.get("SLURMD_NODENAME"), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}))
    while True:
        for url in urls:
            with urllib.request.urlopen(url, timeout=30) as answer:
                print(url, answer.status, flush=True)
        time.sleep(1)


if __name__ == "__main__":
    if sys.argv[1] == "server":
        server(int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]), *map(float, sys.argv[6:]))
    else:
        client(*sys.argv[2:])
