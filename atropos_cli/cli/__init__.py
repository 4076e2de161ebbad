"""The command line: lazy commands, options made from models, all terminal output, and how failures look."""
