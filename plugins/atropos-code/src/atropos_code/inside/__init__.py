"""The side of the sandbox that runs within it. Standard library only; started by `atropos_code.box`."""
