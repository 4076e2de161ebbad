"""`python -m atropos_cli.cli`: the program by an interpreter's path, for jobs that cannot rely on PATH."""

from __future__ import annotations

from atropos_cli.cli.app import main

if __name__ == "__main__":
    main()
