"""`python -m atropos_cli` is the same as the installed script `atropos`."""

from atropos_cli.cli.app import main

if __name__ == "__main__":
    main()
