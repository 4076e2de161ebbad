"""The commands of `atropos tmux`."""
