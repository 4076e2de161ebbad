"""Write the reference pages that are made from code, or check that they are up to date.

    python docs/generate.py             write docs/reference/*.md and docs/reference/schemas/*.json
    python docs/generate.py --check     change nothing; exit 1 and name the pages that differ

Needs the first-party plugins installed (bash .ci/setup). Other plugins do no harm: they are left out.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).resolve().parent
REFERENCE = DOCS / "reference"
PAGES = (
    "architecture",
    "commands",
    "components",
    "exit_codes",
    "hooks",
    "other_tools",
    "schemas",
    "sdk",
    "servers",
    "settings",
)


def pages() -> Iterator[tuple[Path, str]]:
    """(path, content) of every generated file."""
    sys.path.insert(0, str(DOCS))
    for name in PAGES:
        module = importlib.import_module(f"_pages.{name}")
        for file, text in module.pages():
            yield REFERENCE / file, text


def main() -> int:
    """Write or check; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a page differs")
    check = parser.parse_args().check
    for variable in [name for name in os.environ if name.startswith("ATROPOS_")]:
        del os.environ[variable]
    os.environ["COLUMNS"] = "100"
    stale = []
    for path, text in pages():
        text = text.rstrip("\n") + "\n"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.relative_to(DOCS.parent))
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{'out of date' if check else 'written'}: {path}", file=sys.stderr)
    if stale and check:
        print("hint: python docs/generate.py", file=sys.stderr)
    return int(bool(stale and check))


if __name__ == "__main__":
    sys.exit(main())
