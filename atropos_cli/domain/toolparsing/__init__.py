"""The parts of the tool-call parser; `atropos_cli.domain.toolcalls` is its public face."""
