"""The parts of the tool-call parser; `atropos_cli.text.toolcalls` is its public face."""
