"""Start SGLang with the key that is in SGLANG_API_KEY, where the key is in no command line and in no log.

    python sglang_with_key.py serve|module OPTIONS

SGLang takes a key as an option only, which all users of a machine could read in the list of processes, and writes its
options into its log. Run by SGLang's own Python: nothing of atropos is imported. Its worker processes import it again.
"""

from __future__ import annotations

import logging
import os
import runpy
import sys
from typing import Any


def _hide(key: str) -> None:
    """From now on no line of this process's log holds the key."""
    make = logging.getLogRecordFactory()

    def record(*args: Any, **named: Any) -> logging.LogRecord:
        made = make(*args, **named)
        try:
            text = made.getMessage()
        except (TypeError, ValueError):  # wrong arguments: whoever prints it complains
            return made
        if key in text:
            made.msg, made.args = text.replace(key, "***"), ()
        return made

    logging.setLogRecordFactory(record)


def main() -> None:
    form = sys.argv.pop(1)
    key = os.environ.get("SGLANG_API_KEY", "").strip()
    if key:
        sys.argv += ["--api-key", key]
        _hide(key)
    if form == "module":
        runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)
        return
    from sglang.cli.main import main as serve  # type: ignore[import-not-found]

    sys.argv.insert(1, "serve")
    serve()


if __name__ == "__main__":
    main()
